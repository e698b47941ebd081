"""How long single operations take: median, tail, and what reads of nothing cost.

Durations are kept as a sparse histogram in classes of equal leading bits of the float64.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.operations import add_sparse
from vanidl.analyses.reducing import Rows
from vanidl.model.ordering import count_distinct
from vanidl.model.trace import READ, WRITE, Trace
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]

DATA_READS, OTHER_READS, WRITES = "dataset reads", "other reads", "writes"
GROUPS = (DATA_READS, OTHER_READS, WRITES)
"""Operations that moved bytes, each in one group."""

SLOW_FACTOR = 20.0
"""An operation of this many times the median is slow."""

_MANTISSA_BITS = 6  # 64 classes per octave: a class is at most 1.6 % wide
_SHIFT = 52 - _MANTISSA_BITS
_EMPTY = (np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class OfGroup:
    """Durations of the operations of one group, in seconds, to 0.8 %.

    `slow` took `SLOW_FACTOR` times the median or longer; `excess_s` is what they took beyond it.
    """

    count: int
    median_s: float
    p99_s: float
    longest_s: float
    slow: int
    excess_s: float


@dataclass(frozen=True, slots=True)
class Durations:
    """By group; groups without an operation are left out. `empty`: dataset reads of 0 bytes."""

    groups: Mapping[str, OfGroup]
    empty: int
    empty_s: float


@dataclass(frozen=True, slots=True)
class Classes:
    """Class and count of each group; count and ns of empty dataset reads."""

    found: tuple[tuple[Int64Array, Int64Array], ...] = (_EMPTY,) * len(GROUPS)
    empty: int = 0
    empty_ns: int = 0


NOTHING = Classes()


def partial(rows: Rows, trace: Trace) -> Classes:
    """The durations of some rows."""
    is_data = trace.files.is_data
    of_data = is_data[rows.file] if len(is_data) else np.zeros(len(rows), bool)
    moved, reads = rows.nbytes > 0, rows.op == READ
    masks = (reads & of_data & moved, reads & ~of_data & moved, (rows.op == WRITE) & moved)
    nothing = reads & of_data & ~moved
    return Classes(
        tuple(_count_classes(rows.duration[mask]) for mask in masks),
        int(np.count_nonzero(nothing)),
        int(rows.duration[nothing].sum()),
    )


def combine(a: Classes, b: Classes) -> Classes:
    """The durations of both."""
    both = tuple(add_sparse(x, y) for x, y in zip(a.found, b.found, strict=True))
    return Classes(both, a.empty + b.empty, a.empty_ns + b.empty_ns)


def finish(classes: Classes) -> Durations | None:
    """Statistics of each group; None where no operation was traced."""
    groups = {
        name: _summarize_group(*found)
        for name, found in zip(GROUPS, classes.found, strict=True)
        if len(found[0])
    }
    if not groups and not classes.empty:
        return None
    return Durations(groups, classes.empty, classes.empty_ns / 1e9)


def _count_classes(duration_ns: Int64Array) -> tuple[Int64Array, Int64Array]:
    if not len(duration_ns):
        return _EMPTY
    codes: Int64Array = np.maximum(duration_ns, 0).astype(np.float64).view(np.int64) >> _SHIFT
    return count_distinct(codes)


def _summarize_group(code: Int64Array, count: Int64Array) -> OfGroup:
    middle: Int64Array = (code << _SHIFT) + (1 << (_SHIFT - 1))
    seconds = np.where(code > 0, middle.view(np.float64), 0.0) / 1e9
    reached = np.cumsum(count)
    total = int(reached[-1])
    median = float(seconds[np.searchsorted(reached, (total - 1) // 2, "right")])
    p99 = float(seconds[np.searchsorted(reached, min(int(total * 0.99), total - 1), "right")])
    slow = seconds >= SLOW_FACTOR * median
    slow &= median > 0
    excess = float((count[slow] * (seconds[slow] - median)).sum())
    return OfGroup(total, median, p99, float(seconds[-1]), int(count[slow].sum()), excess)
