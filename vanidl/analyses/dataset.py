"""How the job used its dataset: each file, each rank, which bytes, in which order, how often.

Dataset files are those of kind `dataset`. Everything is about reads; bytes at an offset that
was not recorded count as read, not as unique.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses import access, datafiles
from vanidl.analyses.access import AccessCounts, Runs
from vanidl.analyses.datafiles import (
    NO_RANK,
    DataFile,
    NeverRead,
    RankShare,
    ReadGrid,
    SamplesPerFile,
)
from vanidl.analyses.files import reduce_equal_files
from vanidl.analyses.operations import add_sparse
from vanidl.analyses.reducing import ByFile, Rows
from vanidl.analyses.sizes import TransferMode, find_transfer_modes
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.ordering import sort_rows, stable_order, sum_by_group, sum_by_key
from vanidl.model.trace import READ, Files, Trace
from vanidl.parallel.threads import batches, in_threads
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]
_NONE = np.empty(0, np.int64)


# Which bytes of which file were touched: exact unions of byte ranges, many files at once.

_SAFE = 2**62
_BLOCK = 1 << 18  # ranges that are united at a time: few enough for the cache


class ByteRanges(NamedTuple):
    """Byte ranges [start, end) of each key, ascending; ranges of a key do not touch.

    The ranges of key[i] are the rows first[i] to first[i + 1]: at least one.
    """

    key: Int64Array
    first: Int64Array
    start: Int64Array
    end: Int64Array


NO_RANGES = ByteRanges(_NONE, np.zeros(1, np.int64), _NONE, _NONE)


def union_by_key(key: Int64Array, start: Int64Array, end: Int64Array) -> ByteRanges:
    """The union of byte ranges for each key, given in any order; empty ranges cover nothing."""
    if (key[1:] < key[:-1]).any():
        order = stable_order(key)
        key, start, end = key[order], start[order], end[order]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: len(key)])
    return union_groups(key[first], np.append(first, len(key)), start, end)


def union_groups(
    key: Int64Array, first: Int64Array, start: Int64Array, end: Int64Array
) -> ByteRanges:
    """The union of the ranges first[i] to first[i + 1] for each key[i], all distinct.

    All keys are laid out behind one another, a byte apart, so that one union does for all.
    """
    if len(key) == 0:
        return NO_RANGES
    room = np.maximum.reduceat(end, first[:-1]) + 1
    if float(room.astype(float).sum()) > _SAFE:
        rows = (slice(a, b) for a, b in pairwise(first.tolist()))
        return _join_unions(key, [intervals.union(start[r], end[r]) for r in rows])
    base = np.cumsum(room) - room
    shift = np.repeat(base, np.diff(first))
    union = intervals.union(start + shift, end + shift)
    first = np.append(np.searchsorted(union.start, base), len(union.start))
    shift = np.repeat(base, np.diff(first))
    return _drop_empty_keys(key, first, Intervals(union.start - shift, union.end - shift))


def split_by_owner(
    ranges: ByteRanges, owner: Int64Array, key: Int64Array
) -> Iterator[tuple[int, ByteRanges]]:
    """Each owner, ascending, and its ranges under other keys; those of equal keys are united.

    `owner` and `key` have an entry for each key of the ranges, in any order. Owners share the
    memory of the whole.
    """
    if (owner[1:] < owner[:-1]).any():
        order = stable_order(owner)
        ranges, owner, key = _reorder_keys(ranges, order), owner[order], key[order]
    borders = np.flatnonzero(np.diff(owner, prepend=-1, append=-1)).tolist()
    rows = ranges.first[borders].tolist()
    falls = set(owner[1:][(key[1:] <= key[:-1]) & (owner[1:] == owner[:-1])].tolist())
    places = zip(owner[borders[:-1]].tolist(), pairwise(borders), pairwise(rows), strict=True)
    for each, (low, high), (begin, end) in places:
        first = ranges.first[low : high + 1] - begin
        own = ByteRanges(key[low:high], first, ranges.start[begin:end], ranges.end[begin:end])
        yield each, _unite_equal_keys(own) if each in falls else own


def _reorder_keys(ranges: ByteRanges, order: NDArray[np.intp]) -> ByteRanges:
    counts = np.diff(ranges.first)[order]
    first = np.append(0, np.cumsum(counts))
    rows = np.repeat(ranges.first[order] - first[:-1], counts) + np.arange(first[-1])
    return ByteRanges(ranges.key[order], first, ranges.start[rows], ranges.end[rows])


def _unite_equal_keys(ranges: ByteRanges) -> ByteRanges:
    """The ranges with their keys, which are in any order, ascending."""
    return union_by_key(np.repeat(ranges.key, np.diff(ranges.first)), ranges.start, ranges.end)


def merge(a: ByteRanges, b: ByteRanges) -> ByteRanges:
    """The bytes in a or b."""
    return _unite_sets([c for c in (a, b) if len(c.key)])


def measure_unions(sets: Sequence[ByteRanges]) -> tuple[Int64Array, Int64Array, Int64Array]:
    """(distinct keys ascending, bytes in any of the sets, highest end) of each key.

    Keys are taken block by block, so that memory is that of a block, not of all sets.
    """
    held = (c for c in sets if len(c.key))
    # Small ones are united first, as many as fill a block: there may be thousands.
    sets = [_unite_sets(some) for some in batches(held, lambda c: len(c.start), _BLOCK)]
    if not sets:
        return _NONE, _NONE, _NONE
    keys, place = np.unique(np.concatenate([c.key for c in sets]), return_inverse=True)
    counts, ends = np.zeros((2, len(keys)), np.int64)
    np.add.at(counts, place, np.concatenate([np.diff(c.first) for c in sets]))
    np.maximum.at(ends, place, np.concatenate([c.end[c.first[1:] - 1] for c in sets]))
    blocks = list(_split_in_blocks(counts, ends))
    lengths = in_threads(
        lambda some: _measure_unions_of_block(sets, keys[some], ends[some]), blocks
    )
    return keys, np.concatenate(list(lengths)), ends


def _unite_sets(sets: Sequence[ByteRanges]) -> ByteRanges:
    """The bytes in any of the sets."""
    if len(sets) < 2:
        return sets[0] if sets else NO_RANGES
    counts = np.concatenate([np.diff(c.first) for c in sets])
    keys = np.repeat(np.concatenate([c.key for c in sets]), counts)
    return union_by_key(keys, *(np.concatenate([c[i] for c in sets]) for i in (2, 3)))


def _split_in_blocks(counts: Int64Array, ends: Int64Array) -> Iterator[slice]:
    """Neighbouring keys that are united at once: not too many ranges, not too far apart."""
    far = np.cumsum(ends.astype(float)) // (_SAFE / 4)
    many = np.cumsum(counts) // _BLOCK
    borders = np.flatnonzero((np.diff(far) != 0) | (np.diff(many) != 0)) + 1
    for low, high in pairwise([0, *borders.tolist(), len(counts)]):
        yield slice(low, high)


def _measure_unions_of_block(
    sets: Sequence[ByteRanges], keys: Int64Array, ends: Int64Array
) -> Int64Array:
    """Bytes of each of these keys in any of the sets."""
    base = np.append(0, np.cumsum(ends + 1)[:-1])
    pieces = [_lay_out_keys(c, keys, base) for c in sets]
    union = intervals.union(*(np.concatenate(column) for column in zip(*pieces, strict=True)))
    return np.add.reduceat(union.end - union.start, np.searchsorted(union.start, base))


def _lay_out_keys(
    ranges: ByteRanges, keys: Int64Array, base: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Starts and ends of the keys' ranges, each key moved to its base."""
    low, high = np.searchsorted(ranges.key, keys[[0, -1]] + np.array([0, 1]))
    mine, first = ranges.key[low:high], ranges.first[low : high + 1]
    shift = np.repeat(base[np.searchsorted(keys, mine)], np.diff(first))
    rows = slice(int(first[0]), int(first[-1]))
    return ranges.start[rows] + shift, ranges.end[rows] + shift


def _join_unions(key: Int64Array, unions: Sequence[Intervals]) -> ByteRanges:
    first = np.append(0, np.cumsum([len(u.start) for u in unions]))
    bounds = (np.concatenate(column) for column in zip(*unions, strict=True))
    return _drop_empty_keys(key, first, Intervals(*bounds))


def _drop_empty_keys(key: Int64Array, first: Int64Array, ranges: Intervals) -> ByteRanges:
    """Without the keys that have no range left."""
    used = np.diff(first) > 0
    return ByteRanges(key[used], np.append(first[:-1][used], first[-1]), ranges.start, ranges.end)


# When a process begins to read a file, and when it begins again.
#
# A visit of a file by a process begins with its first read of the file, and again whenever it
# reads the lowest byte it ever reads there after having read elsewhere, or after having read
# all that it ever reads there in one read, as it does again. So a file read from start to end four
# times has four visits, in however many reads, whether alone or in turns with others; a file that
# stays open and is read in random order has as many visits as its lowest sample was read. Where
# the first read is not at the lowest byte, the first arrival there belongs to the first visit.
# Reads of no bytes (at the end of a file) and reads without a recorded offset are left out.

BORDER = ("process", "file", "start", "offset", "nbytes",
          "last_start", "last_offset", "last_nbytes", "lowest", "extent")  # fmt: skip
WHATEVER = -1  # extent of a return that is one wherever reads end
MOST_ORDERED = 1 << 17


@dataclass(frozen=True, slots=True)
class Borders:
    """What parts need to be stitched: integers.

    `border` has one row a (part, file), the BORDER columns: first read, last read, lowest
    offset, highest end. `again` has one row for each return to that lowest offset inside a part:
    process, file, lowest, start in ns, and the extent of the file that makes it one.
    """

    border: Int64Array
    again: Int64Array


NO_BORDERS = Borders(np.empty((0, len(BORDER)), np.int64), np.empty((0, 5), np.int64))


@dataclass(frozen=True, slots=True)
class Visits:
    """All visits, sorted by (process, file, start); `ordinal` counts from 0 within both."""

    process: Int64Array
    file: Int64Array
    start: Int64Array  # ns since the start of the job
    ordinal: Int64Array

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class VisitOrder:
    """In which order processes begin to read files.

    `concordance` is the share of pairs of files, read by one process in one pass, that come in
    the order of their names (Kendall): 1 in order, 0.5 shuffled, 0 in reverse. `repeated` is
    the same against the process's own first pass: 1 where every pass has the same order.
    None: fewer than two files in a pass, or fewer than two passes.
    """

    name: str  # "in order", "reversed", "shuffled", "one file" or "not clear"
    concordance: float | None
    repeated: float | None
    visits: int  # how many visits the figures rest on


def find_borders(reads: ByFile) -> Borders:
    """The visits inside each part: of reads with offset and bytes."""
    if len(reads) == 0:
        return NO_BORDERS
    start, offset, nbytes = reads.start, reads.offset, reads.nbytes
    first, last = reads.first[:-1], reads.first[1:] - 1
    lowest = np.minimum.reduceat(offset, first)
    low = np.flatnonzero(offset == reads.each_row(lowest))
    group = reads.each_of(np.arange(len(first)), low)
    extent = np.maximum.reduceat(reads.end_offset, first)
    # A return: not the first read of the file, nor right after another at the lowest byte, unless
    # both read all of it.
    apart = np.diff(low, prepend=-2) > 1
    is_whole = reads.end_offset[low] == extent[group]
    twice = is_whole & ~apart & np.append(False, is_whole[:-1])[: len(low)]
    returns = (low > first[group]) & (apart | twice)
    again, group = low[returns], group[returns]
    border = (reads.process, reads.file, start[first], offset[first], nbytes[first],
              start[last], offset[last], nbytes[last], lowest, extent)  # fmt: skip
    made_by = np.where(twice[returns], extent[group], WHATEVER)
    back = (reads.process[group], reads.file[group], lowest[group], start[again], made_by)
    return Borders(np.stack(border, axis=1), np.stack(back, axis=1))


def combine_borders(a: Borders, b: Borders) -> Borders:
    """The visits of both; borders are stitched in `find_visits`."""
    return Borders(np.concatenate([a.border, b.border]), np.concatenate([a.again, b.again]))


def find_visits(borders: Borders, since_ns: int) -> Visits:
    """Every visit of every file by every process; starts counted from `since_ns`."""
    border = sort_rows(borders.border)
    if len(border) == 0:
        none = np.empty(0, np.int64)
        return Visits(none, none, none, none)
    process, file, start, offset, nbytes, _, last_offset, last_nbytes, part_lowest, end = border.T
    begins = _mark_changes(process, file)
    group = np.cumsum(begins) - 1
    lowest = np.minimum.reduceat(part_lowest, np.flatnonzero(begins))
    extent = np.maximum.reduceat(end, np.flatnonzero(begins))
    arrives = offset == lowest[group]
    was_there = np.concatenate([[False], (last_offset == lowest[group])[:-1]])
    reads_all = offset + nbytes == extent[group]
    read_all = np.concatenate([[False], (last_offset + last_nbytes == extent[group])[:-1]])
    stitched = ~begins & arrives & (~was_there | (reads_all & read_all))
    inner = _select_returns(borders.again, process[begins], file[begins], lowest, extent)
    stitches = np.stack([group[stitched], start[stitched]], axis=1)
    later = sort_rows(np.concatenate([stitches, inner]))
    all_group = np.concatenate([group[begins], later[:, 0]])
    all_start = np.concatenate([start[begins], later[:, 1]])
    if len(later):  # else in order as they are
        order = stable_order(all_group)  # of each the first read, then the returns by start
        all_group, all_start = all_group[order], all_start[order]
    ordinal = _count_within_group(all_group)
    # A first read elsewhere and the first arrival at the lowest byte are one visit.
    keep = arrives[begins][all_group] | (ordinal != 1)
    all_group, all_start = all_group[keep], all_start[keep]
    return Visits(
        process[begins][all_group],
        file[begins][all_group],
        all_start - since_ns,
        _count_within_group(all_group),
    )


def visit_order(found: Visits, files: Files) -> VisitOrder:
    """In which order processes begin to read files, over all passes."""
    order = _sort_by_pass(found)[:MOST_ORDERED]
    process, ordinal, file = (c[order] for c in (found.process, found.ordinal, found.file))
    sequence = np.cumsum(_mark_changes(process, ordinal)) - 1
    by_name = _rank_naturally(np.unique(file), files)
    concordance, deviation = _compute_concordance(
        sequence, by_name[np.searchsorted(np.unique(file), file)]
    )
    # How far later passes repeat the order of the first one of their process.
    first = ordinal == 0
    own = np.full(len(file), -1, np.int64)
    own[first] = np.arange(int(first.sum()))
    key = process * (len(files) + 1) + file
    place = stable_order(key[first])
    at = np.searchsorted(key[first][place], key)
    own = own[first][place][np.minimum(at, len(place) - 1)] if len(place) else own
    repeated, _ = _compute_concordance(sequence[~first], own[~first])
    name = "one file" if len(by_name) == 1 else _order_name(concordance, deviation)
    return VisitOrder(name, concordance, repeated, len(file))


def _sort_by_pass(found: Visits) -> NDArray[np.intp]:
    """Places of visits by process, pass and start; equal ones stay by file, as visits come."""
    order = stable_order(found.start)
    for key in (found.ordinal, found.process):
        order = order[stable_order(key[order])]
    return order


def _order_name(concordance: float | None, deviation: float) -> str:
    """What the figure shows beyond chance: three standard deviations of a random order."""
    if concordance is None:
        return "not clear"
    far = abs(concordance - 0.5) > 3 * deviation
    if far and abs(concordance - 0.5) >= 0.25:
        return "in order" if concordance > 0.5 else "reversed"
    return "shuffled" if deviation < 0.1 else "not clear"


def _compute_concordance(sequence: Int64Array, value: Int64Array) -> tuple[float | None, float]:
    """Share of pairs in ascending order within sequences, and its deviation under chance.

    Variance of Kendall's tau of n items in random order: 2 (2n + 5) / (9 n (n - 1)).
    """
    counts = np.bincount(sequence)
    n = counts[counts > 1].astype(float)
    pairs = n * (n - 1) / 2
    if pairs.sum() == 0:
        return None, 0.0
    wide = int(value.max()) + 1
    discordant = count_inversions(sequence * wide + value)
    variance = (2 * (2 * n + 5) / (9 * n * (n - 1)) / 4 * pairs**2).sum() / pairs.sum() ** 2
    return 1 - discordant / float(pairs.sum()), float(np.sqrt(variance))


def count_inversions(values: Int64Array) -> int:
    """How many pairs i < j have values[i] > values[j].

    Merge sort, all blocks of a level at once, until all is in order: mostly it is at once.
    """
    total, width, n = 0, 1, len(values)
    position = np.arange(n)
    while width < n and (values[1:] < values[:-1]).any():
        block = position // (2 * width)
        order = np.lexsort((values, block))  # equal ones stay as they are
        is_left = (order // width) % 2 == 0
        seen = np.cumsum(is_left)
        lefts = np.bincount(block[is_left.nonzero()[0]], minlength=int(block[-1]) + 1)
        reach = np.cumsum(lefts)
        total += int((reach[block] - seen)[~is_left].sum())
        values, width = values[order], 2 * width
    return total


def _rank_naturally(codes: Int64Array, files: Files) -> Int64Array:
    """Place of each file by name, numbers in names as numbers: part-2 before part-10."""
    if files.place:
        return np.argsort(np.argsort(np.array(files.place)[codes]))
    names = [make_natural_key(files.path[code]) for code in codes.tolist()]
    rank = np.empty(len(names), np.int64)
    rank[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return rank


def make_natural_key(path: str) -> list[tuple[int, str]]:
    """A key that sorts names as people do: part-2 before part-10."""
    pieces = re.split(r"(\d{1,18})", path)
    return [(int(p), "") if i % 2 else (-1, p) for i, p in enumerate(pieces)]


def _mark_changes(*columns: Int64Array) -> NDArray[np.bool_]:
    differs = np.zeros(len(columns[0]), bool)
    differs[:1] = True
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return differs


def _count_within_group(group: Int64Array) -> Int64Array:
    at = np.arange(len(group))
    begins = _mark_changes(group)
    return at - np.maximum.accumulate(np.where(begins, at, 0))


def _select_returns(
    again: Int64Array,
    process: Int64Array,
    file: Int64Array,
    lowest: Int64Array,
    extent: Int64Array,
) -> Int64Array:
    """Group and start of the returns inside parts that are returns in all parts together."""
    wide = int(max(file.max(), again[:, 1].max(initial=0))) + 1
    group = np.searchsorted(process * wide + file, again[:, 0] * wide + again[:, 1])
    made_by = again[:, 4]
    real = (again[:, 2] == lowest[group]) & ((made_by == WHATEVER) | (made_by == extent[group]))
    return np.stack([group[real], again[real, 3]], axis=1)


TIME_BINS = 1024
_POSITIONS = 1 << 20


@dataclass(frozen=True, slots=True)
class Dataset:
    """The dataset of the run. `files` by traffic, largest first."""

    files: tuple[DataFile, ...]
    bytes_read: int
    unique_bytes: int | None
    reread_factor: float | None
    size: int | None  # None unless the size of every file read is known
    traced_share: float | None  # traced reads / counted reads of dataset files
    ranks: tuple[RankShare, ...]
    share_of: str  # "size on disk" or "bytes that any rank read"
    order: VisitOrder | None
    within: AccessCounts | None  # reads that moved bytes
    samples: SamplesPerFile
    modes: tuple[TransferMode, ...]
    never: NeverRead
    grid: ReadGrid | None
    visits: Visits | None
    empty_reads: int | None = None  # as at the end of a file; None: no read was traced


SAME_SHARE = 0.9

UniqueByFile = tuple[Int64Array, Int64Array, Int64Array]
"""Codes of files ascending; of each the bytes that any rank read, and the highest end."""


def read_by_all(data: Dataset, epochs: int) -> bool:
    """Whether each of several ranks reads (nearly) all of the dataset in each of its passes.

    `epochs`: passes over the data, 0 where they are not known.
    """
    ranks = len(data.ranks)
    if ranks < 2 or not data.unique_bytes:
        return False
    if min(r.unique_bytes for r in data.ranks) < SAME_SHARE * data.unique_bytes:
        return False
    if all(r.bytes_read <= 1.1 * r.unique_bytes for r in data.ranks):
        return True
    return epochs > 0 and data.bytes_read >= SAME_SHARE * ranks * epochs * data.unique_bytes


@dataclass(frozen=True, slots=True)
class Uses:
    """Integers only. Keys are file * 2**20 + position in Trace.ranks + 1, or file * bins + bin.

    `sums` holds reads, bytes, and reads whose offset was not recorded; `first`, `last` in ns.
    `ranges` holds the bytes that each position + 1 read, by file: ranks are never merged.
    """

    key: Int64Array
    sums: Int64Array
    first: Int64Array
    last: Int64Array
    ranges: dict[int, ByteRanges]
    grid: tuple[Int64Array, Int64Array]
    sizes: tuple[Int64Array, Int64Array]
    runs: Runs
    borders: Borders


NOTHING = Uses(
    _NONE, np.empty((0, 3), np.int64), _NONE, _NONE, {},
    (_NONE, _NONE), (_NONE, _NONE), access.NOTHING, NO_BORDERS,
)  # fmt: skip


def partial(rows: Rows, trace: Trace) -> Uses:
    """The dataset reads among some rows."""
    reads = rows.reads_of_kind(trace.files.data_kind, trace)
    if not len(reads):
        return NOTHING
    # Reads of 0 bytes, as at the end of a file, have no part in patterns.
    placed = reads.with_offset
    moved = placed if (placed.nbytes > 0).all() else placed.rows(placed.nbytes > 0)
    return Uses(
        *_sum_reads(reads),
        ranges=dict(_collect_ranges(placed)),
        grid=_make_grid(reads, trace),
        sizes=reads.sizes,
        runs=access.count_runs(moved, READ),
        borders=find_borders(moved),
    )


def combine(a: Uses, b: Uses) -> Uses:
    """The dataset reads of both."""
    names = ("key", "sums", "first", "last")
    both = [np.concatenate([getattr(a, name), getattr(b, name)]) for name in names]
    order = stable_order(both[0])
    return Uses(
        *reduce_equal_files(*(column[order] for column in both)),
        _merge_ranges(a.ranges, b.ranges),
        add_sparse(a.grid, b.grid),
        add_sparse(a.sizes, b.sizes),
        access.combine(a.runs, b.runs),
        combine_borders(a.borders, b.borders),
    )


def _merge_ranges(a: dict[int, ByteRanges], b: dict[int, ByteRanges]) -> dict[int, ByteRanges]:
    both = {p: merge(a[p], b[p]) for p in a.keys() & b.keys()}
    return a | b | both


def measure_unique_by_file(uses: Uses) -> UniqueByFile:
    """What all ranks together read of each file."""
    return measure_unions(list(uses.ranges.values()))


def finish(uses: Uses, trace: Trace, layer: str, unique: Future[UniqueByFile]) -> Dataset | None:
    """The dataset view; None where no dataset file was read through the layer.

    `unique` is `measure_unique_by_file` of the uses, worked out meanwhile.
    """
    counted = datafiles.count_by_file(trace, layer)
    traced = len(uses.key) > 0
    found, order = _order_visits(uses, trace) if traced else (None, None)
    visited = _count_visits(found)
    # Only from here on are unique bytes needed.
    by_file = unique.result()
    table = _make_table(uses, by_file, trace, counted)
    if not table:
        return None
    files = tuple(_make_data_file(row, visited, trace, counted) for row in table)

    # What was read of them, how much of it differs, and how large one sample is.
    within = access.finish(uses.runs, trace, layer)
    unique_nbytes = _sum(f.unique_bytes for f in files)
    read = sum(f.bytes_read for f in files)
    size = _sum(f.size for f in files)
    record = datafiles.record_size(trace.user_data, uses.sizes, within.read if within else None)
    files = tuple(datafiles.add_samples(f, record, trace.user_data) for f in files)
    return Dataset(
        files,
        read,
        unique_nbytes,
        read / unique_nbytes if unique_nbytes else None,
        size,
        datafiles.compute_traced_share(counted, int(uses.sums[:, 0].sum()) if traced else 0),
        tuple(_compute_shares(uses, trace, size or int(by_file[1].sum()))),
        "size on disk" if size else "bytes that any rank read",
        order,
        within.read if within else None,
        datafiles.count_samples_per_file(files, record),
        find_transfer_modes(uses.sizes, tuple(f.path for f in files), trace.user_data),
        datafiles.find_never_read(trace),
        _read_grid(uses, files, trace) if traced else None,
        found,
        _count_empty_reads(uses) if traced else None,
    )


def _count_empty_reads(uses: Uses) -> int:
    """Reads that moved nothing: Python reads a file until it gets nothing more."""
    nbytes, counts = uses.sizes
    return int(counts[nbytes == 0].sum())


def _sum_reads(reads: ByFile) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """(key, sums, first, last), by file and position."""
    unplaced = reads.sums(reads.offset < 0)
    sums = np.stack([reads.counts, reads.group_nbytes, unplaced], axis=1)
    key = reads.file * _POSITIONS + reads.position + 1
    order = stable_order(key)
    columns = (key, sums, reads.group_start, reads.group_end)
    return reduce_equal_files(*(column[order] for column in columns))


def _collect_ranges(reads: ByFile) -> Iterator[tuple[int, ByteRanges]]:
    """(position + 1, the bytes that it read by file)."""
    groups = np.arange(len(reads.file))
    held = union_groups(groups, reads.first, reads.offset, reads.end_offset)
    yield from split_by_owner(held, reads.position[held.key] + 1, reads.file[held.key])


def _make_grid(reads: ByFile, trace: Trace) -> tuple[Int64Array, Int64Array]:
    """Sparse bytes by file * TIME_BINS + bin."""
    length = max(trace.job.end_ns - trace.job.start_ns, 1)
    since = np.clip(reads.start - trace.job.start_ns, 0, length - 1)
    # Divided before it is multiplied where a run is so long that the product overflows.
    wide = length > 2**62 // TIME_BINS
    bins = since // (-(-length // TIME_BINS)) if wide else since * TIME_BINS // length
    # Rows of a file are in order of time, so those of a bin are neighbours.
    new = bins[1:] != bins[:-1]
    new[reads.first[1:-1] - 1] = True
    cell = np.append(0, np.flatnonzero(new) + 1)
    file = reads.each_of(reads.file, cell)
    nbytes = np.add.reduceat(reads.nbytes, cell)
    moved = nbytes > 0
    return sum_by_key((file * TIME_BINS + bins[cell])[moved], nbytes[moved])


@dataclass(frozen=True, slots=True)
class _Row:
    """One dataset file, by its code."""

    code: int
    sums: Int64Array
    ranks: int | None
    first: int | None
    last: int | None
    unique: int | None
    extent: int | None


def _make_table(
    uses: Uses,
    by_file: UniqueByFile,
    trace: Trace,
    counted: datafiles.Counted,
) -> list[_Row]:
    """Every dataset file that was read, by traffic; from counters where nothing was traced."""
    codes, lengths, ends = (a.tolist() for a in by_file)
    unique, extent = dict(zip(codes, lengths, strict=True)), dict(zip(codes, ends, strict=True))
    file, sums, first, final = reduce_equal_files(
        uses.key // _POSITIONS, uses.sums, uses.first, uses.last
    )
    ranked = uses.key[uses.key % _POSITIONS > 0] // _POSITIONS
    ranks = dict(zip(*(a.tolist() for a in np.unique(ranked, return_counts=True)), strict=True))
    # A file with reads whose offset is not known has no count of unique bytes.
    rows = [
        _Row(
            code, sums[i], ranks.get(code, 0), int(first[i]), int(final[i]),
            None if sums[i, 2] else unique.get(code, 0), extent.get(code),
        )
        for i, code in enumerate(file.tolist())
    ]  # fmt: skip
    untraced = sorted(set(counted.reads) - set(file.tolist()))
    for code in untraced:
        sums_of = np.array([counted.reads[code], counted.nbytes[code], 0])
        rows.append(_Row(code, sums_of, None, None, None, None, None))
    return sorted(rows, key=lambda r: (-int(r.sums[1]), trace.files.path[r.code]))


def _order_visits(uses: Uses, trace: Trace) -> tuple[Visits, VisitOrder]:
    found = find_visits(uses.borders, trace.job.start_ns)
    return found, visit_order(found, trace.files)


def _count_visits(found: Visits | None) -> dict[int, int] | None:
    """Visits of each file; None where nothing was traced."""
    if found is None:
        return None
    files, counts = np.unique(found.file, return_counts=True)
    return dict(zip(files.tolist(), counts.tolist(), strict=True))


def _make_data_file(
    row: _Row, visited: dict[int, int] | None, trace: Trace, counted: datafiles.Counted
) -> DataFile:
    path, since = trace.files.path[row.code], trace.job.start_ns
    reads, nbytes = int(row.sums[0]), int(row.sums[1])
    # Trace and counters may each lack the reads that went furthest.
    ends = [e for e in (row.extent, counted.extent.get(row.code)) if e is not None]
    return DataFile(
        path,
        trace.user_data.sizes.get(path),
        max(ends, default=None),
        nbytes,
        reads,
        row.unique,
        nbytes / row.unique if row.unique else None,
        None if row.first is None or visited is None or row.sums[2] else visited.get(row.code, 0),
        counted.opens.get(row.code),
        row.ranks,
        None,
        None if row.first is None else (row.first - since) / 1e9,
        None if row.last is None else (row.last - since) / 1e9,
    )


def _compute_shares(uses: Uses, trace: Trace, whole: int) -> Iterator[RankShare]:
    """One row per rank, ranks without I/O included; one more for processes in no rank."""
    if len(uses.key) == 0:
        return
    # Keys hold the position plus 1, so that -1 stands for processes of no rank.
    position = uses.key % _POSITIONS - 1
    held, place = np.unique(position, return_inverse=True)
    files = dict(zip(held.tolist(), np.bincount(place).tolist(), strict=True))
    nbytes = sum_by_group(place, uses.sums[:, 1], len(held)).tolist()
    read = dict(zip(held.tolist(), nbytes, strict=True))

    # Unique bytes of all ranks at once.
    ranges = (Intervals(c.start, c.end) for c in uses.ranges.values())
    lengths = dict(zip(uses.ranges, intervals.lengths(ranges), strict=True))
    for rank in [*range(len(trace.ranks)), *([-1] if (position < 0).any() else [])]:
        unique = lengths.get(rank + 1, 0)
        process = trace.processes[trace.ranks[rank]] if rank >= 0 else None
        yield RankShare(
            process.label if process else NO_RANK,
            process.rank if process else None,
            files.get(rank, 0),
            read.get(rank, 0),
            unique,
            unique / whole if whole else None,
        )


def _read_grid(uses: Uses, files: tuple[DataFile, ...], trace: Trace) -> ReadGrid:
    """At most 1,000 files, spread over the order of their first visit."""
    # In the order of first visits; of too many files an even selection.
    begun = [i for i, f in enumerate(files) if f.first_s is not None]
    begun.sort(key=lambda i: (files[i].first_s or 0.0, files[i].path))
    if len(begun) > datafiles.MOST_FILES:
        places = np.linspace(0, len(begun) - 1, datafiles.MOST_FILES).round().astype(int)
        picked = [begun[i] for i in places]
    else:
        picked = begun

    # Bytes by file and bin of time, in the rows of the files that were picked.
    code = {path: i for i, path in enumerate(trace.files.path)}
    row = {code[files[i].path]: at for at, i in enumerate(picked)}
    nbytes = np.zeros((len(picked), TIME_BINS), np.int64)
    file = uses.grid[0] // TIME_BINS
    keep = np.isin(file, np.array(list(row), np.int64))
    at = np.array([row[f] for f in file[keep].tolist()], np.int64)
    nbytes[at, uses.grid[0][keep] % TIME_BINS] = uses.grid[1][keep]
    edges = np.linspace(0, trace.job.run_time_s, TIME_BINS + 1)
    return ReadGrid(np.array(picked, np.int64), edges, nbytes, len(begun))


def _sum(values: Iterator[int | None]) -> int | None:
    """The sum; None where any value, or every value, is missing."""
    known = list(values)
    return None if not known or None in known else sum(v for v in known if v is not None)
