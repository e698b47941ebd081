"""Traced operations: totals and busy time of each rank, reads and writes of each process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.reducing import Rows
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.ordering import count_distinct
from vanidl.model.trace import OBJECT, READ, WRITE, SpanKind, Trace
from vanidl.schema.dataclass import dataclass

_TRAINING_THREAD = 0  # its code; -1 where the tracer tells no threads apart


# When the processes that train, or fetch batches for them, read and wrote.

Int64Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Calls:
    """Times of traced reads and writes, each by process; of a training process by its own thread.

    `elsewhere` is when other threads of a training process were in either: they may be what it
    waits for. Where a tracer tells no threads apart all of a process is taken for one thread;
    where it does, and nobody knows which one trains, `threads` has their codes.
    """

    reads: Mapping[int, Intervals] = field(default_factory=dict)
    writes: Mapping[int, Intervals] = field(default_factory=dict)
    elsewhere: Mapping[int, Intervals] = field(default_factory=dict)
    threads: Mapping[int, frozenset[int]] = field(default_factory=dict)

    def of(self, process: int) -> tuple[Intervals, Intervals]:
        """The reads, and the writes outside of them, of one process."""
        reads = self.reads.get(process, intervals.EMPTY)
        writes = self.writes.get(process, intervals.EMPTY)
        return reads, intervals.subtract(writes, reads) if len(writes.start) else writes


@dataclass(frozen=True, slots=True)
class OfProcesses:
    """The reduction for the processes of one trace whose time is accounted for."""

    processes: frozenset[int] = frozenset()
    threads_known: frozenset[int] = frozenset()  # of these code 0 is the thread that trains
    NOTHING: Calls = field(default_factory=Calls)

    def partial(self, rows: Rows, trace: Trace) -> Calls:
        """Those of some rows."""
        del trace
        if not self.processes or not len(rows):
            return self.NOTHING
        process = rows.owner.process[rows.part]
        reads: dict[int, Intervals] = {}
        writes: dict[int, Intervals] = {}
        elsewhere: dict[int, Intervals] = {}
        threads: dict[int, frozenset[int]] = {}
        for each in np.intersect1d(rows.owner.process, list(self.processes)).tolist():
            mine = np.flatnonzero(process == each)
            # Calls of other threads do not hold up the loop: apart where threads are known.
            if each in self.threads_known and rows.layer != OBJECT:
                own = rows.thread[mine] <= _TRAINING_THREAD
                others = mine[~own]
                elsewhere[each] = intervals.union(rows.start[others], rows.end[others])
                mine = mine[own]
            elif rows.layer != OBJECT:
                codes = np.unique(rows.thread[mine])
                threads[each] = frozenset(codes[codes >= 0].tolist())
            for op, times in ((READ, reads), (WRITE, writes)):
                of_op = mine[rows.op[mine] == op]
                times[each] = intervals.union(rows.start[of_op], rows.end[of_op])
        return Calls(reads, writes, elsewhere, threads)

    def combine(self, a: Calls, b: Calls) -> Calls:
        """Those of both; associative and commutative."""
        merge = intervals.merge_by_key
        none: frozenset[int] = frozenset()
        return Calls(
            merge(a.reads, b.reads),
            merge(a.writes, b.writes),
            merge(a.elsewhere, b.elsewhere),
            {
                process: a.threads.get(process, none) | b.threads.get(process, none)
                for process in a.threads.keys() | b.threads.keys()
            },
        )


def make_calls_reduction(trace: Trace) -> OfProcesses:
    """The reduction for the ranks with steps, and the processes that work for them."""
    stepping = np.unique(trace.spans.process[trace.spans.kind == SpanKind.STEP]).tolist()
    positions = {int(trace.family[process]) for process in stepping} - {-1}
    members = np.flatnonzero(np.isin(trace.family, sorted(positions))).tolist()
    fetching = np.unique(trace.fetches.process[trace.fetches.process >= 0]).tolist()
    known = {p.process for p in trace.profiles if p.thread_known}
    return OfProcesses(frozenset(members) | frozenset(fetching), frozenset(known))


_MANTISSA_BITS = 9  # 512 classes per octave: a class is at most 0.2 % wide
_SHIFT = 52 - _MANTISSA_BITS


@dataclass(frozen=True, slots=True)
class Totals:
    """Exact integer totals of some operations."""

    reads: int = 0
    writes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    sum_ns: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.reads + other.reads,
            self.writes + other.writes,
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
            self.sum_ns + other.sum_ns,
        )


@dataclass(frozen=True)
class Operations:
    """Totals and busy intervals, keyed by position in Trace.ranks (-1: in no rank).

    `own_busy` is of the training processes alone, without their workers, and where it is known
    which of their threads trains without the others; only where a profile marks their loop, which
    needs it.
    `speed_class` and `speed_count` are a sparse histogram of bytes per second of single
    operations, in classes of equal leading bits of the float64.
    """

    totals: dict[int, Totals]
    busy: dict[int, Intervals]
    speed_class: NDArray[np.int64]
    speed_count: NDArray[np.int64]
    own_busy: dict[int, Intervals] = field(default_factory=dict)

    @property
    def total(self) -> Totals:
        """Totals over everything, processes without a rank included."""
        every = self.totals.values()
        return Totals(
            reads=sum(one.reads for one in every),
            writes=sum(one.writes for one in every),
            bytes_read=sum(one.bytes_read for one in every),
            bytes_written=sum(one.bytes_written for one in every),
            sum_ns=sum(one.sum_ns for one in every),
        )

    def busy_ns(self, ranks: int) -> list[int]:
        """Busy time of each rank, 0 of a silent one."""
        return [self._length.get(position, 0) for position in range(ranks)]

    @cached_property
    def _length(self) -> dict[int, int]:
        return dict(zip(self.busy, intervals.lengths(self.busy.values()), strict=True))


NOTHING = Operations({}, {}, np.empty(0, np.int64), np.empty(0, np.int64))


def partial(rows: Rows, trace: Trace) -> Operations:
    """The totals of some rows."""
    classes, counts = count_distinct(_count_speed_classes(rows))
    # By position, also of parts without a row.
    positions = rows.owner.positions
    sums = np.zeros((5, len(positions)), np.int64)
    for op, groups in ((READ, rows.reads), (WRITE, rows.writes)):
        place = np.searchsorted(positions, groups.position)
        np.add.at(sums[op], place, groups.counts)
        np.add.at(sums[2 + op], place, groups.group_nbytes)
        np.add.at(sums[4], place, groups.group_duration)
    totals = {p: Totals(*row) for p, row in zip(positions.tolist(), sums.T.tolist(), strict=True)}
    return Operations(totals, rows.busy, classes, counts, _own_busy(rows, trace))


def _own_busy(rows: Rows, trace: Trace) -> dict[int, Intervals]:
    if not any(profile.marks_loop for profile in trace.profiles):
        return {}
    own = np.isin(rows.owner.process, trace.ranks)
    if not own.any():
        return {}
    mine = own[rows.part]
    known = [p.process for p in trace.profiles if p.marks_loop and p.thread_known]
    if known and rows.layer != OBJECT:  # a client's own thread asks for who waits for it
        mine &= ~np.isin(rows.owner.process, known)[rows.part] | (rows.thread <= _TRAINING_THREAD)
    return rows.busy_of(mine)


def combine(a: Operations, b: Operations) -> Operations:
    """The totals of both; associative and commutative."""
    both = {p: a.totals[p] + b.totals[p] for p in a.totals.keys() & b.totals.keys()}
    classes, counts = add_sparse((a.speed_class, a.speed_count), (b.speed_class, b.speed_count))
    return Operations(
        {**a.totals, **b.totals, **both},
        intervals.merge_by_key(a.busy, b.busy),
        classes,
        counts,
        intervals.merge_by_key(a.own_busy, b.own_busy),
    )


def add_sparse(
    a: tuple[NDArray[np.int64], NDArray[np.int64]], b: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The sum of two sparse vectors given as (sorted keys, values)."""
    keys, inverse = np.unique(np.concatenate([a[0], b[0]]), return_inverse=True)
    values = np.zeros(len(keys), np.int64)
    values[inverse[: len(a[0])]] = a[1]
    values[inverse[len(a[0]) :]] += b[1]
    return keys, values


def compute_median_speed(operations: Operations) -> float | None:
    """Median bytes per second of single operations, to 0.1 %; None without any.

    Of an even number it is the mean of the two in the middle. Operations of zero length in
    time have no speed and are left out.
    """
    total = int(operations.speed_count.sum())
    if total == 0:
        return None
    places = np.searchsorted(
        np.cumsum(operations.speed_count), [(total - 1) // 2, total // 2], "right"
    )
    low, high = (_get_class_speed(int(operations.speed_class[place])) for place in places)
    return low if low == high else (low + high) / 2


def _get_class_speed(code: int) -> float:
    """Bytes per second in the middle of a class."""
    middle = (code << _SHIFT) + (1 << (_SHIFT - 1))
    return float(np.int64(middle).view(np.float64)) if code > 0 else 0.0


def _count_speed_classes(rows: Rows) -> NDArray[np.int64]:
    nbytes, duration = rows.nbytes, rows.duration
    timed = duration > 0
    if not timed.all():
        nbytes, duration = nbytes[timed], duration[timed]
    speed = duration / 1e9
    np.divide(nbytes, speed, out=speed)
    classes: NDArray[np.int64] = speed.view(np.int64)
    classes >>= _SHIFT
    return classes
