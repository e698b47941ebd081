"""What a request costs, apart from its bytes, and the time of the reads of the dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import numpy as np

from vanidl.analyses.reducing import batch_small_parts, join_columns
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.ordering import sort_within
from vanidl.model.parts import sizes_of
from vanidl.model.trace import READ, Trace
from vanidl.schema.dataclass import dataclass

FEWEST_READS = 100
"""With fewer of one kind nothing is fitted."""

_ENOUGH = 4_000_000  # operations, to fit what a request costs
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
    """The dataset reads of every rank, and what a request of them costs."""
    is_data = trace.files.is_data
    ranks: dict[int, RankReads] = {}
    fetchers = {p: intervals.EMPTY for p in np.unique(trace.fetches.process).tolist() if p >= 0}
    for part in trace.io:
        # What a process that fetches was busy with: reads of all files, not only of the dataset.
        if part.process in fetchers:
            busy = intervals.union(part.start[part.op == READ], part.end[part.op == READ])
            fetchers[part.process] = intervals.merge(fetchers[part.process], busy)
        # Reads of workers count for the rank that they load for.
        mine = is_data[part.file] & (part.op == READ) if len(is_data) else np.zeros(0, bool)
        if not mine.any():
            continue
        position = int(trace.family[part.process])
        before = ranks.get(position, RankReads())
        start, end = part.start[mine], part.end[mine]
        ranks[position] = RankReads(
            intervals.merge(before.busy, intervals.union(start, end)),
            before.sum_s + float((end - start).sum()) / 1e9,
            before.nbytes + int(part.nbytes[mine].sum()),
            before.reads + int((part.nbytes[mine] > 0).sum()),
        )
    return Reads(ranks, fit_request_cost(trace), fetchers)


def fit_request_cost(trace: Trace) -> RequestCost | None:
    """What a request of the dataset costs, by least squares, neither latency nor time a byte < 0.

    The latency is no more than small reads take: their mean, to which the line is fitted, holds
    what they waited behind large reads of others. Small are those far below the mean size of their
    part; what they take is the median over parts of the median of each. Of many operations every
    second, third or so part is looked at. None: sizes do not differ enough to tell, or there are
    too few reads.
    """
    is_data = trace.files.is_data
    if not is_data.any():
        return None
    every = max(1, sum(sizes_of(trace.io)) // _ENOUGH)
    picked = (trace.io[place] for place in range(0, len(trace.io), every))
    some = trace.io if every == 1 else picked
    n = x1 = x2 = y1 = xy = 0.0
    medians, counts = [np.zeros(0)], [np.zeros(0, np.int64)]
    for parts in batch_small_parts(some):
        # The reads of the dataset, and of which part each is: thousands of parts may be small.
        file, op, nbytes, start, end = join_columns(parts, "file", "op", "nbytes", "start", "end")
        reads = np.flatnonzero(is_data[file] & (op == READ))
        if not len(reads):
            continue
        part = np.repeat(np.arange(len(parts)), [len(each) for each in parts])[reads]
        size, lasted = nbytes[reads], (end - start)[reads]

        # Number and sums of x, x^2, y and xy of sizes x in bytes and durations y in seconds.
        moved = size > 0
        x, y = size[moved].astype(float), lasted[moved] / 1e9
        n, x1, x2 = n + len(x), x1 + float(x.sum()), x2 + float((x * x).sum())
        y1, xy = y1 + float(y.sum()), xy + float((x * y).sum())

        # Median of the small reads of each part: the mean of the two in the middle.
        mean = np.bincount(part, size) / np.maximum(np.bincount(part), 1)
        small = np.flatnonzero(moved & (size <= _SMALL * mean[part]))
        ascending = sort_within(part[small], lasted[small])
        count = np.bincount(part[small])
        first = np.cumsum(count) - count
        first, count = first[count > 0], count[count > 0]
        middle = ascending[first + (count - 1) // 2] + ascending[first + count // 2]
        medians.append(middle / 2 / 1e9)
        counts.append(count)

    spread = n * x2 - x1 * x1
    if n < FEWEST_READS or spread <= _SPREAD * n * x2 or y1 <= 0:
        return None
    slope = max((n * xy - x1 * y1) / spread, 0.0)
    latency = (y1 - slope * x1) / n
    weights = np.concatenate(counts)
    if weights.sum() >= FEWEST_READS:
        values = np.concatenate(medians)
        order = np.lexsort((weights, values))
        above = np.cumsum(weights[order])
        weighted_median = float(values[order][np.searchsorted(above, weights.sum() / 2)])
        latency = min(latency, weighted_median)
    latency = max(latency, 0.0)
    return RequestCost(latency, (y1 - latency * n) / x1)
