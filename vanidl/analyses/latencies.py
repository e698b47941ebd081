"""Single operations by how long they took: histogram, the slowest, and where a file was read when.

`durations` has the statistics of groups of operations; these are the numbers behind them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.reducing import Rows
from vanidl.model.ordering import sum_by_group
from vanidl.model.trace import READ, WRITE, Trace
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]

EDGES_NS: Int64Array = np.array([0, *(m * 10**k for k in range(14) for m in (1, 2, 5))], np.int64)
"""Bin i of the histogram holds durations from EDGES_NS[i] up to EDGES_NS[i + 1]."""

SLOWEST = 10
SAMPLED = 4000
"""Reads of data files that are kept, so spread that each is as likely as any other."""


@dataclass(frozen=True, slots=True)
class DurationBin:
    """Operations that took from `low_s` up to `high_s` (None: no limit), and their time in sum."""

    low_s: float
    high_s: float | None
    reads: int
    writes: int
    read_s: float
    write_s: float


@dataclass(frozen=True, slots=True)
class SlowOperation:
    """One of the operations that took longest; `start_s` since the start of the job."""

    path: str
    op: str
    label: str  # of its rank, or of its process where that has none
    offset: int | None  # None where not recorded
    nbytes: int
    start_s: float
    duration_s: float


@dataclass(frozen=True, slots=True)
class OffsetSample:
    """Reads of one file, by start: some of `reads`, all of them where there are few."""

    path: str
    reads: int
    start_s: NDArray[np.float64]
    offset: Int64Array
    nbytes: Int64Array
    position: Int64Array  # in Trace.ranks, -1 for none


@dataclass(frozen=True, slots=True)
class Latencies:
    """How long single operations took, and where they read; the histogram without empty ends."""

    histogram: tuple[DurationBin, ...]
    slowest: tuple[SlowOperation, ...]  # the longest first
    sample: OffsetSample | None  # of the data file of which most was sampled; None without reads
    empty_reads: Mapping[str, int]  # path -> reads of 0 bytes, of every file that was read


@dataclass(frozen=True, slots=True)
class Reduced:
    """Counts and ns of reads and writes by bin, the slowest, and the sample.

    Rows of `slowest`: -duration, start, process, file, op, offset, nbytes. Rows of `sample`: a
    number that is drawn from the read itself, start, offset, nbytes, file, position. Both are
    sorted, and hold the smallest. `reads` counts the reads of each of `files`: all, and those of 0
    bytes, shape (files, 2).
    """

    bins: Int64Array
    slowest: Int64Array
    sample: Int64Array
    files: Int64Array
    reads: Int64Array


_NONE = np.empty(0, np.int64)
NOTHING = Reduced(
    np.zeros((4, len(EDGES_NS)), np.int64),
    np.empty((0, 7), np.int64),
    np.empty((0, 6), np.int64),
    _NONE,
    np.empty((0, 2), np.int64),
)


def partial(rows: Rows, trace: Trace) -> Reduced:
    """The numbers of some rows."""
    # The bin of each operation, those of writes behind those of reads. Leading bits of the float64
    # tell it but for one edge: faster than a search.
    leading = np.maximum(rows.duration, 1).astype(np.float64).view(np.int64)
    leading >>= _SHIFT
    leading -= _LEADING_OF_1
    place: NDArray[np.intp] = _FIRST_BIN[leading]
    place += rows.duration >= _EDGE[leading]
    if rows.write_count:
        place += rows.op * np.intp(len(EDGES_NS))
    counts = np.bincount(place, minlength=2 * len(EDGES_NS)).reshape(2, -1)
    spent = sum_by_group(place, rows.duration, counts.size).reshape(2, -1)

    # Reads of dataset files, from which the sample is drawn; empty ones are counted by file.
    is_data = trace.files.is_data
    data = np.flatnonzero((rows.op == READ) & is_data[rows.file]) if len(is_data) else _NONE
    by_file = rows.reads
    columns = [by_file.counts, by_file.sums(by_file.nbytes == 0)]
    files, reads = _sum_by_file(by_file.file, np.stack(columns, axis=1))
    bins = np.concatenate([counts, spent])
    return Reduced(bins, _select_slowest(rows), _sample(rows, data), files, reads)


_SHIFT = 46  # 64 classes per octave: none holds more than one edge
_LEADING_OF_1 = 1023 << (52 - _SHIFT)
_LOWEST = ((np.arange(63 << (52 - _SHIFT)) + _LEADING_OF_1) << _SHIFT).view(np.float64)
_FIRST_BIN = np.searchsorted(EDGES_NS, _LOWEST, side="right") - 1
_FIRST_BIN[0] = 0  # that of 0, which is counted as of the class of 1
_EDGE = np.append(EDGES_NS, np.iinfo(np.int64).max)[_FIRST_BIN + 1]


def combine(a: Reduced, b: Reduced) -> Reduced:
    """The numbers of both."""
    files, reads = _sum_by_file(
        np.concatenate([a.files, b.files]), np.concatenate([a.reads, b.reads])
    )
    return Reduced(
        a.bins + b.bins,
        _select_smallest(np.concatenate([a.slowest, b.slowest]), SLOWEST),
        _select_smallest(np.concatenate([a.sample, b.sample]), SAMPLED),
        files,
        reads,
    )


def finish(reduced: Reduced, trace: Trace) -> Latencies | None:
    """The numbers in seconds and names; None where no operation was traced."""
    if not reduced.bins[:2].any():
        return None
    since = trace.job.start_ns
    slowest = tuple(_make_slow_operation(row, trace) for row in reduced.slowest.tolist())
    paths = trace.files.path
    counts_of = zip(reduced.files.tolist(), reduced.reads[:, 1].tolist(), strict=True)
    empty = {paths[code]: count for code, count in counts_of}
    if not len(reduced.sample):
        return Latencies(_make_histogram(reduced.bins), slowest, None, empty)
    # Offsets over time are of the file with most reads in the sample.
    files, counts = np.unique(reduced.sample[:, 4], return_counts=True)
    code = int(files[counts.argmax()])
    mine = reduced.sample[reduced.sample[:, 4] == code]
    mine = mine[np.lexsort((mine[:, 2], mine[:, 1]))]
    reads = int(reduced.reads[np.searchsorted(reduced.files, code), 0])
    start_s = (mine[:, 1] - since) / 1e9
    sample = OffsetSample(
        trace.files.path[code], reads, start_s, mine[:, 2], mine[:, 3], mine[:, 5]
    )
    return Latencies(_make_histogram(reduced.bins), slowest, sample, empty)


def _sum_by_file(files: Int64Array, reads: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Each file once, ascending, with the sum of its rows."""
    distinct, place = np.unique(files, return_inverse=True)
    total = np.zeros((len(distinct), 2), np.int64)
    np.add.at(total, place.ravel(), reads)
    return distinct, total


def _select_slowest(rows: Rows) -> Int64Array:
    if not len(rows):
        return NOTHING.slowest
    most = min(SLOWEST, len(rows))
    limit = np.partition(rows.duration, len(rows) - most)[len(rows) - most]
    at = np.flatnonzero(rows.duration >= limit)
    columns = (
        -rows.duration[at], rows.start[at], rows.owner.process[rows.part[at]], rows.file[at],
        rows.op[at], rows.offset[at], rows.nbytes[at],
    )  # fmt: skip
    return _select_smallest(np.stack([c.astype(np.int64) for c in columns], axis=1), SLOWEST)


def _sample(rows: Rows, data: NDArray[np.intp]) -> Int64Array:
    if not len(data):
        return NOTHING.sample
    # A number for each read that depends on nothing but itself: the same however parts are cut.
    x = rows.start[data].view(np.uint64) ^ (rows.offset[data].view(np.uint64) << np.uint64(20))
    x = x + rows.owner.process[rows.part[data]].view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    drawn: Int64Array = ((x ^ (x >> np.uint64(31))) >> np.uint64(1)).astype(np.int64)
    if len(data) > SAMPLED:
        limit = np.partition(drawn, SAMPLED - 1)[SAMPLED - 1]
        keep = drawn <= limit
        data, drawn = data[keep], drawn[keep]
    columns = (
        drawn, rows.start[data], rows.offset[data], rows.nbytes[data], rows.file[data],
        rows.owner.position[rows.part[data]],
    )  # fmt: skip
    return _select_smallest(np.stack([c.astype(np.int64) for c in columns], axis=1), SAMPLED)


def _select_smallest(rows: Int64Array, most: int) -> Int64Array:
    """The smallest rows, in order of their columns."""
    order = np.argsort(rows[:, 0])
    if (np.diff(rows[order, 0]) == 0).any():  # hardly ever: the first column decides
        order = np.lexsort(rows.T[::-1])
    first: Int64Array = rows[order[:most]]
    return first


def _make_histogram(bins: Int64Array) -> tuple[DurationBin, ...]:
    used = np.flatnonzero(bins[:2].any(axis=0))
    edges = [*(EDGES_NS / 1e9).tolist(), None]
    return tuple(
        DurationBin(
            edges[i] or 0.0, edges[i + 1], *bins[:2, i].tolist(), *(bins[2:, i] / 1e9).tolist()
        )
        for i in range(int(used[0]), int(used[-1]) + 1)
    )


def _make_slow_operation(row: list[int], trace: Trace) -> SlowOperation:
    duration, start, process, file, op, offset, nbytes = row
    position = int(trace.family[process])
    owner = trace.processes[trace.ranks[position] if position >= 0 else process]
    return SlowOperation(
        trace.files.path[file],
        "write" if op == WRITE else "read",
        owner.label,
        None if offset < 0 else offset,
        nbytes,
        (start - trace.job.start_ns) / 1e9,
        -duration / 1e9,
    )
