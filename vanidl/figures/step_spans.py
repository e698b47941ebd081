"""Which steps and input waits of a run fit into a picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.steps import StepTable
from vanidl.figures.downsample import n_of_m, spread_out
from vanidl.model.trace import SpanKind, Trace

LIMIT = 2000


@dataclass(frozen=True, slots=True)
class ShownSteps:
    """Rows of a step table to draw, and in words what was left out."""

    rows: NDArray[np.intp]
    ranks: NDArray[np.int32]  # positions in Trace.ranks, ascending
    cut: str


def shown_steps(table: StepTable, *, max_ranks: int = 64) -> ShownSteps:
    """At most `LIMIT` steps x ranks: whole ranks, spread over the job, before single steps."""
    ranks, counts = np.unique(table.rank, return_counts=True)
    longest = int(counts.max()) if len(counts) else 1
    fitting = min(max(LIMIT // longest, 1), max_ranks)
    picked = ranks[spread_out(len(ranks), fitting)]
    rows = np.flatnonzero(np.isin(table.rank, picked))
    kept = rows[spread_out(len(rows), LIMIT)]
    words = [n_of_m(len(picked), len(ranks), "ranks"), n_of_m(len(kept), len(rows), "steps")]
    return ShownSteps(kept, picked, " and ".join(word for word in words if word))


@dataclass(frozen=True, slots=True)
class ShownWaits:
    """Input waits of the shown ranks, in seconds since the start of the job."""

    rank: NDArray[np.int32]  # position in Trace.ranks
    start_s: NDArray[np.float64]
    length_s: NDArray[np.float64]
    cut: str


def shown_waits(trace: Trace, ranks: NDArray[np.int32]) -> ShownWaits:
    """At most `LIMIT` input waits of these ranks, the longest ones first."""
    spans = trace.spans
    waits = spans.pick(spans.kind == SpanKind.INPUT_WAIT)
    family = trace.family
    rank = family[waits.process] if len(family) else np.full(len(waits), -1, np.int32)
    rows = np.flatnonzero(np.isin(rank, ranks))
    length = waits.end[rows] - waits.start[rows]
    kept = np.sort(np.argsort(-length, kind="stable")[:LIMIT])
    rows, length = rows[kept], length[kept]
    return ShownWaits(
        rank[rows],
        (waits.start[rows] - trace.job.start_ns) / 1e9,
        length / 1e9,
        n_of_m(len(kept), int(np.isin(rank, ranks).sum()), "input waits (the longest)"),
    )
