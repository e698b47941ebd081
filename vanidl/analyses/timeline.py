"""Bytes and operations of the job, its ranks and its busiest files over time.

They are spread over equal bins in exact integers; heat maps become such bins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.reducing import ByFile, Rows
from vanidl.model.ordering import encode_densely, stable_order, sum_by_group
from vanidl.model.trace import READ, WRITE, Trace
from vanidl.schema.dataclass import dataclass

if TYPE_CHECKING:
    from vanidl.analyses.files import FileSums

Int64Array = NDArray[np.int64]


# Equal bins in time, and bytes spread over them in exact integers.

FINEST = 16_384
"""The most bins that a run is divided into; coarser bins are sums of 2, 4, 8, ... of these."""

_MAX_PAIRS = 1_000_000  # operations x bins expanded at a time
_GRID = 1 << 15  # the same where they make a table: it stays in the cache
_STRIDE = 1 << 14  # operations whose edges are gone through together: fewer keep threads waiting
_FEW = 16  # operations over equally many bins that are worth a table
_SAFE_PRODUCT = 2**62
_EXACT = float(1 << 52)


def compute_edges(start_ns: int, end_ns: int, bins: int = FINEST) -> Int64Array:
    """The bounds of equal bins, shape (bins + 1,): edge i is start + ceil(i * length / bins).

    `bins` is a power of two up to FINEST, so every edge of wider bins is one of narrower bins.
    A run shorter than FINEST ns is taken as that long.
    """
    return _compute_edges(start_ns, end_ns, bins)


@lru_cache(8)
def _compute_edges(start_ns: int, end_ns: int, bins: int) -> Int64Array:
    whole, rest = divmod(max(end_ns - start_ns, FINEST), bins)
    index = np.arange(bins + 1, dtype=np.int64)
    bounds: Int64Array = start_ns + index * whole - (-index * rest) // bins
    bounds.setflags(write=False)
    return bounds


def find_bin(at: Int64Array, bounds: Int64Array) -> Int64Array:
    """The bin that holds each time; what lies outside counts in the first or last.

    Where the bounds are `compute_edges`, a division says what else is looked up.
    """
    bins, length = len(bounds) - 1, int(bounds[-1] - bounds[0])
    index: Int64Array
    since = at - bounds[0]
    if (
        len(at)
        and _is_even(bounds)
        and max(abs(int(since.min())), abs(int(since.max()))) < _SAFE_PRODUCT // bins
    ):
        # Time t is in bin i or later where t >= ceil(i * length / bins).
        since *= bins
        since //= length
        index = since
    else:
        index = np.searchsorted(bounds, at, side="right").astype(np.int64) - 1
    np.clip(index, 0, bins - 1, out=index)
    return index


def _is_even(bounds: Int64Array) -> bool:
    """Whether the bounds are `compute_edges`."""
    if len(bounds) < 2 or bounds[-1] - bounds[0] < FINEST:
        return False
    return np.array_equal(bounds, _compute_edges(int(bounds[0]), int(bounds[-1]), len(bounds) - 1))


def split_by_bin(
    start: Int64Array, end: Int64Array, nbytes: Int64Array, bounds: Int64Array
) -> Iterator[tuple[Int64Array, Int64Array, Int64Array]]:
    """Blocks of (operation, bin, bytes): the bytes of each operation, spread in proportion to time.

    Bin i of an operation gets floor(n t_(i+1)/d) - floor(n t_i/d), t_i being the time from its
    start to edge i and d its duration, so the shares of an operation sum to its bytes.
    """
    columns = _find_first_bins(start, end, nbytes, bounds)
    first, bins = columns[3:]
    single = np.flatnonzero(bins == 1)
    yield single, first[single], nbytes[single]
    alike, others = _group_by_bins(np.flatnonzero(bins > 1), columns, bounds)
    for block in alike:
        yield _spread_alike(block, columns, bounds)
    for block in _cut_in_blocks(others, bins[others]):
        yield _spread(block, columns, bounds)


def spread_bytes(
    start: Int64Array, end: Int64Array, nbytes: Int64Array, bounds: Int64Array
) -> Int64Array:
    """Bytes of each bin, shape (bins,); see `split_by_bin` for the rule."""
    sums = np.zeros(len(bounds) - 1, np.int64)
    add_spread((start, end, nbytes), bounds, Sums(sums))
    return sums


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of bins that are each `every` of the narrowest, of rows of them behind one another."""

    sums: Int64Array
    every: int = 1
    base: Int64Array | None = None  # the place of the first bin of each operation's row; None: 0

    def of(self, some: NDArray[np.intp]) -> Sums:
        """The same sums for some of the operations, in this order."""
        return self if self.base is None else replace(self, base=self.base[some])

    def place(self, rows: slice, at: Int64Array) -> Int64Array:
        """Where in `sums` operations that follow each other have these of the narrowest bins."""
        wider = at if self.every == 1 else at // self.every
        return wider if self.base is None else self.base[rows] + wider


def add_spread(
    operations: tuple[Int64Array, Int64Array, Int64Array], bounds: Int64Array, *into: Sums
) -> None:
    """Adds the shares of operations (start, end, bytes) to all sums by the rule of `split_by_bin`.

    Shares of wider bins are worked out beside the others': edges of these are edges of those.
    """
    columns = _find_first_bins(*operations, bounds)
    first, bins = columns[3:]
    # Floats where they are exact, as for most operations; integers for the others.
    by_edges = (bins == 1) | _is_exact(columns, bounds)
    widest = max(each.every for each in into)
    edges = np.where(bins == 1, 0, bins - 1 + first % widest)
    some = np.flatnonzero(by_edges)
    some = some[stable_order(int(edges[some].max(initial=0)) - edges[some])]
    in_order = [column[some] for column in (*columns, edges)]
    _add_by_edges(in_order, bounds, [each.of(some) for each in into], widest)
    others = np.flatnonzero(~by_edges)
    start, end, nbytes = (column[others] for column in operations)
    for each in into if len(others) else ():
        for owner, at, share in split_by_bin(start, end, nbytes, bounds[:: each.every]):
            base = 0 if each.base is None else each.base[others[owner]]
            np.add.at(each.sums, base + at, share)


def _add_by_edges(
    columns: Sequence[Int64Array], bounds: Int64Array, into: Sequence[Sums], widest: int
) -> None:
    """Adds up the bytes moved until each edge, then takes the differences of neighbouring sums.

    A share is the difference of two of them: adding these up is half of the work.
    """
    _, _, nbytes, first, bins, _ = columns
    behind = [np.zeros(len(each.sums)) for each in into]
    for each in into:
        np.add.at(each.sums, each.place(slice(None), first + bins - 1), nbytes)
    for places, i, n, done in _split_at_edges(columns, bounds, into, widest):
        for each, until, place in zip(into, behind, places, strict=True):
            if (i + 1) % each.every == 0:
                _add_at(until[i // each.every :], place[:n], done)
    for each, until in zip(into, behind, strict=True):
        # No operation goes on behind the last bin of a row, so nothing is taken from the next.
        sums = until.astype(np.int64)
        each.sums[:] += sums
        each.sums[1:] -= sums[:-1]


def _add_at(sums: NDArray[np.float64], at: Int64Array, values: NDArray[np.float64]) -> None:
    """Adds each value at its place: where these are few in a way that other threads can go on."""
    if len(sums) > len(at):
        np.add.at(sums, at, values)
        return
    found = np.bincount(at, values)
    sums[: len(found)] += found


def _split_at_edges(
    columns: Sequence[Int64Array], bounds: Int64Array, into: Sequence[Sums], widest: int
) -> Iterator[tuple[Sequence[Int64Array], int, int, NDArray[np.float64]]]:
    """Blocks of (places in all sums, i, n, whole bytes of n operations until the end of a bin).

    The bin is the i-th of the widest one in which the operation starts, whose place is given: so
    all wider ones end together, and what lies before the start counts as 0. The bins of one i are
    taken at once; operations come by their number of edges, most first, so those that go on are
    the first.
    """
    edge = (bounds[1:] - bounds[0]).astype(float)
    for low in range(0, int(np.count_nonzero(columns[5])), _STRIDE):
        start, end, nbytes, first, _, edges = (c[low : low + _STRIDE] for c in columns)
        whole = (start - bounds[0], nbytes, end - start)
        since, size, length = (each.astype(float) for each in whole)
        at = first - first % widest
        places = [each.place(slice(low, low + len(at)), at) for each in into]

        # Operations come by their number of edges, so those that reach an edge are the first n.
        ended = np.searchsorted(edges[::-1], np.arange(edges[0]), "right")
        for i, n in enumerate((len(edges) - ended).tolist()):
            done = edge[i:][at[:n]]
            done -= since[:n]
            done *= size[:n]
            # In these bins the end may still lie before the operation's start.
            if i < widest - 1:
                np.maximum(done, 0, out=done)
            done /= length[:n]
            yield places, i, n, np.floor(done, out=done)


def _is_exact(columns: Sequence[Int64Array], bounds: Int64Array) -> NDArray[np.bool_]:
    """Of which operations over several bins floats give the exact shares, and sums of these."""
    start, end, nbytes, _, bins = columns
    if bounds[-1] - bounds[0] >= _EXACT or nbytes.sum(dtype=float) >= _EXACT:
        return np.zeros(len(start), bool)
    # floor(a / b) is exact in float64 for integers with a + b < 2**53.
    product = (nbytes.astype(float) + 1) * (end - start)
    exact: NDArray[np.bool_] = (bins > 1) & (product < _EXACT)
    exact &= np.abs(start - bounds[0]) < _EXACT
    return exact


def _find_first_bins(
    start: Int64Array, end: Int64Array, nbytes: Int64Array, bounds: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array, Int64Array]:
    """The columns of operations, the first bin of each and over how many it goes."""
    first = find_bin(start, bounds)
    return start, end, nbytes, first, np.maximum(find_bin(end - 1, bounds), first) - first + 1


def sum_neighbouring_bins(sums: Int64Array, bins: int) -> Int64Array:
    """Sums of neighbouring bins along the last axis, which `bins` divides."""
    shape = (*sums.shape[:-1], bins, sums.shape[-1] // bins)
    wider: Int64Array = sums.reshape(shape).sum(axis=-1)
    return wider


def build_pyramid(sums: Int64Array, coarsest: int) -> tuple[Int64Array, ...]:
    """The same amounts in ever wider bins, finest first; every level has the same sum.

    Each level adds pairs of the one before, as long as they come in pairs and the next one has
    at least `coarsest` bins.
    """
    levels = [sums]
    while levels[-1].shape[-1] % 2 == 0 and levels[-1].shape[-1] // 2 >= coarsest:
        levels.append(sum_neighbouring_bins(levels[-1], levels[-1].shape[-1] // 2))
    return tuple(levels)


def _group_by_bins(
    many: Int64Array, columns: Sequence[Int64Array], bounds: Int64Array
) -> tuple[list[Int64Array], Int64Array]:
    """(blocks of operations over equally many bins, for which floats are exact; all others)."""
    code = np.where(_is_exact(columns, bounds), columns[4], 0)[many]
    order = stable_order(code)
    code = code[order]
    edges = np.flatnonzero(np.diff(code, prepend=-1, append=-1))
    blocks, others = [], [many[:0]]
    for low, high in pairwise(edges.tolist()):
        rows = many[order[low:high]]
        if code[low] == 0 or len(rows) < _FEW:
            others.append(rows)
        else:
            step = max(1, _GRID // int(code[low]))
            blocks += [rows[i : i + step] for i in range(0, len(rows), step)]
    return blocks, np.concatenate(others)


def _spread_alike(
    block: Int64Array, columns: Sequence[Int64Array], bounds: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Operations over equally many bins, as a table with a row for each."""
    at, done = _split_alike(block, columns, bounds)
    nbytes = columns[2][block][:, None]  # of what lasts beyond the last bin, too
    share = np.diff(done, prepend=0, append=nbytes)
    at = np.concatenate([at, at[:, -1:] + 1], axis=1)
    return np.repeat(block, at.shape[1]), at.ravel(), share.ravel()


def _split_alike(
    block: Int64Array, columns: Sequence[Int64Array], bounds: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """(bin, bytes moved until its end) of all bins but the last that operations go over.

    They go over equally many: a table with a row for each.
    """
    start, end, nbytes, first, bins = (column[block] for column in columns)
    at = first[:, None] + np.arange(bins[0] - 1)
    done: NDArray[np.float64] = (bounds[1:][at] - start[:, None]).astype(float)  # time to each edge
    done *= nbytes[:, None]
    done /= (end - start)[:, None]
    return at, done.astype(np.int64)  # rounded down: none is negative


def _cut_in_blocks(index: Int64Array, bins: Int64Array) -> list[Int64Array]:
    if len(index) == 0:
        return []
    block = np.cumsum(bins) // _MAX_PAIRS
    return np.split(index, np.flatnonzero(np.diff(block)) + 1)


def _spread(
    block: Int64Array, columns: Sequence[Int64Array], bounds: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array]:
    start, end, nbytes, first, bins = (column[block] for column in columns)
    duration = end - start
    past = np.cumsum(bins)
    at = np.arange(past[-1]) + np.repeat(first - past + bins, bins)
    reach = bounds[1:][at]
    reach -= np.repeat(start, bins)
    done_at = np.repeat(duration, bins)
    np.minimum(reach, done_at, out=reach)
    reach[past - 1] = duration  # of what lasts beyond the last bin, too
    done = _compute_floor_share(np.repeat(nbytes, bins), reach, done_at)
    share = np.diff(done, prepend=0)
    share[past - bins] = done[past - bins]
    return np.repeat(block, bins), at, share


def _compute_floor_share(nbytes: Int64Array, reach: Int64Array, duration: Int64Array) -> Int64Array:
    """floor(nbytes * reach / duration) without overflow."""
    if float(nbytes.max(initial=0)) * float(reach.max(initial=0)) <= _SAFE_PRODUCT:
        return nbytes * reach // duration
    large = nbytes.astype(float) * reach.astype(float) > _SAFE_PRODUCT
    safe = np.where(large, 0, nbytes) * np.where(large, 0, reach) // duration
    for i in np.flatnonzero(large):  # a gigabyte read over four seconds: rare
        safe[i] = int(nbytes[i]) * int(reach[i]) // int(duration[i])
    return safe


JOB_BINS = FINEST
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
    bounds = compute_edges(trace.job.start_ns, trace.job.end_ns, JOB_BINS)
    job = np.zeros((4, JOB_BINS), np.int64)
    row_of_part = [find_row(p, len(trace.ranks)) for p in rows.owner.position.tolist()]
    if not len(rows):
        return Bins(job, {row: np.zeros((4, BINS), np.int64) for row in row_of_part})
    at = find_bin(rows.start, bounds)
    long = np.flatnonzero(rows.end > bounds[1:][at])
    nbytes = rows.nbytes.copy()
    nbytes[long] = 0
    job[:] = _sum_at_starts(rows, nbytes, at, JOB_BINS)
    keys, place = np.unique(row_of_part, return_inverse=True)
    # The only row is that of the job, in wider bins.
    if len(keys) == 1:
        for op in (READ, WRITE):
            _spread_bytes(rows, long[rows.op[long] == op], bounds, Sums(job[op]))
        return Bins(job, {int(keys[0]): sum_neighbouring_bins(job, BINS)})
    first = place[rows.part] * BINS
    by_row = _sum_at_starts(rows, nbytes, first + at // _EVERY, len(keys) * BINS)
    for op in (READ, WRITE):
        some = long[rows.op[long] == op]
        of_rows = Sums(by_row[op], _EVERY, first[some])
        _spread_bytes(rows, some, bounds, Sums(job[op]), of_rows)
    by_key = by_row.reshape(4, len(keys), BINS).transpose(1, 0, 2)
    return Bins(job, dict(zip(keys.tolist(), by_key, strict=True)))


def _sum_at_starts(
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


def _spread_bytes(rows: Rows, some: NDArray[np.intp], bounds: Int64Array, *into: Sums) -> None:
    """Spreads the bytes of some operations over the bins that these last."""
    if len(some):
        add_spread((rows.start[some], rows.end[some], rows.nbytes[some]), bounds, *into)


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
    labels, (read, written, reads, writes) = stack_rows(bins.rows, trace)
    finest = JobTimeline(_compute_edges_s(trace, JOB_BINS), *bins.job)
    edges_s = _compute_edges_s(trace, BINS)
    ranks = len(trace.ranks)
    return Timeline(edges_s, labels, ranks, read, written, reads, writes, finest=finest)


def stack_rows(rows: dict[int, Int64Array], trace: Trace) -> tuple[tuple[str, ...], Int64Array]:
    """Labels of all rows, their sums, shape (sums a row, rows, bins); rows without I/O are 0."""
    groups = min(len(trace.ranks), MAX_ROWS)
    keys = [*range(groups), *([-1] if -1 in rows else [])]
    empty = np.zeros_like(next(iter(rows.values())))
    return _make_labels(keys, trace), np.stack([rows.get(key, empty) for key in keys], axis=1)


def _compute_edges_s(trace: Trace, bins: int) -> NDArray[np.float64]:
    start = trace.job.start_ns
    seconds: NDArray[np.float64] = (compute_edges(start, trace.job.end_ns, bins) - start) / 1e9
    return seconds


def find_row(position: int, ranks: int) -> int:
    """The row of a rank (position in Trace.ranks, -1 for none) among at most MAX_ROWS."""
    if position < 0 or ranks <= MAX_ROWS:
        return position
    return position * MAX_ROWS // ranks


def _make_labels(keys: Sequence[int], trace: Trace) -> tuple[str, ...]:
    ranks = trace.ranks
    rows = [find_row(i, len(ranks)) for i in range(len(ranks))]
    bounds = np.searchsorted(rows, np.arange(len(keys) + 1)).tolist()
    ends = [
        [trace.processes[ranks[i]].label for i in sorted({low, high - 1})]
        for (low, high), key in zip(pairwise(bounds), keys, strict=True)
        if key >= 0
    ]
    return (*map(" to ".join, ends), *(["no rank"] if -1 in keys else []))


# Bytes over time of the busiest files; which they are is known only once all are added up.

FILE_BINS = 512
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
    """Sparse sums: `key` is file code * FILE_BINS + bin, ascending; `sums` has shape (n, 2)."""

    key: Int64Array
    sums: Int64Array  # bytes read, bytes written


NO_FILE_BINS = FileBins(np.empty(0, np.int64), np.empty((0, 2), np.int64))


@dataclass(frozen=True, slots=True)
class OfFiles:
    """The reduction for the files of these codes.

    Its value holds at most MAX_FILES * FILE_BINS sums, however many parts go in.
    """

    codes: tuple[int, ...]
    NOTHING: FileBins = NO_FILE_BINS

    def partial(self, rows: Rows, trace: Trace) -> FileBins:
        """The bins of some rows."""
        chosen = _map_codes_to_rows(self.codes, len(trace.files)) >= 0
        bounds = compute_edges(trace.job.start_ns, trace.job.end_ns, FILE_BINS)
        value = NO_FILE_BINS
        for op, groups in ((READ, rows.reads), (WRITE, rows.writes)):
            key, nbytes = _make_bins(groups.groups(chosen[groups.file]), bounds)
            sums = np.zeros((len(key), 2), np.int64)
            sums[:, op] = nbytes
            value = _add_bins(value, key, sums)
        return value

    def combine(self, a: FileBins, b: FileBins) -> FileBins:
        """The bins of both."""
        return _add_bins(a, b.key, b.sums)


def _make_bins(rows: ByFile, bounds: Int64Array) -> tuple[Int64Array, Int64Array]:
    """(file code * FILE_BINS + bin, bytes) of all bins with bytes, ascending."""
    files, place = encode_densely(rows.file)
    sums = np.zeros(len(files) * FILE_BINS, np.int64)
    if len(rows):
        _add_to_bins(rows, place * FILE_BINS, bounds, sums)
    used = np.flatnonzero(sums)
    return files[used // FILE_BINS] * FILE_BINS + used % FILE_BINS, sums[used]


def _add_to_bins(rows: ByFile, key: Int64Array, bounds: Int64Array, sums: Int64Array) -> None:
    """Adds the bytes of the operations, spread over time, to the sums from those of `key` on.

    `key` is that of each group. Operations of a bin are neighbours, and added to it whole where
    they do not reach into another one: few do.
    """
    at = find_bin(rows.start, bounds)
    new = at[1:] != at[:-1]
    new[rows.first[1:-1] - 1] = True
    cell = np.append(0, np.flatnonzero(new) + 1)
    reach = np.repeat(bounds[1:][at[cell]], np.diff(cell, append=len(rows)))
    long = rows.end > reach
    np.add.at(sums, rows.each_of(key, cell) + at[cell], np.add.reduceat(rows.nbytes * ~long, cell))
    some = np.flatnonzero(long)
    operations = rows.start[some], rows.end[some], rows.nbytes[some]
    add_spread(operations, bounds, Sums(sums, base=rows.each_of(key, some)))


def bin_all_files(trace: Trace) -> OfFiles | None:
    """The reduction for all files, which needs no totals; None where they are too many."""
    return OfFiles(tuple(range(len(trace.files)))) if len(trace.files) <= MAX_FILES else None


def bin_busiest_files(sums: FileSums) -> OfFiles:
    """The reduction for the MAX_FILES files with most traced bytes, ties in order of path."""
    moved = sums.sums[:, 2] + sums.sums[:, 3]
    order = np.lexsort((sums.file, -moved))[:MAX_FILES]
    return OfFiles(tuple(sums.file[order].tolist()))


def finish_files(bins: FileBins, totals: FileSums, trace: Trace) -> FileTimeline | None:
    """One row a file, the busiest by `totals`; None where no operation was traced."""
    codes = bin_busiest_files(totals).codes
    if not codes:
        return None
    row = _map_codes_to_rows(codes, len(trace.files))
    dense = np.zeros((2, len(codes), FILE_BINS), np.int64)
    file, at = np.divmod(bins.key, FILE_BINS)
    dense[:, row[file], at] = bins.sums.T
    read, written = dense
    start = trace.job.start_ns
    edges_s = (compute_edges(start, trace.job.end_ns, FILE_BINS) - start) / 1e9
    paths = tuple(trace.files.path[code] for code in codes)
    return FileTimeline(edges_s, paths, len(totals.file), read, written)


def _map_codes_to_rows(codes: tuple[int, ...], files: int) -> Int64Array:
    row = np.full(files, -1, np.int64)
    row[list(codes)] = np.arange(len(codes))
    return row


def _add_bins(value: FileBins, key: Int64Array, sums: Int64Array) -> FileBins:
    keys, place = np.unique(np.concatenate([value.key, key]), return_inverse=True)
    total = np.zeros((len(keys), 2), np.int64)
    np.add.at(total, place, np.concatenate([value.sums, sums]))
    return FileBins(keys, total)
