"""How an array lies in its file, and reading boxes of it.

    Contiguous   one piece of bytes: contiguous HDF5, NPY, raw files
    Chunked      chunks of an HDF5 dataset, filtered (compressed) or not
    ByLibrary    anything else that HDF5 can read: compact, external, virtual, other number types

Metadata (an HDF5 header, the places of chunks) is read by every rank for itself: some KB a file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..data.hdf5 import opened
from ..data.pread import ReadTotals
from .boxes import Box, extent, intersection, slices, within
from .chunks import Chunk, ChunkCode, Decoder, located
from .grid import Piece

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
            target = out[slices(piece.target)]
            direct = target.flags.c_contiguous
            buffer = target if direct else np.empty(extent(piece.source), self.dtype)
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
        chunks = located(self.path, self.dataset, sides, boxes, self.known)
        with opener(self.path) as fill, self.code.decoder(self.dtype) as decoder:
            for corner, chunk in chunks.items():
                box = tuple((a, a + n) for a, n in zip(corner, sides, strict=True))
                shared = [(intersection(p.source, box), p) for p in pieces]
                cut = [
                    Piece(within(each, box), _placed(within(each, p.source), p.target))
                    for each, p in shared
                    if each is not None
                ]
                moved += self._read_chunk(chunk, cut, out, _Access(fill, decoder))
        return moved

    def _read_chunk(
        self, chunk: Chunk, cut: list[Piece], out: NDArray[Any], access: _Access
    ) -> ReadTotals:
        if chunk.nbytes == 0:
            for piece in cut:
                out[slices(piece.target)] = self.code.fill
            return ReadTotals()
        if not self.code.filters:
            stored = Contiguous(self.path, chunk.offset, self.code.shape, self.dtype)
            return stored.fill(cut, out, access.fill)
        content = np.empty(chunk.nbytes, np.uint8)
        as_bytes = Contiguous(self.path, chunk.offset, content.shape, content.dtype)
        moved = access.fill(as_bytes, ((0, chunk.nbytes),), content)
        decoded = access.decoder(content, chunk.filter_mask)
        for piece in cut:
            out[slices(piece.target)] = decoded[slices(piece.source)]
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
        with opened(self.path, self.dataset) as dataset:
            for piece in pieces:
                out[slices(piece.target)] = dataset[slices(piece.source)]
        elements = sum(math.prod(extent(piece.source)) for piece in pieces)
        return ReadTotals(elements * self.dtype.itemsize, len(pieces))


def _placed(inner: Box, outer: Box) -> Box:
    """A box inside another, counted from where the other is."""
    return tuple((a + low, b + low) for (a, b), (low, _) in zip(inner, outer, strict=True))
