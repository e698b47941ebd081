"""Bytes and operations over time, in exact integers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses import timebins
from vanidl.trace import WRITE, Part, Trace

Int64Array = NDArray[np.int64]

JOB_BINS = timebins.FINEST
BINS = 4096
MAX_ROWS = 256


@dataclass(frozen=True, slots=True)
class JobTimeline:
    """The whole job in the finest bins: `edges_s` of shape (n + 1,), amounts of shape (n,)."""

    edges_s: NDArray[np.float64]
    bytes_read: Int64Array
    bytes_written: Int64Array
    reads: Int64Array
    writes: Int64Array


@dataclass(frozen=True, slots=True)
class Timeline:
    """Bytes and operations over time, for the job and for groups of ranks.

    `edges_s` holds the bounds of n equal bins in seconds since the start of the job, shape
    (n + 1,). The other arrays have shape (rows, n): a row is one rank, or a group of
    neighbouring ranks where there are more than 256; a last row "no rank" holds processes
    that belong to none. Bytes of an operation are spread over its bins in proportion to
    time, in integers, so bins sum exactly to the totals. Operations outside the job's time
    count in the first or last bin.
    """

    edges_s: NDArray[np.float64]
    row_labels: tuple[str, ...]
    ranks: int  # how many ranks the rows stand for
    bytes_read: Int64Array
    bytes_written: Int64Array
    reads: Int64Array  # counted in the bin in which they start
    writes: Int64Array
    finest: JobTimeline | None = None  # all rows together; None where the source has only `edges_s`

    @property
    def job(self) -> JobTimeline:
        """All rows together, in the finest bins there are."""
        if self.finest is not None:
            return self.finest
        amounts = (self.bytes_read, self.bytes_written, self.reads, self.writes)
        return JobTimeline(self.edges_s, *(amount.sum(axis=0) for amount in amounts))


@dataclass(frozen=True, slots=True)
class Bins:
    """Bytes read, bytes written, reads, writes: of the job (4, JOB_BINS), of a row (4, BINS)."""

    job: Int64Array
    rows: dict[int, Int64Array]


NOTHING = Bins(np.zeros((4, JOB_BINS), np.int64), {})


def partial(part: Part, trace: Trace) -> Bins:
    """The bins of one part."""
    row = _row_of(int(trace.family[part.process]), len(trace.ranks))
    bounds = timebins.edges(trace.job.start_ns, trace.job.end_ns, JOB_BINS)
    sums = np.zeros((4, JOB_BINS), np.int64)
    for op in (0, WRITE):
        mine = part.op == op
        if mine.any():
            start, end, nbytes = part.start[mine], part.end[mine], part.nbytes[mine]
            sums[op] = spread(start, end, nbytes, bounds)
            sums[2 + op] = np.bincount(timebins.bin_of(start, bounds), minlength=JOB_BINS)
    return Bins(sums, {row: timebins.folded(sums, BINS)})


def combine(a: Bins, b: Bins) -> Bins:
    """The bins of both."""
    rows = dict(a.rows)
    for row, sums in b.rows.items():
        rows[row] = rows[row] + sums if row in rows else sums
    return Bins(a.job + b.job, rows)


def finish(bins: Bins, trace: Trace) -> Timeline | None:
    """One row a rank or group of ranks; None where no operation was traced."""
    if not bins.rows:
        return None
    ranks = len(trace.ranks)
    groups = min(ranks, MAX_ROWS)
    keys = [*range(groups), *([-1] if -1 in bins.rows else [])]
    empty = np.zeros((4, BINS), np.int64)
    sums = np.stack([bins.rows.get(key, empty) for key in keys], axis=1)
    labels = tuple(_label(key, groups, trace) for key in keys)
    finest = JobTimeline(_edges_s(trace, JOB_BINS), *bins.job)
    read, written, reads, writes = sums
    edges_s = _edges_s(trace, BINS)
    return Timeline(edges_s, labels, ranks, read, written, reads, writes, finest=finest)


def spread(
    start: Int64Array, end: Int64Array, nbytes: Int64Array, bounds: Int64Array
) -> Int64Array:
    """Bytes of each bin, shape (bins,); see `timebins.shares` for the rule."""
    sums = np.zeros(len(bounds) - 1, np.int64)
    for _, at, share in timebins.shares(start, end, nbytes, bounds):
        # bincount adds in float64, which is exact below 2**53 bytes in a bin
        sums += np.bincount(at, share, minlength=len(sums)).astype(np.int64)
    return sums


def _edges_s(trace: Trace, bins: int) -> NDArray[np.float64]:
    start = trace.job.start_ns
    seconds: NDArray[np.float64] = (timebins.edges(start, trace.job.end_ns, bins) - start) / 1e9
    return seconds


def _row_of(position: int, ranks: int) -> int:
    if position < 0 or ranks <= MAX_ROWS:
        return position
    return position * MAX_ROWS // ranks


def _label(key: int, groups: int, trace: Trace) -> str:
    if key < 0:
        return "no rank"
    members = [i for i in range(len(trace.ranks)) if _row_of(i, len(trace.ranks)) == key]
    first, last = (trace.processes[trace.ranks[i]].label for i in (members[0], members[-1]))
    return first if groups == len(trace.ranks) else f"{first} to {last}"
