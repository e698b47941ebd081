"""Aggregated reads of many samples, as tasks for a pool of threads.

Rows of a contiguous HDF5 dataset lie at a known place of the file (H5Dget_offset): a run of
them is one `pread` without HDF5's lock, several at once. Rows of a chunked or compressed dataset
are read by HDF5 in whole chunks. Samples in files of their own are read one by one.

A gap between rows is read through only where that is faster than asking again: where
gap_bytes / bandwidth < latency. No constant is built in: both are measured at the start
(`measure_storage`).
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol

import h5py
import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .pread import NamedFile, ReadTotals
from .readers import HDF5Reader, Reader, open_reader
from .samples import Field, SampleSet

Int64Array = NDArray[np.int64]

REPEATS, WIDE_NBYTES = 5, 4 << 20
"""Reads of each size in a measurement, and bytes of a large one, as far as it may read so much."""


@dataclass(frozen=True)
class StorageSpeed:
    """What one request costs: latency_s + nbytes / bytes_per_s."""

    latency_s: float
    bytes_per_s: float

    def most_gap_rows(self, row_nbytes: int) -> int:
        """Rows that are worth reading through rather than asking again."""
        # Reading on takes gap_bytes / bytes_per_s, asking again latency_s: the longest gap of less.
        return max(0, int(np.ceil(self.latency_s * self.bytes_per_s / row_nbytes)) - 1)


def find_runs(rows: Int64Array, most_gap: int) -> tuple[Int64Array, Int64Array]:
    """(start, stop) of the requests that cover sorted rows; gaps of up to `most_gap` are read."""
    if len(rows) == 0:
        return rows, rows
    # A run ends where the distance to the next row is more than the gap and the row itself.
    border = np.flatnonzero(np.diff(rows) > most_gap + 1)
    start = rows[np.concatenate([[0], border + 1])]
    stop = rows[np.concatenate([border, [len(rows) - 1]])] + 1
    return start, stop


def measure_storage(
    read: Callable[[int, int], object], rows: int, row_nbytes: int, most_rows: int
) -> StorageSpeed:
    """The storage's speed from small and large reads of places far apart.

    Args:
        read: Reads rows [start, stop).
        rows: How many there are.
        row_nbytes: Bytes of a row.
        most_rows: That may be read for it, at least 3.
    """
    # Small reads cost little more than the latency; large ones add bytes, as many as are allowed.
    repeats = min(REPEATS, max(1, most_rows // 3))
    widest = max(1, min(rows // 8, -(-WIDE_NBYTES // row_nbytes)))
    wide = min(widest, max(2, most_rows // repeats - 1))
    small = _time_median(read, rows, 1, repeats)
    large = _time_median(read, rows, wide, repeats)
    # Noise in the difference would make reading on or asking again free: no better than seen,
    # times four.
    per_row = max((large - small) / max(wide - 1, 1), large / (4 * wide), 1e-12)
    return StorageSpeed(max(small - per_row, small / 4), row_nbytes / per_row)


def _time_median(read: Callable[[int, int], object], rows: int, count: int, repeats: int) -> float:
    times = []
    for i in range(repeats):
        # Places far apart, so that none is read ahead by the one before.
        first = (rows - count) * (2 * i + 1) // (2 * repeats)
        start = time.perf_counter()
        read(first, first + count)
        times.append(time.perf_counter() - start)
    return float(np.median(times))


Target = Callable[[str, int], NDArray[Any]]
"""(field, id) -> the array that its values go to."""

MOST_RUN_NBYTES = 4 << 20
"""A run longer than that is split, so that threads share it and memory for it stays small."""
TOGETHER = 8
"""Rows that a thread reads by themselves, one after the other, where reads are quick."""
MEASURED_SHARE = 0.03
"""Of what a rank reads in its first epoch, at most, to measure the storage's speed."""

Task = Callable[[], ReadTotals]


class RowSource(Protocol):
    """One dataset whose rows are samples."""

    @property
    def exact(self) -> bool:
        """True where no row is read but those that are asked for."""

    @property
    def limits(self) -> tuple[int, ...]:
        """What decides its runs: those of another source with the same are equal."""

    def runs(self, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """(start, stop) of what is read to get sorted rows: half-open, disjoint, sorted."""

    def read(self, start: int, stop: int, wanted: Int64Array, target: Target) -> ReadTotals:
        """Reads rows [start, stop); those in `wanted` (sorted) go to their targets."""


class ContiguousRows:
    """Rows of a contiguous dataset, by position in the file."""

    def __init__(self, file: NamedFile, offset: int, field: Field, most_gap: int) -> None:
        self.file, self._offset, self._field, self.most_gap = file, offset, field, most_gap
        self._nbytes = field.nbytes
        self._most_rows = max(1, MOST_RUN_NBYTES // self._nbytes)

    @property
    def exact(self) -> bool:
        """True where gaps are not worth reading through."""
        return self.most_gap == 0

    @property
    def limits(self) -> tuple[int, ...]:
        """Rows of a gap and of a run."""
        return self.most_gap, self._most_rows

    def runs(self, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Runs with gaps of up to `most_gap` rows, none longer than `MOST_RUN_NBYTES`."""
        return _split_runs(*find_runs(rows, self.most_gap), self._most_rows)

    def read(self, start: int, stop: int, wanted: Int64Array, target: Target) -> ReadTotals:
        """One `pread`: a single row straight to its target, more through memory between."""
        if stop - start == 1 and len(wanted):
            return self.read_rows([start], target)
        nbytes, begin = self._nbytes, self._offset + start * self._nbytes
        # Wanted rows are copied from a block: the system call for each row would cost more.
        block = np.empty((stop - start, nbytes), np.uint8)
        requests = self.file.read_into(block.reshape(-1).data, begin)
        for row in wanted.tolist():
            target(self._field.name, row).reshape(-1).view(np.uint8)[:] = block[row - start]
        return ReadTotals(block.nbytes, requests)

    def piece(self, row: int, address: int) -> tuple[int, int, int]:
        """(offset in the file, address, bytes) of a row, for `NamedFile.read_pieces`."""
        return self._offset + row * self._nbytes, address, self._nbytes

    def read_rows(self, rows: list[int], target: Target) -> ReadTotals:
        """Each row by itself, straight to its target."""
        name, nbytes, offset, read = self._field.name, self._nbytes, self._offset, self.file
        requests = 0
        for row in rows:
            requests += read.read_into(target(name, row), offset + row * nbytes)
        return ReadTotals(len(rows) * nbytes, requests)


class ChunkedRows:
    """Rows of any other dataset, through HDF5: whole chunks, so that each is decoded once."""

    def __init__(self, dataset: h5py.Dataset, field: Field) -> None:
        self._dataset, self._field = dataset, field
        # Without chunks each row counts as one; a run has as many as a bound on its bytes allows.
        chunks = dataset.chunks or (1, *field.shape)
        self._rows = int(chunks[0])
        self._most_chunks = max(1, MOST_RUN_NBYTES // (field.nbytes * self._rows))
        across = zip(field.shape, chunks[1:], strict=True)
        self._pieces = int(np.prod([-(-length // chunk) for length, chunk in across], dtype=int))

    @property
    def exact(self) -> bool:
        """False: a chunk has rows that nobody asked for."""
        return False

    @property
    def limits(self) -> tuple[int, ...]:
        """Rows of a chunk, chunks of a run, and all rows."""
        return self._rows, self._most_chunks, len(self._dataset)

    def runs(self, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Whole chunks; neighbours are merged up to `MOST_RUN_NBYTES`, gaps are not read."""
        start, stop = _split_runs(*find_runs(np.unique(rows // self._rows), 0), self._most_chunks)
        return start * self._rows, np.minimum(stop * self._rows, len(self._dataset))

    def read(self, start: int, stop: int, wanted: Int64Array, target: Target) -> ReadTotals:
        """One slice of the dataset, then a copy of each wanted row.

        Raises:
            InputError: HDF5 cannot read or decode them.
        """
        try:
            block = self._dataset[start:stop]
        except OSError as error:
            raise InputError(
                f"expected rows {start} to {stop} of {self._field.name} in "
                f"{self._dataset.file.filename}, found: {error}; make the data again"
            ) from error

        # The slice holds rows that lie between wanted ones as well.
        for row in wanted.tolist():
            target(self._field.name, row)[...] = block[row - start]
        return ReadTotals(block.nbytes, self._pieces * -(-(stop - start) // self._rows))


class RowReads:
    """Samples that are rows of one HDF5 file.

    Args:
        samples: What to read.
        gap: Rows read through rather than asking again; None: by the measured speed.
        threads: Reads under way at once. Their latencies overlap, so that a request costs
            latency / threads where it is weighed against reading a gap.
        share: Samples that this rank reads in its first epoch; None: all. Measuring the speed
            reads `MEASURED_SHARE` of them at most, or three.

    Attributes:
        speed: What was measured; None where nothing was.
        measured: What was read for it.
        merging: Neighbouring rows of contiguous datasets are read together. No gain where reads
            are quick.
    """

    merging = True

    def __init__(
        self, samples: SampleSet, gap: int | None, threads: int, share: int | None = None
    ) -> None:
        self._samples, self._gap, self._threads = samples, gap, threads
        self._share = len(samples) if share is None else share
        self.measured = ReadTotals()
        self._reader = HDF5Reader(samples)
        self._end: Callable[[], object] = _nothing_open
        self._sources: dict[str, RowSource] = {}
        self.speed: StorageSpeed | None = None

    def covered(self, ids: Int64Array) -> Int64Array:
        """Ids whose arrays pass by in full when sorted `ids` are read: `ids` and more."""
        sources = self._open().values()
        if any(s.exact or (not self.merging and isinstance(s, ContiguousRows)) for s in sources):
            return ids
        # A sample passes by where all of its fields do.
        rows: Int64Array | None = None
        for source in self._open().values():
            of_field = _expand(*source.runs(ids))
            rows = of_field if rows is None else np.intersect1d(rows, of_field, True)
        return ids if rows is None else rows

    def tasks(self, ids: Int64Array, extra: Int64Array, target: Target) -> list[Task]:
        """Reads of sorted `ids`, and of those of `extra` (sorted) that pass by."""
        wanted, tasks = np.union1d(ids, extra) if len(extra) else ids, list[Task]()
        # Fields with the same limits have the same runs: these are found once.
        parts_of: dict[tuple[int, ...], list[tuple[int, int, Int64Array]]] = {}
        for source in self._open().values():
            if not self.merging and isinstance(source, ContiguousRows):
                parts = (ids[at : at + TOGETHER] for at in range(0, len(ids), TOGETHER))
                tasks += [partial(source.read_rows, part.tolist(), target) for part in parts]
                continue
            # Merged: rows close together are one request; what passes by is dropped unless it is
            # wanted.
            if source.limits not in parts_of:
                parts_of[source.limits] = _divide_run(source.runs(ids), wanted)
            tasks += [partial(source.read, *part, target) for part in parts_of[source.limits]]
        return tasks

    @property
    def flat(self) -> bool:
        """True where all arrays lie contiguous in the file: `straight` can read them."""
        return all(isinstance(source, ContiguousRows) for source in self._open().values())

    def straight(self, wanted: Sequence[tuple[int, Sequence[int]]]) -> list[Task]:
        """Reads of samples, each by itself, to the addresses of its fields.

        The memory is the caller's to hold until they are done.
        """
        tasks = list[Task]()
        for number, source in enumerate(self._open().values()):
            assert isinstance(source, ContiguousRows)
            # Addresses instead of arrays: no view is made for each row.
            pieces = [source.piece(sample, to[number]) for sample, to in wanted]
            parts = range(0, len(pieces), TOGETHER)
            tasks += [partial(source.file.read_pieces, pieces[at : at + TOGETHER]) for at in parts]
        return tasks

    def close(self) -> None:
        """Closes the file; reading opens it again."""
        self._end()
        self._end, self._sources = _nothing_open, {}
        self._reader.close()

    def _open(self) -> dict[str, RowSource]:
        if not self._sources:
            # HDF5 says where the datasets lie; their bytes are read through a descriptor of its
            # own.
            datasets = {each: self._dataset(each) for each in self._samples.fields}
            file = os.open(self._samples.path(0), os.O_RDONLY | os.O_CLOEXEC)
            self._end = weakref.finalize(self, _close, file)  # where nobody closes a loader
            self._sources = {
                each.name: self._make_source(d, each, file) for each, d in datasets.items()
            }
            self._choose_gap()
        return self._sources

    def _dataset(self, field: Field) -> h5py.Dataset:
        dataset = self._reader.dataset(self._samples.place(0, field))
        expected = (len(self._samples), *field.shape)
        if dataset.shape != expected:
            raise InputError(
                f"expected {field.name} of shape {expected} in {self._samples.path(0)}, "
                f"found {dataset.shape}: make the data again"
            )
        return dataset

    def _make_source(self, dataset: h5py.Dataset, field: Field, number: int) -> RowSource:
        # A chunked dataset has no offset, and another type needs HDF5's conversion.
        offset = dataset.id.get_offset() if dataset.chunks is None else None
        if offset is None or dataset.dtype != np.dtype(field.dtype):
            return ChunkedRows(dataset, field)
        file = NamedFile(number, self._samples.path(0))
        return ContiguousRows(file, offset, field, self._gap or 0)

    def _choose_gap(self) -> None:
        flat = {n: s for n, s in self._sources.items() if isinstance(s, ContiguousRows)}
        if self._gap is not None or not flat:
            return
        # Measured once, with the field whose rows are the longest: speeds are of the storage.
        of_name = {each.name: each for each in self._samples.fields}
        widest = max(flat, key=lambda name: of_name[name].nbytes)
        self.speed = self._measure_speed(flat[widest], of_name[widest].nbytes)
        # Latencies of the threads overlap: one request waits for a part of its own only.
        overlapping = StorageSpeed(self.speed.latency_s / self._threads, self.speed.bytes_per_s)
        for name, source in flat.items():
            source.most_gap = overlapping.most_gap_rows(of_name[name].nbytes)

    def _measure_speed(self, source: ContiguousRows, row_nbytes: int) -> StorageSpeed:
        # Rows that nobody wants are read, and dropped.
        nothing, nowhere = np.empty(0, np.int64), dict[str, NDArray[Any]]()

        def read(start: int, stop: int) -> ReadTotals:
            done = source.read(start, stop, nothing, lambda name, _: nowhere[name])
            self.measured += done
            return done

        most_rows = max(3, int(self._share * MEASURED_SHARE))
        return measure_storage(read, len(self._samples), row_nbytes, most_rows)


class SampleReads:
    """Samples in files of their own: one task each, with as many readers as there are threads."""

    speed: StorageSpeed | None = None
    measured = ReadTotals()
    merging = flat = False

    def __init__(self, samples: SampleSet, threads: int) -> None:
        self._samples = samples
        self._readers = [open_reader(samples) for _ in range(threads)]
        self._idle: SimpleQueue[Reader] = SimpleQueue()
        for each in self._readers:
            self._idle.put(each)

    def covered(self, ids: Int64Array) -> Int64Array:
        """Nothing passes by: `ids`."""
        return ids

    def tasks(self, ids: Int64Array, extra: Int64Array, target: Target) -> list[Task]:
        """A read for each of `ids`; `extra` is empty, as nothing passes by."""
        assert len(extra) == 0
        return [partial(self._read, sample, target) for sample in ids.tolist()]

    def close(self) -> None:
        """Closes all files; reading opens them again."""
        for each in self._readers:
            each.close()

    def _read(self, sample: int, target: Target) -> ReadTotals:
        # Readers are lent to one thread at a time: their libraries are not made for two.
        own = self._idle.get()
        try:
            arrays, nbytes = own.read(sample), own.nbytes()
        finally:
            self._idle.put(own)
        for name, values in arrays.items():
            target(name, sample)[...] = values
        return ReadTotals(nbytes, own.requests())


def open_reads(
    samples: SampleSet, *, gap: int | None, threads: int, share: int | None = None
) -> RowReads | SampleReads:
    """The reads for a layout of samples."""
    rows = samples.layout == "rows"
    return RowReads(samples, gap, threads, share) if rows else SampleReads(samples, threads)


def _nothing_open() -> None:
    """Nothing to close."""


def _close(file: int) -> None:
    with suppress(OSError):  # where storage is gone, the read that failed says so
        os.close(file)


def _divide_run(
    runs: tuple[Int64Array, Int64Array], wanted: Int64Array
) -> list[tuple[int, int, Int64Array]]:
    """(start, stop, the rows of sorted `wanted` inside) of each run."""
    # Wanted rows are sorted: those of a run are a slice.
    inside = (each.tolist() for each in np.searchsorted(wanted, runs))
    both = zip(*(each.tolist() for each in runs), *inside, strict=True)
    return [(start, stop, wanted[first:last]) for start, stop, first, last in both]


def _expand(start: Int64Array, stop: Int64Array) -> Int64Array:
    """All rows of half-open runs."""
    if len(start) == 0:
        return start
    return np.concatenate([np.arange(a, b) for a, b in zip(start, stop, strict=True)])


def _split_runs(start: Int64Array, stop: Int64Array, most: int) -> tuple[Int64Array, Int64Array]:
    """The same rows in runs of at most `most`."""
    if len(start) == 0 or (stop - start).max() <= most:
        return start, stop
    first = [np.arange(a, b, most) for a, b in zip(start, stop, strict=True)]
    last = [np.minimum(a + most, b) for a, b in zip(first, stop, strict=True)]
    return np.concatenate(first), np.concatenate(last)
