"""Reading a sample that is a file of DLIO: as a whole, in one request, then decoded in memory.

HDF5 takes a lock of its process for each of its calls, reads included, so threads that read through
it wait for each other. Here a thread reads the bytes by `pread`, and HDF5 finds them in memory.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path

import h5py
import numpy as np

from ..data.readers import Arrays
from ..errors import InputError, UsageError

RECORDS = "records"
"""HDF5 datasets of a record are named records_0, records_1 ..., before 2.0.1 records."""


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
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(
            f"expected a file of format {name} in {path}, found: {error}; generate it anew"
        ) from error


def read_bytes(path: Path) -> bytes:
    """All bytes of a file: one `pread`, as far as the operating system allows (2 GiB a call)."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size, parts, got = os.fstat(file).st_size, list[bytes](), 0
        while got < size and (part := os.pread(file, size - got, got)):
            parts.append(part)
            got += len(part)
    finally:
        os.close(file)
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

    with Image.open(BytesIO(content)) as picture:
        return {"image": np.array(picture)}  # a copy: writable


FORMATS: dict[str, Callable[[bytes], Arrays]] = {
    "hdf5": _hdf5,
    "npy": _npy,
    "npz": _npz,
    "jpeg": _image,
    "png": _image,
}
