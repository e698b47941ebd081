"""Boxes of a file through pread: exactly their bytes, one call a contiguous run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..data.pread import ReadTotals, read_into
from ..errors import InputError
from .grid import Box, run_length, run_starts
from .layouts import Contiguous, Fill

BLOCK_NBYTES = 512 << 10
"""Runs and the gaps between them are read in pieces of that size.

What was read is still in the processor's cache when its runs are copied, and a local file system
reads ahead meanwhile: on a disk, larger pieces were slower.
"""


@contextmanager
def opened(path: Path) -> Iterator[Fill]:
    """Reads boxes of an open file.

    Raises:
        InputError: It cannot be opened or read, or ends too early.
    """
    with _opened(path) as file:
        yield partial(_fill, file)


@contextmanager
def opened_through_gaps(path: Path, most: int = BLOCK_NBYTES) -> Iterator[Fill]:
    """The same, the gaps between runs read too, at most `most` bytes at once, or one run."""
    with _opened(path) as file:
        yield partial(_fill_through_gaps, file, most)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield file
        finally:
            os.close(file)
    except OSError as error:
        raise InputError(f"expected to read {path}, found: {error}; see the file") from error


def _fill(file: int, layout: Contiguous, box: Box, out: NDArray[np.uint8]) -> ReadTotals:
    itemsize = layout.dtype.itemsize
    nbytes = run_length(layout.shape, box) * itemsize
    starts = (run_starts(layout.shape, box) * itemsize + layout.offset).tolist()
    for number, start in enumerate(starts):
        read_into(file, out.data[number * nbytes : (number + 1) * nbytes], start)
    return ReadTotals(len(starts) * nbytes, len(starts))


def _fill_through_gaps(
    file: int, most: int, layout: Contiguous, box: Box, out: NDArray[np.uint8]
) -> ReadTotals:
    itemsize, moved = layout.dtype.itemsize, ReadTotals()
    sides = tuple(stop - start for start, stop in box)
    nbytes = run_length(layout.shape, box) * itemsize
    first = layout.offset + int(np.ravel_multi_index([a for a, _ in box], layout.shape)) * itemsize
    # A run is one item to NumPy: copying it as a row of bytes takes three times as long.
    run = np.dtype((np.void, nbytes))
    runs, at = out.view(run), 0
    content = np.empty(max(most, nbytes), np.uint8)
    for begin, count, stride in _blocks(layout.shape, sides, itemsize, most).tolist():
        span = (count - 1) * stride + nbytes
        moved += ReadTotals(span, read_into(file, content[:span].data, first + begin))
        runs[at : at + count] = np.ndarray((count,), run, content.data, 0, (stride,))
        at += count
    return moved


@lru_cache(maxsize=8)
def _blocks(
    shape: tuple[int, ...], sides: tuple[int, ...], itemsize: int, most: int
) -> NDArray[np.int64]:
    """Rows of (begin, runs, bytes from run to run) of what is read at once of a box of `sides`.

    A block has at most `most` bytes, or one run; its runs are equally far apart. `begin` counts
    from the box's first element: every sample of a shape is cut alike.
    """
    box = tuple((0, side) for side in sides)
    nbytes, starts = run_length(shape, box) * itemsize, run_starts(shape, box) * itemsize
    apart = np.diff(starts)
    edges = (np.flatnonzero(np.diff(apart)) + 2).tolist()  # a run behind a change begins again
    blocks, first = list[tuple[int, int, int]](), 0
    for edge in (*edges, len(starts)):
        while first < edge:
            stride = int(apart[first]) if edge - first > 1 else nbytes
            held = 1 + max(0, most - nbytes) // max(stride, 1)
            last = min(edge, first + held)
            blocks.append((int(starts[first]), last - first, stride))
            first = last
    return np.array(blocks, np.int64)
