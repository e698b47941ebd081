"""Bytes and operations over time, in exact integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses import timebins
from vanidl.analyses.rows import Rows
from vanidl.analyses.sorting import sum_by_group
from vanidl.model.trace import READ, WRITE, Trace

Int64Array = NDArray[np.int64]

JOB_BINS = timebins.FINEST
BINS = 4096
MAX_ROWS = 256
_EVERY = JOB_BINS // BINS


@dataclass(frozen=True, slots=True)
class JobTimeline:
    """The whole job in the finest bins: `edges_s` of shape (n + 1,), amounts of shape (n,)."""

    edges_s: NDArray[np.float64]
    bytes_read: Int64Array
    bytes_written: Int64Array
    reads: Int64Array | None  # None where the source has only bytes
    writes: Int64Array | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """Bytes and operations over time, for the job and for groups of ranks.

    `edges_s` holds the bounds of n equal bins in seconds since the start of the job, shape
    (n + 1,). The other arrays have shape (rows, n): a row is one rank, or a group of
    neighbouring ranks where there are more than 256; a last row "no rank" holds processes
    that belong to none. Bytes of an operation are spread over its bins in proportion to
    time, in integers, so bins sum exactly to the totals. Operations outside the job's time
    count in the first or last bin.

    `source` is "trace", or "heatmap" where no operation was traced and the bins are those of
    Darshan's heat maps (`analyses.by_counters`): then `reads` and `writes` are None.
    """

    edges_s: NDArray[np.float64]
    row_labels: tuple[str, ...]
    ranks: int  # how many ranks the rows stand for
    bytes_read: Int64Array
    bytes_written: Int64Array
    reads: Int64Array | None  # counted in the bin in which they start
    writes: Int64Array | None
    source: str = "trace"
    finest: JobTimeline | None = None  # all rows together; None where the source has only `edges_s`

    @property
    def job(self) -> JobTimeline:
        """All rows together, in the finest bins there are."""
        if self.finest is not None:
            return self.finest
        return JobTimeline(
            self.edges_s,
            self.bytes_read.sum(axis=0),
            self.bytes_written.sum(axis=0),
            None if self.reads is None else self.reads.sum(axis=0),
            None if self.writes is None else self.writes.sum(axis=0),
        )


@dataclass(frozen=True, slots=True)
class Bins:
    """Bytes read, bytes written, reads, writes: of the job (4, JOB_BINS), of a row (4, BINS)."""

    job: Int64Array
    rows: dict[int, Int64Array]


NOTHING = Bins(np.zeros((4, JOB_BINS), np.int64), {})


def partial(rows: Rows, trace: Trace) -> Bins:
    """The bins of some rows.

    Each operation counts in the bin in which it starts, and so do its bytes, unless it lasts
    beyond that bin: then they are spread.
    """
    bounds = timebins.edges(trace.job.start_ns, trace.job.end_ns, JOB_BINS)
    job = np.zeros((4, JOB_BINS), np.int64)
    row_of_part = [row_of(p, len(trace.ranks)) for p in rows.owner.position.tolist()]
    if not len(rows):
        return Bins(job, {row: np.zeros((4, BINS), np.int64) for row in row_of_part})
    at = timebins.bin_of(rows.start, bounds)
    long = np.flatnonzero(rows.end > bounds[1:][at])
    nbytes = rows.nbytes.copy()
    nbytes[long] = 0
    job[:] = _where_they_start(rows, nbytes, at, JOB_BINS)
    keys, place = np.unique(row_of_part, return_inverse=True)
    if len(keys) == 1:
        for op in (READ, WRITE):
            _spread(rows, long[rows.op[long] == op], bounds, timebins.Sums(job[op]))
        return Bins(job, {int(keys[0]): timebins.folded(job, BINS)})
    first = place[rows.part] * BINS
    by_row = _where_they_start(rows, nbytes, first + at // _EVERY, len(keys) * BINS)
    for op in (READ, WRITE):
        some = long[rows.op[long] == op]
        of_rows = timebins.Sums(by_row[op], _EVERY, first[some])
        _spread(rows, some, bounds, timebins.Sums(job[op]), of_rows)
    by_key = by_row.reshape(4, len(keys), BINS).transpose(1, 0, 2)
    return Bins(job, dict(zip(keys.tolist(), by_key, strict=True)))


def _where_they_start(
    rows: Rows, nbytes: Int64Array, cell: NDArray[np.intp], cells: int
) -> Int64Array:
    """Sums of bytes and operations, shape (4, cells), each operation in the cell of its start."""
    sums = np.zeros((4, cells), np.int64)
    sums[READ] = sum_by_group(cell, nbytes, cells)
    sums[2 + READ] = np.bincount(cell, minlength=cells)
    if rows.write_count:
        writes = np.flatnonzero(rows.op == WRITE)
        sums[WRITE] = sum_by_group(cell[writes], nbytes[writes], cells)
        sums[2 + WRITE] = np.bincount(cell[writes], minlength=cells)
        sums[READ::2] -= sums[WRITE::2]
    return sums


def _spread(rows: Rows, some: NDArray[np.intp], bounds: Int64Array, *into: timebins.Sums) -> None:
    """Spreads the bytes of some operations over the bins that these last."""
    if len(some):
        timebins.add_spread((rows.start[some], rows.end[some], rows.nbytes[some]), bounds, *into)


def combine(a: Bins, b: Bins) -> Bins:
    """The bins of both."""
    rows = dict(a.rows)
    for row, sums in b.rows.items():
        rows[row] = rows[row] + sums if row in rows else sums
    return Bins(a.job + b.job, rows)


def finish(bins: Bins, trace: Trace) -> Timeline | None:
    """One row per rank or group of ranks; None where no operation was traced."""
    if not bins.rows:
        return None
    labels, (read, written, reads, writes) = stacked(bins.rows, trace)
    finest = JobTimeline(_edges_s(trace, JOB_BINS), *bins.job)
    edges_s = _edges_s(trace, BINS)
    ranks = len(trace.ranks)
    return Timeline(edges_s, labels, ranks, read, written, reads, writes, finest=finest)


def stacked(rows: dict[int, Int64Array], trace: Trace) -> tuple[tuple[str, ...], Int64Array]:
    """Labels of all rows, their sums, shape (sums a row, rows, bins); rows without I/O are 0."""
    groups = min(len(trace.ranks), MAX_ROWS)
    keys = [*range(groups), *([-1] if -1 in rows else [])]
    empty = np.zeros_like(next(iter(rows.values())))
    return _labels(keys, trace), np.stack([rows.get(key, empty) for key in keys], axis=1)


def _edges_s(trace: Trace, bins: int) -> NDArray[np.float64]:
    start = trace.job.start_ns
    seconds: NDArray[np.float64] = (timebins.edges(start, trace.job.end_ns, bins) - start) / 1e9
    return seconds


def row_of(position: int, ranks: int) -> int:
    """The row of a rank (position in Trace.ranks, -1 for none) among at most MAX_ROWS."""
    if position < 0 or ranks <= MAX_ROWS:
        return position
    return position * MAX_ROWS // ranks


def _labels(keys: Sequence[int], trace: Trace) -> tuple[str, ...]:
    ranks = trace.ranks
    rows = [row_of(i, len(ranks)) for i in range(len(ranks))]
    bounds = np.searchsorted(rows, np.arange(len(keys) + 1)).tolist()
    ends = [
        [trace.processes[ranks[i]].label for i in sorted({low, high - 1})]
        for (low, high), key in zip(pairwise(bounds), keys, strict=True)
        if key >= 0
    ]
    return (*map(" to ".join, ends), *(["no rank"] if -1 in keys else []))
