"""Totals of each file, from operations: a tracer that records all of them needs no counters.

The names are Darshan's, so that everything that reads counters reads these. What Darshan
counts and these operations do not tell is left out, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from vanidl.model import intervals
from vanidl.model.trace import H5D, H5F, MPIIO
from vanidl.readers.dftracer.calls import (
    LAYERS,
    OPENS,
    READS,
    REMOVES,
    WRITES,
    get_nbytes,
    get_summed_nbytes,
    is_call,
    is_layer,
)
from vanidl.readers.dftracer.processes import ALL_FILES, TracedProcess
from vanidl.readers.dftracer.trace_file import ABSENT, HDF5, MPI, MPI_IO, Events
from vanidl.readers.records import CounterRecords, HeatmapRecord, MpiRecord

Int64Array = NDArray[np.int64]
Mask = NDArray[np.bool_]


def count_calls(process: TracedProcess) -> tuple[CounterRecords, ...]:
    """Counters of one process: of each layer that it used, and of calls that were summed up.

    `file` is a path code.
    """
    traced = (_count_layer(process.events, layer) for layer in LAYERS)
    found = (
        *traced,
        *_count_summed(process.summed),
        *_count_layers_above(process.events),
    )
    return tuple(records for records in found if len(records.file))


def _count_layer(events: Events, layer: str) -> CounterRecords:
    used = is_layer(events, layer) & (events.columns["file"] >= 0)
    files = np.unique(events.columns["file"][used])
    moved = get_nbytes(events)

    # Calls and bytes: a call that failed counts as none.
    read = used & is_call(events, layer, READS[layer])
    write = used & is_call(events, layer, WRITES[layer])
    opened = used & is_call(events, layer, OPENS[layer])
    masks = {"READ": read & (moved >= 0), "WRITE": write & (moved >= 0)}
    counts = {f"{layer}_{what}S": _count_rows(events, files, rows) for what, rows in masks.items()}
    counts[f"{layer}_OPENS"] = _count_rows(events, files, opened)
    for name, rows in (("READ", masks["READ"]), ("WRITTEN", masks["WRITE"])):
        counts[f"{layer}_BYTES_{name}"] = _sum_rows(events, files, rows, moved)

    # Seconds: what neither moves bytes nor removes a file is metadata.
    removed = used & is_call(events, layer, REMOVES)
    times = {**masks, "META": used & ~read & ~write & ~removed, "REMOVE": removed}
    seconds = {
        f"{layer}_F_{what}_TIME": _sum_rows(events, files, rows, events.columns["dur"]) / 1e9
        for what, rows in times.items()
    }
    return CounterRecords(layer, files.astype(np.uint64), np.zeros(len(files), np.int64),
                          counts, seconds)  # fmt: skip


def _count_rows(events: Events, files: Int64Array, rows: NDArray[np.bool_]) -> Int64Array:
    place = np.searchsorted(files, events.columns["file"][rows])
    return np.bincount(place, minlength=len(files)).astype(np.int64)


def _sum_rows(
    events: Events, files: Int64Array, rows: NDArray[np.bool_], values: Int64Array
) -> Int64Array:
    total = np.zeros(len(files), np.int64)
    np.add.at(total, np.searchsorted(files, events.columns["file"][rows]), values[rows])
    return total


# Lines that stand for many calls: bytes, calls and seconds.


def _count_summed(summed: Events) -> tuple[CounterRecords, ...]:
    """Counters of one process, one entry a layer that it used; `file` is a path code."""
    return tuple(r for r in (_count_summed_layer(summed, layer) for layer in LAYERS) if len(r.file))


def _count_summed_layer(summed: Events, layer: str) -> CounterRecords:
    """Counters of one layer.

    Opens are not among them: DFTracer counts the calls of a sum by the last of their numbers, and
    not every open has a mode. Reads and writes have all of theirs.
    """
    used = is_layer(summed, layer)
    columns = {name: column[used] for name, column in summed.columns.items()}
    of_layer = Events(columns, summed.names, summed.files)
    files, place = np.unique(columns["file"], return_inverse=True)
    known = columns["ret"] != ABSENT
    nbytes = np.where(known, get_summed_nbytes(of_layer), 0)
    calls = np.where(_have_failed(columns), 0, columns["calls"])
    reads = is_call(of_layer, layer, READS[layer])
    writes = is_call(of_layer, layer, WRITES[layer])
    group = _FileGroups(place, len(files))
    counts = {
        f"{layer}_READS": group.sum(calls, reads),
        f"{layer}_WRITES": group.sum(calls, writes),
        f"{layer}_BYTES_READ": group.sum(nbytes, reads, known),
        f"{layer}_BYTES_WRITTEN": group.sum(nbytes, writes, known),
    }
    removes = is_call(of_layer, layer, REMOVES)
    others = ~reads & ~writes & ~removes
    times = {"READ": reads, "WRITE": writes, "META": others, "REMOVE": removes}
    seconds = {
        f"{layer}_F_{what}_TIME": group.sum(columns["dur"], rows) / 1e9
        for what, rows in times.items()
    }
    ranks = np.zeros(len(files), np.int64)
    return CounterRecords(layer, files.astype(np.uint64), ranks, counts, seconds)


def _have_failed(columns: Mapping[str, Int64Array]) -> Mask:
    """Lines of a single call that failed."""
    failed: Mask = (columns["calls"] == 1) & (columns["ret"] < 0) & (columns["ret"] != ABSENT)
    return failed


class _FileGroups:
    """Rows that belong to one file each."""

    def __init__(self, place: Int64Array, files: int) -> None:
        self._place, self._files = place, files

    def sum(self, values: Int64Array, rows: Mask, known: Mask | None = None) -> Int64Array:
        """Sum over some rows of each file; -1, not monitored, where a value is not known."""
        total = np.zeros(self._files, np.int64)
        np.add.at(total, self._place[rows], values[rows])
        if known is not None:
            total[np.unique(self._place[rows & ~known])] = -1
        return total


# Calls of MPI, MPI-IO and HDF5: layers above POSIX, which move the bytes that POSIX counts.
#
# DFTracer records of them when, how long and how often; neither the file nor the bytes. They are
# counted as Darshan counts them, and what it counts beyond that is left out, never 0.

_MPI_IO_MOVES = re.compile(
    r"MPI_File_(?P<nb>i?)(?P<what>read|write)(_at|_shared|(?P<ordered>_ordered))?"
    r"(?P<all>_all)?(?P<part>_begin|_end)?(_c)?$"
)
_HDF5_CALL = re.compile(r"(?P<layer>H5[DF])(?P<what>open|create|read|write)(?![a-z])")
_MPI_IO_COUNTERS = tuple(
    f"{kind}_{what}S" for kind in ("INDEP", "COLL", "SPLIT", "NB") for what in ("READ", "WRITE")
)
_COUNTERS = {
    MPIIO: ("COLL_OPENS", *_MPI_IO_COUNTERS),
    H5F: ("OPENS",),
    H5D: ("OPENS", "READS", "WRITES"),
}
_TIMES = {MPIIO: ("READ", "WRITE", "META"), H5F: ("META",), H5D: ("READ", "WRITE", "META")}


def _count_layers_above(events: Events) -> Iterator[CounterRecords]:
    """One entry a layer that the process called, of one record: no call names its file."""
    for layer, of in ((MPIIO, MPI_IO), (H5F, HDF5), (H5D, HDF5)):
        start = layer if of == HDF5 else ""
        used = _select_events(events, lambda c, name: c == of and name.startswith(start))  # noqa: B023
        if used.any():
            yield _count_layer_above(events, used, layer, "MPIIO" if layer == MPIIO else layer)


def measure_mpi_time(events: Events, host: str) -> tuple[MpiRecord, ...]:
    """How long the process was inside MPI calls, MPI-IO apart; none where it called none."""
    calls = _select_events(events, lambda category, _: category == MPI)
    if not calls.any():
        return ()
    start = events.columns["ts"][calls]
    inside = intervals.union(start, start + events.columns["dur"][calls])
    return (MpiRecord(0, host, inside.length / 1e9, None),)


def _count_layer_above(events: Events, used: Mask, layer: str, prefix: str) -> CounterRecords:
    spent = events.columns["dur"]
    counts = {
        name: used & _select_events(events, partial(_adds_to, name)) for name in _COUNTERS[layer]
    }
    times = {
        name: used & _select_events(events, partial(_takes_time, name)) for name in _TIMES[layer]
    }
    return CounterRecords(
        layer,
        np.array([ALL_FILES], np.uint64),
        np.zeros(1, np.int64),
        {f"{prefix}_{name}": np.array([rows.sum()], np.int64) for name, rows in counts.items()},
        {
            f"{prefix}_F_{name}_TIME": np.array([spent[rows].sum(dtype=np.float64) / 1e9])
            for name, rows in times.items()
        },
    )


def _adds_to(counter: str, category: str, name: str) -> bool:
    return counter == (
        _name_mpi_io_counter(name) if category == MPI_IO else _name_hdf5_counter(name)
    )


def _name_mpi_io_counter(name: str) -> str:
    """The counter of Darshan's that a call adds one to. Opening is collective."""
    if name == "MPI_File_open":
        return "COLL_OPENS"
    found = _MPI_IO_MOVES.match(name)
    if found is None or found["part"] == "_end":
        return ""
    kinds = (
        ("SPLIT", found["part"]), ("NB", found["nb"]), ("COLL", found["all"] or found["ordered"]),
    )  # fmt: skip
    kind = next((kind for kind, holds in kinds if holds), "INDEP")
    return f"{kind}_{found['what'].upper()}S"


def _name_hdf5_counter(name: str) -> str:
    found = _HDF5_CALL.match(name)
    if found is None:
        return ""
    return f"{found['what'].upper()}S" if found["what"] in ("read", "write") else "OPENS"


def _takes_time(time: str, category: str, name: str) -> bool:
    """Whether a call takes of this time: reading, writing or the rest."""
    found = (_MPI_IO_MOVES if category == MPI_IO else _HDF5_CALL).match(name)
    what = found["what"].upper() if found else ""
    return time == (what if what in ("READ", "WRITE") else "META")


def _select_events(events: Events, holds: Callable[[str, str], bool]) -> Mask:
    of_name = [holds(category, name) for category, name in events.names]
    return np.array(of_name or [False], bool)[events.columns["name"]]


# Bytes over time of calls that were summed up: each sum is of one interval of the tracer.

_MOST_BINS = 100_000  # a day of seconds; whatever a file says, there are no more


def build_heatmaps(process: TracedProcess) -> Iterator[HeatmapRecord]:
    """A map a layer; none where the intervals are not known, or operations were traced as well.

    A call counts in the interval that it began in.
    """
    width = process.interval_ns
    if width is None or not len(process.summed):
        return
    begin = process.summed.columns["ts"]
    first, last = int(begin.min()), int(begin.max())
    if (last - first) // width >= _MOST_BINS or (begin % width).any():
        return
    place = (begin - first) // width
    bins = int(place.max()) + 1
    nbytes = np.maximum(get_summed_nbytes(process.summed), 0)
    for layer in LAYERS:
        if is_layer(process.summed, layer).any() and not is_layer(process.events, layer).any():
            sides = [np.zeros(bins, np.int64) for _ in range(2)]
            for side, calls in zip(sides, (READS[layer], WRITES[layer]), strict=True):
                rows = is_call(process.summed, layer, calls)
                np.add.at(side, place[rows], nbytes[rows])
            read, written = sides
            yield HeatmapRecord(layer, 0, width, read, written, first - process.start_ns)
