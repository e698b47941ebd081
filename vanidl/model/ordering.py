"""Whole numbers in order, counted, grouped, added up, fast: times, codes, keys of operations."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]
Whole = TypeVar("Whole", NDArray[np.int64], NDArray[np.int32])

_DENSE = 4  # a table may have as many entries a row
_EXACT = float(1 << 52)
_BITS = 63  # of a signed integer
_SHORT_BITS = 16
_FEW = 16


def stable_order(values: NDArray[np.integer[Any]]) -> NDArray[np.intp]:
    """Positions that sort whole numbers, equal ones in the order in which they came.

    numpy sorts 16-bit integers by radix, and 64-bit integers in vector registers where the
    processor has them, each ten times as fast as it finds a stable order of wide ones. So each
    number and its position are sorted as one, where both have room in 63 bits. A few runs in
    order, as of the files of a log, are merged as fast, everywhere.
    """
    falls = np.count_nonzero(values[1:] < values[:-1])
    if not falls:
        return np.arange(len(values))
    if falls < _FEW:
        return np.argsort(values, kind="stable")
    low, high = values.min(), values.max()
    span_bits, position_bits = (int(high) - int(low)).bit_length(), len(values).bit_length()
    if span_bits + position_bits > _BITS:
        return np.argsort(values, kind="stable")
    # Number and position as one, the number above.
    since = values.astype(np.int64)
    since -= low.astype(np.int64)
    if span_bits <= _SHORT_BITS:
        return np.argsort(since.astype(np.uint16), kind="stable")
    since <<= position_bits
    since |= np.arange(len(values))
    since.sort()
    since &= (1 << position_bits) - 1
    return since


def sort_within(group: NDArray[np.integer[Any]], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The values of each group, ascending, groups in their order; neither may be negative.

    As one number of both where they have room in 63 bits, which takes a quarter of the time.
    """
    if not len(values):
        return values
    bits = int(values.max()).bit_length()
    if bits + int(group.max()).bit_length() > _BITS or values.min() < 0:
        return values[np.lexsort((values, group))]
    both = (group.astype(np.int64) << bits) | values
    both.sort()
    both &= (1 << bits) - 1
    return both


def sort_rows(rows: Int64Array) -> Int64Array:
    """The rows of a table by its first column, then the second and so on; as is where sorted.

    Where the first two, as process and file, say nearly all, the others need not be sorted by.
    """
    if _is_in_order(rows):
        return rows
    rows = rows[np.lexsort(rows.T[1::-1])]
    return rows if _is_in_order(rows) else rows[np.lexsort(rows.T[::-1])]


def _is_in_order(rows: Int64Array) -> bool:
    undecided = np.ones(max(len(rows) - 1, 0), bool)
    for column in rows.T:
        if (undecided & (column[:-1] > column[1:])).any():
            return False
        undecided &= column[:-1] == column[1:]
        if not undecided.any():
            break
    return True


def find_distinct(values: Whole) -> Whole:
    """Distinct values ascending.

    By sorting: numpy's `unique` takes a hash table, in which keys with equal low bits collide.
    """
    values = np.sort(values, kind="stable")  # mostly a few runs in order, which are merged
    first: Whole = values[np.append(True, values[1:] != values[:-1])[: len(values)]]
    return first


def count_distinct(values: Int64Array) -> tuple[Int64Array, Int64Array]:
    """(distinct values ascending, how often each occurs): without sorting where they lie close."""
    if len(values) == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    low, high = int(values.min()), int(values.max())
    if high - low >= _DENSE * len(values):
        return np.unique(values, return_counts=True)
    counts = np.bincount(values - low)
    used = np.flatnonzero(counts)
    return used + low, counts[used]


def encode_densely(
    code: NDArray[np.int32] | NDArray[np.int64],
) -> tuple[Int64Array, NDArray[np.intp]]:
    """(distinct codes ascending, for each code its place among them).

    Codes that are few for the number of rows are looked up in a table instead of sorted.
    """
    if len(code) == 0:
        return np.empty(0, np.int64), np.empty(0, np.intp)
    low, high = int(code.min()), int(code.max())
    if low < 0 or high >= _DENSE * len(code):
        distinct, place = np.unique(code, return_inverse=True)
        return distinct.astype(np.int64), place
    used = np.zeros(high + 1, bool)
    used[code] = True
    number = np.cumsum(used) - 1
    return np.flatnonzero(used).astype(np.int64), number[code]


def sum_by_group(group: NDArray[np.intp], values: Int64Array, n: int) -> Int64Array:
    """Exact sums of the values by group, shape (n,)."""
    if np.abs(values).sum(dtype=float) < _EXACT:  # of floats, too: five times as fast
        return np.bincount(group, values, n).astype(np.int64)
    sums = np.zeros(n, np.int64)
    np.add.at(sums, group, values)
    return sums


def sum_by_key(key: Int64Array, values: Int64Array) -> tuple[Int64Array, Int64Array]:
    """(distinct keys ascending, exact sum of the values of each)."""
    if (key[1:] > key[:-1]).all():
        return key, values
    distinct, group = encode_densely(key)
    return distinct, sum_by_group(group, values, len(distinct))


def find_minmax_by_group(
    group: NDArray[np.intp], start: Int64Array, end: Int64Array, n: int
) -> tuple[Int64Array, Int64Array]:
    """(smallest start, largest end) by group, each of shape (n,)."""
    first = np.full(n, np.iinfo(np.int64).max)
    last = np.full(n, np.iinfo(np.int64).min)
    np.minimum.at(first, group, start)
    np.maximum.at(last, group, end)
    return first, last
