"""How the job used its dataset: each file, each rank, which bytes, in which order.

Dataset files are those of kind `dataset`. Everything is about reads; bytes at an offset that
was not recorded count as read, not as unique.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses import access, byte_ranges, datafiles, visits
from vanidl.analyses.access import AccessCounts, Runs
from vanidl.analyses.by_file import ByFile
from vanidl.analyses.byte_ranges import ByteRanges
from vanidl.analyses.datafiles import (
    NO_RANK,
    DataFile,
    NeverRead,
    RankShare,
    ReadGrid,
    SamplesPerFile,
    TransferMode,
)
from vanidl.analyses.files import grouped
from vanidl.analyses.operations import add_sparse
from vanidl.analyses.rows import Rows
from vanidl.analyses.sorting import sum_by_group, sum_by_key
from vanidl.analyses.visits import Borders, VisitOrder, Visits
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.ordering import stable_order
from vanidl.model.trace import READ, Trace

Int64Array = NDArray[np.int64]

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


_NONE = np.empty(0, np.int64)
NOTHING = Uses(
    _NONE, np.empty((0, 3), np.int64), _NONE, _NONE, {},
    (_NONE, _NONE), (_NONE, _NONE), access.NOTHING, visits.NOTHING,
)  # fmt: skip


def partial(rows: Rows, trace: Trace) -> Uses:
    """The dataset reads among some rows."""
    reads = rows.reads_of_kind(trace.files.data_kind, trace)
    if not len(reads):
        return NOTHING
    placed = reads.with_offset
    moved = placed if (placed.nbytes > 0).all() else placed.rows(placed.nbytes > 0)
    return Uses(
        *_sums(reads),
        ranges=dict(_ranges(placed)),
        grid=_grid(reads, trace),
        sizes=reads.sizes,
        runs=access.runs(moved, READ),
        borders=visits.partial(moved),
    )


def combine(a: Uses, b: Uses) -> Uses:
    """The dataset reads of both."""
    names = ("key", "sums", "first", "last")
    both = [np.concatenate([getattr(a, name), getattr(b, name)]) for name in names]
    order = stable_order(both[0])
    return Uses(
        *grouped(*(column[order] for column in both)),
        _merged(a.ranges, b.ranges),
        add_sparse(a.grid, b.grid),
        add_sparse(a.sizes, b.sizes),
        access.combine(a.runs, b.runs),
        visits.combine(a.borders, b.borders),
    )


def _merged(a: dict[int, ByteRanges], b: dict[int, ByteRanges]) -> dict[int, ByteRanges]:
    both = {p: byte_ranges.merge(a[p], b[p]) for p in a.keys() & b.keys()}
    return a | b | both


def unique_by_file(uses: Uses) -> UniqueByFile:
    """What all ranks together read of each file."""
    return byte_ranges.together(list(uses.ranges.values()))


def finish(uses: Uses, trace: Trace, layer: str, unique: Future[UniqueByFile]) -> Dataset | None:
    """The dataset view; None where no dataset file was read through the layer.

    `unique` is `unique_by_file` of the uses, worked out meanwhile.
    """
    counted = datafiles.counted(trace, layer)
    traced = len(uses.key) > 0
    found, order = _visits(uses, trace) if traced else (None, None)
    visited = _visited(found)
    by_file = unique.result()
    table = _table(uses, by_file, trace, counted)
    if not table:
        return None
    files = tuple(_file(row, visited, trace, counted) for row in table)
    within = access.finish(uses.runs, trace, layer)
    unique_nbytes = _sum(f.unique_bytes for f in files)
    read = sum(f.bytes_read for f in files)
    size = _sum(f.size for f in files)
    record = datafiles.record_size(trace.user_data, uses.sizes, within.read if within else None)
    files = tuple(datafiles.with_samples(f, record, trace.user_data) for f in files)
    return Dataset(
        files,
        read,
        unique_nbytes,
        read / unique_nbytes if unique_nbytes else None,
        size,
        datafiles.traced_share(counted, int(uses.sums[:, 0].sum()) if traced else 0),
        tuple(_shares(uses, trace, size or int(by_file[1].sum()))),
        "size on disk" if size else "bytes that any rank read",
        order,
        within.read if within else None,
        datafiles.samples_per_file(files, record),
        datafiles.transfer_modes(uses.sizes, tuple(f.path for f in files), trace.user_data),
        datafiles.never_read(trace),
        _read_grid(uses, files, trace) if traced else None,
        found,
        _empty(uses) if traced else None,
    )


def _empty(uses: Uses) -> int:
    """Reads that moved nothing: Python reads a file until it gets nothing more."""
    nbytes, counts = uses.sizes
    return int(counts[nbytes == 0].sum())


def _sums(reads: ByFile) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """(key, sums, first, last), by file and position."""
    unplaced = reads.sums(reads.offset < 0)
    sums = np.stack([reads.counts, reads.group_nbytes, unplaced], axis=1)
    key = reads.file * _POSITIONS + reads.position + 1
    order = stable_order(key)
    columns = (key, sums, reads.group_start, reads.group_end)
    return grouped(*(column[order] for column in columns))


def _ranges(reads: ByFile) -> Iterator[tuple[int, ByteRanges]]:
    """(position + 1, the bytes that it read by file)."""
    groups = np.arange(len(reads.file))
    held = byte_ranges.of_groups(groups, reads.first, reads.offset, reads.end_offset)
    yield from byte_ranges.by_owner(held, reads.position[held.key] + 1, reads.file[held.key])


def _grid(reads: ByFile, trace: Trace) -> tuple[Int64Array, Int64Array]:
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


def _table(
    uses: Uses,
    by_file: UniqueByFile,
    trace: Trace,
    counted: datafiles.Counted,
) -> list[_Row]:
    """Every dataset file that was read, by traffic; from counters where nothing was traced."""
    codes, lengths, ends = (a.tolist() for a in by_file)
    unique, extent = dict(zip(codes, lengths, strict=True)), dict(zip(codes, ends, strict=True))
    file, sums, first, final = grouped(uses.key // _POSITIONS, uses.sums, uses.first, uses.last)
    ranked = uses.key[uses.key % _POSITIONS > 0] // _POSITIONS
    ranks = dict(zip(*(a.tolist() for a in np.unique(ranked, return_counts=True)), strict=True))
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


def _visits(uses: Uses, trace: Trace) -> tuple[Visits, VisitOrder]:
    found = visits.visits(uses.borders, trace.job.start_ns)
    return found, visits.visit_order(found, trace.files)


def _visited(found: Visits | None) -> dict[int, int] | None:
    """Visits of each file; None where nothing was traced."""
    if found is None:
        return None
    files, counts = np.unique(found.file, return_counts=True)
    return dict(zip(files.tolist(), counts.tolist(), strict=True))


def _file(
    row: _Row, visited: dict[int, int] | None, trace: Trace, counted: datafiles.Counted
) -> DataFile:
    path, since = trace.files.path[row.code], trace.job.start_ns
    reads, nbytes = int(row.sums[0]), int(row.sums[1])
    ends = [e for e in (row.extent, counted.extent.get(row.code)) if e is not None]
    return DataFile(
        path,
        trace.user_data.sizes.get(path),
        max(ends, default=None),
        nbytes,
        reads,
        row.unique,
        nbytes / row.unique if row.unique else None,
        None if row.first is None or visited is None else visited.get(row.code, 0),
        counted.opens.get(row.code),
        row.ranks,
        None,
        None if row.first is None else (row.first - since) / 1e9,
        None if row.last is None else (row.last - since) / 1e9,
    )


def _shares(uses: Uses, trace: Trace, whole: int) -> Iterator[RankShare]:
    """One row per rank, ranks without I/O included; one more for processes in no rank."""
    if len(uses.key) == 0:
        return
    position = uses.key % _POSITIONS - 1
    held, place = np.unique(position, return_inverse=True)
    files = dict(zip(held.tolist(), np.bincount(place).tolist(), strict=True))
    nbytes = sum_by_group(place, uses.sums[:, 1], len(held)).tolist()
    read = dict(zip(held.tolist(), nbytes, strict=True))
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
    begun = [i for i, f in enumerate(files) if f.first_s is not None]
    begun.sort(key=lambda i: (files[i].first_s or 0.0, files[i].path))
    if len(begun) > datafiles.MOST_FILES:
        places = np.linspace(0, len(begun) - 1, datafiles.MOST_FILES).round().astype(int)
        picked = [begun[i] for i in places]
    else:
        picked = begun
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
