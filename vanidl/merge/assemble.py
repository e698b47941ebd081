"""Records of one run -> one `Trace`: processes, then operations, then clocks.

Paths, processes and rows are numbered in an order that does not depend on the order in which
the logs were read, so merging in any order gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vanidl.merge import clocks as merge_clocks
from vanidl.merge import counters as merge_counters
from vanidl.merge import files as merge_files
from vanidl.merge import operations
from vanidl.merge import profiles as merge_profiles
from vanidl.merge.counters import Counters
from vanidl.merge.jobs import Group
from vanidl.merge.processes import identify
from vanidl.merge.training_steps import settle
from vanidl.model.file_kinds import KindRule, profiler_rules
from vanidl.model.trace import MAX_PART_ROWS, Job, LogState, Trace
from vanidl.model.warnings import Notice
from vanidl.readers.records import EventRecords, ProfileTrace, StepDurations, TracerLog

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
    profiles = settled.profiles
    codes = merge_files.file_codes(logs, counters)
    tables = merge_counters.tables(logs, counters, processes, codes)
    io = operations.parts(logs, processes, codes, options.max_part_rows, spilled=options.spilled)

    traced = merge_clocks.traced_processes(logs, processes, io, codes, counters)
    inputs = merge_clocks.alignment_inputs(profiles, processes, logs, traced, events)
    clocks = [merge_clocks.align(i, options.clock_offset_ns) for i in inputs]
    aligned = list(zip(inputs, clocks, strict=True))
    of_logs = merge_clocks.clocks_of_logs(traced, aligned)
    logs, rows = merge_clocks.laid_on_one_clock(logs, processes, of_logs)
    io = io.shifted({n: clock.offset_ns for n, clock in of_logs.items() if clock.offset_ns})

    rules = (*options.kind_rules, *profiler_rules([p.written_as for p in profiles]))
    undated, unmatched = merge_profiles.undated_steps(durations, processes.rows)
    doubts = [notice for clock in clocks for notice in clock.notices]
    doubts += merge_clocks.coarse(aligned, of_logs)
    return Trace(
        job=_job(logs, profiles),
        processes=rows,
        files=merge_files.describe(tuple(codes), logs, tables, io, rules),
        io=io,
        spans=merge_profiles.spans(profiles, processes, clocks),
        profiles=merge_profiles.describe(profiles, processes, clocks),
        counters=tables,
        logs=_states(logs),
        warnings=(
            *notices,
            *processes.notices,
            *settled.notices,
            *unmatched,
            *_damage(logs),
            *doubts,
        ),
        layers_traced=_layers_traced(logs),
        stripes=merge_counters.stripes(logs, counters, codes),
        heatmaps=merge_counters.heatmaps(logs, counters, processes),
        mpi=merge_counters.mpi_times(logs, processes),
        metadata_calls=operations.metadata_calls(logs, processes),
        step_durations=(*undated, *merge_profiles.unplaced_steps(profiles, processes, clocks)),
    )


def _profile_order(profile: ProfileTrace) -> tuple[str, int]:
    return profile.path, int(profile.start_ns[0]) if len(profile.start_ns) else 0


def _states(logs: Sequence[TracerLog]) -> tuple[LogState, ...]:
    return tuple(
        LogState(
            log.path,
            log.version,
            log.whole,
            log.partial_layers,
            log.losses,
            log.unread_modules,
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
    first = logs[0]
    ids = sorted({log.job_id for log in logs})
    return Job(
        id=ids[0] if len(ids) == 1 else "+".join(ids),
        command=first.command,
        start_ns=min(log.start_ns for log in logs),
        end_ns=max(log.end_ns for log in logs),
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
