"""Reads of the dataset: their time, and what a request costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.trace import READ, Part, Trace

FEWEST_READS = 100
"""With fewer of one kind nothing is fitted."""

_SPREAD = 0.01
_SMALL = 0.1  # of the mean size: what such a read takes is nearly all latency


@dataclass(frozen=True, slots=True)
class RankReads:
    """Union of a rank's dataset reads, their number, and the sums of their durations and bytes."""

    busy: Intervals = intervals.EMPTY
    sum_s: float = 0.0
    nbytes: int = 0
    reads: int = 0


@dataclass(frozen=True, slots=True)
class RequestCost:
    """A read takes latency_s + nbytes * s_per_byte."""

    latency_s: float
    s_per_byte: float


@dataclass(frozen=True, slots=True)
class Reads:
    """By position in Trace.ranks. `cost` is None where sizes do not differ enough to tell.

    `of_fetchers`: when each process that fetched batches was in reads of any file.
    """

    ranks: Mapping[int, RankReads] = field(default_factory=dict)
    cost: RequestCost | None = None
    of_fetchers: Mapping[int, Intervals] = field(default_factory=dict)

    def of_rank(self, position: int) -> RankReads:
        """The reads of one rank."""
        return self.ranks.get(position, RankReads())

    def latency_share(self, position: int) -> float | None:
        """Share of latency in the time of a rank's reads; None: not known."""
        mine = self.of_rank(position)
        if self.cost is None:
            return None
        return min(self.cost.latency_s * mine.reads / mine.sum_s, 1.0) if mine.sum_s else 0.0


def collect_reads(trace: Trace) -> Reads:
    """The dataset reads of every rank, in one pass over the parts."""
    is_data = trace.files.is_data
    found: dict[int, RankReads] = {}
    fetchers = {p: intervals.EMPTY for p in np.unique(trace.fetches.process).tolist() if p >= 0}
    sums, small = np.zeros(5), list[tuple[float, int]]()
    for part in trace.io:
        if part.process in fetchers:
            busy = intervals.union(part.start[part.op == READ], part.end[part.op == READ])
            fetchers[part.process] = intervals.merge(fetchers[part.process], busy)
        mine = is_data[part.file] & (part.op == READ) if len(is_data) else np.zeros(0, bool)
        if not mine.any():
            continue
        position = int(trace.family[part.process])
        before = found.get(position, RankReads())
        start, end = part.start[mine], part.end[mine]
        found[position] = RankReads(
            intervals.merge(before.busy, intervals.union(start, end)),
            before.sum_s + float((end - start).sum()) / 1e9,
            before.nbytes + int(part.nbytes[mine].sum()),
            before.reads + int((part.nbytes[mine] > 0).sum()),
        )
        sums += _compute_moments(part, mine)
        small += _summarize_small_reads(part, mine)
    return Reads(found, _fit_request_cost(sums, small), fetchers)


def _compute_moments(part: Part, mine: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Number, sum of x, x^2, y and xy of sizes x in bytes and durations y in seconds."""
    moved = mine & (part.nbytes > 0)
    x, y = part.nbytes[moved].astype(float), (part.end[moved] - part.start[moved]) / 1e9
    return np.array([len(x), x.sum(), (x * x).sum(), y.sum(), (x * y).sum()])


def _summarize_small_reads(part: Part, mine: NDArray[np.bool_]) -> list[tuple[float, int]]:
    """(median seconds of the part's small reads, how many), nothing where there are none."""
    sizes = part.nbytes[mine]
    few = mine & (part.nbytes > 0) & (part.nbytes <= _SMALL * sizes.mean())
    if not few.any():
        return []
    return [(float(np.median(part.end[few] - part.start[few])) / 1e9, int(few.sum()))]


def _fit_request_cost(
    sums: NDArray[np.float64], small: Sequence[tuple[float, int]]
) -> RequestCost | None:
    """Least squares, neither latency nor time a byte below 0.

    The latency is no more than small reads take: their mean, to which the line is fitted, holds
    what they waited behind large reads of others.
    """
    n, x1, x2, y1, xy = sums.tolist()
    spread = n * x2 - x1 * x1
    if n < FEWEST_READS or spread <= _SPREAD * n * x2 or y1 <= 0:
        return None
    slope = max((n * xy - x1 * y1) / spread, 0.0)
    latency = (y1 - slope * x1) / n
    if sum(count for _, count in small) >= FEWEST_READS:
        latency = min(latency, _compute_weighted_median(small))
    latency = max(latency, 0.0)
    return RequestCost(latency, (y1 - latency * n) / x1)


def _compute_weighted_median(rows: Sequence[tuple[float, int]]) -> float:
    values, weights = np.array(sorted(rows)).T
    middle = np.searchsorted(np.cumsum(weights), weights.sum() / 2)
    return float(values[middle])
