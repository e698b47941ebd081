"""Reading a sample that is a file of DLIO: as a whole, in one request, then decoded in memory.

HDF5 takes a lock of its process for each of its calls, reads included, so threads that read through
it wait for each other. Here a thread reads the bytes by `pread`, and HDF5 finds them in memory.
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from tokenize import TokenError

import h5py
import numpy as np

from ..data.readers import Arrays
from ..errors import InputError, UsageError
from .descriptors import Descriptors

_FILES = Descriptors()
RECORDS = "records"
"""HDF5 datasets of a record are named records_0, records_1 ..., before 2.0.1 records."""


_DAMAGE = (
    *(OSError, ValueError, KeyError, TypeError, EOFError, RuntimeError),
    *(MemoryError, OverflowError),  # a header that claims too much
    *(SyntaxError, TokenError, NotImplementedError, zipfile.BadZipFile, zlib.error, struct.error),
)
"""What libraries raise at damaged files."""


def find_format(name: str) -> Callable[[bytes], Arrays]:
    """What makes arrays of the bytes of a file.

    Raises:
        UsageError: A format that these loaders do not read.
    """
    if name not in FORMATS:
        raise UsageError(
            f"expected dataset.format among {', '.join(FORMATS)}, found {name}: choose one, or "
            "DLIO's own loader"
        )
    return FORMATS[name]


def read_sample(path: Path, name: str) -> Arrays:
    """The arrays of a file.

    Raises:
        InputError: It cannot be read, or is not of that format.
        UsageError: A format that these loaders do not read.
    """
    decode = find_format(name)
    try:
        return decode(read_bytes(path))
    except _DAMAGE as error:
        raise InputError(
            f"expected a file of format {name} in {path}, found: {error}; generate it again"
        ) from error


def read_bytes(path: Path) -> bytes:
    """All bytes of a file: one `pread`, as far as the operating system allows (2 GiB a call)."""
    with _FILES.opened(path) as file:
        size, parts, got = os.fstat(file).st_size, list[bytes](), 0
        while got < size and (part := os.pread(file, size - got, got)):
            parts.append(part)
            got += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def record_names(file: h5py.File) -> Sequence[str]:
    """Names of the datasets that hold records."""
    names = sorted(name for name in file if name.startswith(RECORDS))
    if not names:
        raise KeyError(f"no dataset {RECORDS}")
    return names


def _hdf5(content: bytes) -> Arrays:
    with h5py.File(BytesIO(content), "r") as file:
        return {name: file[name][()] for name in record_names(file)}


def _npy(content: bytes) -> Arrays:
    return {"x": np.load(BytesIO(content), allow_pickle=False)}


def _npz(content: bytes) -> Arrays:
    with np.load(BytesIO(content), allow_pickle=False) as members:
        return {"x": members["x"]}


def _image(content: bytes) -> Arrays:
    from PIL import Image

    try:
        with Image.open(BytesIO(content)) as picture:
            return {"image": np.array(picture)}  # a copy: writable
    except Image.DecompressionBombError as error:
        raise ValueError(str(error)) from error


FORMATS: dict[str, Callable[[bytes], Arrays]] = {
    "hdf5": _hdf5,
    "npy": _npy,
    "npz": _npz,
    "jpeg": _image,
    "png": _image,
}
