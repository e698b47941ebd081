"""DLIO's data set as samples: files of equal records, one or several a file.

Sample i is record i mod n of file i div n, as in DLIO's own numbering. HDF5 files have a record in
a row; of a file with one record the whole dataset is the sample, with its first axis of length 1.
In NPY and NPZ files records lie along the last axis. Records of unequal size are cut or filled up
to the size that DLIO resizes them to.

A sample that is a file is read as a whole, in one request, then decoded in memory. HDF5 takes a
lock of its process for each of its calls, reads included, so threads that read through it wait for
each other. Here a thread reads the bytes by `pread`, and HDF5 finds them in memory.
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from threading import Condition
from tokenize import TokenError
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ..data.readers import Arrays, HDF5Reader, Reader
from ..data.samples import Field, Place, SampleSet
from ..errors import InputError, UsageError
from .benchmark import item_span

WORKLOAD = "dlio"
MOST_WAITING = 64
"""Files that wait to be closed; then opens wait, too."""


class Descriptors:
    """Open files of one process, opened and closed by many threads so that tracers tell them apart.

    A close is over for the operating system before a tracer has noted it. Where another thread
    opens a file meanwhile it gets the same number, and the tracer books its reads on the file that
    was closed: Darshan showed 1 of 1,500 files without a read. So nothing is closed while an open
    is under way.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._opening, self._waiting = 0, list[int]()

    @contextmanager
    def opened(self, path: Path) -> Iterator[int]:
        """A file for reading; it is closed behind the block, or soon after.

        Raises:
            OSError: It cannot be opened.
        """
        # Opens wait while too many files wait to be closed.
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) < MOST_WAITING)
            self._opening += 1
        file = -1
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        finally:
            self._end_of(opening=1)
        try:
            yield file
        finally:
            # Closed later, when no open is under way.
            with self._changed:
                self._waiting.append(file)
            self._end_of(opening=0)

    def _end_of(self, *, opening: int) -> None:
        """Closes what waits, if nothing is being opened: an open has to wait for the lock."""
        with self._changed:
            self._opening -= opening
            if not self._opening:
                while self._waiting:
                    os.close(self._waiting.pop())
                self._changed.notify_all()


_FILES = Descriptors()
RECORDS = "records"
"""HDF5 datasets of a record are named records_0, records_1 ..., before 2.0.1 records."""


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
        arrays = _read_record(self._samples, sample)
        fields = _describe_fields(arrays)
        if fields != self._samples.fields:
            raise InputError(
                f"expected {_format_fields(self._samples.fields)} in "
                f"{self._samples.path(sample)}, found {_format_fields(fields)}: make records of "
                "equal size (dataset.record_length_bytes_stdev: 0), or have them resized "
                "(record_length_bytes_resize), one per file"
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


def open_dlio_samples(
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
    # Without fields at first: they are those of the first record, which needs the files to be read.
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
    # Rows are described by their dataset; else the first record has to be read.
    rows = name == "hdf5" and per_file > 1
    fields = _describe_rows(files[0]) if rows else _describe_fields(_read_record(described, 0))
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


def _read_record(samples: DlioSamples, sample: int) -> Arrays:
    """The arrays of a sample as they are handed out."""
    arrays = read_sample(samples.path(sample), samples.format)
    # DLIO stacks the records of a file along its last axis.
    if samples.per_file > 1:
        return {name: array[..., sample % samples.per_file] for name, array in arrays.items()}
    if samples.resized_nbytes:
        return {name: _resize(array, samples.resized_nbytes) for name, array in arrays.items()}
    return arrays


def _resize(array: NDArray[Any], nbytes: int) -> NDArray[np.uint8]:
    """The first bytes of an array, with zeros behind them where it has fewer."""
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)[:nbytes]
    resized = np.zeros(nbytes, np.uint8)
    resized[: len(content)] = content
    return resized


def _describe_rows(path: Path) -> tuple[Field, ...]:
    try:
        with h5py.File(path, "r") as file:
            datasets = [(name, file[name]) for name in record_names(file)]
            return tuple(Field(n, d.shape[1:], np.dtype(d.dtype).str) for n, d in datasets)
    except (OSError, KeyError) as error:
        raise InputError(
            f"expected records in the HDF5 file {path}, found: {error}; generate it again"
        ) from error


def _describe_fields(arrays: Arrays) -> tuple[Field, ...]:
    return tuple(Field(name, array.shape, array.dtype.str) for name, array in arrays.items())


def _format_fields(fields: Sequence[Field]) -> str:
    return ", ".join(f"{each.name} {each.shape} of type {each.dtype}" for each in fields)


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
        # A read call gives at most 2 GiB: again, until the file ends.
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


def _decode_hdf5(content: bytes) -> Arrays:
    with h5py.File(BytesIO(content), "r") as file:
        return {name: file[name][()] for name in record_names(file)}


def _decode_npy(content: bytes) -> Arrays:
    return {"x": np.load(BytesIO(content), allow_pickle=False)}


def _decode_npz(content: bytes) -> Arrays:
    with np.load(BytesIO(content), allow_pickle=False) as members:
        return {"x": members["x"]}


def _decode_image(content: bytes) -> Arrays:
    from PIL import Image

    try:
        with Image.open(BytesIO(content)) as picture:
            return {"image": np.array(picture)}  # a copy: writable
    except Image.DecompressionBombError as error:
        raise ValueError(str(error)) from error


FORMATS: dict[str, Callable[[bytes], Arrays]] = {
    "hdf5": _decode_hdf5,
    "npy": _decode_npy,
    "npz": _decode_npz,
    "jpeg": _decode_image,
    "png": _decode_image,
}
