"""A reader for DLIO's own loaders: of files that a real training reads, instead of generated ones.

    reader:
      reader_classname: vanidl_loaders.dlio.OwnFilesReader

DLIO's readers expect the names that its generator gives to arrays, and its generator has one layout
of HDF5: files of another one take other requests. Here the variable `ARRAY` names the array, and a
file is opened for each sample, its row read, and closed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from ..errors import UsageError
from .benchmark import FormatReader

ARRAY = "VANIDL_DLIO_ARRAY"
"""Environment variable with the name of the dataset in HDF5 files, of the member in NPZ files."""


class OwnFilesReader(FormatReader):
    """Row i of the array (HDF5), or what lies at i on its last axis (NPZ, as DLIO has it)."""

    def __init__(self, dataset_type: Any, thread_index: int, epoch: int) -> None:  # noqa: ANN401, ARG002
        super().__init__(dataset_type, thread_index)
        self._format = str(self._args.format)
        self._array = os.environ.get(ARRAY, "")
        if self._format not in ("hdf5", "npz") or not self._array:
            raise UsageError(
                f"expected dataset.format hdf5 or npz and the name of the array in ${ARRAY}, found "
                f"{self._format} and {self._array or 'none'}: set both"
            )

    def open(self, filename: str) -> Any:  # noqa: ANN401 - what get_sample takes
        """The opened file; of NPZ the array."""
        if self._format == "hdf5":
            return h5py.File(filename)
        with np.load(filename, allow_pickle=False) as members:
            return members[self._array]

    def get_sample(self, filename: str, sample_index: int) -> Any:  # noqa: ANN401 - an array
        """Reads one sample; what DLIO hands on is a constant, as with its own readers."""
        opened = self.open_file_map[filename]
        if self._format == "hdf5":
            return opened[self._array][sample_index]
        return opened[..., sample_index]

    def close(self, filename: str) -> None:
        """Ends a file."""
        if self._format == "hdf5":
            self.open_file_map[filename].close()

    def next(self) -> Iterator[Any]:
        """Batches, for loaders that iterate."""
        yield from super().next()

    def read_index(self, image_idx: int, step: int) -> Any:  # noqa: ANN401
        """One sample by its number."""
        return super().read_index(image_idx, step)

    def finalize(self) -> None:
        """No file stays open."""

    def is_index_based(self) -> bool:
        """Samples can be asked for by number."""
        return True

    def is_iterator_based(self) -> bool:
        """Batches can be iterated over."""
        return True
