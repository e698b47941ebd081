"""One budget of memory, divided into buffer and staging.

Each place of staging is one that the buffer lacks, and costs a read per epoch. What finds no place
is read straight into its batch, so staging is only worth what looking further ahead than the next
two steps hides: it gets what the look-ahead can use, and at most one in `STAGED_SHARE` of what is
read anyway.
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
    free = max(settings.samples - settings.buffer, 0)
    of_step = -(-settings.batch * free // settings.samples)
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
    wanted = wanted_staging(replace(settings, buffer=min(places, settings.samples)), look_ahead)
    staged = min(wanted, free // (STAGED_SHARE * ranks), places // ranks)
    return replace(settings, buffer=min(places - staged * ranks, settings.samples)), staged
