"""Traffic of each file, kind of file and mount point."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.reducing import ByFile, Rows
from vanidl.model import intervals
from vanidl.model.counter_tables import Stripes
from vanidl.model.counter_totals import COUNTED, count_by_record, prefix_of
from vanidl.model.intervals import Intervals
from vanidl.model.ordering import find_distinct, stable_order
from vanidl.model.trace import STORAGE_LAYERS, Trace
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FileRow:
    """One file, over all storage layers. Times in seconds since the start of the job.

    Of a file of which not all operations were traced, numbers are those of the counters.
    """

    path: str
    kind: str
    mount: str
    file_system: str
    reads: int
    writes: int
    bytes_read: int
    bytes_written: int
    io_s: float | None  # sum of durations over all ranks; None where only totals are known
    ranks: int | None  # how many ranks touched it; None where not recorded
    first_s: float | None
    last_s: float | None
    layers: tuple[str, ...]  # layers that recorded it
    stripes: tuple[Stripes, ...] = ()  # on Lustre: one entry a component of its layout
    truncated: bool = False  # more operations were counted than traced


@dataclass(frozen=True, slots=True)
class GroupRow:
    """All files of one kind, mount point or type of file system, on the chosen layer.

    Where `truncated`, more of their operations were counted than traced: bytes are those of the
    counters, `busy_s` is that of the traced ones.
    """

    name: str
    files: int
    bytes_read: int
    bytes_written: int
    busy_s: float | None  # mean over ranks of the union, as in BusyTime.per_rank_mean_s
    file_system: str | None = None  # type of a mount point's file system, None where unknown
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class FileTotals:
    """Files by traffic, largest first, and their groups."""

    rows: tuple[FileRow, ...]
    by_kind: tuple[GroupRow, ...]
    by_mount: tuple[GroupRow, ...]
    by_file_system: tuple[GroupRow, ...] = ()


_GROUPS = ("kind", "mount", "file_system")
SUMS = ("reads", "writes", "bytes_read", "bytes_written", "sum_ns")


@dataclass(frozen=True)
class FileSums:
    """Per file code: sums (n, 5), first start, last end; and who touched it.

    `touched` holds sorted distinct keys file * 2**20 + position in Trace.ranks + 1. `busy` is
    keyed by (group, value, position), group "kind", "mount" or
    "file_system".
    """

    file: Int64Array
    sums: Int64Array
    first: Int64Array
    last: Int64Array
    touched: Int64Array
    busy: dict[tuple[str, str, int], Intervals]

    @cached_property
    def length_ns(self) -> dict[int, int]:
        """Identity of busy times to their length: groups of the same files share theirs."""
        different = {id(each): each for each in self.busy.values()}
        return dict(zip(different, intervals.lengths(different.values()), strict=True))


_NONE = np.empty(0, np.int64)
NOTHING = FileSums(_NONE, np.empty((0, len(SUMS)), np.int64), _NONE, _NONE, _NONE, {})
_POSITIONS = 1 << 20


def partial(rows: Rows, trace: Trace) -> FileSums:
    """The files of some rows."""
    both = (rows.reads, rows.writes)
    file, position = (np.concatenate([getattr(g, n) for g in both]) for n in ("file", "position"))
    sums = np.concatenate([_sum_groups(groups, op) for op, groups in enumerate(both)])
    first = np.concatenate([groups.group_start for groups in both])
    last = np.concatenate([groups.group_end for groups in both])
    order = stable_order(file)
    by_file = reduce_equal_files(*(column[order] for column in (file, sums, first, last)))
    touched = find_distinct(file * _POSITIONS + position + 1)
    return FileSums(*by_file, touched, _find_busy_by_group(rows, trace, by_file[0]))


def _sum_groups(groups: ByFile, op: int) -> Int64Array:
    """The sums of each group of reads or writes, shape (groups, 5)."""
    sums = np.zeros((len(groups.file), len(SUMS)), np.int64)
    sums[:, op], sums[:, 2 + op] = groups.counts, groups.group_nbytes
    sums[:, 4] = groups.group_duration
    return sums


def combine(a: FileSums, b: FileSums) -> FileSums:
    """The files of both."""
    names = ("file", "sums", "first", "last")
    both = [np.concatenate([getattr(a, name), getattr(b, name)]) for name in names]
    order = stable_order(both[0])
    rows = reduce_equal_files(*(column[order] for column in both))
    busy = intervals.merge_by_key(a.busy, b.busy)
    return FileSums(*rows, find_distinct(np.concatenate([a.touched, b.touched])), busy)


def finish(sums: FileSums, trace: Trace, layer: str) -> FileTotals:
    """Rows by traffic.

    The trace speaks for its layer, counters for the files it lacks, or has not all
    operations of.
    """
    files = len(trace.files)
    traced, seen = np.zeros((files, 4), np.int64), np.zeros(files, bool)
    traced[sums.file], seen[sums.file] = sums.sums[:, :4], True
    # What counters of each layer hold of each file, and which files they know.
    counted: _ByLayer = {}
    for name in STORAGE_LAYERS if layer in STORAGE_LAYERS else (layer,):
        if (table := trace.counters.get(name)) is not None:
            columns = [np.bincount(table.file, count_by_record(table, w), files) for w in COUNTED]
            present = np.bincount(table.file, minlength=files) > 0
            counted[name] = np.stack(columns, axis=1).astype(np.int64), present
    # The trace instead, but for files of which it lacks operations.
    cut = np.zeros_like(seen)
    if len(sums.file):
        values, present = counted.get(layer, (np.zeros_like(traced), np.zeros_like(seen)))
        cut = seen & (values[:, :2].sum(axis=1) > traced[:, :2].sum(axis=1))
        whole = seen & ~cut
        counted[layer] = (np.where(whole[:, None], traced, values), seen | present)
    rows = _make_rows(counted, sums, trace)
    if cut.any():
        rows = _add_counter_time(rows, cut, trace, layer)
    on_layer = counted.get(layer, (traced, seen))
    groups = (_make_groups(on_layer, sums, trace, group, cut) for group in _GROUPS)
    return FileTotals(tuple(rows), *groups)


def _add_counter_time(
    rows: list[FileRow], cut: NDArray[np.bool_], trace: Trace, layer: str
) -> list[FileRow]:
    """The rows with the counters' time where not all operations were traced."""
    table, prefix = trace.counters[layer], prefix_of(layer)
    spent = np.zeros(len(trace.files))
    for name in (f"{prefix}_F_READ_TIME", f"{prefix}_F_WRITE_TIME"):
        if name in table.seconds:
            np.add.at(spent, table.file, np.maximum(table.seconds[name], 0))
    seconds = {trace.files.path[code]: float(spent[code]) for code in np.flatnonzero(cut)}
    return [
        replace(row, io_s=seconds[row.path], last_s=None, truncated=True)
        if row.path in seconds
        else row
        for row in rows
    ]


def reduce_equal_files(
    file: Int64Array, sums: Int64Array, first: Int64Array, last: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """Rows of equal file (sorted) reduced to one."""
    if len(file) == 0:
        return file, sums, first, last
    at = np.flatnonzero(np.concatenate([[True], file[1:] != file[:-1]]))
    return (
        file[at],
        np.add.reduceat(sums, at, axis=0),
        np.minimum.reduceat(first, at),
        np.maximum.reduceat(last, at),
    )


def _find_busy_by_group(
    rows: Rows, trace: Trace, codes: Int64Array
) -> dict[tuple[str, str, int], Intervals]:
    """Busy time of each group and position; `codes` are the files of the rows.

    Groups of the same files share theirs: most runs have one mount point.
    """
    found: dict[bytes, dict[int, Intervals]] = {}
    busy: dict[tuple[str, str, int], Intervals] = {}
    for group in ("kind", "mount", "file_system"):
        values: tuple[str, ...] = getattr(trace.files, group)
        names = np.array([values[code] for code in codes.tolist()], object)
        for name in sorted(set(names.tolist())):
            members = names == name
            key = members.tobytes()
            if key not in found:
                found[key] = _merge_busy(rows, codes, members)
            busy |= {(group, name, p): time for p, time in found[key].items() if len(time.start)}
    return busy


def _merge_busy(rows: Rows, codes: Int64Array, members: NDArray[np.bool_]) -> dict[int, Intervals]:
    """By position the busy time of some of the files."""
    if members.all():
        return rows.busy
    is_member = np.zeros(int(codes[-1]) + 1, bool)
    is_member[codes] = members
    return rows.busy_of_neighbours(is_member[rows.file])


_ByLayer = dict[str, tuple[Int64Array, NDArray[np.bool_]]]
"""Layer -> ((files, 4) reads, writes, bytes read, bytes written; which files it knows)."""


def _make_rows(counted: _ByLayer, sums: FileSums, trace: Trace) -> list[FileRow]:
    """A row of every file that some layer knows, most bytes first."""
    files, since_ns = trace.files, trace.job.start_ns
    # Totals over all layers; files with most bytes come first.
    totals, known = np.zeros((len(files), 4), np.int64), np.zeros(len(files), bool)
    for values, present in counted.values():
        totals += values
        known |= present
    codes = np.flatnonzero(known).tolist()
    codes.sort(key=lambda c: (-int(totals[c, 2] + totals[c, 3]), files.path[c]))
    layouts: dict[int, tuple[Stripes, ...]] = {}
    for part in trace.stripes:
        layouts[part.file] = (*layouts.get(part.file, ()), part)
    # Each with what only its single operations tell: time, ranks, the first and the last of them.
    at = {file: i for i, file in enumerate(sums.file.tolist())}
    rows = []
    for code in codes:
        io_s = ranks = first_s = last_s = None
        if (i := at.get(code)) is not None:
            ends = [code * _POSITIONS + 1, (code + 1) * _POSITIONS]
            low, high = np.searchsorted(sums.touched, ends)
            io_s, ranks = int(sums.sums[i, 4]) / 1e9, int(high - low)
            first_s, last_s = ((int(t[i]) - since_ns) / 1e9 for t in (sums.first, sums.last))
        layers = tuple(name for name, (_, present) in counted.items() if present[code])
        reads, writes, bytes_read, bytes_written = totals[code].tolist()
        row = FileRow(
            files.path[code], files.kind[code], files.mount[code], files.file_system[code],
            reads, writes, bytes_read, bytes_written, io_s, ranks, first_s, last_s, layers,
        )  # fmt: skip
        rows.append(replace(row, stripes=layouts[code]) if code in layouts else row)
    return rows


def _make_groups(
    on_layer: tuple[Int64Array, NDArray[np.bool_]],
    sums: FileSums,
    trace: Trace,
    group: str,
    cut: NDArray[np.bool_],
) -> tuple[GroupRow, ...]:
    """Totals of the files of each kind, mount point or file system, most bytes first."""
    # How long ranks were busy with each, together.
    busy_ns: dict[str, int] = {}
    for (of_group, name, position), busy in sums.busy.items():
        if of_group == group and position >= 0:
            busy_ns[name] = busy_ns.get(name, 0) + sums.length_ns[id(busy)]
    values, present = on_layer
    every = np.array(getattr(trace.files, group), dtype=object)
    truncated, names = set(every[cut].tolist()), every[present]
    # Reversed, so that the first file of a mount point names its file system.
    systems = dict(zip(reversed(trace.files.mount), reversed(trace.files.file_system), strict=True))
    rows = []
    for name in sorted(set(names.tolist())):
        mine = values[present][names == name]
        mean_s = busy_ns.get(name, 0) / max(len(trace.ranks), 1) / 1e9 if len(sums.file) else None
        rows.append(
            GroupRow(
                name, len(mine), int(mine[:, 2].sum()), int(mine[:, 3].sum()), mean_s,
                truncated=name in truncated,
                file_system=systems.get(name) or None if group == "mount" else None,
            )
        )  # fmt: skip
    return tuple(sorted(rows, key=lambda r: (-(r.bytes_read + r.bytes_written), r.name)))
