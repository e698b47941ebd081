"""The order of whole numbers, fast: times, codes and keys of millions of operations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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
