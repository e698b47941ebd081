"""Steps of which only the durations are known: statistics, and no place in time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vanidl.analyses.steps import ClockEvidence, Steps, StepTable, clocks
from vanidl.model.trace import Trace, UndatedSteps

METHOD = "none"


def finish(trace: Trace) -> Steps | None:
    """Statistics over the durations of all ranks; None where there are none.

    Starts and ends in the table are nan: durations do not say when, so nothing that needs a
    place in time (waits, I/O during a step, overlap) is computed from them.
    """
    family = trace.family
    found = [(int(family[d.process]), d) for d in trace.step_durations]
    found = sorted(((rank, d) for rank, d in found if rank >= 0), key=lambda row: row[0])
    if not found:
        return None
    rank = np.concatenate([np.full(len(d.step), position, np.int32) for position, d in found])
    duration_s = np.concatenate([d.duration_ns for _, d in found]) / 1e9
    missing = np.full(len(rank), np.nan)
    table = StepTable(
        rank, np.concatenate([d.step for _, d in found]), missing, missing, missing, missing,
        duration_s,
    )  # fmt: skip
    counts = np.unique(rank, return_counts=True)[1]
    return Steps(
        " + ".join(sorted({d.source for _, d in found})),
        int(counts.min()),
        int(counts.max()),
        len(counts),
        float(duration_s.mean()),
        float(np.median(duration_s)),
        float(np.percentile(duration_s, 99)),
        _clock(trace, found),
        table,
        clocks(trace),
    )


def _clock(trace: Trace, found: Sequence[tuple[int, UndatedSteps]]) -> ClockEvidence:
    """Not aligned, where the steps are of profiles with times of their own."""
    ranks = {rank for rank, _ in found}
    for profile, clock in zip(trace.profiles, clocks(trace), strict=True):
        if not profile.aligned and int(trace.family[profile.process]) in ranks:
            return clock
    return ClockEvidence(METHOD, None, None)
