"""Pieces of one run -> one `Trace`.

Paths, processes and rows are numbered in an order that does not depend on the order in which
the logs were read, so merging in any order gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl import clocks, counter_tables
from vanidl.analyses.counted import record_counts
from vanidl.counter_tables import NO_COUNTERS, Counters, path_of
from vanidl.filekinds import KindRule, kind_of, profiler_rules
from vanidl.grouping import Group, same_host
from vanidl.processes import Cast, cast
from vanidl.sources.pieces import OperationTable, ProfileTrace, StepDurations, TracerLog
from vanidl.trace import (
    MAX_PART_ROWS,
    STORAGE_LAYERS,
    CounterTable,
    Files,
    Job,
    LogState,
    Notice,
    Part,
    Process,
    Profile,
    SpanKind,
    Spans,
    Trace,
    UndatedSteps,
    concatenate_spans,
)

Int64Array = NDArray[np.int64]

LOWER_BOUNDS = (
    "What was whole is used, so its numbers are lower bounds: copy the file again, or record again."
)
"""What damage means and what to do about it."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the user may say about a run that its files do not."""

    kind_rules: tuple[KindRule, ...] = ()
    clock_offset_s: float | None = None  # added to every profiler time
    max_part_rows: int = MAX_PART_ROWS


def assemble(
    group: Group,
    counters: Counters,
    notices: Iterable[Notice] = (),
    options: Options | None = None,
    durations: Sequence[StepDurations] = (),
) -> Trace:
    """The trace of one run.

    Args:
        group: logs and profiles of the run.
        counters: the counters of each log, keyed by its path.
        notices: warnings that reading already gave.
        options: file kinds, clock offset.
        durations: step tables without times.
    """
    options = options or Options()
    logs = sorted(group.logs, key=lambda log: (log.start_ns, log.path))
    profiles = sorted(group.profiles, key=_profile_order)
    people = cast(logs, profiles)
    undated, lost_steps = _undated(durations, people.processes)
    paths = _paths(logs, counters)
    code = {path: i for i, path in enumerate(paths)}
    tables = counter_tables.tables(logs, counters, people, code)
    parts = _parts(logs, people, code, options.max_part_rows)
    rules = (*options.kind_rules, *profiler_rules([p.written_as for p in profiles]))
    offset_ns = round((options.clock_offset_s or 0) * 1e9)
    checks = [clocks.check(p, logs, offset_ns) for p in profiles]
    disagreeing = [check for check in checks if check]
    return Trace(
        job=_job(logs, profiles),
        processes=people.processes,
        files=_files(paths, logs, tables, parts, rules),
        io=parts,
        spans=_spans(profiles, people, offset_ns, [check is None for check in checks]),
        profiles=_profiles(profiles, people, options, logs),
        counters=tables,
        logs=_states(logs),
        warnings=(*notices, *people.notices, *lost_steps, *_damage(logs), *disagreeing),
        layers_traced=_layers_traced(logs),
        stripes=counter_tables.stripes(logs, counters, code),
        heatmaps=counter_tables.heatmaps(logs, counters, people),
        mpi=counter_tables.mpi_times(logs, people),
        step_durations=undated,
    )


def _states(logs: Sequence[TracerLog]) -> tuple[LogState, ...]:
    return tuple(
        LogState(log.path, log.version, log.whole, log.partial_layers, log.losses) for log in logs
    )


def _layers_traced(logs: Sequence[TracerLog]) -> tuple[str, ...]:
    return tuple(sorted({t.layer for log in logs for t in log.operations}, reverse=True))


def _paths(logs: Sequence[TracerLog], counters: Counters) -> list[str]:
    found: set[str] = set()
    for log in logs:
        ids = [t.record_file for t in log.operations]
        ids += [c.file for c in counters.get(log.path, NO_COUNTERS).layers]
        if ids:
            found.update(path_of(log, i) for i in np.unique(np.concatenate(ids)).tolist())
    return sorted(found)


def _job(logs: Sequence[TracerLog], profiles: Sequence[ProfileTrace]) -> Job:
    if not logs:
        start = min(int(p.start_ns.min()) for p in profiles if len(p.start_ns))
        end = max(int(p.end_ns.max()) for p in profiles if len(p.end_ns))
        return Job(None, "", start, end, 1, "")
    first = logs[0]
    ids = sorted({log.job_id for log in logs})
    return Job(
        ids[0] if len(ids) == 1 else "+".join(ids),
        first.command,
        min(log.start_ns for log in logs),
        max(log.end_ns for log in logs),
        max(log.start_resolution_ns for log in logs),
        first.tracer,
        max(log.nprocs for log in logs),
        first.user_id,
    )


def _parts(
    logs: Sequence[TracerLog], people: Cast, code: Mapping[str, int], max_rows: int
) -> tuple[Part, ...]:
    parts = [
        part
        for i, log in enumerate(logs)
        for table in log.operations
        for part in _table_parts(i, log, table, people, code)
    ]
    parts.sort(key=lambda p: (p.layer, p.process, int(p.start[0]) if len(p) else 0))
    return tuple(piece for part in parts for piece in _sliced(part, max_rows))


def _table_parts(
    i: int, log: TracerLog, table: OperationTable, people: Cast, code: Mapping[str, int]
) -> Iterator[Part]:
    file_code = np.array([code[path_of(log, f)] for f in table.record_file.tolist()], np.int32)
    shared = log.nprocs > 1
    rank_of_row = table.record_rank[table.record] if shared else None
    for rank in np.unique(table.record_rank).tolist() if shared else [0]:
        process = people.of_log.get((i, rank))
        if process is None:
            continue
        rows: NDArray[np.bool_] | slice = (
            slice(None) if rank_of_row is None else rank_of_row == rank
        )
        start = table.start_ns[rows] + log.start_ns
        place = (file_code[table.record[rows]], table.offset[rows], table.nbytes[rows])
        order = _in_time(start, place)
        columns = (
            start[order],
            table.end_ns[rows][order] + log.start_ns,
            table.offset[rows][order],
            table.nbytes[rows][order],
            _threads(table, rows, order),
            file_code[table.record[rows][order]],
            table.op[rows][order],
        )
        for column in columns:
            column.flags.writeable = False
        yield Part(process, table.layer, *columns)


def _in_time(start: Int64Array, place: Sequence[NDArray[np.integer]]) -> Int64Array:
    """Rows by start, equal starts by file, offset and size: so parts may be cut anywhere."""
    order = np.argsort(start, kind="stable")
    equal = start[order][1:] == start[order][:-1]
    if equal.any():
        tied = np.flatnonzero(np.append(equal, False) | np.insert(equal, 0, False))
        rows = order[tied]
        order[tied] = rows[np.lexsort((*(key[rows] for key in reversed(place)), start[rows]))]
    return order


def _threads(
    table: OperationTable, rows: NDArray[np.bool_] | slice, order: Int64Array
) -> NDArray[np.int32]:
    if table.thread is None:
        return np.full(len(order), -1, np.int32)
    _, codes = np.unique(table.thread[rows][order], return_inverse=True)
    return codes.astype(np.int32)


def _sliced(part: Part, max_rows: int) -> Iterator[Part]:
    for low in range(0, len(part), max_rows):
        yield part if len(part) <= max_rows else part.rows(slice(low, low + max_rows))


def _files(
    paths: Sequence[str],
    logs: Sequence[TracerLog],
    tables: Mapping[str, CounterTable],
    parts: Sequence[Part],
    rules: Sequence[KindRule],
) -> Files:
    read, written = _traffic(len(paths), tables, parts)
    kinds = [
        kind_of(path, r, w, rules)
        for path, r, w in zip(paths, read.tolist(), written.tolist(), strict=True)
    ]
    mounts = sorted({m for log in logs for m in log.mounts}, key=lambda m: (-len(m[0]), m))
    found = [_mount_of(path, mounts) for path in paths]
    return Files(tuple(paths), tuple(kinds), tuple(m for m, _ in found), tuple(f for _, f in found))


def _traffic(
    files: int, tables: Mapping[str, CounterTable], parts: Sequence[Part]
) -> tuple[Int64Array, Int64Array]:
    """Bytes read and written of each file over the storage layers, from counters and trace."""
    sums = np.zeros((2, files), np.int64)
    for layer in STORAGE_LAYERS:
        if layer in tables:
            table = tables[layer]
            for op, what in enumerate(("BYTES_READ", "BYTES_WRITTEN")):
                np.add.at(sums[op], table.file, record_counts(table, what))
    traced = np.zeros_like(sums)
    for part in parts:
        np.add.at(traced, (part.op, part.file), part.nbytes)
    sums = np.maximum(sums, traced)
    return sums[0], sums[1]


def _mount_of(path: str, mounts: Sequence[tuple[str, str]]) -> tuple[str, str]:
    for point, kind in mounts:
        if path == point or path.startswith(point if point.endswith("/") else point + "/"):
            return point, kind
    return "", ""


def _spans(
    profiles: Sequence[ProfileTrace], people: Cast, offset_ns: int, aligned: Sequence[bool]
) -> Spans:
    """All spans on one clock; those of a profile that is not aligned are left out."""
    names = sorted({name for p in profiles for name in p.names})
    code = {name: i for i, name in enumerate(names)}
    blocks = [
        _span_block(p, k, people.of_profile[k], offset_ns, code)
        for k, p in enumerate(profiles)
        if aligned[k]
    ]
    spans = concatenate_spans(blocks, tuple(names))
    return spans.pick(np.lexsort((spans.end, spans.process, spans.start)))


def _span_block(
    profile: ProfileTrace, source: int, process: int, offset_ns: int, code: Mapping[str, int]
) -> Spans:
    n = len(profile.start_ns)
    renamed = np.array([code[name] for name in profile.names] or [0], np.int32)
    return Spans(
        profile.start_ns + offset_ns,
        profile.end_ns + offset_ns,
        np.full(n, process, np.int32),
        profile.step,
        profile.kind,
        profile.thread,
        renamed[profile.name],
        np.full(n, source, np.int32),
        profile.names,
    )


def _profiles(
    profiles: Sequence[ProfileTrace], people: Cast, options: Options, logs: Sequence[TracerLog]
) -> tuple[Profile, ...]:
    uncertainty = max((clocks.uncertainty_ns(log) for log in logs), default=0)
    return tuple(
        Profile(
            path=p.path,
            source=p.source,
            process=people.of_profile[k],
            has_wait_spans=bool((p.kind == SpanKind.INPUT_WAIT).any()),
            devices=p.devices,
            clock_method="absolute" if options.clock_offset_s is None else "given offset",
            clock_offset_ns=round((options.clock_offset_s or 0) * 1e9),
            clock_uncertainty_ns=uncertainty,
        )
        for k, p in enumerate(profiles)
    )


def _profile_order(profile: ProfileTrace) -> tuple[str, int]:
    return profile.path, int(profile.start_ns[0]) if len(profile.start_ns) else 0


def _undated(
    durations: Sequence[StepDurations], processes: Sequence[Process]
) -> tuple[tuple[UndatedSteps, ...], tuple[Notice, ...]]:
    """Step tables with their process, the only trainer of their host; and what has none."""
    found, lost = [], []
    for table in sorted(durations, key=lambda d: d.path):
        fits = [
            i
            for i, p in enumerate(processes)
            if p.role == "trainer" and same_host(p.host, table.host)
        ]
        if len(fits) == 1:
            found.append(UndatedSteps(fits[0], table.source, table.step, table.duration_ns))
        else:
            lost.append(f"{table.path} ({len(fits)} training processes on its host)")
    if not lost:
        return tuple(found), ()
    message = (
        f"{len(lost)} step tables without times name a host and no process, and could not be "
        f"given to one (first: {lost[0]}): they are not in the report."
    )
    return tuple(found), (Notice("steps_unmatched", message),)


def _damage(logs: Sequence[TracerLog]) -> Iterator[Notice]:
    for log in logs:
        if not log.whole:
            yield Notice("damaged", f"{log.path}: {'; '.join(log.losses)}. {LOWER_BOUNDS}")
