"""Profiles, fetches and sampled states -> the same on the trace's clock, with its processes.

Runs without any, as of jobs that do not train, go past all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vanidl.merge import copies
from vanidl.merge.clocks.evidence import TracedProcess, gather_inputs
from vanidl.merge.clocks.log_clock import LogClock
from vanidl.merge.processes import ProcessTable
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.lines import merge_parts
from vanidl.model.states import SampledThread, States
from vanidl.model.trace import (
    FETCH_COLUMNS,
    NO_FETCHES,
    CheckpointCall,
    Fetches,
    Int64Array,
    Process,
    Profile,
    SpanKind,
    Spans,
    Trace,
    UndatedSteps,
    concatenate_spans,
    make_fetches,
)
from vanidl.model.warnings import Notice
from vanidl.readers import run_folder
from vanidl.readers.records import (
    EventRecords,
    FetchTable,
    ProfileTrace,
    StepDurations,
    TracerLog,
    same_host,
)
from vanidl.schema.dataclass import dataclass

if TYPE_CHECKING:
    from vanidl.merge.clocks.align import Clock

_TIMES = ("begin", "collate", "end", "wait_begin", "wait_end")
_AS_READ = ("epoch", "batch", "samples", "nbytes")


def choose_profiles(
    logs: Sequence[TracerLog], found: Sequence[ProfileTrace], marked: Sequence[ProfileTrace]
) -> tuple[list[TracerLog], list[ProfileTrace], list[Notice]]:
    """Logs that know their trainers and last marks, the profiles that are used, what is said of it.

    Args:
        logs: of the I/O of each process.
        found: profiles and recorded loops.
        marked: a tracer's own marks, which stand for processes that nothing else saw.
    """
    adopted = adopt_workers(logs, found)
    # A process with a profile needs no marks of the tracer.
    profiled = {profile.pid for profile in found if not profile.marks_loop}
    own = [run_folder.complete_profile(p, adopted) for p in marked if p.pid not in profiled]
    profiles, left = copies.most_complete_profiles(drop_bare_loops([*found, *own]))
    return extend_lives(adopted, profiles), profiles, left


def drop_bare_loops(profiles: Sequence[ProfileTrace]) -> list[ProfileTrace]:
    """The profiles without recorded loops whose loader is unknown, where another has the steps.

    Of a loader that is no DataLoader the recorder sees optimizer steps and no wait.
    """

    def gives_way(bare: ProfileTrace) -> bool:
        if not bare.marks_loop or (bare.kind == SpanKind.INPUT_WAIT).any():
            return False
        return any(
            p.pid == bare.pid and not p.marks_loop and same_host(p.host, bare.host)
            for p in profiles
            if np.isin(p.kind, (SpanKind.STEP, SpanKind.INPUT_WAIT)).any()
        )

    return [profile for profile in profiles if not gives_way(profile)]


@dataclass(frozen=True, slots=True)
class Alignment:
    """The clock of each profile, that of each traced process's log, and what is said of them."""

    clocks: Sequence[Clock]
    of_logs: Mapping[int, LogClock]
    notices: Sequence[Notice]


def align_profiles(
    profiles: Sequence[ProfileTrace],
    processes: ProcessTable,
    logs: Sequence[TracerLog],
    traced: Mapping[int, TracedProcess],
    events: Sequence[EventRecords],
    given_ns: int | None,
) -> Alignment:
    """How profiles and logs lie on one clock, by everything that tells.

    Args:
        profiles: those of the run.
        processes: whose they are.
        logs: those of the run.
        traced: what each process did, with the clock that its own log leaves.
        events: event files of the run.
        given_ns: the offset of all profiles, where the user gave it.
    """
    # What evidence of clocks needs no run pays for that has nothing to align.
    from vanidl.merge.clocks.align import align_profile
    from vanidl.merge.clocks.late_logs import choose_log_clocks, warn_of_coarse_logs

    inputs = gather_inputs(profiles, processes, logs, traced, events)
    clocks = [align_profile(each, given_ns) for each in inputs]
    aligned = list(zip(inputs, clocks, strict=True))
    of_logs = choose_log_clocks(traced, aligned)
    of_clocks = (notice for clock in clocks for notice in clock.notices)
    return Alignment(clocks, of_logs, [*of_clocks, *warn_of_coarse_logs(aligned, of_logs)])


def add_profiles(
    trace: Trace,
    profiles: Sequence[ProfileTrace],
    processes: ProcessTable,
    clocks: Sequence[Clock],
) -> Trace:
    """The trace of logs with all that its profiles hold, on its clock."""
    described = describe_profiles(profiles, processes, clocks)
    return replace(
        trace,
        spans=lay_spans(profiles, processes, clocks),
        profiles=described,
        step_durations=(*trace.step_durations, *keep_unplaced_steps(profiles, processes, clocks)),
        fetches=lay_fetches(profiles, trace.processes, described),
        queued=lay_queued_times(profiles, processes, clocks),
        checkpoint_calls=lay_checkpoint_calls(profiles, processes, clocks),
        lines=merge_parts(part for profile in profiles for part in profile.lines),
    )


def lay_spans(
    profiles: Sequence[ProfileTrace], processes: ProcessTable, clocks: Sequence[Clock]
) -> Spans:
    """All spans on one clock; those of a profile that is not aligned are left out."""
    names = sorted({name for p in profiles for name in p.names})
    code = {name: i for i, name in enumerate(names)}
    aligned = [k for k in range(len(profiles)) if clocks[k].aligned]
    # Where the loop itself was recorded, spans of a profiler that repeat it are left out.
    looped = {processes.of_profile[k] for k in aligned if profiles[k].marks_loop}
    blocks = [
        _shift_profile(p, k, processes.of_profile[k], clocks[k].offset_ns, code).pick(
            _not_repeated(p, within=processes.of_profile[k] in looped)
        )
        for k, p in ((k, profiles[k]) for k in aligned)
    ]
    found = concatenate_spans(blocks, tuple(names))
    return found.pick(np.lexsort((found.end, found.process, found.start)))


def _not_repeated(profile: ProfileTrace, *, within: bool) -> NDArray[np.bool_]:
    """Spans to use: where the loop was marked as a whole, a profile's own steps are repeats."""
    if profile.marks_loop or not within:
        return np.ones(len(profile.kind), bool)
    return ~np.isin(profile.kind, (SpanKind.STEP, SpanKind.INPUT_WAIT))


def _shift_profile(
    profile: ProfileTrace, source: int, process: int, offset_ns: int, code: Mapping[str, int]
) -> Spans:
    n = len(profile.start_ns)
    renamed = np.array([code[name] for name in profile.names] or [0], np.int32)
    return Spans(
        start=profile.start_ns + offset_ns,
        end=profile.end_ns + offset_ns,
        process=np.full(n, process, np.int32),
        step=profile.step,
        kind=profile.kind,
        thread=profile.thread,
        name=renamed[profile.name],
        source=np.full(n, source, np.int32),
        names=profile.names,
    )


def describe_profiles(
    profiles: Sequence[ProfileTrace], processes: ProcessTable, clocks: Sequence[Clock]
) -> tuple[Profile, ...]:
    """Where each profile came from, and how it was put on the clock."""
    return tuple(
        Profile(
            path=p.path,
            source=p.source,
            process=processes.of_profile[k],
            has_wait_spans=bool((p.kind == SpanKind.INPUT_WAIT).any()),
            devices=p.devices,
            steps_from=p.steps_from,
            clock_method=clocks[k].method,
            clock_offset_ns=clocks[k].offset_ns,
            clock_uncertainty_ns=clocks[k].uncertainty_ns,
            clock_low_ns=clocks[k].low_ns,
            clock_high_ns=clocks[k].high_ns,
            clock_evidence=clocks[k].evidence,
            marks_loop=p.marks_loop,
            device=p.device,
            thread_known=processes.of_profile[k] in processes.threads,
            dataset_kind=p.dataset_kind,
            purpose=p.purpose,
            frameworks=p.frameworks,
            device_in_part=p.device_in_part,
            group=p.group,
        )
        for k, p in enumerate(profiles)
    )


def lay_checkpoint_calls(
    profiles: Sequence[ProfileTrace], processes: ProcessTable, clocks: Sequence[Clock]
) -> tuple[CheckpointCall, ...]:
    """Saves and loads on the one clock, by start."""
    found = [
        replace(
            call,
            start=call.start + clocks[k].offset_ns,
            end=call.end + clocks[k].offset_ns,
            process=processes.of_profile[k],
        )
        for k, profile in enumerate(profiles)
        for call in profile.checkpoint_calls
        if clocks[k].aligned
    ]
    return tuple(sorted(found, key=lambda call: (call.start, call.end, call.process)))


def lay_queued_times(
    profiles: Sequence[ProfileTrace], processes: ProcessTable, clocks: Sequence[Clock]
) -> dict[int, Intervals]:
    """When devices of a process did nothing though work had been handed to them."""
    found: dict[int, Intervals] = {}
    for k, profile in enumerate(profiles):
        if profile.queued is not None and clocks[k].aligned:
            process = processes.of_profile[k]
            times = profile.queued.shifted(clocks[k].offset_ns)
            found[process] = intervals.merge(found.get(process, intervals.EMPTY), times)
    return found


def keep_unplaced_steps(
    profiles: Sequence[ProfileTrace], processes: ProcessTable, clocks: Sequence[Clock]
) -> list[UndatedSteps]:
    """The steps of profiles that are not aligned: how long they took is known all the same."""
    unplaced = []
    for k, profile in enumerate(profiles):
        steps = profile.step >= 0
        if not clocks[k].aligned and steps.any():
            duration = profile.end_ns[steps] - profile.start_ns[steps]
            process = processes.of_profile[k]
            unplaced.append(UndatedSteps(process, profile.source, profile.step[steps], duration))
    return unplaced


def match_undated_steps(
    tables: Sequence[StepDurations], processes: Sequence[Process]
) -> tuple[list[UndatedSteps], list[Notice]]:
    """Step tables with their process, the only trainer of their host; and what has none."""
    found, lost = [], []
    for table in sorted(tables, key=lambda d: d.path):
        # A table names a host only: one trainer there leaves no doubt.
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
        return found, []
    message = (
        f"{len(lost)} step tables without times name a host and no process, and could not be "
        f"given to one (first: {lost[0]}): they are not in the report."
    )
    return found, [Notice("steps_unmatched", message)]


# Fetches of loaders, and what they tell of their workers.


def lay_fetches(
    found: Sequence[ProfileTrace], processes: Sequence[Process], profiles: Sequence[Profile]
) -> Fetches:
    """All fetches of the training processes of the trace whose clock is that of their steps.

    Args:
        found: what was read, with the tables of fetches.
        processes: those of the trace.
        profiles: those of the trace, with their clocks.
    """
    tables = _fetch_tables(found)
    names = tuple(sorted({name for table in tables for name in table.loaders.values()}))
    blocks = []
    for table in sorted(tables, key=lambda table: (table.host, table.pid or -1)):
        trainer = _find_process(table.host, table.pid, processes)
        offset_ns = loop_offset_ns(trainer, profiles)
        # Fetches of a process whose steps lie on no clock could not be laid beside them.
        if trainer is not None and offset_ns is not None:
            blocks.append(_fetch_columns(table, trainer, processes, names, offset_ns))
    if not blocks:
        return NO_FETCHES
    return make_fetches({c: np.concatenate([b[c] for b in blocks]) for c in FETCH_COLUMNS}, names)


def _fetch_tables(profiles: Sequence[ProfileTrace]) -> list[FetchTable]:
    return [p.fetches for p in profiles if p.fetches is not None]


def _find_process(host: str, pid: int | None, processes: Sequence[Process]) -> int | None:
    """The process of a pid, the training process before others that had it."""
    fits = [i for i, p in enumerate(processes) if p.pid == pid and same_host(p.host, host)]
    return min(fits, key=lambda i: (processes[i].role != "trainer", i)) if fits else None


def loop_offset_ns(trainer: int | None, profiles: Sequence[Profile]) -> int | None:
    """What was added to the times of the trainer's recorded loop; None where it has none."""
    mine = [p for p in profiles if p.process == trainer and p.marks_loop and p.aligned]
    return mine[0].clock_offset_ns if mine else None


def _fetch_columns(
    table: FetchTable,
    trainer: int,
    processes: Sequence[Process],
    names: Sequence[str],
    offset_ns: int,
) -> dict[str, Int64Array]:
    who = np.array(list(_members(table, trainer, processes)), np.int64).reshape(-1, 2)[table.member]
    loaders = {number: names.index(name) for number, name in table.loaders.items()}
    columns = {c: getattr(table, c) for c in _AS_READ}
    # -1 stays: such a time was not recorded.
    for column in _TIMES:
        times = getattr(table, column)
        columns[column] = np.where(times >= 0, times + offset_ns, -1)
    columns["trainer"] = np.full(len(table.begin), trainer, np.int64)
    columns["process"], columns["worker"] = who.T
    columns["pid"] = np.array([pid for pid, _ in table.by], np.int64)[table.member]
    # Loaders are few: each is looked up once.
    used, place = np.unique(table.loader, return_inverse=True)
    codes = np.array([loaders.get(number, -1) for number in used.tolist()] or [-1], np.int64)
    columns["name"] = codes[place.ravel()]
    ahead = [table.ahead.get(number, (-1, -1)) for number in used.tolist()]
    of_loader = np.array(ahead, np.int64).reshape(-1, 2)
    columns["ahead"], columns["in_order"] = of_loader[place.ravel()].T
    return columns


def _members(
    table: FetchTable, trainer: int, processes: Sequence[Process]
) -> Iterator[tuple[int, int]]:
    """(process, worker) of all that fetched."""
    yield trainer, -1
    for pid, worker in table.by[1:]:
        found = _find_process(table.host, pid, processes)
        yield -1 if found is None else found, worker


def adopt_workers(logs: Sequence[TracerLog], profiles: Sequence[ProfileTrace]) -> list[TracerLog]:
    """The logs, those of workers with the process that they fetched for as their parent.

    Tracers know the parent of a forked process only, not that of a spawned one.
    """
    tables = _fetch_tables(profiles)
    adopted = []
    for log in logs:
        fits = list[int | None]()
        # Only of a log of one process that no tracer knows the parent of.
        if log.parent_pid is None and log.pid is not None and log.nprocs <= 1:
            fits = [t.pid for t in tables if same_host(t.host, log.host) and _worked(log, t)]
        adopted.append(replace(log, parent_pid=fits[0]) if len(fits) == 1 else log)
    return adopted


def extend_lives(logs: Sequence[TracerLog], profiles: Sequence[ProfileTrace]) -> list[TracerLog]:
    """The logs, where a process was killed up to its last mark: its last call may be long ago.

    Of several logs of a process, as a shell becomes the program that it starts, the last one.
    """
    extended = list(logs)
    for profile in profiles:
        if profile.pid is None or not (profile.marks_loop and len(profile.end_ns)):
            continue
        own = [i for i, log in enumerate(extended)
               if log.pid == profile.pid and same_host(log.host, profile.host)]  # fmt: skip
        if not own:
            continue
        last = max(own, key=lambda i: extended[i].start_ns)
        log = extended[last]
        if not (log.ended and log.whole):
            extended[last] = replace(log, end_ns=max(log.end_ns, int(profile.end_ns.max())))
    return extended


def _worked(log: TracerLog, table: FetchTable) -> bool:
    """Whether a log is of a worker of a training process, by what it fetched in its life."""
    members = [m for m, (pid, worker) in enumerate(table.by) if pid == log.pid and worker >= 0]
    mine = np.isin(table.member, members)
    late_ns = log.start_uncertainty_ns
    inside = (table.end > log.start_ns - late_ns) & (table.begin < log.end_ns + late_ns)
    return bool((mine & inside).any())


# Sampled states.


def lay_states(states: States, trace: Trace) -> States:
    """The states on the clock of the trace, where that moved what the same host recorded.

    Recorders and the loops that they record have one clock, that of their host.
    """
    if not len(states):
        return states
    offsets = [
        (trace.processes[rank].host, offset_ns)
        for rank in trace.ranks
        if (offset_ns := loop_offset_ns(rank, trace.profiles))
    ]
    moved = tuple(_shift_thread(thread, offsets) for thread in states.threads)
    return replace(states, threads=moved)


def _shift_thread(thread: SampledThread, offsets: list[tuple[str, int]]) -> SampledThread:
    by_ns = next((ns for host, ns in offsets if same_host(host, thread.host)), 0)
    if not by_ns:
        return thread
    shift = np.array([by_ns, 0, 0], np.int64)
    samples = replace(thread.samples, time=thread.samples.time + by_ns)
    return replace(thread, samples=samples, ticks=thread.ticks + shift, moved=thread.moved + shift)
