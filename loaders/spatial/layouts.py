"""How an array lies in its file, and reading boxes of it.

    Contiguous   one piece of bytes: contiguous HDF5, NPY, raw files
    Chunked      chunks of an HDF5 dataset, filtered (compressed) or not
    ByLibrary    anything else that HDF5 can read: compact, external, virtual, other number types

`describe` finds out which, from a file and a name in it. Metadata (an HDF5 header, the places of
chunks) is read by every rank for itself: some KB a file. The bytes of a chunk are read by whoever
needs them and then put through HDF5's own filters, in a file that exists in memory only: so every
filter that the library knows is known here.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from threading import Lock
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, Protocol

import h5py
import numpy as np
from numpy.typing import NDArray

from ..data.pread import ReadTotals, read_into
from ..data.readers import open_dataset
from ..data.samples import Place
from ..errors import InputError
from .grid import (
    Box,
    Division,
    Piece,
    count_elements,
    count_extent,
    index_slices,
    intersect,
    run_length,
    run_starts,
    shift_into,
    shift_out_of,
)

if TYPE_CHECKING:
    from mpi4py import MPI

Fill = Callable[["Contiguous", Box, NDArray[np.uint8]], ReadTotals]
"""Reads a box of a contiguous array into a flat array of its bytes."""
Opener = Callable[[Path], AbstractContextManager[Fill]]
"""Opens a file for reading boxes of it."""


class Layout(Protocol):
    """An array in a file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole array."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """As stored."""

    def read(self, pieces: Sequence[Piece], out: NDArray[Any], opener: Opener) -> ReadTotals:
        """Fills `out`, an array of `dtype`, from boxes of the file.

        Raises:
            InputError: The file is shorter than it says, or damaged.
            OSError: It cannot be read.
        """


@dataclass(frozen=True)
class Contiguous:
    """An array in one piece: C order, or Fortran order (the last axis is the slowest)."""

    path: Path
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self, pieces: Sequence[Piece], out: NDArray[Any], opener: Opener) -> ReadTotals:
        """Exactly the bytes of the boxes."""
        # A column-major array is a row-major one with its axes turned round.
        if self.fortran:
            turned = Contiguous(self.path, self.offset, self.shape[::-1], self.dtype)
            turned_pieces = [Piece(p.source[::-1], p.target[::-1]) for p in pieces]
            return turned.read(turned_pieces, out.T, opener)
        with opener(self.path) as fill:
            return self.fill(pieces, out, fill)

    def fill(self, pieces: Sequence[Piece], out: NDArray[Any], fill: Fill) -> ReadTotals:
        """`read` from the open file; in C order only."""
        moved = ReadTotals()
        for piece in pieces:
            target = out[index_slices(piece.target)]
            # Straight to its place where that is in one piece.
            direct = target.flags.c_contiguous
            buffer = target if direct else np.empty(count_extent(piece.source), self.dtype)
            moved += fill(self, piece.source, buffer.reshape(-1).view(np.uint8))
            if not direct:
                target[...] = buffer
        return moved

    def flat(self, start: int, stop: int) -> Contiguous:
        """Elements [start, stop) in the order of the file, as an array of one axis."""
        offset = self.offset + start * self.dtype.itemsize
        return Contiguous(self.path, offset, (stop - start,), self.dtype)


@dataclass(frozen=True)
class _Access:
    """How an open file is read: boxes of its bytes, and chunks decoded."""

    fill: Fill
    decoder: Decoder


@dataclass(frozen=True)
class Chunked:
    """Chunks of an HDF5 dataset.

    Filtered chunks are read whole, once each, and decoded by this process; of unfiltered ones
    only the bytes inside the boxes are read. Chunks that were never written hold the fill value.
    """

    path: Path
    dataset: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    code: ChunkCode
    known: dict[tuple[int, ...], Chunk] = field(default_factory=dict, compare=False, repr=False)
    """Places of chunks that were looked up."""

    def read(self, pieces: Sequence[Piece], out: NDArray[Any], opener: Opener) -> ReadTotals:
        """Chunk by chunk."""
        moved, sides = ReadTotals(), self.code.shape
        boxes = [piece.source for piece in pieces]
        chunks = locate_chunks(self.path, self.dataset, sides, boxes, self.known)
        with opener(self.path) as fill, self.code.decoder(self.dtype) as decoder:
            for corner, chunk in chunks.items():
                # The part of the chunk that each piece wants, in coordinates of both.
                box = tuple((a, a + n) for a, n in zip(corner, sides, strict=True))
                shared = [(intersect(p.source, box), p) for p in pieces]
                cut = [
                    Piece(shift_into(each, box), shift_out_of(shift_into(each, p.source), p.target))
                    for each, p in shared
                    if each is not None
                ]
                moved += self._read_chunk(chunk, cut, out, _Access(fill, decoder))
        return moved

    def _read_chunk(
        self, chunk: Chunk, cut: list[Piece], out: NDArray[Any], access: _Access
    ) -> ReadTotals:
        # A chunk that was never written has no bytes in the file.
        if chunk.nbytes == 0:
            for piece in cut:
                out[index_slices(piece.target)] = self.code.fill
            return ReadTotals()
        # Unfiltered, it is a contiguous array by itself: only the wanted boxes are read.
        if not self.code.filters:
            stored = Contiguous(self.path, chunk.offset, self.code.shape, self.dtype)
            return stored.fill(cut, out, access.fill)
        # Filtered, it is read whole and decoded once for all pieces.
        content = np.empty(chunk.nbytes, np.uint8)
        as_bytes = Contiguous(self.path, chunk.offset, content.shape, content.dtype)
        moved = access.fill(as_bytes, ((0, chunk.nbytes),), content)
        decoded = access.decoder(content, chunk.filter_mask)
        for piece in cut:
            out[index_slices(piece.target)] = decoded[index_slices(piece.source)]
        return moved


@dataclass(frozen=True)
class ByLibrary:
    """What only the HDF5 library can read.

    It does not tell which bytes it took from the file: the boxes' are given, one call a box.
    """

    path: Path
    dataset: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self, pieces: Sequence[Piece], out: NDArray[Any], opener: Opener) -> ReadTotals:  # noqa: ARG002
        """Hyperslabs through h5py."""
        with open_dataset(self.path, self.dataset) as dataset:
            for piece in pieces:
                out[index_slices(piece.target)] = dataset[index_slices(piece.source)]
        elements = sum(math.prod(count_extent(piece.source)) for piece in pieces)
        return ReadTotals(elements * self.dtype.itemsize, len(pieces))


Corner = tuple[int, ...]
Decoder = Callable[[NDArray[np.uint8], int], NDArray[Any]]
"""(bytes as stored, filter mask) -> the chunk."""


@dataclass(frozen=True)
class Chunk:
    """Where a chunk lies: first byte, bytes (0: never written), filters that were left out."""

    offset: int
    nbytes: int
    filter_mask: int


@dataclass(frozen=True)
class ChunkCode:
    """How chunks are stored: shape, filters (code, flags, values) in order, and the fill value."""

    shape: tuple[int, ...]
    filters: tuple[tuple[int, int, tuple[int, ...]], ...]
    fill: Any

    @classmethod
    def of(cls, dataset: h5py.Dataset) -> ChunkCode:
        """The code of a chunked dataset."""
        creation = dataset.id.get_create_plist()
        found = (creation.get_filter(i) for i in range(creation.get_nfilters()))
        filters = tuple((code, flags, tuple(values)) for code, flags, values, _ in found)
        return cls(dataset.chunks, filters, dataset.fillvalue)

    @contextmanager
    def decoder(self, dtype: np.dtype[Any]) -> Iterator[Decoder]:
        """A function that decodes chunks of elements of `dtype`."""
        name = f"chunks-{threading.get_ident()}"  # HDF5 lets nobody open one name twice
        with h5py.File(name, "w", driver="core", backing_store=False) as file:
            datasets: dict[int, h5py.Dataset] = {}

            def decode(content: NDArray[np.uint8], filter_mask: int) -> NDArray[Any]:
                if filter_mask not in datasets:
                    datasets[filter_mask] = self._make_dataset(file, filter_mask, dtype)
                # The chunk that the bytes are, by the dataset's filters.
                dataset = datasets[filter_mask]
                # Written as they are and read back decoded: HDF5's own filters do it, in memory.
                dataset.id.write_direct_chunk((0,) * dataset.ndim, content.data)
                try:
                    decoded: NDArray[Any] = dataset[()]
                except OSError as error:
                    raise InputError(
                        f"expected a chunk that its filters decode, found: {error}; "
                        "make the data again"
                    ) from error
                return decoded

            yield decode

    def _make_dataset(
        self, file: h5py.File, filter_mask: int, dtype: np.dtype[Any]
    ) -> h5py.Dataset:
        """A dataset of one chunk, with the filters that the mask does not leave out.

        A chunk that is written with a mask of its own cannot be read in the same file (HDF5 2.0).
        """
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_chunk(self.shape)
        # Bit n of the mask says that filter n was left out.
        for number, (code, flags, values) in enumerate(self.filters):
            if not filter_mask >> number & 1:
                creation.set_filter(code, flags, values)
        space, kind = h5py.h5s.create_simple(self.shape), h5py.h5t.py_create(dtype, logical=True)
        name = str(filter_mask).encode()
        return h5py.Dataset(h5py.h5d.create(file.id, name, kind, space, creation))


def locate_chunks(
    path: Path,
    dataset: str,
    sides: tuple[int, ...],
    boxes: Sequence[Box],
    known: dict[Corner, Chunk],
) -> dict[Corner, Chunk]:
    """Every chunk that the boxes touch, once each; the file is opened for those not in `known`."""
    wanted = list(dict.fromkeys(corner for box in boxes for corner in find_corners(box, sides)))
    missing = [corner for corner in wanted if corner not in known]
    if missing:
        with open_dataset(path, dataset) as chunked:
            for corner in missing:
                info = chunked.id.get_chunk_info_by_coord(corner)
                if info.byte_offset is None:  # it was never written
                    known[corner] = Chunk(0, 0, 0)
                else:
                    known[corner] = Chunk(info.byte_offset, info.size, info.filter_mask)
    return {corner: known[corner] for corner in wanted}


def find_corners(box: Box, sides: tuple[int, ...]) -> Iterable[Corner]:
    """First elements of the chunks that a box touches."""
    axes = (range(a // n * n, b, n) for (a, b), n in zip(box, sides, strict=True))
    return product(*axes)


def measure_chunk_overlap(
    shape: tuple[int, ...], sides: tuple[int, ...], division: Division
) -> float:
    """Chunks that the parts touch, summed over parts / chunks of the array: 1 is none twice."""
    touched = 0
    for part in range(division.parts):
        boxes = [piece.source for piece in division.window(shape, part).pieces]
        touched += len({corner for box in boxes for corner in find_corners(box, sides)})
    return touched / math.prod(-(-n // side) for n, side in zip(shape, sides, strict=True))


NPY = ".npy"
_NUMBERS = "biufc"
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_ONE_AT_A_TIME = Lock()
"""Python before 3.11.9 and 3.12.3 fails at times where threads parse literals at once."""


@dataclass(frozen=True)
class RawFile:
    """An array without a header: its file, shape, NumPy type (`<i2`) and first byte."""

    path: Path
    shape: tuple[int, ...]
    dtype: str
    offset: int = 0


def describe(source: Place | RawFile) -> Layout:
    """How an array is laid out: a raw file, an NPY file (by its suffix), else an HDF5 dataset.

    Raises:
        InputError: The file is missing, too short, not of that kind, or holds no numbers.
    """
    layout: Layout
    # By what names it: a raw file says all itself, the others have headers.
    if isinstance(source, RawFile):
        kind = np.dtype(source.dtype)
        layout = Contiguous(Path(source.path), source.offset, source.shape, kind)
    elif source.path.suffix == NPY:
        layout = _read_npy_header(source.path)
    else:
        layout = _describe_dataset(source.path, source.dataset)
    if layout.dtype.kind not in _NUMBERS:
        raise InputError(
            f"expected numbers in {source.path}, found elements of type {layout.dtype}: "
            "name another array"
        )
    if not isinstance(layout, Contiguous):
        return layout

    # The file is long enough: a short read must not come as a surprise.
    needed = layout.offset + layout.nbytes
    try:
        size = layout.path.stat().st_size
    except OSError as error:
        raise InputError(f"expected a file {layout.path}, found: {error}; name another") from error
    if size < needed:
        raise InputError(
            f"expected at least {needed} bytes in {layout.path}, found {size}: make it again"
        )
    return layout


def _describe_dataset(path: Path, name: str) -> Layout:
    with open_dataset(path, name) as dataset:
        # A type that NumPy has as it is stored; any other is converted by the library.
        plain = h5py.h5t.py_create(dataset.dtype, logical=True).equal(dataset.id.get_type())
        if plain and dataset.chunks is not None:
            return Chunked(path, name, dataset.shape, dataset.dtype, ChunkCode.of(dataset))
        offset = dataset.id.get_offset()
        if plain and offset is not None and dataset.external is None:
            return Contiguous(path, offset, dataset.shape, dataset.dtype)
        return ByLibrary(path, name, dataset.shape, dataset.dtype)


def _read_npy_header(path: Path) -> Contiguous:
    try:
        with path.open("rb") as file:
            read_header = _HEADERS[np.lib.format.read_magic(file)]
            with _ONE_AT_A_TIME:
                shape, fortran, dtype = read_header(file)
            return Contiguous(path, file.tell(), shape, dtype, fortran)
    except (OSError, ValueError, KeyError, TypeError, SyntaxError, TokenError) as error:
        raise InputError(
            f"expected an NPY file of version 1 or 2 in {path}, found: {error}; save it again"
        ) from error


# Boxes of a file through pread: exactly their bytes, one call a contiguous run.

BLOCK_NBYTES = 512 << 10
"""Runs and the gaps between them are read in pieces of that size.

What was read is still in the processor's cache when its runs are copied, and a local file system
reads ahead meanwhile: on a disk, larger pieces were slower.
"""


@contextmanager
def open_boxes(path: Path) -> Iterator[Fill]:
    """Reads boxes of an open file.

    Raises:
        InputError: It cannot be opened or read, or ends too early.
    """
    with _open_file(path) as file:
        yield partial(_fill, file)


@contextmanager
def open_through_gaps(path: Path, most: int = BLOCK_NBYTES) -> Iterator[Fill]:
    """The same, the gaps between runs read too, at most `most` bytes at once, or one run."""
    with _open_file(path) as file:
        yield partial(_fill_through_gaps, file, most)


@contextmanager
def _open_file(path: Path) -> Iterator[int]:
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
    # One read for each run of bytes that lie together.
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
    # Each block of runs in one read, of which the runs alone are copied.
    for begin, count, stride in _plan_blocks(layout.shape, sides, itemsize, most).tolist():
        span = (count - 1) * stride + nbytes
        moved += ReadTotals(span, read_into(file, content[:span].data, first + begin))
        runs[at : at + count] = np.ndarray((count,), run, content.data, 0, (stride,))
        at += count
    return moved


@lru_cache(maxsize=8)
def _plan_blocks(
    shape: tuple[int, ...], sides: tuple[int, ...], itemsize: int, most: int
) -> NDArray[np.int64]:
    """Rows of (begin, runs, bytes from run to run) of what is read at once of a box of `sides`.

    A block has at most `most` bytes, or one run; its runs are equally far apart. `begin` counts
    from the box's first element: every sample of a shape is cut alike.
    """
    box = tuple((0, side) for side in sides)
    nbytes, starts = run_length(shape, box) * itemsize, run_starts(shape, box) * itemsize
    apart = np.diff(starts)
    # Runs equally far apart go together, as many as a block holds.
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


# Boxes of a file through MPI-IO: a subarray view at the array's offset, one read.
#
# Every rank opens the file for itself (COMM_SELF), so nobody waits for a rank that fails. Data
# sieving is switched off: it reads the gaps between runs too (with MPICH's ROMIO twice the bytes
# where a row is cut in two). MPI's own collective reads are not used: with ROMIO, a read error on
# one rank leaves the others waiting (MPICH 5.0.2). `Joint` shares reads instead.

HINTS = {"romio_ds_read": "disable", "romio_cb_read": "disable"}


@contextmanager
def open_boxes_by_mpi(path: Path) -> Iterator[Fill]:
    """Reads boxes of a file that is open for this rank alone.

    Raises:
        InputError: It cannot be opened or read, or ends too early.
    """
    from mpi4py import MPI

    info = MPI.Info.Create(HINTS)
    try:
        file = MPI.File.Open(MPI.COMM_SELF, str(path), MPI.MODE_RDONLY, info)
        try:
            yield partial(_fill_by_mpi, file)
        finally:
            file.Close()
    except MPI.Exception as error:
        raise InputError(f"expected to read {path}, found: {error}; see the file") from error
    finally:
        info.Free()


def _fill_by_mpi(
    file: MPI.File, layout: Contiguous, box: Box, out: NDArray[np.uint8]
) -> ReadTotals:
    from mpi4py import MPI

    status, view = MPI.Status(), MPI.BYTE.Create_subarray(*_count_in_bytes(layout, box)).Commit()
    try:
        file.Set_view(layout.offset, MPI.BYTE, view)
        file.Read([out, MPI.BYTE], status)
    finally:
        view.Free()
    # MPI says nothing of a file that ends early but how much it has read.
    if status.Get_count(MPI.BYTE) != len(out):
        raise InputError(
            f"expected {len(out)} bytes from {layout.path}, found {status.Get_count(MPI.BYTE)}: "
            "the file ends before; make it again"
        )
    return ReadTotals(len(out), count_elements(box) // run_length(layout.shape, box))


def is_mpi_multithreaded() -> bool:
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
