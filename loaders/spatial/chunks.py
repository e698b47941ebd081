"""Chunks of an HDF5 dataset: where they lie, and decoding them without the file.

A chunk's bytes are read by whoever needs them and then put through HDF5's own filters, in a file
that exists in memory only: so every filter that the library knows is known here.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ..data.hdf5 import opened
from ..errors import InputError
from .boxes import Box
from .grid import Division

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
                    datasets[filter_mask] = self._dataset(file, filter_mask, dtype)
                return _through(datasets[filter_mask], content)

            yield decode

    def _dataset(self, file: h5py.File, filter_mask: int, dtype: np.dtype[Any]) -> h5py.Dataset:
        """A dataset of one chunk, with the filters that the mask does not leave out.

        A chunk that is written with a mask of its own cannot be read in the same file (HDF5 2.0).
        """
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_chunk(self.shape)
        for number, (code, flags, values) in enumerate(self.filters):
            if not filter_mask >> number & 1:
                creation.set_filter(code, flags, values)
        space, kind = h5py.h5s.create_simple(self.shape), h5py.h5t.py_create(dtype, logical=True)
        name = str(filter_mask).encode()
        return h5py.Dataset(h5py.h5d.create(file.id, name, kind, space, creation))


def _through(dataset: h5py.Dataset, content: NDArray[np.uint8]) -> NDArray[Any]:
    """The chunk that the bytes are, by the dataset's filters."""
    dataset.id.write_direct_chunk((0,) * dataset.ndim, content.data)
    try:
        decoded: NDArray[Any] = dataset[()]
    except OSError as error:
        raise InputError(
            f"expected a chunk that its filters decode, found: {error}; make the data again"
        ) from error
    return decoded


def located(
    path: Path,
    dataset: str,
    sides: tuple[int, ...],
    boxes: Sequence[Box],
    known: dict[Corner, Chunk],
) -> dict[Corner, Chunk]:
    """Every chunk that the boxes touch, once each; the file is opened for those not in `known`."""
    wanted = list(dict.fromkeys(corner for box in boxes for corner in corners(box, sides)))
    missing = [corner for corner in wanted if corner not in known]
    if missing:
        with opened(path, dataset) as found:
            for corner in missing:
                known[corner] = _chunk(found, corner)
    return {corner: known[corner] for corner in wanted}


def corners(box: Box, sides: tuple[int, ...]) -> Iterable[Corner]:
    """First elements of the chunks that a box touches."""
    axes = (range(a // n * n, b, n) for (a, b), n in zip(box, sides, strict=True))
    return product(*axes)


def chunk_overlap(shape: tuple[int, ...], sides: tuple[int, ...], division: Division) -> float:
    """Chunks that the parts touch, summed over parts / chunks of the array: 1 is none twice."""
    touched = 0
    for part in range(division.parts):
        boxes = [piece.source for piece in division.window(shape, part).pieces]
        touched += len({corner for box in boxes for corner in corners(box, sides)})
    return touched / math.prod(-(-n // side) for n, side in zip(shape, sides, strict=True))


def _chunk(dataset: h5py.Dataset, corner: Corner) -> Chunk:
    info = dataset.id.get_chunk_info_by_coord(corner)
    if info.byte_offset is None:
        return Chunk(0, 0, 0)
    return Chunk(info.byte_offset, info.size, info.filter_mask)
