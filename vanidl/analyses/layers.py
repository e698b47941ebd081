"""How each layer was used, by the tracer's counters: cost, files, sizes, calls, rate.

What PyDarshan's job summary shows of each module, with its definitions: cost is time summed over
records and divided by ranks, files are sorted by whether bytes were read from or written to them,
and the rate is bytes by the time of the slowest rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.by_counters import count_sizes
from vanidl.analyses.sizes import SizeBin
from vanidl.model.counter_tables import CounterTable
from vanidl.model.counter_totals import count_by_record, prefix_of
from vanidl.model.trace import (
    DAOS,
    DAOS_OF_DFS,
    DFS,
    FILES_NOT_RECORDED,
    H5D,
    H5F,
    MPIIO,
    PNETCDF,
    PNETCDF_VAR,
    POSIX,
    STDIO,
    Trace,
)
from vanidl.schema.dataclass import dataclass
from vanidl.schema.meanings import means

Int64Array = NDArray[np.int64]

MOST_COMMON = 4
"""Sizes that are kept of each layer; Darshan itself keeps as many of each record."""

_TIMES = ("READ", "WRITE", "META", "WAIT")

_BY_KIND = {
    f"{kind} {what}": (f"{prefix}_{what.upper()}",)
    for kind, prefix in (("independent", "INDEP"), ("collective", "COLL"))
    for what in ("opens", "reads", "writes")
}
_OBJECT_CALLS = {
    "object opens": ("OBJ_OPENS",),
    "object fetches": ("OBJ_FETCHES",),
    "object updates": ("OBJ_UPDATES",),
    "object punches": ("OBJ_PUNCHES", "OBJ_DKEY_PUNCHES", "OBJ_AKEY_PUNCHES"),
    "object listings": ("OBJ_DKEY_LISTS", "OBJ_AKEY_LISTS", "OBJ_RECX_LISTS"),
    "array opens": ("ARRAY_OPENS",),
    "array reads": ("ARRAY_READS",),
    "array writes": ("ARRAY_WRITES",),
    "array sizes": ("ARRAY_GET_SIZES", "ARRAY_SET_SIZES", "ARRAY_STATS"),
    "array removals": ("ARRAY_PUNCHES", "ARRAY_DESTROYS"),
    "key-value opens": ("KV_OPENS",),
    "key-value gets": ("KV_GETS",),
    "key-value puts": ("KV_PUTS",),
    "key-value removals": ("KV_REMOVES", "KV_DESTROYS"),
    "key-value listings": ("KV_LISTS",),
    "non-blocking calls": ("NB_OPS",),
}
_CALLS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    POSIX: {
        "opens": ("OPENS",),
        "reads": ("READS",),
        "writes": ("WRITES",),
        "seeks": ("SEEKS",),
        "stats": ("STATS",),
        "memory maps": ("MMAPS",),
        "syncs": ("FSYNCS", "FDSYNCS"),
    },
    MPIIO: _BY_KIND
    | {
        "split reads": ("SPLIT_READS",),
        "split writes": ("SPLIT_WRITES",),
        "non-blocking reads": ("NB_READS",),
        "non-blocking writes": ("NB_WRITES",),
        "syncs": ("SYNCS",),
        "views": ("VIEWS",),
        "hints": ("HINTS",),
    },
    STDIO: {
        "opens": ("OPENS",),
        "reads": ("READS",),
        "writes": ("WRITES",),
        "seeks": ("SEEKS",),
        "flushes": ("FLUSHES",),
    },
    H5F: {"opens": ("OPENS",), "flushes": ("FLUSHES",)},
    H5D: {
        "opens": ("OPENS",),
        "reads": ("READS",),
        "writes": ("WRITES",),
        "flushes": ("FLUSHES",),
    },
    PNETCDF: {
        "creates": ("CREATES",),
        "opens": ("OPENS",),
        "syncs": ("SYNCS",),
        "independent waits": ("INDEP_WAITS",),
        "collective waits": ("COLL_WAITS",),
    },
    PNETCDF_VAR: {
        "opens": ("OPENS",),
        "independent reads": ("INDEP_READS",),
        "independent writes": ("INDEP_WRITES",),
        "collective reads": ("COLL_READS",),
        "collective writes": ("COLL_WRITES",),
        "non-blocking reads": ("NB_READS",),
        "non-blocking writes": ("NB_WRITES",),
    },
    DFS: {
        "opens": ("OPENS", "GLOBAL_OPENS"),
        "lookups": ("LOOKUPS",),
        "reads": ("READS", "READXS"),
        "writes": ("WRITES", "WRITEXS"),
        "non-blocking reads": ("NB_READS",),
        "non-blocking writes": ("NB_WRITES",),
        "sizes": ("GET_SIZES",),
        "punches": ("PUNCHES",),
        "removals": ("REMOVES",),
        "stats": ("STATS",),
    },
    DAOS: _OBJECT_CALLS,
    DAOS_OF_DFS: _OBJECT_CALLS,
}
"""Layer to what is shown of its calls, and the counters that are added for it."""


@dataclass(frozen=True, slots=True)
class FilesByUse:
    """The files of a layer that were used in one way."""

    use: Annotated[str, means("all, read only, written only, or read and written")]
    files: Annotated[int, means("Files", "count")]
    mean_nbytes: Annotated[
        float | None, means("Mean size: the last byte that was read or written", "bytes")
    ]
    max_nbytes: Annotated[int | None, means("Largest such size", "bytes")]


@dataclass(frozen=True, slots=True)
class FrequentSize:
    """One size and how often a layer's operations had it, as far as the records keep it."""

    nbytes: Annotated[int, means("Size of an operation", "bytes")]
    ops: Annotated[int, means("Operations of that size; at least, of many sizes", "count")]


@dataclass(frozen=True, slots=True)
class LayerUse:
    """How one layer was used. Times are means over ranks; None: the layer does not count it."""

    layer: Annotated[str, means("Module of the tracer")]
    read_s: Annotated[float | None, means("In reads, mean over ranks", "s")]
    write_s: Annotated[float | None, means("In writes, mean over ranks", "s")]
    meta_s: Annotated[float | None, means("In metadata calls, mean over ranks", "s")]
    wait_s: Annotated[
        float | None, means("In waits for non-blocking requests, mean over ranks", "s")
    ]
    bytes_per_s: Annotated[
        float | None, means("Bytes by the time that the slowest rank was in the layer", "bytes/s")
    ]
    files: Annotated[tuple[FilesByUse, ...], means("Files by how they were used")]
    sizes: Annotated[tuple[SizeBin, ...], means("Darshan's ten size classes")]
    common: Annotated[tuple[FrequentSize, ...], means("The most frequent sizes")]
    calls: Annotated[dict[str, int], means("Calls of each kind that were counted")]


def summarize_layers(trace: Trace) -> tuple[LayerUse, ...]:
    """How each layer of the trace was used, in the order of its counters."""
    uses = []
    for table in trace.counters.values():
        # Seconds of each kind, mean over ranks.
        prefix, ranks = prefix_of(table.layer), len(trace.ranks)
        read_s, write_s, meta_s, wait_s = (
            None if s is None or not ranks else s / ranks
            for s in (table.total_s(f"{prefix}_F_{what}_TIME") for what in _TIMES)
        )
        # Calls of each kind; those of which no counter is monitored are left out.
        calls: dict[str, int] = {}
        for name, suffixes in _CALLS.get(table.layer, {}).items():
            totals = [table.total(f"{prefix}_{suffix}") for suffix in suffixes]
            known = [total for total in totals if total is not None]
            if known:
                calls[name] = sum(known)
        uses.append(
            LayerUse(
                table.layer,
                read_s,
                write_s,
                meta_s,
                wait_s,
                _estimate_rate(table),
                _sort_files_by_use(table, trace),
                count_sizes(trace, table.layer).darshan_histogram,
                _find_common_sizes(table),
                calls,
            )
        )
    return tuple(uses)


def _estimate_rate(table: CounterTable) -> float | None:
    """Bytes by the time of the slowest: `agg_perf_by_slowest` of Darshan's utilities.

    The time is that of the rank that took longest for files of its own, and behind it that of the
    slowest rank of each shared file.
    """
    prefix = prefix_of(table.layer)
    slowest = table.seconds.get(f"{prefix}_F_SLOWEST_RANK_TIME")
    if slowest is None:
        return None

    # Records of one rank: read, write and metadata time of each rank.
    own = table.process >= 0
    spent = np.zeros(len(table.file))
    for what in ("READ", "WRITE", "META"):
        spent += np.maximum(table.seconds.get(f"{prefix}_F_{what}_TIME", 0.0), 0.0)
    by_process = np.bincount(table.process[own], spent[own])
    unique_s = float(by_process.max(initial=0.0))

    shared_s = float(np.maximum(slowest[~own], 0.0).sum())
    moved = sum(int(count_by_record(table, what).sum()) for what in ("BYTES_READ", "BYTES_WRITTEN"))
    total_s = unique_s + shared_s
    return moved / total_s if total_s > 0 else None


def _sort_files_by_use(table: CounterTable, trace: Trace) -> tuple[FilesByUse, ...]:
    """All files, those only read, only written, and both; none where they are not recorded."""
    codes, place = np.unique(table.file, return_inverse=True)
    # One path stands for all files that were not recorded: they cannot be told apart.
    if any(trace.files.path[code] == FILES_NOT_RECORDED for code in codes.tolist()):
        return ()
    read, written = (
        np.bincount(place, count_by_record(table, what), len(codes)) > 0
        for what in ("BYTES_READ", "BYTES_WRITTEN")
    )
    # By file one more than the last byte that was moved, where the layer tells.
    names = [f"{prefix_of(table.layer)}_MAX_BYTE_{what}" for what in ("READ", "WRITTEN")]
    sizes: Int64Array | None = None
    if all(name in table.counters for name in names):
        sizes = np.zeros(len(codes), np.int64)
        for name, what in zip(names, ("BYTES_READ", "BYTES_WRITTEN"), strict=True):
            moved = count_by_record(table, what) > 0
            np.maximum.at(sizes, place[moved], table.counters[name][moved] + 1)
    uses = {
        "all": np.ones(len(codes), bool),
        "read only": read & ~written,
        "written only": written & ~read,
        "read and written": read & written,
    }
    described = []
    for use, mask in uses.items():
        files = int(np.count_nonzero(mask))
        mean, largest = None, None
        if sizes is not None and files:
            mean, largest = float(sizes[mask].sum()) / files, int(sizes[mask].max())
        described.append(FilesByUse(use, files, mean, largest))
    return tuple(described)


def _find_common_sizes(table: CounterTable) -> tuple[FrequentSize, ...]:
    """The sizes with most operations, each record's four most frequent ones added up."""
    prefix = prefix_of(table.layer)
    sizes, ops = [], []
    for i in range(1, 5):
        names = f"{prefix}_ACCESS{i}_ACCESS", f"{prefix}_ACCESS{i}_COUNT"
        if any(name not in table.counters for name in names):
            return ()
        size, count = (table.counters[name] for name in names)
        sizes.append(size[count > 0])
        ops.append(count[count > 0])
    distinct, place = np.unique(np.concatenate(sizes), return_inverse=True)
    total = np.zeros(len(distinct), np.int64)
    np.add.at(total, place, np.concatenate(ops))

    # Most operations first, of as many the smaller size.
    top = np.lexsort((distinct, -total))[:MOST_COMMON]
    return tuple(FrequentSize(int(distinct[i]), int(total[i])) for i in top)
