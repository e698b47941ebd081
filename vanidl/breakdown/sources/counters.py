"""What the counters of every layer say of the time of each rank in storage, over its whole run.

Layers nest, and the outermost that timed data operations on a file counts: what lies beneath
explains it and is not added. The calls beneath a call lie within it, so the time in either is at
least the longer of both and at most their sum. A counter adds up the calls of one process on one
file: of several files the sum is an upper bound of the time in any of them, and the time itself
where calls come one at a time. Records that all ranks share hold their sum, and what the ranks
with least and most had. Heat maps hold bytes in bins of time: when a rank can have been in storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.operations import Int64Array
from vanidl.breakdown import assumptions
from vanidl.breakdown.assumptions import BLOCKING, NESTED
from vanidl.breakdown.causes import EXCHANGE, METADATA, OBJECT, READ, SYNC, WRITE
from vanidl.model.counter_tables import CounterTable
from vanidl.model.counter_totals import count_by_record, prefix_of
from vanidl.model.trace import (
    DAOS,
    DAOS_OF_DFS,
    DFS,
    H5D,
    H5F,
    MPIIO,
    PNETCDF,
    PNETCDF_VAR,
    POSIX,
    STDIO,
    Trace,
)
from vanidl.model.trace import OBJECT as OBJECT_LAYER
from vanidl.schema.dataclass import dataclass

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Codes = NDArray[np.int64]

LEVELS: Mapping[str, int] = {
    H5D: 3,
    H5F: 3,
    PNETCDF_VAR: 3,
    PNETCDF: 3,
    MPIIO: 2,
    POSIX: 1,
    STDIO: 1,
    DFS: 1,
    DAOS: 1,
    OBJECT_LAYER: 1,
    DAOS_OF_DFS: 0,
}
"""How far out each layer lies; calls of one level do not lie within each other."""

_OF_VARIABLES = (H5D, PNETCDF_VAR)  # records are variables of a file: "path:variable"
_SPANS = (("READ_START", "READ_END"), ("WRITE_START", "WRITE_END"), ("OPEN_START", "CLOSE_END"))
_SYNCS = ("FSYNCS", "FDSYNCS", "SYNCS")
_NOT_BLOCKING = ("NB_READS", "NB_WRITES", "SPLIT_READS", "SPLIT_WRITES")
_TIMED = (READ, WRITE, METADATA)
_MORE_BYTES = 0.01  # that a layer may move beneath another on its own behalf, such as headers
_OWN_BYTES = 4096  # that each process writes of a file of variables beside them: where they lie

EVIDENCE = "counters"
ALL = ""
"""The key of all of storage, beside its parts."""


@dataclass(frozen=True)
class StorageBounds:
    """Time of each rank in storage over its run, in seconds; infinity bounds nothing.

    `low` and `high`: part of storage, or `ALL` -> at least and at most, shape (ranks,);
    `mean_low` and `mean_high` the same of the mean over ranks, of which sums know more than of
    any rank. `layers`: layer -> reading, writing and metadata, mean over ranks; of these
    `outermost` count.
    """

    low: Mapping[str, Floats]
    high: Mapping[str, Floats]
    mean_low: Mapping[str, float]
    mean_high: Mapping[str, float]
    layers: Mapping[str, tuple[float, float, float]]
    outermost: frozenset[str]
    assumed: tuple[str, ...]
    untraced: Floats
    """Of the processes of each rank the time in calls that no trace holds one by one, at most."""


@dataclass(frozen=True)
class _Records:
    """Records of all layers, one entry each in every array; `process` -1: shared by all ranks."""

    names: tuple[str, ...]
    layer: Codes  # index into names
    level: Codes
    process: Codes
    file: Codes  # the data file, also of a variable in it
    seconds: Floats  # (3, records): reading, writing, metadata
    nbytes: Floats  # (2, records): read, written
    longest: Floats  # operation
    fastest: Floats  # rank of those that share the record
    slowest: Floats
    synced: Mask  # syncs are in its write time
    unbounded: Mask  # its times are no upper bound

    @cached_property
    def may_count(self) -> Mask:
        """Which are of a layer that counts: outer ones that only opened a file do not."""
        timed = (self.seconds[0] > 0) | (self.seconds[1] > 0)
        levels = self.file * (max(LEVELS.values()) + 1) + self.level
        return np.asarray((self.level == 1) | np.isin(levels, levels[timed]))


@dataclass(frozen=True)
class _Usage:
    """Each file as one process used it, or all together (`process` -1); one entry each.

    `outer`: seconds of its outermost layer, reading, writing and metadata; `inner` the same of
    all layers beneath, `deepest` the most of any of these in all. `moved` are seconds of reading
    and writing of the layer beneath that moved data for longest; `called` says of which uses the
    outermost layer made all calls beneath.
    """

    process: Codes
    outer: Floats  # (3, uses)
    inner: Floats  # (3, uses)
    moved: Floats  # (2, uses)
    called: Mask
    deepest: Floats
    beneath: Floats  # the layer next beneath the outermost, where that is one for ranks together
    fastest: Floats
    slowest: Floats
    slowest_beneath: Floats
    synced: Floats  # write time with syncs in it
    of_objects: Mask  # requests to object storage


def bound_storage(
    trace: Trace,
    one_at_a_time: Mask,
    assume: frozenset[str] = assumptions.ALL,
    *,
    complete: bool = True,
) -> StorageBounds | None:
    """The time of each rank in storage by the counters of its log; None without such counters.

    Args:
        trace: the run.
        one_at_a_time: of each process whether its trace shows that its calls come one at a time.
        assume: what may be assumed.
        complete: whether every process counted all that it did.
    """
    tables = [table for name, table in trace.counters.items() if name in LEVELS and len(table.file)]
    if not tables or not trace.ranks:
        return None
    records = _gather(tables, trace)
    outermost = _is_outermost(records)
    uses = _sum_usage(records, outermost, assume)
    of_mpi = is_mpi(trace) and BLOCKING in assume
    divisor = np.ones(len(trace.processes) + 1)
    if not of_mpi:
        divisor[:-1] = np.where(
            one_at_a_time, 1.0, np.maximum(_count_concurrent_spans(tables, trace), 1.0)
        )
    ranks = _Ranks(trace, uses.process)

    rows = _bound_uses(uses, 1.0 / divisor[uses.process], of_mpi=of_mpi)
    low, high, mean_low, mean_high = {}, {}, {}, {}
    for part, (least, most, others, beneath) in rows.items():
        # Of a shared record each rank has as much as the fastest and the slowest, less the rest.
        some = np.clip(uses.fastest - np.minimum(others, uses.slowest), 0, np.minimum(least, most))
        limit = np.minimum(most, uses.slowest + np.minimum(beneath, uses.slowest_beneath))
        low[part] = ranks.sums(least, ranks.own) + float(some[ranks.shared].sum())
        high[part] = ranks.sums(most, ranks.own | ranks.helping) + float(limit[ranks.shared].sum())
        mean_low[part] = float(least[ranks.own | ranks.shared].sum()) / ranks.count
        mean_high[part] = float(most[ranks.any].sum()) / ranks.count
    low[WRITE] = np.maximum(low[WRITE] - high[SYNC], 0.0)
    mean_low[WRITE] = max(mean_low[WRITE] - mean_high[SYNC], 0.0)
    low[ALL] = np.maximum(low[ALL], ranks.longest(records, outermost))
    if not of_mpi and len(tables) > 1:
        # Calls of one layer may come one at a time where those of all of them may not.
        for code, table in enumerate(tables):
            depth = np.maximum(_count_concurrent_spans([table], trace), 1.0)
            low[ALL] = np.maximum(low[ALL], ranks.alone(records, outermost, code, depth))

    # A module that ran out of records or memory bounds nothing above.
    exhausted = {layer for log in trace.logs for layer in log.partial_layers}
    uncounted = not complete or not exhausted.isdisjoint(records.names)
    if uncounted or (records.unbounded & (records.level > 0) & records.may_count).any():
        high = {part: np.full(ranks.count, np.inf) for part in high}
        mean_high = dict.fromkeys(mean_high, float("inf"))
    spent = records.seconds.sum(axis=0) > 0
    counting = np.unique(records.layer[outermost & spent]).tolist()
    assumed: tuple[str, ...] = (BLOCKING,) if of_mpi and bool(uses.outer.any()) else ()
    if NESTED in assume and bool(spent[~outermost].any()):
        assumed += (NESTED,)
    layers = _compute_layer_means(records, ranks.count)
    named = frozenset(records.names[k] for k in counting)
    untraced = ranks.untraced(records, frozenset(trace.layers_traced))
    if uncounted:
        untraced = np.full(ranks.count, np.inf)
    return StorageBounds(low, high, mean_low, mean_high, layers, named, assumed, untraced)


class _Ranks:
    """Whose time each use of a file is: a rank's own, of a process that works for it, of all."""

    def __init__(self, trace: Trace, process: Codes) -> None:
        self.count = len(trace.ranks)
        self._family = np.append(trace.family, -1)  # process -1 is the last
        self._is_rank = np.append(np.isin(np.arange(len(trace.processes)), trace.ranks), False)
        self._position = self._family[process]
        self.shared = process < 0
        self.own = self._is_rank[process]
        self.helping = ~self.shared & ~self.own & (self._position >= 0)
        self.any = self.shared | self.own | self.helping

    def sums(self, values: Floats, mine: Mask) -> Floats:
        """Values of some uses added up by rank, shape (ranks,)."""
        return np.bincount(self._position[mine], values[mine], self.count).astype(np.float64)

    def untraced(self, records: _Records, traced: frozenset[str]) -> Floats:
        """Metadata calls and syncs, and all calls of layers that were not traced, by rank."""
        is_traced = np.array([name in traced for name in records.names])[records.layer]
        syncs = np.where(records.synced, records.seconds[1], 0.0)
        data = np.where(is_traced, syncs, records.seconds[0] + records.seconds[1])
        spent = np.where(records.level > 0, records.seconds[2] + data, 0.0)
        position, shared = self._family[records.process], records.process < 0
        mine = ~shared & (position >= 0)
        total = np.bincount(position[mine], spent[mine], self.count).astype(np.float64)
        return total + float(np.minimum(spent, records.slowest)[shared].sum())

    def alone(self, records: _Records, outermost: Mask, layer: int, depth: Floats) -> Floats:
        """The calls of one layer, by each rank's own process, so many of them at once at most."""
        mine = outermost & (records.layer == layer) & self._is_rank[records.process]
        process = records.process[mine]
        spent = records.seconds[:, mine].sum(axis=0) / depth[process]
        return np.bincount(self._family[process], spent, self.count).astype(np.float64)

    def longest(self, records: _Records, outermost: Mask) -> Floats:
        """The longest operation of each rank's own process."""
        longest = np.zeros(self.count)
        single = outermost & self._is_rank[records.process]
        np.maximum.at(longest, self._family[records.process[single]], records.longest[single])
        return longest


def is_mpi(trace: Trace) -> bool:
    """Whether the run is an MPI program, by its logs."""
    layers = {name for name in (MPIIO, PNETCDF) if name in trace.counters}
    return (trace.job.nprocs or 1) > 1 or bool(layers) or bool(trace.mpi)


def _gather(tables: Sequence[CounterTable], trace: Trace) -> _Records:
    """The records of all layers, one after another."""
    names = tuple(table.layer for table in tables)
    codes = {path: code for code, path in enumerate(trace.files.path)}
    columns: dict[str, list[NDArray[np.generic]]] = {}
    for k, table in enumerate(tables):
        # What this layer counts; of what it does not, zeros.
        prefix, records = prefix_of(table.layer), len(table.file)
        none = np.zeros(records)
        of_variables = table.layer in _OF_VARIABLES
        file = (
            _resolve_variables(table.file, trace.files.path, codes) if of_variables else table.file
        )
        words = ("READ", "WRITE", "META", "REMOVE")
        read, write, meta, remove = (table.seconds.get(f"{prefix}_F_{w}_TIME", none) for w in words)
        # Tracers that tell removals apart leave them out of metadata, which they are here.
        seconds = np.stack([read, write, meta + remove.clip(0)]).astype(np.float64)
        longest = [table.seconds.get(f"{prefix}_F_MAX_{w}_TIME", none) for w in ("READ", "WRITE")]
        shared = table.process < 0
        fastest = table.seconds.get(f"{prefix}_F_FASTEST_RANK_TIME", none)
        slowest = table.seconds.get(f"{prefix}_F_SLOWEST_RANK_TIME", seconds.clip(0).sum(axis=0))
        counts = {n: table.counters.get(f"{prefix}_{n}", none) for n in (*_SYNCS, *_NOT_BLOCKING)}
        # As columns that all layers have.
        row = {
            "layer": np.full(records, k),
            "level": np.full(records, LEVELS[table.layer]),
            "process": table.process.astype(np.int64),
            "file": np.asarray(file, np.int64),
            "seconds": seconds.clip(0),
            "nbytes": np.stack(
                [count_by_record(table, w) for w in ("BYTES_READ", "BYTES_WRITTEN")]
            ),
            "longest": np.maximum(*longest).clip(0),
            "fastest": np.where(shared, fastest, 0.0).clip(0),
            "slowest": np.where(shared, slowest, 0.0).clip(0),
            "synced": np.any([counts[name] > 0 for name in _SYNCS], axis=0),
            "unbounded": np.any([counts[name] > 0 for name in _NOT_BLOCKING], axis=0)
            | (seconds < 0).any(axis=0),
        }
        for name, column in row.items():
            columns.setdefault(name, []).append(column)
    return _Records(names, **{n: np.concatenate(c, axis=-1) for n, c in columns.items()})


def _resolve_variables(
    variables: NDArray[np.int32], paths: Sequence[str], codes: Mapping[str, int]
) -> Codes:
    """Of each variable of a file that file, where it has a name of its own, else the variable."""
    files = {}
    for code in np.unique(variables).tolist():
        path, _, variable = paths[code].rpartition(":")
        files[code] = codes.get(path, code) if variable else code
    return np.array([files[code] for code in variables.tolist()], np.int64)


def _is_outermost(records: _Records) -> Mask:
    """Which records belong to the outermost layer of their file that timed data operations.

    A process that goes around the outer layers of others has no such record of its own, and
    counts beneath them. A record that all ranks share lies beneath any outer record of its file.
    """
    timed = (records.seconds[0] > 0) | (records.seconds[1] > 0)
    uses = records.file * (int(records.process.max(initial=0)) + 2) + records.process + 1
    shared = records.process < 0
    covered = np.zeros(len(timed), bool)
    for level in np.unique(records.level)[::-1].tolist():
        beneath, outer = records.level < level, (records.level == level) & timed
        same = np.isin(uses, uses[outer]) | np.isin(records.file, records.file[outer & shared])
        covered |= beneath & (same | (shared & np.isin(records.file, records.file[outer])))
    return np.asarray(~covered & records.may_count)


def _sum_usage(records: _Records, outermost: Mask, assume: frozenset[str]) -> _Usage:
    """Each file as each process used it, with the time in its outermost layer and beneath."""
    step = int(records.process.max(initial=0)) + 2
    keys, place = np.unique(records.file * step + records.process + 1, return_inverse=True)
    count = len(keys)

    def add(values: Floats, mine: Mask) -> Floats:
        return np.bincount(place[mine], values[mine], count).astype(np.float64)

    # The time of each layer beneath the outermost one.
    each = records.seconds.sum(axis=0)
    by_layer = np.zeros((len(records.names), count))
    beneath = ~outermost & records.may_count
    np.add.at(by_layer, (records.layer[beneath], place[beneath]), each[beneath])
    is_storage = np.array([LEVELS[name] == 1 for name in records.names])
    objects = np.array([name == OBJECT_LAYER for name in records.names])[records.layer]
    # Inner calls that no outer one made come on top.
    apart = ~outermost & (records.level > 0)
    if NESTED in assume:
        apart &= ~_is_called_from_above(records, outermost)
    data = np.zeros((2, len(records.names), count))
    for of_layers, seconds in zip(data, records.seconds[:2], strict=True):
        np.add.at(of_layers, (records.layer[beneath], place[beneath]), seconds[beneath])
    longest = data.sum(axis=0).argmax(axis=0)
    return _Usage(
        process=keys % step - 1,
        outer=np.stack([add(seconds, outermost) for seconds in records.seconds]),
        inner=np.stack([add(seconds, apart) for seconds in records.seconds]),
        moved=data[:, longest, np.arange(count)],
        called=add(np.ones(len(each)), apart) == 0,
        deepest=by_layer.max(axis=0, initial=0.0),
        beneath=by_layer[is_storage].max(axis=0, initial=0.0),
        fastest=add(records.fastest, outermost),
        slowest=add(records.slowest, outermost),
        slowest_beneath=add(records.slowest, apart),
        synced=add(np.where(records.synced, records.seconds[1], 0.0), outermost),
        of_objects=add(np.ones(len(each)), objects) > 0,
    )


def _bound_uses(
    uses: _Usage, share: Floats, *, of_mpi: bool
) -> dict[str, tuple[Floats, Floats, Floats, Floats]]:
    """By part of storage, of each use of a file: at least, at most, other parts, layers beneath.

    Args:
        uses: of files by processes.
        share: of its calls' time that each use took at least, as calls may overlap.
        of_mpi: whether calls of a process come one at a time.
    """
    outer_all, inner_all = uses.outer.sum(axis=0), uses.inner.sum(axis=0)
    # A layer beneath that took longer than the outermost one of the same process was called apart.
    least_all = np.where(outer_all > 0, np.maximum(outer_all, uses.deepest), 0.0) * share
    zeros = np.zeros_like(outer_all)
    rows = {ALL: (least_all, outer_all + inner_all, zeros, inner_all)}
    # The time in the outermost layer of each use: reading, writing and metadata, (3, uses). For as
    # long as a layer beneath moved data beyond the calls that read or wrote, it moved that within
    # the others, or was called apart: HDF5 writes fill values as a dataset is made, and what it
    # kept as a file is flushed or closed.
    data, metadata = uses.outer[:2], uses.outer[2]
    within = np.minimum((uses.moved.sum(axis=0) - data.sum(axis=0)).clip(0), metadata)
    more = (uses.moved - data).clip(0)
    total = more.sum(axis=0)
    more *= np.divide(within, total, out=np.zeros_like(total), where=total > 0)
    split = np.stack([*(data + more), metadata - within])
    for part, least, own, inner in zip(_TIMED, split, uses.outer, uses.inner, strict=True):
        most = np.where(uses.called, least, np.maximum(own, least) + inner)
        rows[part] = least * share, most, outer_all - least, inner
    rows[SYNC] = zeros, uses.synced, outer_all, zeros
    gap = np.where(uses.beneath > 0, outer_all - uses.beneath, 0.0).clip(0)
    most = gap if of_mpi else np.where(uses.beneath > 0, outer_all, 0.0)
    rows[EXCHANGE] = gap * share, most, outer_all - gap, zeros
    objects = np.where(uses.of_objects, outer_all, 0.0)
    rows[OBJECT] = objects * share, objects, outer_all - objects, zeros
    return rows


def _is_called_from_above(records: _Records, outermost: Mask) -> Mask:
    """Which records of layers beneath hold no more bytes than the layer above moved of the file.

    Whoever goes around a layer moves bytes that it does not count.
    """
    files = int(records.file.max(initial=0)) + 1
    called = np.ones(len(outermost), bool)
    of_variables = np.zeros(files)
    of_variables[records.file[outermost & (records.level == LEVELS[H5D])]] = _OWN_BYTES
    for nbytes in records.nbytes:
        above = np.bincount(records.file[outermost], nbytes[outermost], files)
        for layer in np.unique(records.layer[~outermost]).tolist():
            mine = ~outermost & (records.layer == layer)
            beneath = np.bincount(records.file[mine], nbytes[mine], files)
            own = np.bincount(records.file[mine], minlength=files) * of_variables
            called &= ~mine | (beneath <= above * (1 + _MORE_BYTES) + own)[records.file]
    return called


def _count_concurrent_spans(tables: Sequence[CounterTable], trace: Trace) -> Floats:
    """Of each process how many spans from a first to a last operation overlap at most.

    A span is of one file and one kind of operation; within it the counter leaves overlap out.
    """
    process, first, last = [], [], []
    for table in tables:
        prefix = prefix_of(table.layer)
        for start_name, end_name in _SPANS:
            start = table.seconds.get(f"{prefix}_F_{start_name}_TIMESTAMP")
            end = table.seconds.get(f"{prefix}_F_{end_name}_TIMESTAMP")
            if start is not None and end is not None:
                begun = (end > 0) & (table.process >= 0)
                process.append(table.process[begun].astype(np.int64))
                first.append(start[begun])
                last.append(np.maximum(end[begun], start[begun]))
    depth = np.zeros(len(trace.processes))
    if not process:
        return depth
    owner = np.concatenate([*process, *process])
    time = np.concatenate([*first, *last])
    change = np.repeat([1, -1], len(owner) // 2)
    order = np.lexsort((-change, time, owner))
    # Each process ends with as many spans as it began with, none: one running sum does for all.
    np.maximum.at(depth, owner[order], np.cumsum(change[order]))
    return depth


def _compute_layer_means(records: _Records, ranks: int) -> dict[str, tuple[float, float, float]]:
    means = {}
    for k, name in enumerate(records.names):
        of_layer = records.seconds[:, records.layer == k].sum(axis=1) / ranks
        read, write, metadata = of_layer.tolist()
        means[name] = read, write, metadata
    return means


OF_HEATMAPS = "heat maps"


def bound_by_bins(trace: Trace) -> Int64Array | None:
    """At most how long each rank was in storage, ns, shape (ranks,): its bins with bytes in them.

    None without heat maps. Metadata calls move no bytes, and are in no bin.
    """
    if not trace.heatmaps:
        return None
    most = np.zeros(len(trace.ranks), np.int64)
    for heatmap in trace.heatmaps:
        position = -1 if heatmap.process < 0 else int(trace.family[heatmap.process])
        if position >= 0:
            busy = np.count_nonzero((heatmap.bytes_read > 0) | (heatmap.bytes_written > 0))
            most[position] += int(busy) * heatmap.bin_ns
    return np.minimum(most, trace.job.end_ns - trace.job.start_ns)
