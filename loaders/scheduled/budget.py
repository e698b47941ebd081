"""One budget of memory, divided into buffer and staging.

Each place of staging is one that the buffer lacks, and costs a read per epoch. What finds no place
is read straight into its batch, so staging is only worth what looking further ahead than the next
two steps hides: it gets what the look-ahead can use, at most one in `STAGED_SHARE` of what is read
anyway, and nothing where that would not hold what a step reads.
"""

from __future__ import annotations

from dataclasses import replace

from .plan_settings import PlanSettings

EXTRA_SHARE = 5
"""One in so many places of staging is for rows that a gap brought early."""
STAGED_SHARE = 20
"""Staging adds at most one read to so many that an epoch has anyway."""


def wanted_staging(settings: PlanSettings, look_ahead: int) -> int:
    """Places of a rank's staging that hold two windows of the samples that no buffer has."""
    of_step = _read_of_step(settings)
    if not of_step:
        return settings.padding
    two_windows = 2 * max(look_ahead, 1) * (of_step + 1)
    return two_windows * EXTRA_SHARE // (EXTRA_SHARE - 1) + settings.padding


def divided(settings: PlanSettings, places: int, look_ahead: int) -> tuple[PlanSettings, int]:
    """The plan's settings with a buffer, and each rank's staging, in so many places of all ranks.

    With N samples and M places an epoch after the first reads at most (1 + 1 / `STAGED_SHARE`) *
    (N - M) samples, where no policy reads fewer than N - M.
    """
    ranks, free = settings.ranks, max(settings.samples - places, 0)
    full = replace(settings, buffer=min(places, settings.samples))
    wanted = wanted_staging(full, look_ahead)
    staged = min(wanted, free // (STAGED_SHARE * ranks), places // ranks)
    if staged < _read_of_step(full):
        return full, 0
    return replace(settings, buffer=min(places - staged * ranks, settings.samples)), staged


def _read_of_step(settings: PlanSettings) -> int:
    """Samples that a rank reads, or is sent, in a step on average, rounded up."""
    at_hand = settings.buffer // settings.nodes if settings.exchange else settings.buffer
    free = max(settings.samples - at_hand, 0)
    return -(-settings.batch * free // settings.samples)
