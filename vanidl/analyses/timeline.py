"""Bytes and operations over time, in exact integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.trace import WRITE, Part, Trace

Int64Array = NDArray[np.int64]

BINS = 4096
MAX_ROWS = 256
_MAX_PAIRS = 4_000_000  # operations x bins expanded at a time
_SAFE_PRODUCT = 2**62


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
    Darshan's heat maps (`analyses.heatmaps`): then `reads` and `writes` are None.
    """

    edges_s: NDArray[np.float64]
    row_labels: tuple[str, ...]
    ranks: int  # how many ranks the rows stand for
    bytes_read: Int64Array
    bytes_written: Int64Array
    reads: Int64Array | None  # counted in the bin in which they start
    writes: Int64Array | None
    source: str = "trace"


@dataclass(frozen=True, slots=True)
class Bins:
    """Sums a row: row -> array of shape (4, BINS): bytes read, written, reads, writes."""

    rows: dict[int, Int64Array]


NOTHING = Bins({})


def partial(part: Part, trace: Trace) -> Bins:
    """The bins of one part."""
    row = row_of(int(trace.family[part.process]), len(trace.ranks))
    edges = bin_edges(trace.job.start_ns, trace.job.end_ns)
    sums = np.zeros((4, BINS), np.int64)
    for op in (0, WRITE):
        mine = part.op == op
        if mine.any():
            start, end, nbytes = part.start[mine], part.end[mine], part.nbytes[mine]
            sums[op] = spread(start, end, nbytes, edges)
            sums[2 + op] = np.bincount(_bin_of(start, edges), minlength=BINS)
    return Bins({row: sums})


def combine(a: Bins, b: Bins) -> Bins:
    """The bins of both."""
    rows = dict(a.rows)
    for row, sums in b.rows.items():
        rows[row] = rows[row] + sums if row in rows else sums
    return Bins(rows)


def finish(bins: Bins, trace: Trace) -> Timeline | None:
    """One row a rank or group of ranks; None where no operation was traced."""
    if not bins.rows:
        return None
    edges = bin_edges(trace.job.start_ns, trace.job.end_ns)
    labels, sums = stacked(bins.rows, trace)
    return Timeline((edges - trace.job.start_ns) / 1e9, labels, len(trace.ranks), *sums)


def stacked(rows: dict[int, Int64Array], trace: Trace) -> tuple[tuple[str, ...], Int64Array]:
    """Labels of all rows, and their sums, shape (sums a row, rows, bins); silent ones are 0."""
    groups = min(len(trace.ranks), MAX_ROWS)
    keys = [*range(groups), *([-1] if -1 in rows else [])]
    empty = np.zeros_like(next(iter(rows.values())))
    return _labels(keys, trace), np.stack([rows.get(key, empty) for key in keys], axis=1)


def bin_edges(start_ns: int, end_ns: int) -> Int64Array:
    """The bounds of BINS equal bins: edge i is start + ceil(i * length / BINS)."""
    length = max(end_ns - start_ns, BINS)
    return start_ns - (-np.arange(BINS + 1, dtype=np.int64) * length) // BINS


def spread(start: Int64Array, end: Int64Array, nbytes: Int64Array, edges: Int64Array) -> Int64Array:
    """Bytes of each bin: bin i of an operation gets floor(n t_(i+1)/d) - floor(n t_i/d).

    t_i is the time from the operation's start to edge i, d its duration.
    """
    first = _bin_of(start, edges)
    last = np.maximum(_bin_of(end - 1, edges), first)
    single = first == last
    sums = _count(first[single], nbytes[single], len(edges) - 1)
    many = np.flatnonzero(~single)
    for block in _blocks(many, (last - first)[many] + 1):
        sums += _spread_block(
            (start[block], end[block], nbytes[block]), first[block], last[block], edges
        )
    return sums


def row_of(position: int, ranks: int) -> int:
    """The row of a rank (position in Trace.ranks, -1 for none) among at most MAX_ROWS."""
    if position < 0 or ranks <= MAX_ROWS:
        return position
    return position * MAX_ROWS // ranks


def _labels(keys: Sequence[int], trace: Trace) -> tuple[str, ...]:
    names = [trace.processes[process].label for process in trace.ranks]
    rows = np.array([row_of(i, len(names)) for i in range(len(names))], np.int64)
    bounds = [np.searchsorted(rows, [key, key + 1]).tolist() for key in keys if key >= 0]
    labels = [
        names[low] if high - low == 1 else f"{names[low]} to {names[high - 1]}"
        for low, high in bounds
    ]
    return (*labels, *(["no rank"] if -1 in keys else []))


def _bin_of(at: Int64Array, edges: Int64Array) -> Int64Array:
    length, bins = int(edges[-1] - edges[0]), len(edges) - 1
    index: Int64Array = np.clip((at - edges[0]) * bins // length, 0, bins - 1)
    return index


def _count(index: Int64Array, weight: Int64Array, bins: int) -> Int64Array:
    # bincount adds in float64, which is exact below 2**53 bytes in a bin
    return np.bincount(index, weight, minlength=bins).astype(np.int64)


def _blocks(index: Int64Array, bins: Int64Array) -> list[Int64Array]:
    if len(index) == 0:
        return []
    block = np.cumsum(bins) // _MAX_PAIRS
    return np.split(index, np.flatnonzero(np.diff(block)) + 1)


def _spread_block(
    operations: tuple[Int64Array, Int64Array, Int64Array],
    first: Int64Array, last: Int64Array, edges: Int64Array,
) -> Int64Array:  # fmt: skip
    start, end, nbytes = operations
    bins = last - first + 1
    owner = np.repeat(np.arange(len(start)), bins)
    before = np.cumsum(bins) - bins
    at = first[owner] + np.arange(len(owner)) - before[owner]
    duration = (end - start)[owner]
    reach = np.where(at == last[owner], duration, edges[at + 1] - start[owner])
    done = _floor_share(nbytes[owner], np.minimum(reach, duration), duration)
    share = np.diff(done, prepend=0)
    is_first = at == first[owner]
    share[is_first] = done[is_first]
    return _count(at, share, len(edges) - 1)


def _floor_share(nbytes: Int64Array, reach: Int64Array, duration: Int64Array) -> Int64Array:
    """floor(nbytes * reach / duration) without overflow."""
    large = nbytes.astype(float) * reach.astype(float) > _SAFE_PRODUCT
    safe = np.where(large, 0, nbytes) * np.where(large, 0, reach) // duration
    for i in np.flatnonzero(large):  # a gigabyte read over four seconds: rare
        safe[i] = int(nbytes[i]) * int(reach[i]) // int(duration[i])
    return safe
