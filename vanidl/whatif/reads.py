"""Reads of the dataset: how long each rank spent in them, and what a request costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vanidl import intervals
from vanidl.analyses.dataset import KIND
from vanidl.intervals import Intervals
from vanidl.trace import READ, Part, Trace

_FEWEST = 100
_SPREAD = 0.01


@dataclass(frozen=True, slots=True)
class RankReads:
    """Union of a rank's dataset reads, and the sums of their durations and bytes."""

    busy: Intervals = intervals.EMPTY
    sum_s: float = 0.0
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class RequestCost:
    """A read takes latency_s + nbytes * s_per_byte; and the share of latency in all of them."""

    latency_s: float
    s_per_byte: float
    latency_share: float


@dataclass(frozen=True, slots=True)
class Reads:
    """By position in Trace.ranks. `cost` is None where sizes do not differ enough to tell."""

    ranks: Mapping[int, RankReads] = field(default_factory=dict)
    cost: RequestCost | None = None

    def of_rank(self, position: int) -> RankReads:
        """The reads of one rank."""
        return self.ranks.get(position, RankReads())


def reads(trace: Trace) -> Reads:
    """The dataset reads of every rank, in one pass over the parts."""
    is_data = np.array([kind == KIND for kind in trace.files.kind], bool)
    found: dict[int, RankReads] = {}
    sums = np.zeros(5)
    for part in trace.io:
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
        )
        sums += _moments(part, mine)
    return Reads(found, _fitted(sums))


def _moments(part: Part, mine: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Number, sum of x, x^2, y and xy of sizes x in bytes and durations y in seconds."""
    moved = mine & (part.nbytes > 0)
    x, y = part.nbytes[moved].astype(float), (part.end[moved] - part.start[moved]) / 1e9
    return np.array([len(x), x.sum(), (x * x).sum(), y.sum(), (x * y).sum()])


def _fitted(sums: NDArray[np.float64]) -> RequestCost | None:
    """Least squares, neither latency nor time a byte below 0."""
    n, x1, x2, y1, xy = sums.tolist()
    spread = n * x2 - x1 * x1
    if n < _FEWEST or spread <= _SPREAD * n * x2 or y1 <= 0:
        return None
    slope = max((n * xy - x1 * y1) / spread, 0.0)
    latency = (y1 - slope * x1) / n
    if latency < 0:
        latency, slope = 0.0, y1 / x1
    return RequestCost(latency, slope, latency * n / y1)
