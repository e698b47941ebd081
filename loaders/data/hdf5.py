"""Opening one dataset of an HDF5 file for as long as it is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import h5py

from ..errors import InputError


@contextmanager
def opened(path: Path, dataset: str) -> Iterator[h5py.Dataset]:
    """The open dataset.

    Raises:
        InputError: No HDF5 file there, or no such dataset in it.
    """
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise InputError(f"expected an HDF5 file {path}, found: {error}; make it again") from error
    try:
        found = file.get(dataset)
        if not isinstance(found, h5py.Dataset):
            raise InputError(
                f"expected the dataset {dataset} in {path}, found {', '.join(file) or 'nothing'} "
                "at its root: correct the name"
            )
        yield found
    finally:
        close(file)


def close(file: h5py.File) -> None:
    """Closes a file that was read. Where its storage is gone that fails, and says nothing new."""
    with suppress(RuntimeError):
        file.close()
