"""Reads of the dataset: their time, what a request costs, what the storage delivers to many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.trace import READ, Part, Trace

_FEWEST_READS = 100
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
    if n < _FEWEST_READS or spread <= _SPREAD * n * x2 or y1 <= 0:
        return None
    slope = max((n * xy - x1 * y1) / spread, 0.0)
    latency = (y1 - slope * x1) / n
    if sum(count for _, count in small) >= _FEWEST_READS:
        latency = min(latency, _compute_weighted_median(small))
    latency = max(latency, 0.0)
    return RequestCost(latency, (y1 - latency * n) / x1)


def _compute_weighted_median(rows: Sequence[tuple[float, int]]) -> float:
    values, weights = np.array(sorted(rows)).T
    middle = np.searchsorted(np.cumsum(weights), weights.sum() / 2)
    return float(values[middle])


# --- What the storage delivers to several readers ------------------------------------------------

_DEPTHS = 64  # reads under way at once; more are taken as these
_OPERATIONS = 2_000_000
_OFTEN = 0.05  # of the reads: what was seen more rarely tells nothing
_DEEPER = 1.8  # times as many reads under way
_REACHED = 0.7  # of what any number of reads would bring


@dataclass(frozen=True, slots=True)
class Throughput:
    """Bytes a second of dataset reads, by how many were under way at once.

    `peak_bytes_per_s`: the most that was seen often. `saturated`: however many more are under way,
    little more comes; None: there never were more and fewer.
    """

    peak_bytes_per_s: float
    mean_depth: float
    saturated: bool | None


def fit_throughput(trace: Trace) -> Throughput | None:
    """What the storage of the dataset delivered; None without single reads of it."""
    is_data = trace.files.is_data
    start, end, size = [], [], []
    count = 0
    for part in trace.io:
        mine = is_data[part.file] & (part.op == READ) & (part.nbytes > 0)
        if len(is_data) and mine.any() and count < _OPERATIONS:
            count += int(mine.sum())
            start.append(part.start[mine])
            end.append(part.end[mine])
            size.append(part.nbytes[mine])
    if count < _FEWEST_READS:
        return None
    return _fit_depths(np.concatenate(start), np.concatenate(end), np.concatenate(size))


def _fit_depths(
    start: NDArray[np.int64], end: NDArray[np.int64], size: NDArray[np.int64]
) -> Throughput:
    """By Little's law: what comes a second is how many are under way / how long each takes.

    How many are under way is counted when one begins. (J. D. C. Little, A proof for the queuing
    formula L = lambda W, 1961.) A server that takes one after the other makes k times as many wait
    k times as long, one that has room serves each as fast as alone.
    """
    order = np.argsort(start, kind="stable")
    start, end, size = start[order], np.maximum(end, start + 1)[order], size[order]
    begun = np.searchsorted(start, start, side="right")
    depth = np.minimum(begun - np.searchsorted(np.sort(end), start, side="right"), _DEPTHS)
    lasted = (end - start) / 1e9
    at = np.bincount(depth, minlength=_DEPTHS + 1)
    took_s = np.bincount(depth, lasted, _DEPTHS + 1)
    moved = np.bincount(depth, size * depth, _DEPTHS + 1)
    speed = np.divide(moved, took_s, out=np.zeros_like(took_s), where=took_s > 0)

    depths, mean = np.arange(_DEPTHS + 1), float(depth.mean())
    often = at >= _OFTEN * len(start)
    peak = float(speed[often].max(initial=0.0))
    mean_s = np.divide(took_s, at, out=np.zeros_like(took_s), where=at > 0)
    seen, weight = depths[often], at[often].astype(np.float64)
    if len(seen) < 2 or seen[-1] < _DEEPER * seen[0]:
        return Throughput(peak, mean, None)
    # A request takes `alone` and `each` more for every other: at most 1 / `each` come a second.
    each, alone = np.polyfit(seen, mean_s[often], 1, w=np.sqrt(weight))
    deepest = float(seen[-1])
    reached = max(each, 0.0) * deepest / max(alone + each * deepest, 1e-12)
    return Throughput(peak, mean, bool(reached > _REACHED))
