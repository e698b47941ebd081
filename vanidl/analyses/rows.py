"""Operations that are reduced at once: those of one large part, or of thousands of small ones.

A run of thousands of short logs has a part of a few hundred operations for each. Numpy needs as
long for the call as for such a part, so small parts are laid together. An `Owner` says to which
process each part belongs; what several analyses derive from the rows is derived once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.by_file import ROW_COLUMNS, ByFile
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.ordering import stable_order
from vanidl.model.trace import READ, WRITE, Part, Trace

Int64Array = NDArray[np.int64]

SMALL_ROWS = 1 << 15
"""Operations at which a part is reduced alone, by a thread of its own."""

_TOGETHER_ROWS = 1 << 18  # operations of small parts that are reduced at once
_COLUMNS = (*ROW_COLUMNS, "thread", "file", "op")


@dataclass(frozen=True)
class Owner:
    """The process of each part; a single part has one for all rows."""

    process: Int64Array  # (parts,), index into Trace.processes
    position: Int64Array  # (parts,), in Trace.ranks, -1 for none

    @cached_property
    def positions(self) -> Int64Array:
        """Distinct positions, ascending."""
        return np.unique(self.position)


@dataclass(frozen=True)
class Rows:
    """Operations of one layer, part by part, each by start; one entry each in every array.

    `part` tells of each which part it was in: an index into the arrays of `owner`.
    """

    layer: str
    owner: Owner
    part: NDArray[np.intp]
    start: Int64Array  # as in Part
    end: Int64Array
    offset: Int64Array
    nbytes: Int64Array
    thread: NDArray[np.int32]
    file: NDArray[np.int32]
    op: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def duration(self) -> Int64Array:
        """End - start of each operation."""
        return self.end - self.start

    @cached_property
    def duration_sum(self) -> int:
        """Sum of all durations, ns."""
        return int(self.duration.sum())

    @cached_property
    def write_count(self) -> int:
        """How many of the operations are writes."""
        return int(np.count_nonzero(self.op == WRITE))

    @cached_property
    def busy(self) -> dict[int, Intervals]:
        """By position in Trace.ranks the time covered by any of its operations."""
        return self.busy_of(slice(None))

    def busy_of(self, mine: NDArray[np.bool_] | slice) -> dict[int, Intervals]:
        """By position the time covered by any of some operations."""
        positions = self.owner.positions
        start, end = self.start[mine], self.end[mine]
        if len(positions) == 1:
            return {int(positions[0]): intervals.union(start, end)}
        unions = intervals.union_by_group(self._place[mine], start, end, len(positions))
        return dict(zip(positions.tolist(), unions, strict=True))

    def busy_of_neighbours(self, mine: NDArray[np.bool_]) -> dict[int, Intervals]:
        """As `busy_of`; of operations that follow each other, apart from others, no copies."""
        low, count = int(mine.argmax()), int(np.count_nonzero(mine))
        if not count:
            return self.busy_of(mine)
        rows = slice(low, low + count)
        if len(self.owner.process) > 1 or not mine[rows].all():
            return self.busy_of(mine)
        ((position, busy),) = self.busy.items()
        inside = _between(busy, self.start, rows)
        return self.busy_of(rows) if inside is None else {position: inside}

    def by_position(self, positions: AbstractSet[int]) -> Iterator[tuple[int, Rows]]:
        """(position, its operations) of those of the positions that have some."""
        held = self.owner.positions.tolist()
        if not len(self) or positions.isdisjoint(held):
            return
        if len(held) == 1:
            yield held[0], self
            return
        order = stable_order(self._place)
        first = np.searchsorted(self._place[order], np.arange(len(held) + 1))
        for position, low, high in zip(held, first[:-1].tolist(), first[1:].tolist(), strict=True):
            if position in positions and low < high:
                yield position, self._picked(order[low:high])

    def _picked(self, mine: NDArray[np.intp]) -> Rows:
        columns = {name: getattr(self, name)[mine] for name in ("part", *_COLUMNS)}
        return Rows(self.layer, self.owner, **columns)

    @cached_property
    def _place(self) -> NDArray[np.intp]:
        """Of each operation the place of its position among the distinct ones."""
        return np.searchsorted(self.owner.positions, self.owner.position)[self.part]

    @property
    def reads(self) -> ByFile:
        """The reads by part and file."""
        return self._by_file[READ]

    @property
    def writes(self) -> ByFile:
        """The writes by part and file."""
        return self._by_file[WRITE]

    def reads_of_kind(self, kind: str, trace: Trace) -> ByFile:
        """The reads of files of one kind."""
        kinds, reads = trace.files.kind, self.reads
        return reads.groups(np.array([kinds[code] == kind for code in reads.file.tolist()], bool))

    @cached_property
    def _by_file(self) -> tuple[ByFile, ByFile]:
        files = int(self.file.max(initial=0)) + 1
        key = self._key(files)
        columns = {name: getattr(self, name) for name in ROW_COLUMNS}
        if (key[1:] < key[:-1]).any():
            order = stable_order(key)
            key = key[order]
            columns = {name: column[order] for name, column in columns.items()}
        first = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: len(key)])
        part, file = np.divmod(key[first].astype(np.int64), files)
        op, part = np.divmod(part, len(self.owner.process))

        def of(groups: slice, rows: slice) -> ByFile:
            return ByFile(
                file=file[groups],
                process=self.owner.process[part[groups]],
                position=self.owner.position[part[groups]],
                first=np.append(first[groups], rows.stop) - rows.start,
                **{name: column[rows] for name, column in columns.items()},
            )

        reads, read_groups = len(self) - self.write_count, int(np.count_nonzero(op == READ))
        return (
            of(slice(0, read_groups), slice(0, reads)),
            of(slice(read_groups, len(first)), slice(reads, len(self))),
        )

    def _key(self, files: int) -> NDArray[Any]:
        """Reads by part and file, then writes by part and file: int32 where that is enough."""
        parts = len(self.owner.process)
        narrow = 2 * parts * files <= np.iinfo(np.int32).max
        key: NDArray[Any] = self.file
        if parts > 1:
            key = self.part * files + key
            key = key.astype(np.int32) if narrow else key
        if self.write_count:
            key = self.op.astype(np.int32 if narrow else np.int64) * (parts * files) + key
        return key


def _between(busy: Intervals, start: Int64Array, rows: slice) -> Intervals | None:
    """What of the busy time is that of some neighbours; None where they touch other operations."""
    if not len(busy.start):
        return busy
    borders = np.array([row for row in (rows.start, rows.stop) if 0 < row < len(start)], np.intp)
    edge = start[borders]
    at = np.searchsorted(busy.start, edge)
    reached = busy.end[np.maximum(at - 1, 0)] >= edge
    if ((start[borders - 1] == edge) | ((at > 0) & reached)).any():
        return None
    low = int(at[0]) if rows.start > 0 else 0
    high = int(at[-1]) if rows.stop < len(start) else len(busy.start)
    return Intervals(busy.start[low:high], busy.end[low:high])


def rows_of(parts: Sequence[Part], trace: Trace) -> Rows:
    """The operations of parts of one layer."""
    process = np.array([p.process for p in parts], np.int64)
    owner = Owner(process, trace.family[process].astype(np.int64))
    if len(parts) == 1:
        part = np.broadcast_to(np.intp(0), len(parts[0]))
        columns = {name: getattr(parts[0], name) for name in _COLUMNS}
        return Rows(parts[0].layer, owner, part, **columns)
    part = np.repeat(np.arange(len(parts)), [len(p) for p in parts])
    columns = {name: np.concatenate([getattr(p, name) for p in parts]) for name in _COLUMNS}
    return Rows(parts[0].layer, owner, part, **columns)


def small_parts_together(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Each large part alone, small ones of a layer in lists."""
    small: dict[str, list[Part]] = {}
    rows: dict[str, int] = {}
    for part in parts:
        if len(part) >= SMALL_ROWS:
            yield [part]
            continue
        small.setdefault(part.layer, []).append(part)
        rows[part.layer] = rows.get(part.layer, 0) + len(part)
        if rows[part.layer] >= _TOGETHER_ROWS:
            rows[part.layer] = 0
            yield small.pop(part.layer)
    yield from small.values()
