"""Reads and checks the trace files of DFTracer: one log, its counters and its profile a process.

DFTracer records every operation of POSIX and STDIO, so the totals of a layer are those of its
operations (`counters`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

import numpy as np

from vanidl.dataclass import dataclass
from vanidl.encoding.budget import names_limit
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.trace import READ, WRITE
from vanidl.model.warnings import Notice
from vanidl.readers.dftracer.calls import LAYERS, READS, WRITES, get_nbytes, is_call, is_layer
from vanidl.readers.dftracer.counters import build_heatmaps, count_calls, measure_mpi_time
from vanidl.readers.dftracer.processes import (
    TracedProcess,
    drop_impossible_events,
    gather_processes,
)
from vanidl.readers.dftracer.spans import build_profile
from vanidl.readers.dftracer.trace_file import NOT_RECORDED, TraceFile, read_trace_file
from vanidl.readers.dftracer.warnings import list_warnings
from vanidl.readers.format import FileKind, Reading, Records, check_by_reading
from vanidl.readers.names import LAUNCHER
from vanidl.readers.records import (
    CounterFile,
    CounterRecords,
    HeatmapRecord,
    OperationTable,
    ProfileTrace,
    TracerLog,
)
from vanidl.readers.verdict import CUT, DAMAGED, LIMITED, PARTIAL, WHOLE, Verdict, ends_early

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
    used = [process.events.columns["file"], *(records.file.astype(np.int64) for records in counted)]
    losses = process.losses
    if process.starts and not process.ended:
        losses += (_UNFINISHED,)
    # Its log is its last file; with its pid where that file holds other processes as well.
    path = process.files[-1]
    name = f"{path}#{process.pid}" if writers[path] > 1 else path
    return TracerLog(
        path=name,
        tracer=TRACER,
        version=process.starts[-1].version if process.starts else "",
        job_id=str([process, *_walk_ancestors(process, known)][-1].pid),
        host=process.host,
        pid=process.pid,
        parent_pid=_find_employer(process, known),
        user_id=_get_owner(path),
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
        modules=tuple(_list_modules(process, tables)),
        operations=tables,
        partial_layers=(),
        whole=not losses,
        losses=losses,
        mpi=measure_mpi_time(process.events, process.host),
        rank=process.rank,
        metadata_calls=None if len(process.summed) else _find_metadata_calls(process),
    )


def _list_modules(process: TracedProcess, tables: Sequence[OperationTable]) -> Iterator[str]:
    """The layers of which it recorded calls, one by one or summed up."""
    traced = {table.layer for table in tables}
    for layer in LAYERS:
        if layer in traced or is_layer(process.summed, layer).any():
            yield layer


def _find_metadata_calls(process: TracedProcess) -> Intervals:
    """When it was in calls of POSIX and STDIO that move no bytes: open, stat, seek, close."""
    events = process.events
    calls = np.zeros(len(events), bool)
    for layer in LAYERS:
        moves = is_call(events, layer, (*READS[layer], *WRITES[layer]))
        calls |= is_layer(events, layer) & ~moves
    start = events.columns["ts"][calls] - process.start_ns
    return intervals.union(start, start + np.maximum(events.columns["dur"][calls], 0))


def _get_owner(path: str) -> int:
    """User id of the file's owner, -1 where the file is gone."""
    try:
        return Path(path).stat().st_uid
    except OSError:
        return -1


def _find_parent(process: TracedProcess, known: Known) -> TracedProcess | None:
    if process.parent_pid is None or process.parent_pid == process.pid:
        return None
    return known.get((process.host, process.parent_pid))


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
    while (parent := _find_parent(process, known)) is not None and parent.pid not in seen:
        yield parent
        process = parent
        seen.add(process.pid)


def _build_tables(process: TracedProcess) -> Iterator[OperationTable]:
    for layer in LAYERS:
        table = _build_table(process, layer)
        if len(table.record_file):
            yield table


def _build_table(process: TracedProcess, layer: str) -> OperationTable:
    """Reads and writes of one layer that did not fail, of files that have a name."""
    # The rows: calls that moved bytes of a file with a name.
    events = process.events
    moved = get_nbytes(events)
    sound = (moved >= 0) & (events.columns["file"] >= 0)
    write = is_call(events, layer, WRITES[layer])
    rows = np.flatnonzero(sound & (write | is_call(events, layer, READS[layer])))

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
    ranks = np.zeros(len(files), np.int64)
    return OperationTable(layer, files.astype(np.uint64), ranks, (process.host,) * len(files),
                          *columns)  # fmt: skip


_TITLE = "DFTracer traces"
