"""The steps that are worth a look first: those that waited longest for input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vanidl.analyses.steps import Steps

MOST = 12


@dataclass(frozen=True, slots=True)
class WorstStep:
    """A step, of the rank that it was worst on; times in seconds since the start of the job."""

    rank: int  # position in Trace.ranks
    step: int
    start_s: float
    end_s: float
    wait_s: float | None  # None where input waits were not recorded


def worst_steps(steps: Steps | None, most: int = MOST) -> tuple[WorstStep, ...]:
    """The worst first: by input wait, by duration where waits were not recorded."""
    if steps is None or steps.table.undated_s is not None:
        return ()
    table = steps.table
    waits = table.input_wait_s
    badness = table.duration_s if np.isnan(waits).any() else waits
    order = np.lexsort((table.start_s, table.rank, -table.duration_s, -badness))
    _, first = np.unique(table.step[order], return_index=True)
    rows = order[np.sort(first)[:most]]
    return tuple(
        WorstStep(
            int(table.rank[i]),
            int(table.step[i]),
            float(table.start_s[i]),
            float(table.end_s[i]),
            None if np.isnan(waits[i]) else float(waits[i]),
        )
        for i in rows.tolist()
    )
