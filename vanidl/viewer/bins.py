"""How much of each bin of time was busy, by fate: what is shown where slices are too many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.breakdown.overlap import Fate, RankFates, busy_by_fate
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.viewer.blocks import Block

Int64Array = NDArray[np.int64]


def equal_edges(low_ns: int, high_ns: int, count: int) -> Int64Array:
    """Bounds of bins that differ by at most a nanosecond, shape (count + 1,)."""
    index = np.arange(count + 1, dtype=np.int64)
    whole, rest = divmod(high_ns - low_ns, count)
    edges: Int64Array = low_ns + index * whole + index * rest // count
    return edges


@dataclass(frozen=True)
class BusyBins:
    """Busy nanoseconds of rows in bins: exact, operations side by side in a row count once."""

    edges: Int64Array
    amounts: dict[tuple[int, int, int], Int64Array]  # (lane, row, fate) -> (bins,)

    def add(self, block: Block, fates: RankFates) -> None:
        """Counts the slices of a block; those of a row follow the ones that came before."""
        rows = np.unique(block.row).tolist()
        for row in rows:
            mine: NDArray[np.bool_] | slice = block.row == row if len(rows) > 1 else slice(None)
            for fate, busy in _by_fate(block.start[mine], block.end[mine], fates):
                found = intervals.covered_between(busy, self.edges)
                key = (block.lane, row, int(fate))
                self.amounts[key] = self.amounts[key] + found if key in self.amounts else found


def _by_fate(
    start: Int64Array, end: Int64Array, fates: RankFates
) -> Iterator[tuple[Fate, Intervals]]:
    """The busy time of some slices by what became of it; what is empty is left out."""
    if len(fates.fate) == 1 and (start[1:] >= end[:-1]).all():
        # Apart already, as in most rows: slices of no length among them cover nothing.
        if (end > start).any():
            yield Fate(fates.fate[0]), Intervals(start, end)
        return
    yield from busy_by_fate(intervals.union(start, end), fates).items()
