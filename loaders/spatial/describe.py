"""What lies where: a file and a name in it -> how the array is laid out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from tokenize import TokenError

import h5py
import numpy as np

from ..data.hdf5 import opened
from ..data.samples import Place
from ..errors import InputError
from .chunks import ChunkCode
from .layouts import ByLibrary, Chunked, Contiguous, Layout

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
    found = _found(source)
    if found.dtype.kind not in _NUMBERS:
        raise InputError(
            f"expected numbers in {source.path}, found elements of type {found.dtype}: "
            "name another array"
        )
    return _whole(found) if isinstance(found, Contiguous) else found


def _found(source: Place | RawFile) -> Layout:
    if isinstance(source, RawFile):
        kind = np.dtype(source.dtype)
        return Contiguous(Path(source.path), source.offset, source.shape, kind)
    if source.path.suffix == NPY:
        return _npy(source.path)
    with opened(source.path, source.dataset) as dataset:
        return _of_dataset(source.path, source.dataset, dataset)


def _of_dataset(path: Path, name: str, dataset: h5py.Dataset) -> Layout:
    plain = h5py.h5t.py_create(dataset.dtype, logical=True).equal(dataset.id.get_type())
    if plain and dataset.chunks is not None:
        return Chunked(path, name, dataset.shape, dataset.dtype, ChunkCode.of(dataset))
    offset = dataset.id.get_offset()
    if plain and offset is not None and dataset.external is None:
        return Contiguous(path, offset, dataset.shape, dataset.dtype)
    return ByLibrary(path, name, dataset.shape, dataset.dtype)


def _npy(path: Path) -> Contiguous:
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


def _whole(layout: Contiguous) -> Contiguous:
    """The layout, if its file is long enough: a short read must not come as a surprise."""
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
