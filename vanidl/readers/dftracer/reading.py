"""Reads and checks the trace files of DFTracer: one log, its counters and its profile a process.

DFTracer records every operation of POSIX and STDIO, so the totals of a layer are those of its
operations (`counters`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vanidl.encoding.budget import names_limit
from vanidl.model import intervals
from vanidl.model.call_kinds import SYNC
from vanidl.model.intervals import Intervals
from vanidl.model.ordering import stable_order
from vanidl.model.trace import FROM_COMPUTE, H5D, H5F, MPIIO, READ, WRITE, SpanKind
from vanidl.model.warnings import Notice
from vanidl.readers.dftracer.calls import (
    LAYERS,
    OF_PROCESSES,
    OPENS,
    READS,
    REMOVES,
    SYNCS,
    WRITES,
    get_nbytes,
    get_summed_nbytes,
    is_call,
    is_layer,
)
from vanidl.readers.dftracer.processes import (
    ALL_FILES,
    TracedProcess,
    drop_impossible_events,
    gather_processes,
)
from vanidl.readers.dftracer.trace_file import (
    ABSENT,
    HDF5,
    MPI,
    MPI_IO,
    NOT_RECORDED,
    Events,
    TraceFile,
    read_trace_file,
)
from vanidl.readers.dftracer.warnings import list_warnings
from vanidl.readers.format import FileKind, Reading, Records, check_by_reading
from vanidl.readers.names import LAUNCHER
from vanidl.readers.records import (
    CounterFile,
    CounterRecords,
    HeatmapRecord,
    MpiRecord,
    OperationTable,
    ProfileTrace,
    TracerLog,
    find_owner,
    freeze,
)
from vanidl.readers.verdict import CUT, DAMAGED, LIMITED, PARTIAL, WHOLE, Verdict, ends_early
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]


# What a program said of itself through DFTracer: epochs, steps, waits, compute.
#
# DLIO and programs that use `dftracer.python.ai` mark their loop: a fetch ("fetch.iter", of
# older DLIO "loop.iter") is a wait for input, the block that follows it ("fetch.block",
# "loop.yield") the rest of the step. Without either, a step lasts until its compute has ended.


SOURCE = "dftracer"

_LOOPS = ("fetch", "loop", "fetch-data", "<module>")
_WAITS = ("fetch", *(f"{loop}.iter" for loop in _LOOPS))
_BLOCKS = tuple(f"{loop}.{end}" for loop in _LOOPS for end in ("block", "yield"))
_EPOCHS = ("epoch", "epoch.block")
_OLD_EPOCH = "DLIOBenchmark._train"  # one call an epoch, in traces without "epoch.block"
_CHECKPOINTS = ("capture", "restart", "checkpoint", "save_checkpoint", "load_checkpoint")
_OF_A_TRAINER = (SpanKind.STEP, SpanKind.INPUT_WAIT, SpanKind.OP)


def build_profile(process: TracedProcess) -> ProfileTrace | None:
    """The spans of one process; None for one that marked neither loop nor compute.

    A data loader's worker marks what it does as well; it does not train and has no profile.
    """
    # SpanKind of each event, -1 for one that is no span of training.
    events, columns = process.events, process.events.columns
    of_name = [_classify_span(category, name) for category, name in events.names]
    if SpanKind.EPOCH not in of_name:
        of_name = [
            int(SpanKind.EPOCH) if name == _OLD_EPOCH else kind
            for (_, name), kind in zip(events.names, of_name, strict=True)
        ]
    kind = np.array(of_name or [-1], np.int64)[columns["name"]]
    rows = np.flatnonzero(kind >= 0)

    # For an epoch the number that it was given, else its place among them; -1 elsewhere.
    numbers = np.full(len(rows), -1, np.int64)
    epochs = kind[rows] == SpanKind.EPOCH
    given = columns["epoch"][rows][epochs]
    numbers[epochs] = np.where(given == ABSENT, np.arange(len(given)), given)

    # All spans, those of steps made from fetches and blocks; sorted by start.
    step_start, step_end = _find_steps(events, kind)
    n, start = len(step_start), columns["ts"][rows]
    threads = np.unique(columns["tid"], return_inverse=True)[1]
    spans = {
        "start": np.concatenate([start, step_start]),
        "end": np.concatenate([start + columns["dur"][rows], step_end]),
        "step": np.concatenate([numbers, np.arange(n)]),
        "kind": np.concatenate([kind[rows], np.full(n, SpanKind.STEP)]),
        "thread": np.concatenate([threads[rows], np.full(n, -1)]),
        "name": np.concatenate([columns["name"][rows], np.full(n, len(events.names))]),
    }
    order = stable_order(spans["start"])
    spans = {key: column[order] for key, column in spans.items()}
    if not np.isin(spans["kind"], _OF_A_TRAINER).any():
        return None
    return ProfileTrace(
        path=process.files[-1],
        source=SOURCE,
        host=process.host,
        pid=process.pid,
        rank=process.rank,
        world_size=process.ranks,
        devices=(),
        start_ns=freeze(spans["start"]),
        end_ns=freeze(spans["end"]),
        step=freeze(spans["step"].astype(np.int32)),
        kind=freeze(spans["kind"].astype(np.uint8)),
        thread=freeze(spans["thread"].astype(np.int32)),
        name=freeze(spans["name"].astype(np.int32)),
        names=(*(name for _, name in events.names), "step"),
        losses=(),
        steps_from="" if _marks_steps(events) else FROM_COMPUTE,
    )


def _classify_span(category: str, name: str) -> int:
    last = name.rsplit(".", 1)[-1]
    rules = (
        (name in _WAITS, SpanKind.INPUT_WAIT),
        (category == "pipeline" and name in _EPOCHS, SpanKind.EPOCH),
        (category == "compute", SpanKind.OP),
        (category == "ai_framework" and last == "compute", SpanKind.OP),
        (category == "comm", SpanKind.COMMUNICATION),
        (category in ("checkpoint", "ai_framework") and last in _CHECKPOINTS, SpanKind.CHECKPOINT),
        (category in ("data", "reader") and last == "preprocess", SpanKind.PREPROCESS),
    )
    return next((int(kind) for holds, kind in rules if holds), -1)


def _marks_steps(events: Events) -> bool:
    """Whether its loop is marked, by fetches or by what follows them."""
    names = {events.names[code][1] for code in np.unique(events.columns["name"]).tolist()}
    return not names.isdisjoint((*_WAITS, *_BLOCKS))


def _find_steps_by_compute(events: Events, kind: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Starts and ends: from the end of one compute, or where an epoch begins, to that of the next.

    Before the first compute of an epoch lies its first wait, where the epoch is marked.
    """
    rows = np.flatnonzero(kind == SpanKind.OP)
    begin = events.columns["ts"][rows]
    end = np.maximum.accumulate(begin + events.columns["dur"][rows]) if len(rows) else begin
    before = np.append(begin[:1], end[:-1])
    epochs = np.sort(events.columns["ts"][kind == SpanKind.EPOCH])
    last = np.searchsorted(epochs, begin, side="right") - 1
    of_epoch = epochs[np.maximum(last, 0)] if len(epochs) else before
    start = np.where((last >= 0) & (of_epoch > before), of_epoch, before)
    if len(rows) and len(epochs) and last[0] >= 0:
        start[0] = of_epoch[0]
    apart = end > start
    return start[apart], end[apart]


def _find_steps(events: Events, kind: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Starts and ends of steps: from a fetch to the end of the block that follows it."""
    if not _marks_steps(events):
        return _find_steps_by_compute(events, kind)
    is_block = np.array([name in _BLOCKS for _, name in events.names] or [False])
    blocks = np.flatnonzero(is_block[events.columns["name"]])
    waits = np.flatnonzero(kind == SpanKind.INPUT_WAIT)
    wait_start = events.columns["ts"][waits]
    start = events.columns["ts"][blocks]
    before = np.searchsorted(wait_start, start, side="right") - 1
    has_wait = before >= 0
    end = start + events.columns["dur"][blocks]
    return wait_start[before[has_wait]], end[has_wait]


# Totals of each file, from operations: a tracer that records all of them needs no counters.
#
# The names are Darshan's, so that everything that reads counters reads these. What Darshan
# counts and these operations do not tell is left out, never 0.

Mask = NDArray[np.bool_]


def count_calls(process: TracedProcess) -> tuple[CounterRecords, ...]:
    """Counters of one process: of each layer that it used, and of calls that were summed up.

    `file` is a path code.
    """
    traced = (_count_layer(process.events, layer) for layer in LAYERS)
    # Counters of one process, one entry a layer that it used; `file` is a path code.
    summed = tuple(
        r for r in (_count_summed_layer(process.summed, layer) for layer in LAYERS) if len(r.file)
    )
    layers = (
        *traced,
        *summed,
        *_count_layers_above(process.events),
    )
    return tuple(records for records in layers if len(records.file))


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
    synced = used & is_call(events, layer, SYNCS)
    counts[f"{layer}_OPENS"] = _count_rows(events, files, opened)
    counts[f"{layer}_FSYNCS"] = _count_rows(events, files, synced)
    for name, rows in (("READ", masks["READ"]), ("WRITTEN", masks["WRITE"])):
        counts[f"{layer}_BYTES_{name}"] = _sum_rows(events, files, rows, moved)

    # Seconds: what neither moves bytes, waits for them nor removes a file is metadata.
    removed = used & is_call(events, layer, REMOVES)
    others = used & ~read & ~write & ~synced & ~removed
    times = {**masks, "WRITE": masks["WRITE"] | synced, "META": others, "REMOVE": removed}
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


def _count_summed_layer(summed: Events, layer: str) -> CounterRecords:
    """Counters of one layer.

    Opens are not among them: DFTracer counts the calls of a sum by the last of their numbers, and
    not every open has a mode. Reads and writes have all of theirs.
    """
    used = is_layer(summed, layer) & ~is_call(summed, layer, OF_PROCESSES)
    columns = {name: column[used] for name, column in summed.columns.items()}
    of_layer = Events(columns, summed.names, summed.files)
    files, place = np.unique(columns["file"], return_inverse=True)
    returned = columns["ret"] != ABSENT
    nbytes = np.where(returned, get_summed_nbytes(of_layer), 0)
    # Lines of a single call that failed.
    failed: Mask = (columns["calls"] == 1) & (columns["ret"] < 0) & (columns["ret"] != ABSENT)
    calls = np.where(failed, 0, columns["calls"])
    reads = is_call(of_layer, layer, READS[layer])
    writes = is_call(of_layer, layer, WRITES[layer])
    group = _FileGroups(place, len(files))
    counts = {
        f"{layer}_READS": group.sum(calls, reads),
        f"{layer}_WRITES": group.sum(calls, writes),
        f"{layer}_BYTES_READ": group.sum(nbytes, reads, returned),
        f"{layer}_BYTES_WRITTEN": group.sum(nbytes, writes, returned),
    }
    syncs, removes = (is_call(of_layer, layer, calls) for calls in (SYNCS, REMOVES))
    counts[f"{layer}_FSYNCS"] = group.sum(calls, syncs)
    others = ~reads & ~writes & ~syncs & ~removes
    # Syncs are part of write time, as in Darshan's counters.
    times = {"READ": reads, "WRITE": writes | syncs, "META": others, "REMOVE": removes}
    seconds = {
        f"{layer}_F_{what}_TIME": group.sum(columns["dur"], rows) / 1e9
        for what, rows in times.items()
    }
    ranks = np.zeros(len(files), np.int64)
    return CounterRecords(layer, files.astype(np.uint64), ranks, counts, seconds)


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
        # Names of HDF5's calls begin with their module.
        start = layer if of == HDF5 else ""
        used = _select_events(events, lambda c, name: c == of and name.startswith(start))  # noqa: B023
        if used.any():
            prefix = "MPIIO" if layer == MPIIO else layer
            spent = events.columns["dur"]
            counts = {
                name: used & _select_events(events, partial(_adds_to, name))
                for name in _COUNTERS[layer]
            }
            times = {
                name: used & _select_events(events, partial(_takes_time, name))
                for name in _TIMES[layer]
            }
            yield CounterRecords(
                layer,
                np.array([ALL_FILES], np.uint64),
                np.zeros(1, np.int64),
                {
                    f"{prefix}_{name}": np.array([rows.sum()], np.int64)
                    for name, rows in counts.items()
                },
                {
                    f"{prefix}_F_{name}_TIME": np.array([spent[rows].sum(dtype=np.float64) / 1e9])
                    for name, rows in times.items()
                },
            )


def measure_mpi_time(events: Events, host: str) -> tuple[MpiRecord, ...]:
    """How long the process was inside MPI calls, MPI-IO apart; none where it called none."""
    calls = _select_events(events, lambda category, _: category == MPI)
    if not calls.any():
        return ()
    start = events.columns["ts"][calls]
    inside = intervals.union(start, start + events.columns["dur"][calls])
    return (MpiRecord(0, host, inside.length / 1e9, None),)


def _adds_to(counter: str, category: str, name: str) -> bool:
    return counter == (
        _name_mpi_io_counter(name) if category == MPI_IO else _name_hdf5_counter(name)
    )


def _name_mpi_io_counter(name: str) -> str:
    """The counter of Darshan's that a call adds one to. Opening is collective."""
    if name == "MPI_File_open":
        return "COLL_OPENS"
    match = _MPI_IO_MOVES.match(name)
    if match is None or match["part"] == "_end":
        return ""
    kinds = (
        ("SPLIT", match["part"]), ("NB", match["nb"]), ("COLL", match["all"] or match["ordered"]),
    )  # fmt: skip
    kind = next((kind for kind, holds in kinds if holds), "INDEP")
    return f"{kind}_{match['what'].upper()}S"


def _name_hdf5_counter(name: str) -> str:
    match = _HDF5_CALL.match(name)
    if match is None:
        return ""
    return f"{match['what'].upper()}S" if match["what"] in ("read", "write") else "OPENS"


def _takes_time(time: str, category: str, name: str) -> bool:
    """Whether a call takes of this time: reading, writing or the rest."""
    match = (_MPI_IO_MOVES if category == MPI_IO else _HDF5_CALL).match(name)
    what = match["what"].upper() if match else ""
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
    # Intervals have to be whole, and not too many for a map.
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


Known = Mapping[tuple[str, int], TracedProcess]
"""Every process of the run by host and pid."""

TRACER = "dftracer"
_UNFINISHED = (
    "the trace has no end: its process was killed or is still running, and what was not yet "
    "written out (at most 4 KiB of trace where vanidl recorded it) is lost"
)


def read_traces(files: Sequence[Path], reading: Reading) -> Records:
    """The records of the processes that wrote these files."""
    run = combine_files(reading.each(_TITLE, read_trace_file, files))
    counters = {
        path: CounterFile(layers, heatmaps=run.heatmaps[path])
        for path, layers in run.counters.items()
    }
    return Records(run.logs, counters, run.profiles, notices=run.notices)


def check_traces(
    files: Sequence[tuple[FileKind, Path]], before_each: Callable[[], None]
) -> Sequence[Verdict]:
    """The verdicts, with the versions that the files state."""
    stated: dict[str, str] = {}

    def losses_of(path: Path) -> Sequence[str]:
        file = read_trace_file(path)
        stated[str(path)] = ", ".join(sorted({s.version for s in file.starts if s.version}))
        return (*drop_impossible_events(file)[2], *file.never_written)

    verdicts = check_by_reading({kind.name: losses_of for kind, _ in files}, _classify_losses)(
        files, before_each
    )
    return [replace(verdict, version=stated.get(verdict.path, "")) for verdict in verdicts]


def _classify_losses(losses: Sequence[str]) -> str:
    """What was never recorded leaves a file whole: that is partial, not damaged."""
    if any(map(names_limit, losses)):
        return LIMITED
    if ends_early(losses):
        return CUT
    lost = [loss for loss in losses if not any(text in loss for text in NOT_RECORDED)]
    return DAMAGED if lost else PARTIAL if losses else WHOLE


@dataclass(frozen=True, slots=True)
class DftracerRun:
    """Records of all processes that trace files tell of; counters by path of their log."""

    logs: tuple[TracerLog, ...] = ()
    profiles: tuple[ProfileTrace, ...] = ()
    counters: Mapping[str, tuple[CounterRecords, ...]] = field(default_factory=dict)
    heatmaps: Mapping[str, tuple[HeatmapRecord, ...]] = field(default_factory=dict)
    notices: tuple[Notice, ...] = ()


def combine_files(files: Sequence[TraceFile]) -> DftracerRun:
    """The records of the processes that wrote these files, in any order."""
    traced = gather_processes(files)
    if not traced:
        return DftracerRun(notices=list_warnings(files, traced))
    known = {(p.host, p.pid): p for p in traced}
    writers = Counter(path for p in traced for path in p.files)

    # A log, its counters and, where it trains, a profile for each process.
    counted = [count_calls(p) for p in traced]
    logs = tuple(_build_log(p, c, known, writers) for p, c in zip(traced, counted, strict=True))
    spans = (build_profile(p) for p in traced)
    return DftracerRun(
        logs,
        tuple(s for s in spans if s is not None),
        {log.path: records for log, records in zip(logs, counted, strict=True)},
        {log.path: tuple(build_heatmaps(p)) for log, p in zip(logs, traced, strict=True)},
        list_warnings(files, traced),
    )


def _build_log(
    process: TracedProcess,
    counted: Sequence[CounterRecords],
    known: Known,
    writers: Mapping[str, int],
) -> TracerLog:
    tables = tuple(_build_tables(process))
    traced = {table.layer for table in tables}
    used = [process.events.columns["file"], *(records.file.astype(np.int64) for records in counted)]
    losses = process.losses
    if process.starts and not process.ended:
        losses += (_UNFINISHED,)
    # Its log is its last file; with its pid where that file holds other processes as well.
    path = process.files[-1]
    name = f"{path}#{process.pid}" if writers[path] > 1 else path
    metadata_calls, syncs = _find_other_calls(process)
    return TracerLog(
        path=name,
        tracer=TRACER,
        version=process.starts[-1].version if process.starts else "",
        job_id=str([process, *_walk_ancestors(process, known)][-1].pid),
        host=process.host,
        pid=process.pid,
        parent_pid=_find_employer(process, known),
        user_id=find_owner(path),
        nprocs=1,
        start_ns=process.start_ns,
        end_ns=process.end_ns,
        start_resolution_ns=process.tick_ns,
        start_error_ns=process.tick_ns,  # it stamps each event with the clock of the system
        command=process.command,
        metadata={},
        mounts=(),
        names={
            code: process.events.files[code]
            for code in np.unique(np.concatenate(used)).tolist()
            if code >= 0
        },
        modules=tuple(
            layer for layer in LAYERS if layer in traced or is_layer(process.summed, layer).any()
        ),
        operations=tables,
        partial_layers=(),
        whole=not losses,
        losses=losses,
        mpi=measure_mpi_time(process.events, process.host),
        rank=process.rank,
        metadata_calls=None if len(process.summed) else metadata_calls,
        calls={SYNC: syncs} if len(syncs.start) and not len(process.summed) else {},
    )


def _find_other_calls(process: TracedProcess) -> tuple[Intervals, Intervals]:
    """When it was in calls that move no bytes (open, stat, seek), and when in syncs of files."""
    events = process.events
    others, syncs = (np.zeros(len(events), bool) for _ in range(2))
    for layer in LAYERS:
        synced = is_call(events, layer, SYNCS)
        moves = is_call(events, layer, (*READS[layer], *WRITES[layer], *OF_PROCESSES))
        others |= is_layer(events, layer) & ~moves & ~synced
        syncs |= synced
    start = events.columns["ts"] - process.start_ns
    end = start + np.maximum(events.columns["dur"], 0)
    return intervals.union(start[others], end[others]), intervals.union(start[syncs], end[syncs])


def _find_employer(process: TracedProcess, known: Known) -> int | None:
    """The process that this one works for: the next above it that is no shell or launcher.

    What shells and launchers start works for itself. A copy works for what it was copied
    from, even where that is not recorded.
    """
    if process.forked:
        return process.parent_pid
    above = _walk_ancestors(process, known)
    return next((a.pid for a in above if not LAUNCHER.search(a.command)), None)


def _walk_ancestors(process: TracedProcess, known: Known) -> Iterator[TracedProcess]:
    """Recorded processes above this one, the nearest first."""
    seen = {process.pid}
    while process.parent_pid is not None and process.parent_pid not in seen:
        parent = known.get((process.host, process.parent_pid))
        if parent is None:
            return
        yield parent
        process = parent
        seen.add(process.pid)


def _build_tables(process: TracedProcess) -> Iterator[OperationTable]:
    """Reads and writes of each layer that did not fail, of files that have a name."""
    events = process.events
    moved = get_nbytes(events)
    sound = (moved >= 0) & (events.columns["file"] >= 0)
    for layer in LAYERS:
        write = is_call(events, layer, WRITES[layer])
        rows = np.flatnonzero(sound & (write | is_call(events, layer, READS[layer])))
        if not len(rows):
            continue

        # In the order of Darshan's tables: by file, writes before reads, by start.
        op = np.where(write[rows], WRITE, READ).astype(np.uint8)
        files, record = np.unique(events.columns["file"][rows], return_inverse=True)
        order = np.lexsort((events.columns["ts"][rows], -op.astype(np.int8), record))
        rows, op, record = rows[order], op[order], record[order]
        start = events.columns["ts"][rows] - process.start_ns
        offset = events.columns["offset"][rows]
        columns = (
            record.astype(np.int32),
            op,
            np.where(offset < 0, -1, offset),
            moved[rows],
            start,
            start + events.columns["dur"][rows],
            events.columns["tid"][rows].astype(np.uint64),
        )
        for column in columns:
            column.flags.writeable = False
        ranks, hosts = np.zeros(len(files), np.int64), (process.host,) * len(files)
        yield OperationTable(layer, files.astype(np.uint64), ranks, hosts, *columns)


_TITLE = "DFTracer traces"
