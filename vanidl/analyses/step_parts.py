"""The mean step as one bar: what it waits for, and what it computes.

Shares are those of the profiled window, mean over the observed ranks, laid over the mean step.
"""

from __future__ import annotations

from dataclasses import dataclass

from vanidl.analyses.overlap import Overlap, RankOverlap
from vanidl.analyses.steps import Steps

IO_WAIT, OTHER_WAIT, INPUT_WAIT = "io_wait", "other_wait", "input_wait"
COMMUNICATION, COMPUTE, REST = "communication", "compute", "rest"
"""Waits in I/O (metadata calls included), waits in neither, waits of which it is not known;
collectives that compute does not cover; compute; and what is left: neither, or not recorded."""

WAITS = (IO_WAIT, OTHER_WAIT, INPUT_WAIT)


@dataclass(frozen=True, slots=True)
class StepPart:
    """One part of the mean step: seconds, and share of it."""

    code: str
    seconds: float
    share: float


@dataclass(frozen=True, slots=True)
class StepParts:
    """The mean step: `parts` add up to `mean_s`. `waits_known`: input waits were recorded.

    On basis `device` a wait counts only while the device is idle, as training loses nothing else.
    """

    mean_s: float
    steps: int  # of each rank, at least
    ranks: int
    waits_known: bool
    parts: tuple[StepPart, ...]


def step_parts(steps: Steps | None, overlap: Overlap | None) -> StepParts | None:
    """The parts of the mean step; None without profiled steps that have times."""
    if steps is None or overlap is None or overlap.mean.window_s <= 0 or steps.mean_s <= 0:
        return None
    mean = overlap.mean
    window_s = mean.window_s
    found: list[tuple[str, float]] = []
    left_s = window_s
    for code, value in _in_order(mean):
        taken = min(max(value or 0.0, 0.0), left_s)
        left_s -= taken
        found.append((code, taken))
    found.append((REST, left_s))
    parts = tuple(
        StepPart(code, steps.mean_s * part_s / window_s, part_s / window_s)
        for code, part_s in found
        if part_s > 0
    )
    known = mean.input_wait_s is not None
    return StepParts(steps.mean_s, steps.per_rank_min, overlap.ranks_observed, known, parts)


def _in_order(mean: RankOverlap) -> list[tuple[str, float | None]]:
    """Waits first; where collectives run beside a wait, the time is the wait's."""
    work = [(COMPUTE, mean.compute_s), (COMMUNICATION, mean.communication_s)]
    waited = mean.starving_wait_s
    if waited is None or mean.in_wait_s is None:
        return [(INPUT_WAIT, waited), *work]
    calls = mean.input_wait_metadata_s or 0.0
    starving = waited / mean.input_wait_s if mean.input_wait_s else 0.0
    in_io = min(mean.in_wait_s + calls * starving, waited)
    return [(IO_WAIT, in_io), (OTHER_WAIT, waited - in_io), *work]
