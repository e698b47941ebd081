"""Boxes of a file through pread: exactly their bytes, one call a contiguous run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from ..data.pread import ReadTotals, read_into
from ..errors import InputError
from .boxes import Box, run_length, run_starts
from .layouts import Contiguous, Fill

MOST_BLOCK_NBYTES = 4 << 20
"""Runs and the gaps between them are read in pieces of that size."""


@contextmanager
def opened(path: Path) -> Iterator[Fill]:
    """Reads boxes of an open file.

    Raises:
        InputError: It cannot be opened or read, or ends too early.
    """
    with _opened(path) as file:
        yield partial(_fill, file)


@contextmanager
def opened_through_gaps(path: Path) -> Iterator[Fill]:
    """The same, the gaps between runs read too: fewer requests, more bytes."""
    with _opened(path) as file:
        yield partial(_fill_through_gaps, file)


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
    file: int, layout: Contiguous, box: Box, out: NDArray[np.uint8]
) -> ReadTotals:
    itemsize, moved = layout.dtype.itemsize, ReadTotals()
    nbytes = run_length(layout.shape, box) * itemsize
    starts = run_starts(layout.shape, box) * itemsize + layout.offset
    rows = out.reshape(-1, nbytes)
    content = np.empty(max(MOST_BLOCK_NBYTES, nbytes), np.uint8)
    for first, last in _blocks(starts, nbytes):
        begin, span = int(starts[first]), int(starts[last - 1] - starts[first]) + nbytes
        calls = read_into(file, content[:span].data, begin)
        stride = int(starts[first + 1]) - begin if last - first > 1 else nbytes
        seen = as_strided(content, (last - first, nbytes), (stride, 1), writeable=False)
        rows[first:last] = seen
        moved += ReadTotals(span, calls)
    return moved


def _blocks(starts: NDArray[np.int64], nbytes: int) -> Iterator[tuple[int, int]]:
    """Runs [first, last) that are equally far apart, and as many as a block holds."""
    apart = np.diff(starts)
    changes = np.flatnonzero(np.diff(apart)) + 2  # a run behind a change begins again
    first = 0
    for edge in (*changes.tolist(), len(starts)):
        while first < edge:
            stride = int(apart[first]) if edge - first > 1 else nbytes
            held = 1 + max(0, MOST_BLOCK_NBYTES - nbytes) // max(stride, 1)
            last = min(edge, first + held)
            yield first, last
            first = last
