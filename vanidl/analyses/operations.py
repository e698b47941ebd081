"""Per-rank totals and busy time of the traced operations: what several analyses share."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.rows import Rows
from vanidl.analyses.sorting import counted
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.trace import OBJECT, READ, WRITE, Trace

_MANTISSA_BITS = 9  # 512 classes per octave: a class is at most 0.2 % wide
_SHIFT = 52 - _MANTISSA_BITS
_TRAINING_THREAD = 0  # its code; -1 where the tracer tells no threads apart


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
        return sum(self.totals.values(), Totals())

    def busy_ns(self, ranks: int) -> list[int]:
        """Busy time of each rank, 0 of a silent one."""
        return [self._length.get(position, 0) for position in range(ranks)]

    @cached_property
    def _length(self) -> dict[int, int]:
        return dict(zip(self.busy, intervals.lengths(self.busy.values()), strict=True))


NOTHING = Operations({}, {}, np.empty(0, np.int64), np.empty(0, np.int64))


def partial(rows: Rows, trace: Trace) -> Operations:
    """The totals of some rows."""
    classes, counts = counted(_speed_classes(rows))
    return Operations(_totals(rows), rows.busy, classes, counts, _own_busy(rows, trace))


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


def median_speed(operations: Operations) -> float | None:
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
    low, high = (_speed(int(operations.speed_class[place])) for place in places)
    return low if low == high else (low + high) / 2


def _speed(code: int) -> float:
    """Bytes per second in the middle of a class."""
    middle = (code << _SHIFT) + (1 << (_SHIFT - 1))
    return float(np.int64(middle).view(np.float64)) if code > 0 else 0.0


def _totals(rows: Rows) -> dict[int, Totals]:
    """By position, also of parts without a row."""
    positions = rows.owner.positions
    sums = np.zeros((5, len(positions)), np.int64)
    for op, groups in ((READ, rows.reads), (WRITE, rows.writes)):
        place = np.searchsorted(positions, groups.position)
        np.add.at(sums[op], place, groups.counts)
        np.add.at(sums[2 + op], place, groups.group_nbytes)
        np.add.at(sums[4], place, groups.group_duration)
    return {p: Totals(*row) for p, row in zip(positions.tolist(), sums.T.tolist(), strict=True)}


def _speed_classes(rows: Rows) -> NDArray[np.int64]:
    nbytes, duration = rows.nbytes, rows.duration
    timed = duration > 0
    if not timed.all():
        nbytes, duration = nbytes[timed], duration[timed]
    speed = duration / 1e9
    np.divide(nbytes, speed, out=speed)
    classes: NDArray[np.int64] = speed.view(np.int64)
    classes >>= _SHIFT
    return classes
