"""Pieces of one run -> one `Trace`.

Paths, processes and rows are numbered in an order that does not depend on the order in which
the logs were read, so merging in any order gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vanidl.merge import clocks, operations
from vanidl.merge import counters as merge_counters
from vanidl.merge.clocks import Clock
from vanidl.merge.counters import NO_COUNTERS, Counters, path_of
from vanidl.merge.jobs import Group, same_host
from vanidl.merge.processes import Cast, cast
from vanidl.model.counter_totals import record_counts
from vanidl.model.file_kinds import KindRule, kind_of, profiler_rules
from vanidl.model.trace import (
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
from vanidl.readers.records import EventRecords, ProfileTrace, StepDurations, TracerLog

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
    spilled: bool | None = None  # operations in a temporary file; None: where they are many

    @property
    def clock_offset_ns(self) -> int | None:
        """The same in nanoseconds, None where nothing was given."""
        return None if self.clock_offset_s is None else round(self.clock_offset_s * 1e9)


def assemble(
    group: Group,
    counters: Counters,
    notices: Iterable[Notice] = (),
    options: Options | None = None,
    durations: Sequence[StepDurations] = (),
    events: Sequence[EventRecords] = (),
) -> Trace:
    """The trace of one run.

    Args:
        group: logs and profiles of the run.
        counters: the counters of each log, keyed by its path.
        notices: warnings that reading already gave.
        options: file kinds, clock offset.
        durations: step tables without times.
        events: event files that may say how profiles' clocks and the logs' differ.
    """
    options = options or Options()
    logs = sorted(group.logs, key=lambda log: (log.start_ns, log.path))
    profiles = sorted(group.profiles, key=_profile_order)
    people = cast(logs, profiles)
    undated, lost_steps = _undated(durations, people.processes)
    known = [
        clocks.align(scene, options.clock_offset_ns)
        for scene in clocks.scenes(profiles, logs, people, events)
    ]
    unplaced = [
        _unplaced(p, people.of_profile[k]) for k, p in enumerate(profiles) if not known[k].aligned
    ]
    rules = (*options.kind_rules, *profiler_rules([p.written_as for p in profiles]))
    return replace(
        _of_logs(logs, _job(logs, profiles), people, counters, replace(options, kind_rules=rules)),
        spans=_spans(profiles, people, known),
        profiles=_profiles(profiles, people, known),
        warnings=(*notices, *people.notices, *lost_steps, *_damage(logs), *_doubts(known)),
        step_durations=(*undated, *unplaced),
    )


def _of_logs(
    logs: Sequence[TracerLog], job: Job, people: Cast, counters: Counters, options: Options
) -> Trace:
    """What the logs say; nothing of profiles yet."""
    paths = _paths(logs, counters)
    code = {path: i for i, path in enumerate(paths)}
    tables = merge_counters.tables(logs, counters, people, code)
    io = operations.parts(logs, people, code, options.max_part_rows, spilled=options.spilled)
    return Trace(
        job=job,
        processes=people.processes,
        files=_files(paths, logs, tables, io, options.kind_rules),
        io=io,
        spans=concatenate_spans((), ()),
        counters=tables,
        logs=_states(logs),
        layers_traced=_layers_traced(logs),
        stripes=merge_counters.stripes(logs, counters, code),
        heatmaps=merge_counters.heatmaps(logs, counters, people),
        mpi=merge_counters.mpi_times(logs, people),
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


def _files(
    paths: Sequence[str],
    logs: Sequence[TracerLog],
    tables: Mapping[str, CounterTable],
    io: Sequence[Part],
    rules: Sequence[KindRule],
) -> Files:
    read, written = _traffic(len(paths), tables, io)
    kinds = [
        kind_of(path, r, w, rules)
        for path, r, w in zip(paths, read.tolist(), written.tolist(), strict=True)
    ]
    mounts = sorted({m for log in logs for m in log.mounts}, key=lambda m: (-len(m[0]), m))
    found = [_mount_of(path, mounts) for path in paths]
    return Files(tuple(paths), tuple(kinds), tuple(m for m, _ in found), tuple(f for _, f in found))


def _traffic(
    files: int, tables: Mapping[str, CounterTable], io: Sequence[Part]
) -> tuple[Int64Array, Int64Array]:
    """Bytes read and written of each file over the storage layers, from counters and trace."""
    sums = np.zeros((2, files), np.int64)
    for layer in STORAGE_LAYERS:
        if layer in tables:
            table = tables[layer]
            for op, what in enumerate(("BYTES_READ", "BYTES_WRITTEN")):
                np.add.at(sums[op], table.file, record_counts(table, what))
    traced = np.zeros_like(sums)
    for part in io:
        np.add.at(traced, (part.op, part.file), part.nbytes)
    sums = np.maximum(sums, traced)
    return sums[0], sums[1]


def _mount_of(path: str, mounts: Sequence[tuple[str, str]]) -> tuple[str, str]:
    for point, kind in mounts:
        if path == point or path.startswith(point if point.endswith("/") else point + "/"):
            return point, kind
    return "", ""


def _spans(profiles: Sequence[ProfileTrace], people: Cast, known: Sequence[Clock]) -> Spans:
    """All spans on one clock; those of a profile that is not aligned are left out."""
    names = sorted({name for p in profiles for name in p.names})
    code = {name: i for i, name in enumerate(names)}
    blocks = [
        _span_block(p, k, people.of_profile[k], known[k].offset_ns, code)
        for k, p in enumerate(profiles)
        if known[k].aligned
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
    profiles: Sequence[ProfileTrace], people: Cast, known: Sequence[Clock]
) -> tuple[Profile, ...]:
    return tuple(
        Profile(
            path=p.path,
            source=p.source,
            process=people.of_profile[k],
            has_wait_spans=bool((p.kind == SpanKind.INPUT_WAIT).any()),
            devices=p.devices,
            clock_method=known[k].method,
            clock_offset_ns=known[k].offset_ns,
            clock_uncertainty_ns=known[k].uncertainty_ns,
            clock_low_ns=known[k].low_ns,
            clock_high_ns=known[k].high_ns,
            clock_evidence=known[k].evidence,
        )
        for k, p in enumerate(profiles)
    )


def _unplaced(profile: ProfileTrace, process: int) -> UndatedSteps:
    """The steps of a profile that is not aligned: how long they took is known all the same."""
    steps = profile.step >= 0
    duration = profile.end_ns[steps] - profile.start_ns[steps]
    return UndatedSteps(process, profile.source, profile.step[steps], duration)


def _doubts(known: Sequence[Clock]) -> Iterator[Notice]:
    for clock in known:
        yield from clock.notices


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
