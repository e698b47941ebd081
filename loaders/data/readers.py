"""Reading one sample from its place: HDF5 or image file, opened lazily in each process.

A reader can be pickled and forked: it holds no open file until it reads, and notices when it
wakes up in another process than the one that opened its files.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import h5py
import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .samples import Field, Place, SampleSet

MOST_OPEN_FILES = 16  # of a process; the one that was used longest ago is closed

Arrays = dict[str, NDArray[Any]]
"""The arrays of one sample, by name of the field; read-only by convention."""


class Reader(Protocol):
    """Reads samples by id."""

    def read(self, sample: int) -> Arrays:
        """All arrays of a sample."""

    def requests(self) -> int:
        """Read calls that one sample takes: one per contiguous run."""

    def nbytes(self) -> int:
        """Bytes in storage of the sample that was read last."""

    def close(self) -> None:
        """Closes what is open; reading opens again."""


@runtime_checkable
class ReadTheirWay(Protocol):
    """Samples of which no layout says how they are read."""

    def own_reader(self) -> Reader:
        """A reader for them."""


class HDF5Reader:
    """Samples in HDF5 files. At most 16 files stay open, the least recently used is closed."""

    def __init__(self, samples: SampleSet) -> None:
        self._samples = samples
        self._files: OrderedDict[Path, h5py.File] = OrderedDict()
        self._datasets: dict[tuple[Path, str], h5py.Dataset] = {}
        self._of_rows: dict[str, h5py.Dataset] = {}
        self._process = os.getpid()

    def read(self, sample: int) -> Arrays:
        """All arrays of a sample.

        Raises:
            InputError: The file, the dataset or its shape is not as described, or storage fails.
            IndexError: No such sample.
        """
        try:
            if self._samples.layout == "rows" and 0 <= sample < len(self._samples):
                return {name: rows[sample] for name, rows in self._open_rows().items()}
            return {
                field.name: self.array(self._samples.place(sample, field), field)
                for field in self._samples.fields
            }
        except OSError as error:  # HDF5's own text is a page
            why = os.strerror(error.errno) if error.errno else error
            raise InputError(
                f"expected to read sample {sample} of {self._samples.folder}, found: {why}; see to "
                "the storage and start again"
            ) from error

    def _open_rows(self) -> dict[str, h5py.Dataset]:
        """The datasets whose rows are samples, all of one file: found and checked once."""
        if not self._of_rows or self._process != os.getpid():
            places = {each: self._samples.place(0, each) for each in self._samples.fields}
            for field, place in places.items():
                self.array(place, field)  # raises where it is another
            self._of_rows = {field.name: self.dataset(p) for field, p in places.items()}
        return self._of_rows

    def array(self, place: Place, field: Field) -> NDArray[Any]:
        """One array of one sample."""
        dataset = self.dataset(place)
        # Without a row the dataset is one sample.
        found = dataset.shape if place.row is None else dataset.shape[1:]
        if found != field.shape:
            raise InputError(
                f"expected {place.dataset} of shape {field.shape} in {place.path}, "
                f"found {found}: make the data again"
            )
        value: NDArray[Any] = dataset[()] if place.row is None else dataset[place.row]
        return value

    def dataset(self, place: Place) -> h5py.Dataset:
        """The open HDF5 dataset that a place names."""
        try:
            file, key = self._open_file(place.path), (place.path, place.dataset)
            # Looking a dataset up by name takes longer than reading a small sample: done once.
            if key not in self._datasets:
                self._datasets[key] = file[place.dataset]
            return self._datasets[key]
        except (OSError, KeyError) as error:
            raise InputError(
                f"expected the dataset {place.dataset} in the HDF5 file {place.path}, "
                f"found: {error}; make the data again"
            ) from error

    def requests(self) -> int:
        """One a field: rows of a dataset, and whole datasets, are contiguous."""
        return len(self._samples.fields)

    def nbytes(self) -> int:
        """Of its arrays."""
        return self._samples.sample_nbytes

    def close(self) -> None:
        """Closes all files."""
        while self._files:
            self._forget(*self._files.popitem())

    def _open_file(self, path: Path) -> h5py.File:
        if self._process != os.getpid():  # forked: the parent's handles are not ours to use
            self._files, self._datasets, self._process = OrderedDict(), {}, os.getpid()
        if path not in self._files:
            if self._samples.layout == "rows":
                _touch(path)
            self._files[path] = h5py.File(path, "r")
            if len(self._files) > MOST_OPEN_FILES:
                self._forget(*self._files.popitem(last=False))
        self._files.move_to_end(path)
        return self._files[path]

    def _forget(self, path: Path, file: h5py.File) -> None:
        close_hdf5(file)
        self._datasets = {key: each for key, each in self._datasets.items() if key[0] != path}
        self._of_rows = {}

    def __getstate__(self) -> dict[str, Any]:
        nothing = {"_files": OrderedDict[Path, h5py.File](), "_datasets": {}, "_of_rows": {}}
        return {"_samples": self._samples, "_process": -1} | nothing


def _touch(path: Path) -> None:
    """Opens and reads a file where storage that hangs stops one thread only.

    HDF5's own open has the interpreter's lock: it would stop whoever looks at the time, too.
    """
    with path.open("rb", buffering=0) as file:
        file.read(1)


class ImageReader:
    """Samples that are image files in folders of their class: fields `image` and `label`."""

    def __init__(self, samples: SampleSet) -> None:
        self._samples, self._nbytes = samples, 0

    def read(self, sample: int) -> Arrays:
        """The image (height, width, 3), uint8, and its label, int64.

        Raises:
            InputError: The file is not there or no image of the described shape.
        """
        from PIL import Image

        path = self._samples.path(sample)
        try:
            with path.open("rb") as file, Image.open(file) as opened:
                image = np.array(opened.convert("RGB"))  # a copy: writable
                self._nbytes = os.fstat(file.fileno()).st_size
        except OSError as error:
            raise InputError(f"expected an image in {path}, found: {error}; make again") from error
        label = np.int64(sample % int(self._samples.details["classes"]))
        return {"image": image, "label": np.asarray(label)}

    def requests(self) -> int:
        """One: the file."""
        return 1

    def nbytes(self) -> int:
        """Of its file: pixels are more."""
        return self._nbytes

    def close(self) -> None:
        """Nothing stays open."""


def open_reader(samples: SampleSet) -> Reader:
    """The samples' own reader, else that for their layout."""
    if isinstance(samples, ReadTheirWay):
        return samples.own_reader()
    return ImageReader(samples) if samples.layout == "images" else HDF5Reader(samples)


@contextmanager
def open_dataset(path: Path, dataset: str) -> Iterator[h5py.Dataset]:
    """The open dataset.

    Raises:
        InputError: No HDF5 file there, or no such dataset in it.
    """
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise InputError(f"expected an HDF5 file {path}, found: {error}; make it again") from error
    try:
        opened = file.get(dataset)
        if not isinstance(opened, h5py.Dataset):
            raise InputError(
                f"expected the dataset {dataset} in {path}, found {', '.join(file) or 'nothing'} "
                "at its root: correct the name"
            )
        yield opened
    finally:
        close_hdf5(file)


def close_hdf5(file: h5py.File) -> None:
    """Closes a file that was read. Where its storage is gone that fails, and says nothing new."""
    with suppress(RuntimeError):
        file.close()
