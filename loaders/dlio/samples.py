"""DLIO's data set as samples: files of equal records, one or several a file.

Sample i is record i mod n of file i div n, as in DLIO's own numbering. HDF5 files have a record in
a row; of a file with one record the whole dataset is the sample, with its first axis of length 1.
In NPY and NPZ files records lie along the last axis. Records of unequal size are cut or filled up
to the size that DLIO resizes them to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ..data.readers import Arrays, HDF5Reader, Reader
from ..data.samples import Field, Place, SampleSet
from ..errors import InputError, UsageError
from .benchmark import item_span
from .files import find_format, read_sample, record_names

WORKLOAD = "dlio"


@dataclass(frozen=True)
class DlioSamples(SampleSet):
    """Samples in DLIO's files.

    Attributes:
        files: In DLIO's order.
        per_file: Records of each.
        format: As DLIO calls it.
        resized_nbytes: What is kept of each record, as bytes; 0: all, as it is stored.
    """

    files: tuple[Path, ...] = ()
    per_file: int = 1
    format: str = ""
    resized_nbytes: int = 0

    def path(self, sample: int) -> Path:
        """The file that holds a sample.

        Raises:
            IndexError: No such sample.
        """
        if not 0 <= sample < self.samples:
            raise IndexError(f"expected a sample in 0..{self.samples - 1}, found {sample}")
        return self.files[sample // self.per_file]

    def place(self, sample: int, each: Field) -> Place:
        """File, dataset and row of one array of one sample."""
        row = sample % self.per_file if self.per_file > 1 else None
        return Place(self.path(sample), each.name, row)

    def own_reader(self) -> Reader:
        """Rows of HDF5 files by HDF5, all else as whole files."""
        rows = self.format == "hdf5" and self.per_file > 1
        return MarkedReader(HDF5Reader(self) if rows else FileReader(self))


class FileReader:
    """Samples of files that are read as a whole."""

    def __init__(self, samples: DlioSamples) -> None:
        self._samples = samples

    def read(self, sample: int) -> Arrays:
        """The arrays of a sample.

        Raises:
            InputError: The file cannot be read, or holds a record of another shape or type.
        """
        arrays = _record(self._samples, sample)
        found = _fields(arrays)
        if found != self._samples.fields:
            raise InputError(
                f"expected {_text(self._samples.fields)} in {self._samples.path(sample)}, found "
                f"{_text(found)}: make records of equal size (dataset.record_length_bytes_stdev: "
                "0), or have them resized (record_length_bytes_resize), one per file"
            )
        return arrays

    def requests(self) -> int:
        """One: the file."""
        return 1

    def nbytes(self) -> int:
        """Of the record's arrays."""
        return self._samples.sample_nbytes

    def close(self) -> None:
        """Nothing stays open."""


class MarkedReader:
    """Another reader, each sample inside DLIO's span of an item."""

    def __init__(self, inner: Reader) -> None:
        self._inner = inner

    def read(self, sample: int) -> Arrays:
        """All arrays of a sample."""
        with item_span():
            return self._inner.read(sample)

    def requests(self) -> int:
        """Read calls that one sample takes."""
        return self._inner.requests()

    def nbytes(self) -> int:
        """Bytes in storage of the sample that was read last."""
        return self._inner.nbytes()

    def close(self) -> None:
        """Closes what is open."""
        self._inner.close()


def dlio_samples(
    folder: Path, files: Sequence[Path], per_file: int, name: str, *, resized_nbytes: int = 0
) -> DlioSamples:
    """The samples in DLIO's files; shape and type are those of the first.

    Args:
        folder: Of the training or validation files.
        files: In DLIO's order.
        per_file: Records of each.
        name: Of the format.
        resized_nbytes: What is kept of each record; of files with one record alone.

    Raises:
        InputError: No files, or the first cannot be read.
        UsageError: A format that these loaders do not read.
    """
    find_format(name)
    if not files:
        raise InputError(f"expected files in {folder}, found none: generate the data first")
    described = DlioSamples(
        folder,
        WORKLOAD,
        len(files) * per_file,
        (),
        "files",
        files=tuple(files),
        per_file=per_file,
        format=name,
        resized_nbytes=resized_nbytes if per_file == 1 else 0,
    )
    rows = name == "hdf5" and per_file > 1
    fields = _rows_of(files[0]) if rows else _fields(_record(described, 0))
    return replace(described, fields=fields)


def require_whole_files(samples: DlioSamples, formats: tuple[str, ...], loader: str) -> None:
    """Checks that each sample is a file, of a format that this loader can use.

    Raises:
        UsageError: It is not.
    """
    if samples.format not in formats or samples.per_file > 1 or samples.resized_nbytes:
        raise UsageError(
            f"expected dataset.format among {', '.join(formats)}, num_samples_per_file 1 and "
            f"records that are not resized for {loader}, found {samples.format}, "
            f"{samples.per_file} and {samples.resized_nbytes} bytes: choose another loader"
        )


def _record(samples: DlioSamples, sample: int) -> Arrays:
    """The arrays of a sample as they are handed out."""
    arrays = read_sample(samples.path(sample), samples.format)
    if samples.per_file > 1:
        return {name: array[..., sample % samples.per_file] for name, array in arrays.items()}
    if samples.resized_nbytes:
        return {name: _resized(array, samples.resized_nbytes) for name, array in arrays.items()}
    return arrays


def _resized(array: NDArray[Any], nbytes: int) -> NDArray[np.uint8]:
    """The first bytes of an array, with zeros behind them where it has fewer."""
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)[:nbytes]
    resized = np.zeros(nbytes, np.uint8)
    resized[: len(content)] = content
    return resized


def _rows_of(path: Path) -> tuple[Field, ...]:
    try:
        with h5py.File(path, "r") as file:
            datasets = [(name, file[name]) for name in record_names(file)]
            return tuple(Field(n, d.shape[1:], np.dtype(d.dtype).str) for n, d in datasets)
    except (OSError, KeyError) as error:
        raise InputError(
            f"expected records in the HDF5 file {path}, found: {error}; generate it again"
        ) from error


def _fields(arrays: Arrays) -> tuple[Field, ...]:
    return tuple(Field(name, array.shape, array.dtype.str) for name, array in arrays.items())


def _text(fields: Sequence[Field]) -> str:
    return ", ".join(f"{each.name} {each.shape} of type {each.dtype}" for each in fields)
