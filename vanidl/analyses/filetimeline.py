"""Bytes over time of the busiest files: a second reduction, once the totals are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses import timebins
from vanidl.analyses.files import FileSums
from vanidl.analyses.sorting import added, compact
from vanidl.trace import WRITE, Part, Trace

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
    """Sparse sums: `key` is row * BINS + bin, ascending; `sums` has shape (n, 2)."""

    key: Int64Array
    sums: Int64Array  # bytes read, bytes written


NOTHING = FileBins(np.empty(0, np.int64), np.empty((0, 2), np.int64))


@dataclass(frozen=True, slots=True)
class OfFiles:
    """The reduction for some files: row i is the file with code `codes[i]`.

    Its value holds at most MAX_FILES * BINS sums, however many parts go in.
    """

    codes: tuple[int, ...]
    NOTHING: FileBins = NOTHING

    def partial(self, part: Part, trace: Trace) -> FileBins:
        """The bins of one part."""
        row = _row_of_code(self.codes, len(trace.files))[part.file]
        mine = row >= 0
        bounds = timebins.edges(trace.job.start_ns, trace.job.end_ns, BINS)
        row, is_write = row[mine], part.op[mine] == WRITE
        blocks = timebins.shares(part.start[mine], part.end[mine], part.nbytes[mine], bounds)
        value = NOTHING
        for owner, at, share in blocks:
            key, place = compact((row[owner] * BINS + at) * 2 + is_write[owner])
            sums = np.zeros((len(key), 2), np.int64)
            sums[np.arange(len(key)), key & 1] = added(place, share, len(key))
            value = _added(value, key >> 1, sums)
        return value

    def combine(self, a: FileBins, b: FileBins) -> FileBins:
        """The bins of both."""
        return _added(a, b.key, b.sums)


def of_busiest(sums: FileSums) -> OfFiles:
    """The reduction for the MAX_FILES files with most traced bytes, ties in order of path."""
    moved = sums.sums[:, 2] + sums.sums[:, 3]
    order = np.lexsort((sums.file, -moved))[:MAX_FILES]
    return OfFiles(tuple(sums.file[order].tolist()))


def finish(bins: FileBins, totals: FileSums, trace: Trace) -> FileTimeline | None:
    """One row a file, chosen from `totals` as before; None where no operation was traced."""
    codes = of_busiest(totals).codes
    if not codes:
        return None
    dense = np.zeros((2, len(codes) * BINS), np.int64)
    dense[:, bins.key] = bins.sums.T
    read, written = dense.reshape(2, len(codes), BINS)
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
