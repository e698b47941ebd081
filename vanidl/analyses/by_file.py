"""Rows grouped by part and file: most of the work of an analysis by file, done once for all.

Within a group rows stay in order of start, so that sums, extremes and neighbours are those of
slices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]

_GROUP_COLUMNS = ("file", "process", "position")
ROW_COLUMNS = ("start", "end", "offset", "nbytes")


@dataclass(frozen=True)
class ByFile:
    """Reads or writes grouped by part and file, each group by start.

    Group i is of one file and process and holds the rows first[i] to first[i + 1]. Groups come
    by part, those of a part by file.
    """

    file: Int64Array  # (groups,), index into Trace.files
    process: Int64Array  # (groups,), index into Trace.processes
    position: Int64Array  # (groups,), in Trace.ranks, -1 for none
    first: Int64Array  # (groups + 1,)
    start: Int64Array  # (rows,), as in Part
    end: Int64Array
    offset: Int64Array
    nbytes: Int64Array

    def __len__(self) -> int:
        """Rows."""
        return len(self.start)

    @cached_property
    def counts(self) -> Int64Array:
        """Rows of each group."""
        return np.diff(self.first)

    @cached_property
    def end_offset(self) -> Int64Array:
        """First byte behind each operation."""
        return self.offset + self.nbytes

    @cached_property
    def group_nbytes(self) -> Int64Array:
        """Bytes of each group."""
        return self.sums(self.nbytes)

    @cached_property
    def group_duration(self) -> Int64Array:
        """Sum of the durations of each group, ns."""
        return self.sums(self.end - self.start)

    @property
    def group_start(self) -> Int64Array:
        """First start of each group."""
        return self.start[self.first[:-1]]

    @cached_property
    def group_end(self) -> Int64Array:
        """Latest end of each group."""
        return np.maximum.reduceat(self.end, self.first[:-1])

    @cached_property
    def sizes(self) -> tuple[Int64Array, Int64Array]:
        """(distinct sizes ascending, number of operations of each)."""
        return np.unique(self.nbytes, return_counts=True)

    @property
    def with_offset(self) -> ByFile:
        """The rows whose offset was recorded."""
        # A record that holds itself would stay until Python looks for garbage, columns and all.
        return self if self._offsets_known else self._with_offset

    @cached_property
    def _offsets_known(self) -> bool:
        return not len(self) or bool(self.offset.min() >= 0)

    @cached_property
    def _with_offset(self) -> ByFile:
        return self.rows(self.offset >= 0)

    @cached_property
    def neighbours(self) -> tuple[int, int, int]:
        """Rows that begin where the one before of their group ended, behind it, before it."""
        begin, before = self.offset[1:], self.end_offset[:-1]
        equal, later = begin == before, begin > before
        borders = self.first[1:-1] - 1
        equal[borders] = later[borders] = False
        consecutive, forward = int(np.count_nonzero(equal)), int(np.count_nonzero(later))
        return consecutive, forward, len(begin) - len(borders) - consecutive - forward

    def sums(self, values: NDArray[np.bool_] | Int64Array) -> Int64Array:
        """Sum of the values of each group's rows."""
        return np.add.reduceat(values, self.first[:-1], dtype=np.int64)

    def each_row(self, values: Int64Array) -> Int64Array:
        """For each row the value of its group."""
        return np.repeat(values, self.counts)

    def each_of(self, values: Int64Array, rows: NDArray[np.intp]) -> Int64Array:
        """For each of some rows, which ascend, the value of its group."""
        return np.repeat(values, np.diff(np.searchsorted(rows, self.first)))

    def groups(self, keep: NDArray[np.bool_]) -> ByFile:
        """Only some of the groups."""
        if keep.all():
            return self
        mine = np.flatnonzero(keep)
        wanted: NDArray[np.bool_] | slice = np.repeat(keep, self.counts)
        if len(mine) and mine[-1] - mine[0] == len(mine) - 1:
            wanted = slice(int(self.first[mine[0]]), int(self.first[mine[-1] + 1]))
        return self._picked(mine, self.counts[mine], wanted)

    def rows(self, keep: NDArray[np.bool_]) -> ByFile:
        """Only some of the rows; groups that lose all theirs are gone."""
        counts = self.sums(keep)
        left = np.flatnonzero(counts)
        return self._picked(left, counts[left], keep)

    def _picked(
        self, groups: NDArray[np.intp], counts: Int64Array, rows: NDArray[np.bool_] | slice
    ) -> ByFile:
        return ByFile(
            **{name: getattr(self, name)[groups] for name in _GROUP_COLUMNS},
            first=np.append(0, np.cumsum(counts)),
            **{name: getattr(self, name)[rows] for name in ROW_COLUMNS},
        )
