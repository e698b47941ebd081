"""Bytes over time of the busiest files; which they are is known only once all are added up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses import timebins
from vanidl.analyses.by_file import ByFile
from vanidl.analyses.files import FileSums
from vanidl.analyses.rows import Rows
from vanidl.analyses.sorting import dense_codes
from vanidl.model.trace import READ, WRITE, Trace

Int64Array = NDArray[np.int64]

BINS = 512
MAX_FILES = 1000


@dataclass(frozen=True, slots=True)
class FileTimeline:
    """Bytes over time of single files, most traffic first.

    `edges_s` holds the bounds of n equal bins in seconds since the start of the job, shape
    (n + 1,); the amounts have shape (len(paths), n). Bins sum exactly to the traced bytes of
    the file.
    """

    edges_s: NDArray[np.float64]
    paths: tuple[str, ...]
    files: int  # how many files were traced; `paths` holds the busiest of them
    bytes_read: Int64Array
    bytes_written: Int64Array


@dataclass(frozen=True, slots=True)
class FileBins:
    """Sparse sums: `key` is file code * BINS + bin, ascending; `sums` has shape (n, 2)."""

    key: Int64Array
    sums: Int64Array  # bytes read, bytes written


NOTHING = FileBins(np.empty(0, np.int64), np.empty((0, 2), np.int64))


@dataclass(frozen=True, slots=True)
class OfFiles:
    """The reduction for the files of these codes.

    Its value holds at most MAX_FILES * BINS sums, however many parts go in.
    """

    codes: tuple[int, ...]
    NOTHING: FileBins = NOTHING

    def partial(self, rows: Rows, trace: Trace) -> FileBins:
        """The bins of some rows."""
        chosen = _row_of_code(self.codes, len(trace.files)) >= 0
        bounds = timebins.edges(trace.job.start_ns, trace.job.end_ns, BINS)
        value = NOTHING
        for op, groups in ((READ, rows.reads), (WRITE, rows.writes)):
            key, nbytes = _bins(groups.groups(chosen[groups.file]), bounds)
            sums = np.zeros((len(key), 2), np.int64)
            sums[:, op] = nbytes
            value = _added(value, key, sums)
        return value

    def combine(self, a: FileBins, b: FileBins) -> FileBins:
        """The bins of both."""
        return _added(a, b.key, b.sums)


def _bins(rows: ByFile, bounds: Int64Array) -> tuple[Int64Array, Int64Array]:
    """(file code * BINS + bin, bytes) of all bins with bytes, ascending."""
    files, place = dense_codes(rows.file)
    sums = np.zeros(len(files) * BINS, np.int64)
    if len(rows):
        _add(rows, place * BINS, bounds, sums)
    used = np.flatnonzero(sums)
    return files[used // BINS] * BINS + used % BINS, sums[used]


def _add(rows: ByFile, key: Int64Array, bounds: Int64Array, sums: Int64Array) -> None:
    """Adds the bytes of the operations, spread over time, to the sums from those of `key` on.

    `key` is that of each group. Operations of a bin are neighbours, and added to it whole where
    they do not reach into another one: few do.
    """
    at = timebins.bin_of(rows.start, bounds)
    new = at[1:] != at[:-1]
    new[rows.first[1:-1] - 1] = True
    cell = np.append(0, np.flatnonzero(new) + 1)
    reach = np.repeat(bounds[1:][at[cell]], np.diff(cell, append=len(rows)))
    long = rows.end > reach
    np.add.at(sums, rows.each_of(key, cell) + at[cell], np.add.reduceat(rows.nbytes * ~long, cell))
    some = np.flatnonzero(long)
    operations = rows.start[some], rows.end[some], rows.nbytes[some]
    timebins.add_spread(operations, bounds, timebins.Sums(sums, base=rows.each_of(key, some)))


def of_all(trace: Trace) -> OfFiles | None:
    """The reduction for all files, which needs no totals; None where they are too many."""
    return OfFiles(tuple(range(len(trace.files)))) if len(trace.files) <= MAX_FILES else None


def of_busiest(sums: FileSums) -> OfFiles:
    """The reduction for the MAX_FILES files with most traced bytes, ties in order of path."""
    moved = sums.sums[:, 2] + sums.sums[:, 3]
    order = np.lexsort((sums.file, -moved))[:MAX_FILES]
    return OfFiles(tuple(sums.file[order].tolist()))


def finish(bins: FileBins, totals: FileSums, trace: Trace) -> FileTimeline | None:
    """One row a file, the busiest by `totals`; None where no operation was traced."""
    codes = of_busiest(totals).codes
    if not codes:
        return None
    row = _row_of_code(codes, len(trace.files))
    dense = np.zeros((2, len(codes), BINS), np.int64)
    file, at = np.divmod(bins.key, BINS)
    dense[:, row[file], at] = bins.sums.T
    read, written = dense
    start = trace.job.start_ns
    edges_s = (timebins.edges(start, trace.job.end_ns, BINS) - start) / 1e9
    paths = tuple(trace.files.path[code] for code in codes)
    return FileTimeline(edges_s, paths, len(totals.file), read, written)


def _row_of_code(codes: tuple[int, ...], files: int) -> Int64Array:
    row = np.full(files, -1, np.int64)
    row[list(codes)] = np.arange(len(codes))
    return row


def _added(value: FileBins, key: Int64Array, sums: Int64Array) -> FileBins:
    keys, place = np.unique(np.concatenate([value.key, key]), return_inverse=True)
    total = np.zeros((len(keys), 2), np.int64)
    np.add.at(total, place, np.concatenate([value.sums, sums]))
    return FileBins(keys, total)
