"""Records of one run -> one `Trace`: processes, then operations, then clocks.

Paths, processes and rows are numbered in an order that does not depend on the order in which
the logs were read, so merging in any order gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vanidl.merge import clocks as merge_clocks
from vanidl.merge import counters as merge_counters
from vanidl.merge import fetches as merge_fetches
from vanidl.merge import files as merge_files
from vanidl.merge import operations
from vanidl.merge import profiles as merge_profiles
from vanidl.merge.counters import Counters
from vanidl.merge.jobs import Group
from vanidl.merge.process_table import ProcessTable
from vanidl.merge.processes import identify
from vanidl.merge.training_steps import settle
from vanidl.model.file_kinds import KindRule, profiler_rules
from vanidl.model.lines import merge_parts
from vanidl.model.spill import Parts
from vanidl.model.trace import MAX_PART_ROWS, OBJECT, Job, LogState, Process, Trace
from vanidl.model.warnings import Notice
from vanidl.readers.records import CounterFile, EventRecords, ProfileTrace, StepDurations, TracerLog

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
    processes = identify(logs, profiles)
    settled = settle(profiles, processes)
    run = _Records(
        logs, settled.profiles, processes, counters, events, merge_files.file_codes(logs, counters)
    )
    placed = _placed(run, options)
    undated, unmatched = merge_profiles.undated_steps(durations, processes.rows)
    unplaced = merge_profiles.unplaced_steps(run.profiles, processes, placed.clocks)
    return replace(
        _trace(run, placed, options),
        step_durations=tuple(each for each in (*undated, *unplaced) if len(each.step)),
        warnings=(
            *notices,
            *processes.notices,
            *settled.notices,
            *unmatched,
            *_damage(logs),
            *placed.notices,
        ),
    )


@dataclass(frozen=True, slots=True)
class _Records:
    """What was read of one run, its processes identified and its files numbered."""

    logs: Sequence[TracerLog]
    profiles: Sequence[ProfileTrace]
    processes: ProcessTable
    counters: Counters
    events: Sequence[EventRecords]
    codes: merge_files.FileCodes


@dataclass(frozen=True, slots=True)
class _Placed:
    """The same on one clock: logs, processes and operations moved, a clock for each profile."""

    logs: Sequence[TracerLog]
    rows: tuple[Process, ...]
    io: Parts
    clocks: Sequence[merge_clocks.Clock]
    notices: Sequence[Notice]


def _placed(run: _Records, options: Options) -> _Placed:
    """Operations, then the clocks that they are evidence of, then everything on one axis."""
    logs, processes = run.logs, run.processes
    io = operations.parts(
        logs, processes, run.codes, options.max_part_rows, spilled=options.spilled
    )
    traced = merge_clocks.traced_processes(logs, processes, io, run.codes, run.counters)
    inputs = merge_clocks.alignment_inputs(run.profiles, processes, logs, traced, run.events)
    clocks = [merge_clocks.align(i, options.clock_offset_ns) for i in inputs]
    aligned = list(zip(inputs, clocks, strict=True))
    of_logs = merge_clocks.clocks_of_logs(traced, aligned)
    logs, rows = merge_clocks.laid_on_one_clock(logs, processes, of_logs)
    notices = [notice for clock in clocks for notice in clock.notices]
    notices += merge_clocks.coarse(aligned, of_logs)
    offsets = {n: clock.offset_ns for n, clock in of_logs.items() if clock.offset_ns}
    io = io.shifted(offsets, without=OBJECT)  # on the system's clock already
    return _Placed(logs, rows, io, clocks, notices)


def _trace(run: _Records, placed: _Placed, options: Options) -> Trace:
    logs, processes, counters = placed.logs, run.processes, run.counters
    tables = merge_counters.tables(logs, counters, processes, run.codes)
    rules = (*options.kind_rules, *profiler_rules([p.written_as for p in run.profiles]))
    profiles = merge_profiles.describe(run.profiles, processes, placed.clocks)
    return Trace(
        job=_job(logs, run.profiles),
        processes=placed.rows,
        files=merge_files.describe(tuple(run.codes), logs, tables, placed.io, rules, run.profiles),
        io=placed.io,
        spans=merge_profiles.spans(run.profiles, processes, placed.clocks),
        profiles=profiles,
        counters=tables,
        logs=_states(logs, counters),
        layers_traced=_layers_traced(logs),
        stripes=merge_counters.stripes(logs, counters, run.codes),
        heatmaps=merge_counters.heatmaps(logs, counters, processes),
        mpi=merge_counters.mpi_times(logs, processes),
        metadata_calls=operations.metadata_calls(logs, processes, beside=False),
        calls=operations.calls_by_kind(logs, processes),
        object_calls=operations.metadata_calls(logs, processes, beside=True),
        fetches=merge_fetches.fetches(run.profiles, placed.rows, profiles),
        queued=merge_profiles.queued(run.profiles, processes, placed.clocks),
        checkpoint_calls=merge_profiles.checkpoint_calls(run.profiles, processes, placed.clocks),
        lines=merge_parts(part for profile in run.profiles for part in profile.lines),
    )


def _profile_order(profile: ProfileTrace) -> tuple[str, int]:
    return profile.path, int(profile.start_ns[0]) if len(profile.start_ns) else 0


def _states(logs: Sequence[TracerLog], counters: Mapping[str, CounterFile]) -> tuple[LogState, ...]:
    return tuple(
        LogState(
            log.path,
            log.version,
            log.whole,
            log.partial_layers,
            log.losses,
            log.unread_modules
            + (counters[log.path].unread_modules if log.path in counters else ()),
        )
        for log in logs
    )


def _layers_traced(logs: Sequence[TracerLog]) -> tuple[str, ...]:
    return tuple(sorted({t.layer for log in logs for t in log.operations}, reverse=True))


def _job(logs: Sequence[TracerLog], profiles: Sequence[ProfileTrace]) -> Job:
    if not logs:
        start = min(int(p.start_ns.min()) for p in profiles if len(p.start_ns))
        end = max(int(p.end_ns.max()) for p in profiles if len(p.end_ns))
        return Job(None, "", start, end, start_resolution_ns=1, tracer="")
    first = min(logs, key=lambda log: log.beside)
    start, end = min(log.start_ns for log in logs), max(log.end_ns for log in logs)
    if first.beside:  # what no tracer saw of the run, the loop shows
        start = min([start, *(int(p.start_ns.min()) for p in profiles if len(p.start_ns))])
        end = max([end, *(int(p.end_ns.max()) for p in profiles if len(p.end_ns))])
    ids = sorted({log.job_id for log in logs if log.job_id or not log.beside})
    return Job(
        id="+".join(ids) or None,
        command=first.command,
        start_ns=start,
        end_ns=end,
        start_resolution_ns=max(log.start_resolution_ns for log in logs),
        tracer=first.tracer,
        counts_apart=first.counts_apart,
        nprocs=max(log.nprocs for log in logs),
        user_id=first.user_id,
    )


def _damage(logs: Sequence[TracerLog]) -> Iterator[Notice]:
    for log in logs:
        if not log.whole:
            yield Notice("damaged", f"{log.path}: {'; '.join(log.losses)}. {LOWER_BOUNDS}")
