"""Folding parts of a trace into small values: by threads here, or by workers of an executor.

Operations are reduced many at once: those of one large part, or of thousands of small ones; and
grouped by part and file, which is most of the work of an analysis by file, once for all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.ordering import stable_order
from vanidl.model.parts import Parts
from vanidl.model.selection import SelectedParts
from vanidl.model.trace import NO_FETCHES, READ, WRITE, Part, Trace, concatenate_spans
from vanidl.parallel.threads import batches, thread_count
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]


# Rows grouped by part and file: most of the work of an analysis by file, done once for all.
#
# Within a group rows stay in order of start, so that sums, extremes and neighbours are those of
# slices.

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


# Operations that are reduced at once: those of one large part, or of thousands of small ones.
#
# A run of thousands of short logs has a part of a few hundred operations for each. Numpy needs as
# long for the call as for such a part, so small parts are laid together. An `Owner` says to which
# process each part belongs; what several analyses derive from the rows is derived once.


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
        inside = _select_between(busy, self.start, rows)
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
        # Reads by part and file, then writes by part and file: int32 where that is enough.
        parts = len(self.owner.process)
        narrow = 2 * parts * files <= np.iinfo(np.int32).max
        key: NDArray[Any] = self.file
        if parts > 1:
            key = self.part * files + key
            key = key.astype(np.int32) if narrow else key
        if self.write_count:
            key = self.op.astype(np.int32 if narrow else np.int64) * (parts * files) + key
        columns = {name: getattr(self, name) for name in ROW_COLUMNS}
        # Rows mostly come in order: then the sort is spared.
        if (key[1:] < key[:-1]).any():
            order = stable_order(key)
            key = key[order]
            columns = {name: column[order] for name, column in columns.items()}
        # Where rows of one side, part and file begin.
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


def _select_between(busy: Intervals, start: Int64Array, rows: slice) -> Intervals | None:
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


def collect_rows(parts: Sequence[Part], trace: Trace) -> Rows:
    """The operations of parts of one layer."""
    process = np.array([p.process for p in parts], np.int64)
    owner = Owner(process, trace.family[process].astype(np.int64))
    if len(parts) == 1:
        part = np.broadcast_to(np.intp(0), len(parts[0]))
    else:
        part = np.repeat(np.arange(len(parts)), [len(p) for p in parts])
    columns = dict(zip(_COLUMNS, join_columns(parts, *_COLUMNS), strict=True))
    return Rows(parts[0].layer, owner, part, **columns)


def join_columns(parts: Sequence[Part], *names: str) -> list[NDArray[Any]]:
    """Columns of parts by name, those of one part behind those of the one before."""
    if isinstance(parts, Batch):
        return [parts.column(name) for name in names]
    if len(parts) == 1:
        return [getattr(parts[0], name) for name in names]
    return [np.concatenate([getattr(part, name) for part in parts]) for name in names]


class Batch(list[Part]):
    """Small parts of one layer; each of their columns is joined when it is first asked for."""

    def __init__(self, parts: Iterable[Part]) -> None:
        super().__init__(parts)
        self._columns: dict[str, NDArray[Any]] = {}

    def column(self, name: str) -> NDArray[Any]:
        """The column of the parts, one behind the other; read-only, as it is asked for again."""
        if name not in self._columns:
            self._columns[name] = np.concatenate([getattr(part, name) for part in self])
            self._columns[name].flags.writeable = False
        return self._columns[name]


_KEPT_ROWS = 1 << 21  # operations of small parts whose batches are kept: 80 MB of columns
_KEPT: WeakKeyDictionary[Sequence[Part], list[list[Part]]] = WeakKeyDictionary()


def batch_small_parts(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Each large part alone, small ones of a layer in lists.

    The same lists for the operations of the same trace, where these are few: several analyses go
    through thousands of parts.
    """
    if not isinstance(parts, Parts | SelectedParts) or parts.spilled:
        yield from _list_batches(parts)
        return
    if parts not in _KEPT:
        if sum(parts.sizes) > _KEPT_ROWS:
            yield from _list_batches(parts)
            return
        _KEPT[parts] = [Batch(b) if len(b) > 1 else b for b in _list_batches(parts)]
    yield from _KEPT[parts]


def _list_batches(parts: Iterable[Part]) -> Iterator[list[Part]]:
    small: dict[str, list[Part]] = {}
    rows: dict[str, int] = {}
    for part in parts:
        # A large part is a batch by itself; small ones of a layer wait for each other.
        if len(part) >= SMALL_ROWS:
            yield [part]
        if not 0 < len(part) < SMALL_ROWS:
            continue
        small.setdefault(part.layer, []).append(part)
        rows[part.layer] = rows.get(part.layer, 0) + len(part)
        if rows[part.layer] >= _TOGETHER_ROWS:
            rows[part.layer] = 0
            yield small.pop(part.layer)
    yield from small.values()


MOST_ROWS = 1 << 20  # operations that are sent to a worker at a time
MOST_PARTS = 64
_AHEAD = 2  # batches that are with each worker at a time: they lie in memory until they are sent
_WORTH_ROWS = 100  # of a part: with fewer, threads mostly wait for each other

Values = dict[str, Any]


class Reduction(Protocol):
    """A module or record that folds parts into one small value."""

    @property
    def NOTHING(self) -> Any:  # noqa: ANN401
        """The value of no part."""

    def partial(self, rows: Rows, trace: Trace) -> Any:  # noqa: ANN401
        """The value of the operations of one part or of several."""

    def combine(self, a: Any, b: Any) -> Any:  # noqa: ANN401
        """The value of both; associative and commutative."""


def reduce_parts(
    reductions: dict[str, Reduction],
    parts: Sequence[Part],
    trace: Trace,
    executor: Executor | None = None,
) -> Values:
    """Name -> the combined value of every reduction over all parts.

    With an executor its workers fold batches of parts, which may be cut anywhere. Equal-sized
    halves are combined first (as in a binary counter), so the work stays linear times log where
    values grow with the parts.
    """
    if executor is None:
        return _combine_all(reductions, _compute_partials(reductions, parts, trace))
    return _combine_all(reductions, _receive_from_workers(reductions, parts, trace, executor))


def _combine_all(reductions: dict[str, Reduction], partials: Iterable[Values]) -> Values:
    stack: list[tuple[int, Values]] = []
    # Values of like weight are combined, as in merge sort: no large one for each batch.
    for one in partials:
        weight, values = 1, one
        while stack and stack[-1][0] <= weight:
            other, before = stack.pop()
            weight, values = weight + other, _combine(reductions, before, values)
        stack.append((weight, values))
    if not stack:
        return {name: r.NOTHING for name, r in reductions.items()}
    _, total = stack.pop()
    for _, values in reversed(stack):
        total = _combine(reductions, values, total)
    return total


def _compute_partials(
    reductions: dict[str, Reduction], parts: Iterable[Part], trace: Trace
) -> Iterator[Values]:
    """The values of each part or list of small parts, worked out by a few threads."""

    def values_of(parts: list[Part]) -> Values:
        rows = collect_rows(parts, trace)
        return {name: r.partial(rows, trace) for name, r in reductions.items()}

    with ThreadPoolExecutor(thread_count()) as pool:
        ahead: deque[Future[Values]] = deque()
        for some in batch_small_parts(parts):
            if (rows := sum(map(len, some))) < SMALL_ROWS or rows < _WORTH_ROWS * len(some):
                yield from (ahead.popleft().result() for _ in range(len(ahead)))
                yield values_of(some)
                continue
            ahead.append(pool.submit(values_of, some))
            if len(ahead) > thread_count():  # so only a few parts are in memory
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _receive_from_workers(
    reductions: dict[str, Reduction], parts: Sequence[Part], trace: Trace, executor: Executor
) -> Iterator[Values]:
    """The values of each batch in turn; a few batches are under way.

    Parts that lie in a file are read by the workers where these see it, too, so that they do not
    pass through this process; the first batch shows whether they do.
    """
    # The trace with what a partial looks at: the job, its processes and its files.
    records = replace(
        trace,
        io=(),
        spans=concatenate_spans((), ()),
        counters={},
        logs=(),
        warnings=(),
        stripes=(),
        heatmaps=(),
        mpi=(),
        step_durations=(),
        fetches=NO_FETCHES,
    )
    workers = _Workers(reductions, records, executor)

    # The first batch shows whether workers see the file; None where they do not.
    in_file = iter(_batch_by_file(parts))
    first = next(in_file, None)
    read_there = None if first is None else workers.read_there(first)
    if read_there is not None:
        yield read_there
    from vanidl.parallel.executors import worker_count

    # As many batches are under way as keep the workers busy; values come in the order of parts.
    ahead: deque[tuple[Sequence[Part], Future[Values]]] = deque()
    for batch in _cut_parts(parts) if read_there is None else in_file:
        ahead.append((batch, workers.submit(batch)))
        if len(ahead) >= _AHEAD * worker_count(executor):
            yield workers.values_of(*ahead.popleft())
    while ahead:
        yield workers.values_of(*ahead.popleft())


@dataclass(frozen=True, slots=True)
class _Workers:
    """What the workers of an executor do with batches of parts."""

    reductions: dict[str, Reduction]
    context: Trace
    executor: Executor

    def submit(self, batch: Sequence[Part]) -> Future[Values]:
        return self.executor.submit(reduce_parts, self.reductions, batch, self.context)

    def read_there(self, batch: Sequence[Part]) -> Values | None:
        """The values of a batch that lies in a file; None where a worker does not see it."""
        try:
            return self.submit(batch).result()
        except FileNotFoundError:
            return None

    def values_of(self, batch: Sequence[Part], future: Future[Values]) -> Values:
        """The values of a batch, whose parts are sent where its worker does not see their file."""
        try:
            return future.result()
        except FileNotFoundError:
            return self.submit(list(batch)).result()


def _batch_by_file(parts: Sequence[Part]) -> list[Parts | SelectedParts]:
    """Batches of parts that lie in a file, by their places in it; none where they do not."""
    if not isinstance(parts, (Parts, SelectedParts)) or not parts.spilled:
        return []
    sizes, least = parts.sizes, MOST_ROWS // MOST_PARTS
    some_each = batches(range(len(sizes)), lambda i: max(sizes[i], least), MOST_ROWS)
    return [parts.at(some) for some in some_each]


def _cut_parts(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Batches of parts, large ones cut."""
    batch: list[Part] = []
    for part in parts:
        for low in range(0, len(part), MOST_ROWS):
            batch.append(part.rows(slice(low, low + MOST_ROWS)))
            if len(batch) >= MOST_PARTS or sum(map(len, batch)) >= MOST_ROWS:
                yield batch
                batch = []
    if batch:
        yield batch


def _combine(reductions: dict[str, Reduction], a: Values, b: Values) -> Values:
    return {name: r.combine(a[name], b[name]) for name, r in reductions.items()}
