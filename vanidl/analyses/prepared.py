"""What several analyses derive from a part, derived once.

Most of the work of an analysis by file is to bring rows of a file together. Here that is done
once for all of them; within a file rows stay in order of start, so that sums, extremes and
neighbours are those of slices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.sorting import stable_order
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.trace import COLUMNS, READ, WRITE, Part, Trace

Int64Array = NDArray[np.int64]

_ROWS = ("start", "end", "offset", "nbytes")


@dataclass(frozen=True)
class ByFile:
    """Reads or writes of one process, grouped by file, each group by start.

    Group i is of file `file[i]` (ascending) and holds the rows first[i] to first[i + 1].
    """

    file: Int64Array  # (groups,)
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
    def nbytes_of_file(self) -> Int64Array:
        """Bytes of each group."""
        return self.sums(self.nbytes)

    @cached_property
    def spent_of_file(self) -> Int64Array:
        """Sum of the durations of each group, ns."""
        return self.sums(self.end - self.start)

    @cached_property
    def last_of_file(self) -> Int64Array:
        """Latest end of each group."""
        return np.maximum.reduceat(self.end, self.first[:-1])

    @cached_property
    def sizes(self) -> tuple[Int64Array, Int64Array]:
        """(distinct sizes ascending, number of operations of each)."""
        return np.unique(self.nbytes, return_counts=True)

    @cached_property
    def placed(self) -> ByFile:
        """The rows whose offset was recorded."""
        return self if not len(self) or self.offset.min() >= 0 else self.rows(self.offset >= 0)

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

    def groups(self, keep: NDArray[np.bool_]) -> ByFile:
        """Only some of the groups."""
        if keep.all():
            return self
        mine = np.flatnonzero(keep)
        first = np.append(0, np.cumsum(self.counts[mine]))
        if len(mine) and mine[-1] - mine[0] == len(mine) - 1:
            rows = slice(int(self.first[mine[0]]), int(self.first[mine[-1] + 1]))
            return ByFile(self.file[mine], first, *(getattr(self, name)[rows] for name in _ROWS))
        wanted = np.repeat(keep, self.counts)
        return ByFile(self.file[mine], first, *(getattr(self, name)[wanted] for name in _ROWS))

    def rows(self, keep: NDArray[np.bool_]) -> ByFile:
        """Only some of the rows; groups that lose all theirs are gone."""
        counts = self.sums(keep)
        left = counts > 0
        first = np.append(0, np.cumsum(counts[left]))
        return ByFile(self.file[left], first, *(getattr(self, name)[keep] for name in _ROWS))


class Prepared(Part):
    """A part and what was derived from it so far: gone when the analyses of it are done."""

    @cached_property
    def duration(self) -> Int64Array:
        """End - start of each operation."""
        return self.end - self.start

    @cached_property
    def spent_ns(self) -> int:
        """Sum of all durations."""
        return int(self.duration.sum())

    @cached_property
    def busy(self) -> Intervals:
        """The time covered by any of the operations."""
        return intervals.union(self.start, self.end)

    @cached_property
    def writes_in_all(self) -> int:
        """How many of the operations are writes."""
        return int(np.count_nonzero(self.op == WRITE))

    @property
    def reads(self) -> ByFile:
        """The reads by file."""
        return self._by_file[READ]

    @property
    def writes(self) -> ByFile:
        """The writes by file."""
        return self._by_file[WRITE]

    def dataset_reads(self, trace: Trace) -> ByFile:
        """The reads of files of kind `dataset`."""
        return self.reads.groups(is_kind(self.reads.file, "dataset", trace))

    @cached_property
    def _by_file(self) -> tuple[ByFile, ByFile]:
        reads = len(self) - self.writes_in_all
        files = int(self.file.max(initial=0)) + 1
        key = _key(self, files)
        columns = [getattr(self, name) for name in _ROWS]
        if (key[1:] < key[:-1]).any():
            order = stable_order(key)
            key, *columns = (column[order] for column in (key, *columns))
        first = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: len(key)])
        code = key[first].astype(np.int64)
        is_read = code < files
        return (
            ByFile(code[is_read], np.append(first[is_read], reads), *(c[:reads] for c in columns)),
            ByFile(
                code[~is_read] - files,
                np.append(first[~is_read], len(key)) - reads,
                *(c[reads:] for c in columns),
            ),
        )


def prepared(part: Part) -> Prepared:
    """The part with room for what is derived from it; itself where it has that already."""
    if isinstance(part, Prepared):
        return part
    return Prepared(part.process, part.layer, *(getattr(part, name) for name in COLUMNS))


def is_kind(file: Int64Array, kind: str, trace: Trace) -> NDArray[np.bool_]:
    """For each file code whether the file is of the kind."""
    return np.array([trace.files.kind[code] == kind for code in file.tolist()], bool)


def _key(part: Prepared, files: int) -> NDArray[np.int32] | Int64Array:
    """Reads by file, then writes by file."""
    if not part.writes_in_all:
        return part.file
    if files > np.iinfo(np.int32).max // 2:
        return part.op.astype(np.int64) * files + part.file
    return part.op.astype(np.int32) * np.int32(files) + part.file
