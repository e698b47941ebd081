"""Boxes of a file through pread: exactly their bytes, one call a contiguous run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..data.pread import ReadTotals, read_into
from ..errors import InputError
from .boxes import Box, run_length, run_starts
from .layouts import Contiguous, Fill


@contextmanager
def opened(path: Path) -> Iterator[Fill]:
    """Reads boxes of an open file.

    Raises:
        InputError: It cannot be opened or read, or ends too early.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield partial(_fill, file)
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
