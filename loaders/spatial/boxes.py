"""Boxes in an array: half-open ranges, one an axis; what they share and how they lie in a file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Box = tuple[tuple[int, int], ...]
"""(start, stop) of each axis, half-open."""


def whole(shape: tuple[int, ...]) -> Box:
    """The box that is all of an array."""
    return tuple((0, n) for n in shape)


def extent(box: Box) -> tuple[int, ...]:
    """Shape of a box."""
    return tuple(stop - start for start, stop in box)


def volume(box: Box) -> int:
    """Elements of a box; 1 for no axes."""
    return math.prod(extent(box))


def slices(box: Box) -> tuple[Any, ...]:
    """The box as an index of NumPy and h5py: a view, of an array without axes too."""
    return (..., *(slice(*each) for each in box))


def within(box: Box, outer: Box) -> Box:
    """The same box, counted from the corner of `outer`."""
    return tuple((a - low, b - low) for (a, b), (low, _) in zip(box, outer, strict=True))


def intersection(one: Box, other: Box) -> Box | None:
    """What two boxes share; None where that is empty."""
    shared = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))
    return shared if all(start < stop for start, stop in shared) else None


def run_length(shape: tuple[int, ...], box: Box) -> int:
    """Elements of the box that lie one behind the other in a C-ordered array of `shape`."""
    length = 1
    for n, (start, stop) in zip(reversed(shape), reversed(box), strict=True):
        length *= stop - start
        if stop - start != n:
            break
    return length


def run_starts(shape: tuple[int, ...], box: Box) -> NDArray[np.int64]:
    """First element of each contiguous run of the box, ascending, counted in the whole array."""
    starts, stride = np.zeros(1, np.int64), 1
    merged = True
    for n, (start, stop) in zip(reversed(shape), reversed(box), strict=True):
        if merged:  # the run goes on through this axis
            starts = starts + start * stride
            merged = stop - start == n
        else:
            along = np.arange(start, stop, dtype=np.int64) * stride
            starts = (along[:, None] + starts[None, :]).ravel()
        stride *= n
    return starts


def boxes_of_range(shape: tuple[int, ...], start: int, stop: int) -> Iterator[Box]:
    """Boxes that together are the elements [start, stop) of a C-ordered array, in that order.

    At most 2 * axes - 1 of them: whole rows in the middle, broken ones at the ends.
    """
    if start >= stop:
        return
    if len(shape) == 1:
        yield ((start, stop),)
        return
    inner = math.prod(shape[1:])
    first, last = -(-start // inner), stop // inner
    if first > last:  # both ends in one row
        yield from _in_row(shape, last, start - last * inner, stop - last * inner)
        return
    if start < first * inner:
        yield from _in_row(shape, first - 1, start - (first - 1) * inner, inner)
    if first < last:
        yield ((first, last), *whole(shape[1:]))
    if last * inner < stop:
        yield from _in_row(shape, last, 0, stop - last * inner)


def _in_row(shape: tuple[int, ...], row: int, start: int, stop: int) -> Iterator[Box]:
    for box in boxes_of_range(shape[1:], start, stop):
        yield ((row, row + 1), *box)
