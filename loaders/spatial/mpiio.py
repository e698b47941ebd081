"""Boxes of a file through MPI-IO: a subarray view at the array's offset, one read.

Every rank opens the file for itself (COMM_SELF), so nobody waits for a rank that fails. Data
sieving is switched off: it reads the gaps between runs too (with MPICH's ROMIO twice the bytes
where a row is cut in two). MPI's own collective reads are not used: with ROMIO, a read error on
one rank leaves the others waiting (MPICH 5.0.2). `vanidl_loaders.spatial.reading` shares reads
instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..data.pread import ReadTotals
from ..errors import InputError
from .grid import Box, count_elements, count_extent, run_length
from .layouts import Contiguous, Fill

if TYPE_CHECKING:
    from mpi4py import MPI

HINTS = {"romio_ds_read": "disable", "romio_cb_read": "disable"}


@contextmanager
def open_boxes(path: Path) -> Iterator[Fill]:
    """Reads boxes of a file that is open for this rank alone.

    Raises:
        InputError: It cannot be opened or read, or ends too early.
    """
    from mpi4py import MPI

    info = MPI.Info.Create(HINTS)
    try:
        file = MPI.File.Open(MPI.COMM_SELF, str(path), MPI.MODE_RDONLY, info)
        try:
            yield partial(_fill, file)
        finally:
            file.Close()
    except MPI.Exception as error:
        raise InputError(f"expected to read {path}, found: {error}; see the file") from error
    finally:
        info.Free()


def _fill(file: MPI.File, layout: Contiguous, box: Box, out: NDArray[np.uint8]) -> ReadTotals:
    from mpi4py import MPI

    status, view = MPI.Status(), MPI.BYTE.Create_subarray(*_count_in_bytes(layout, box)).Commit()
    try:
        file.Set_view(layout.offset, MPI.BYTE, view)
        file.Read([out, MPI.BYTE], status)
    finally:
        view.Free()
    if status.Get_count(MPI.BYTE) != len(out):
        raise InputError(
            f"expected {len(out)} bytes from {layout.path}, found {status.Get_count(MPI.BYTE)}: "
            "the file ends before; make it again"
        )
    return ReadTotals(len(out), count_elements(box) // run_length(layout.shape, box))


def is_multithreaded() -> bool:
    """True where a thread may read while another sends: MPI was started so."""
    from mpi4py import MPI

    return bool(MPI.Query_thread() == MPI.THREAD_MULTIPLE)


def _count_in_bytes(
    layout: Contiguous, box: Box
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Shape, box's shape and box's corner, the last axis in bytes; of any type and byte order.

    Axes that the box covers are merged into the one before them: fewer for MPI to go through.
    """
    sizes, parts, starts = [layout.dtype.itemsize], [layout.dtype.itemsize], [0]
    cut = zip(reversed(layout.shape), reversed(count_extent(box)), reversed(box), strict=True)
    for n, part, (start, _) in cut:
        if parts[0] == sizes[0]:  # the axis behind is covered
            starts[0], parts[0], sizes[0] = start * sizes[0], part * sizes[0], n * sizes[0]
        else:
            sizes, parts, starts = [n, *sizes], [part, *parts], [start, *starts]
    return tuple(sizes), tuple(parts), tuple(starts)
