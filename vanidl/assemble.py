"""Pieces of one run -> one `Trace`.

Paths, processes and rows are numbered in an order that does not depend on the order in which
the logs were read, so merging in any order gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl import clocks
from vanidl.analyses.counted import record_counts
from vanidl.filekinds import KindRule, kind_of, profiler_rules
from vanidl.grouping import Group
from vanidl.processes import Cast, cast
from vanidl.sources.pieces import CounterRecords, OperationTable, ProfileTrace, TracerLog
from vanidl.trace import (
    MAX_PART_ROWS,
    STORAGE_LAYERS,
    CounterTable,
    Files,
    Job,
    LogState,
    Notice,
    Part,
    Profile,
    SpanKind,
    Spans,
    Trace,
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


Counters = Mapping[str, Sequence[CounterRecords]]
"""Path of a log -> its counters."""


def assemble(
    group: Group, counters: Counters, notices: Iterable[Notice] = (), options: Options | None = None
) -> Trace:
    """The trace of one run.

    Args:
        group: logs and profiles of the run.
        counters: the counters of each log, keyed by its path.
        notices: warnings that reading already gave.
        options: file kinds, clock offset.
    """
    options = options or Options()
    logs = sorted(group.logs, key=lambda log: (log.start_ns, log.path))
    profiles = sorted(group.profiles, key=lambda p: p.path)
    people = cast(logs, profiles)
    paths = _paths(logs, counters)
    code = {path: i for i, path in enumerate(paths)}
    tables = _counter_tables(logs, counters, people, code)
    parts = _parts(logs, people, code, options.max_part_rows)
    rules = (*options.kind_rules, *profiler_rules([p.written_as for p in profiles]))
    offset_ns = round((options.clock_offset_s or 0) * 1e9)
    checks = [clocks.check(p, logs, offset_ns) for p in profiles]
    aligned = [check is None for check in checks]
    return Trace(
        job=_job(logs, profiles),
        processes=people.processes,
        files=_files(paths, logs, tables, parts, rules),
        io=parts,
        spans=_spans(profiles, people, offset_ns, aligned),
        profiles=_profiles(profiles, people, options, logs),
        counters=tables,
        logs=tuple(
            LogState(log.path, log.version, log.whole, log.partial_layers, log.losses)
            for log in logs
        ),
        warnings=(*notices, *people.notices, *_damage(logs), *(c for c in checks if c)),
        layers_traced=tuple(
            sorted({t.layer for log in logs for t in log.operations}, reverse=True)
        ),
    )


def path_of(log: TracerLog, file_id: int) -> str:
    """The path that a log gives a file id, or a stand-in where it has no name for it."""
    return log.names.get(file_id) or f"<unnamed {file_id:#018x}>"


def _paths(logs: Sequence[TracerLog], counters: Counters) -> list[str]:
    found: set[str] = set()
    for log in logs:
        ids = [t.record_file for t in log.operations] + [c.file for c in counters.get(log.path, ())]
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
        order = np.argsort(start, kind="stable")
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


def _counter_tables(
    logs: Sequence[TracerLog], counters: Counters, people: Cast, code: Mapping[str, int]
) -> dict[str, CounterTable]:
    by_layer: dict[str, list[CounterTable]] = {}
    for i, log in enumerate(logs):
        for records in counters.get(log.path, ()):
            table = _counter_table(i, log, records, people, code)
            by_layer.setdefault(table.layer, []).append(table)
    return {layer: _stack(layer, by_layer[layer]) for layer in sorted(by_layer)}


def _counter_table(
    i: int, log: TracerLog, records: CounterRecords, people: Cast, code: Mapping[str, int]
) -> CounterTable:
    files = [code[path_of(log, f)] for f in records.file.tolist()]
    shared = log.nprocs > 1
    ranks = records.rank.tolist() if shared else [0] * len(files)
    process = [people.of_log.get((i, r), -1) for r in ranks]
    return CounterTable(
        records.layer,
        np.array(process, np.int32),
        np.array(files, np.int32),
        records.counters,
        records.seconds,
    )


def _stack(layer: str, tables: Sequence[CounterTable]) -> CounterTable:
    """One table; a counter that some logs lack is -1 there, as Darshan writes "not monitored"."""
    names = list(dict.fromkeys(n for t in tables for n in t.counters))
    times = list(dict.fromkeys(n for t in tables for n in t.seconds))
    missing = [np.full(len(t.file), -1, np.int64) for t in tables]
    pairs = list(zip(tables, missing, strict=True))
    return CounterTable(
        layer,
        np.concatenate([t.process for t in tables]),
        np.concatenate([t.file for t in tables]),
        {n: np.concatenate([t.counters.get(n, m) for t, m in pairs]) for n in names},
        {n: np.concatenate([t.seconds.get(n, m.astype(float)) for t, m in pairs]) for n in times},
    )


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


def _damage(logs: Sequence[TracerLog]) -> Iterator[Notice]:
    for log in logs:
        if not log.whole:
            yield Notice("damaged", f"{log.path}: {'; '.join(log.losses)}. {LOWER_BOUNDS}")
