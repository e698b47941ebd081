"""Files of a run -> one `Trace`: discover, read, jobs, processes, operations, clocks.

`build_trace` is the whole way, `_read_files` its first half (what the files say, each process and
time once), `assemble` its second (the records of one run on one clock). Paths, processes and rows
are numbered in an order that does not depend on the order in which the logs were read, so merging
in any order gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import field, replace
from itertools import islice
from os import PathLike
from pathlib import Path

from vanidl.errors import InputError
from vanidl.formatting.from_logs import clean_path
from vanidl.formatting.names import elided
from vanidl.formatting.units import plural
from vanidl.merge import copies, training_steps
from vanidl.merge.clocks.log_clock import LogClock, clock_processes, lay_on_one_clock
from vanidl.merge.counters import (
    Counters,
    collect_calls_by_kind,
    collect_heatmaps,
    collect_metadata_calls,
    collect_mpi_times,
    collect_stripes,
    stack_counters,
)
from vanidl.merge.files import FileCodes, describe_files, number_files
from vanidl.merge.jobs import Group, choose_run, find_hosts_apart, group_runs
from vanidl.merge.processes import ProcessTable, identify_processes
from vanidl.model.file_kinds import KindRule, parse_rules, profiler_rules
from vanidl.model.parts import Parts
from vanidl.model.run_facts import DataOptions, describe_ending
from vanidl.model.trace import (
    MAX_PART_ROWS,
    OBJECT,
    Job,
    LogState,
    Process,
    Trace,
    UndatedSteps,
    concatenate_spans,
)
from vanidl.model.warnings import UNUSABLE, Notice
from vanidl.readers import discover, registry, run_folder
from vanidl.readers.discover import Found
from vanidl.readers.format import Progress, Reading, Records
from vanidl.readers.records import (
    CounterFile,
    EventRecords,
    ProfileTrace,
    StepDurations,
    TracerLog,
)
from vanidl.schema.dataclass import dataclass

LOWER_BOUNDS = (
    "What was whole is used, so its numbers are lower bounds: copy the file again, or record again."
)
"""What damage means and what to do about it."""

_MOST_NAMED = 100
"""Warnings of a kind that name a file each; a hundred thousand files are one job, too."""
_EMPTY_FOR, _MOST_REASONS = ("steps_incomplete", "recording_stopped", "recording"), 3
_MOST_COMMAND = 200  # characters of it in a message
"""Warnings that say why a recording may be empty, and how many of them are repeated."""

_LEFT_OUT = ". Nothing of it is in this report."


@dataclass(frozen=True, slots=True)
class Inputs:
    """What to read besides the run's path, and what the user knows about it."""

    steps: tuple[str, ...] = ()  # further PATH[:TAG] of profiler output and event files
    job_ids: tuple[str, ...] = ()
    wait_names: tuple[str, ...] = ()  # regular expressions of spans that are input waits
    kind_rules: tuple[str, ...] = ()  # "GLOB=KIND"
    clock_offset_s: float | None = None
    data: DataOptions = field(default_factory=DataOptions)


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


def read_trace(
    path: str | PathLike[str],
    inputs: Inputs,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Trace:
    """The trace of the run at a path, not yet analysed; an executor's workers read the logs.

    Raises:
        InputError: nothing usable was found; the message says what to do.
        SeveralJobsError: the folder holds unrelated jobs.
        UsageError: an option names what is not there.
    """
    return build_trace(discover.find(Path(path)), inputs, progress, executor=executor)


def build_trace(
    found: Found,
    inputs: Inputs,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Trace:
    """The trace of the run in files that were found.

    Args:
        found: the files.
        inputs: what else to read, and what the user knows.
        progress: called with every file; None: silent.
        executor: its workers read many logs; None: this process does.

    Raises:
        InputError, SeveralJobsError, UsageError: as `read_trace`.
    """
    rules = parse_rules(inputs.kind_rules)  # before anything is read: it may be a slip

    # What the files say.
    reading = Reading(progress or (lambda *_: None), executor, inputs.wait_names)
    read = _read_files(found, inputs, reading)
    if not read.logs and not read.profiles:
        raise InputError(_explain_nothing_usable(found, read.notices, _count_unnamed(reading)))

    # One run of what may be several, and each of its processes by one tracer.
    run = choose_run(group_runs(read.logs, read.profiles), inputs.job_ids)
    logs, notices_of_tracers = copies.count_processes_once(run.logs)
    run = replace(run, logs=logs)
    counters = {path: file for one in read.traced for path, file in one.counters.items()}
    notices = [*read.notices, *notices_of_tracers, *_tell_losses(run, counters)]
    if apart := find_hosts_apart(run.logs):
        why = "so the run time spans what lies between, and times of one say nothing of the other"
        notices.append(Notice("clock_unverified", f"{apart}, {why}."))

    # Its records on one clock.
    options = Options(rules, inputs.clock_offset_s)
    steps = read.steps
    trace = assemble(run, counters, notices, options, steps.durations, steps.events)

    # What lies beside logs and profiles: event files, benchmarks, the data, the recorder.
    states = steps.states
    if len(states):
        from vanidl.merge.profiles import lay_states

        states = lay_states(states, trace)
    recordings = {profile.recording for profile in run.profiles}
    trace = replace(
        trace,
        steps_counted=training_steps.count_steps(steps, run.profiles),
        benchmarks=tuple(
            replace(each, folder=clean_path(each.folder))
            for each in steps.benchmarks
            if each.folder in recordings
        ),
        states=states,
    )
    paths = [*(log.path for log in run.logs), *(profile.path for profile in run.profiles)]
    if inputs.data != DataOptions():
        from vanidl.dataset.locate import read_user_data

        user_data, unopened = read_user_data(trace, inputs.data)
        trace = replace(trace, user_data=user_data, warnings=(*trace.warnings, *unopened))
    return _add_recorder_facts(trace, found, read.records.of_all(paths))


def build_trace_of_logs(logs: Sequence[TracerLog]) -> Trace:
    """The trace of logs of one job that are read already.

    Raises:
        SeveralJobsError: they are of unrelated jobs.
    """
    run = choose_run(group_runs(logs, []), ())
    counters = {log.path: log.counters for log in logs if log.counters is not None}
    return assemble(run, counters, _tell_losses(run, counters))


@dataclass(frozen=True, slots=True)
class _FileContents:
    """What the files say, each process and time once."""

    logs: Sequence[TracerLog]
    profiles: Sequence[ProfileTrace]
    traced: Sequence[Records]  # of the formats that record I/O
    steps: training_steps.StepSources
    notices: Sequence[Notice]
    records: run_folder.Records


def _read_files(found: Found, inputs: Inputs, reading: Reading) -> _FileContents:
    # What recorders left says which files are of training; of the others none is read.
    records, unusable = run_folder.gather_records(found.run_records)
    found, of_ceilings = _leave_out_ceilings(found, records)
    many = copies.kinds_with_many_logs(found)
    distinct, copied = copies.drop_copies(found, later=many)

    # Logs of I/O, of each process the most complete one.
    traced = training_steps.read_formats([distinct], reading, traces_io=True)
    every = [run_folder.complete_log(log, records) for one in traced for log in one.logs]
    every, copied_logs = copies.drop_copied_logs(every, found, many)
    logs, left_logs = copies.most_complete_logs(every)

    # Profiles, event files and what else tells of steps: local times are those of the logs.
    offsets = (one.utc_offset_s for one in traced if one.utc_offset_s is not None)
    reading = replace(reading, utc_offset_s=next(offsets, 0))
    steps = training_steps.read_step_sources(distinct, inputs.steps, reading)
    marked = [profile for one in traced for profile in one.profiles]
    profiles, left_profiles = list[ProfileTrace](), list[Notice]()
    if steps.profiles or marked:
        from vanidl.merge.profiles import choose_profiles

        logs, profiles, left_profiles = choose_profiles(logs, steps.profiles, marked)

    notices = [*_tell_unread(found, reading), *copied, *copied_logs, *left_logs, *left_profiles]
    notices += [*unusable, *of_ceilings, *run_folder.warn_of_losses(records, logs)]
    notices += [notice for one in traced for notice in one.notices]
    # Reads that hooks missed are no loss where a tracer of every call was there.
    every_call = any(log.tracer == "vanidl" for log in logs)
    notices += [n for n in steps.notices if not (every_call and n.code == "files_loaded")]
    return _FileContents(logs, profiles, traced, steps, notices, records)


def _leave_out_ceilings(found: Found, records: run_folder.Records) -> tuple[Found, list[Notice]]:
    """The files without runs whose batches came from memory (no training), a notice for each."""
    folders = records.ceilings
    if not folders:
        return found, []
    files = {
        kind: tuple(path for path in paths if not str(path.absolute()).startswith(folders))
        for kind, paths in found.files.items()
    }
    kept = replace(found, files={kind: paths for kind, paths in files.items() if paths})
    notices = [
        Notice(
            "ceiling_run",
            f"{folder}: expected a run of training, found one of vanidl ceiling, whose batches "
            "came from memory; give the RUN that it was measured against, which holds its result.",
            "info",
        )
        for folder in folders
    ]
    return kept, notices


def _add_recorder_facts(trace: Trace, found: Found, record: run_folder.RunRecord | None) -> Trace:
    """The trace with how the recorded command ended, its ceiling and its memory."""
    job = trace.job
    if record is not None and record.tracer == run_folder.NO_TRACER:
        # Else the first call of a loader is the first that is known of the run by its files.
        job = replace(
            job,
            id=record.id,
            command=job.command or run_folder.get_command(record),
            start_ns=min(job.start_ns, record.start_ns),
            end_ns=max(job.end_ns, record.end_ns),
        )
    ceiling, of_ceiling = run_folder.gather_ceiling(found.run_records)
    memory, of_memory = run_folder.gather_memory(found.run_records)
    return replace(
        trace,
        job=job,
        ending=trace.ending if record is None else record.ending,
        cores=trace.cores if record is None else record.cores,
        tracer_call_ns=None if record is None else record.tracer_call_ns,
        ceiling=ceiling,
        memory=memory,
        warnings=(*trace.warnings, *of_ceiling, *of_memory),
    )


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
    profiles = sorted(group.profiles, key=_order_of)

    # Who is who, and which of their spans are training steps.
    processes = identify_processes(logs, profiles)
    settled = training_steps.settle_steps(profiles, processes)
    profiles = settled.profiles

    # Operations by layer, process and time, and the clocks that they are evidence of.
    codes, io = number_files(logs, counters), Parts((), None)
    if any(log.operations for log in logs):
        from vanidl.merge.operations import merge_operations

        most, spilled = options.max_part_rows, options.spilled
        io = merge_operations(logs, processes, codes, most, spilled=spilled)
    log_clocks: Mapping[int, LogClock] = clock_processes(logs, processes, counters)
    alignment = None
    if profiles:
        from vanidl.merge.clocks.evidence import find_traced_processes
        from vanidl.merge.profiles import align_profiles

        traced = find_traced_processes(logs, processes, io, codes, log_clocks)
        given_ns = options.clock_offset_ns
        alignment = align_profiles(profiles, processes, logs, traced, events, given_ns)
        log_clocks = alignment.of_logs

    # Everything on one axis; what object storage was asked is on the system's clock already.
    placed_logs, rows = lay_on_one_clock(logs, processes, log_clocks)
    offsets = {n: clock.offset_ns for n, clock in log_clocks.items() if clock.offset_ns}
    run = _PlacedRun(
        logs=placed_logs,
        profiles=profiles,
        processes=processes,
        rows=rows,
        codes=codes,
        io=io.shifted(offsets, without=OBJECT),
    )

    undated, unmatched = list[UndatedSteps](), list[Notice]()
    if durations:
        from vanidl.merge.profiles import match_undated_steps

        undated, unmatched = match_undated_steps(durations, processes.rows)
    trace = replace(
        _describe_run(run, counters, options.kind_rules),
        step_durations=tuple(each for each in undated if len(each.step)),
        warnings=(
            *notices,
            *processes.notices,
            *settled.notices,
            *unmatched,
            *_tell_damage(logs),
            *(alignment.notices if alignment is not None else ()),
        ),
    )
    if alignment is None:
        return trace
    from vanidl.merge.profiles import add_profiles

    return add_profiles(trace, profiles, processes, alignment.clocks)


def _order_of(profile: ProfileTrace) -> tuple[str, int]:
    return profile.path, int(profile.start_ns[0]) if len(profile.start_ns) else 0


@dataclass(frozen=True, slots=True)
class _PlacedRun:
    """The records of one run on one clock."""

    logs: Sequence[TracerLog]
    profiles: Sequence[ProfileTrace]
    processes: ProcessTable  # as the logs say
    rows: tuple[Process, ...]  # of the table, with their starts moved
    codes: FileCodes
    io: Parts


def _describe_run(run: _PlacedRun, counters: Counters, kind_rules: Sequence[KindRule]) -> Trace:
    logs, profiles, processes = run.logs, run.profiles, run.processes
    # What several fields are made of: counters, rules for kinds of files, layers.
    tables = stack_counters(logs, counters, processes, run.codes)
    rules = (*kind_rules, *profiler_rules([p.written_as for p in profiles]))
    layers = {table.layer for log in logs for table in log.operations}
    return Trace(
        job=_describe_job(logs, profiles),
        processes=run.rows,
        files=describe_files(tuple(run.codes), logs, tables, run.io, rules, profiles),
        io=run.io,
        spans=concatenate_spans([], ()),
        counters=tables,
        logs=tuple(
            LogState(
                path=log.path,
                version=log.version,
                whole=log.whole,
                partial_layers=log.partial_layers,
                losses=log.losses,
                unread_modules=log.unread_modules
                + (counters[log.path].unread_modules if log.path in counters else ()),
            )
            for log in logs
        ),
        layers_traced=tuple(sorted(layers, reverse=True)),
        stripes=collect_stripes(logs, counters, run.codes),
        heatmaps=collect_heatmaps(logs, counters, processes),
        mpi=collect_mpi_times(logs, processes),
        metadata_calls=collect_metadata_calls(logs, processes, beside=False),
        calls=collect_calls_by_kind(logs, processes),
        object_calls=collect_metadata_calls(logs, processes, beside=True),
    )


def _describe_job(logs: Sequence[TracerLog], profiles: Sequence[ProfileTrace]) -> Job:
    if not logs:
        start = min(int(p.start_ns.min()) for p in profiles if len(p.start_ns))
        end = max(int(p.end_ns.max()) for p in profiles if len(p.end_ns))
        return Job(None, "", start, end, start_resolution_ns=1, tracer="")
    # A tracer's log describes the job better than one that lies beside it.
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


# What is said of files: that could not be read, that lost something, that are all of no use.


def _tell_unread(found: Found, reading: Reading) -> Iterator[Notice]:
    """Folders and files that could not be read."""
    for path in found.unreadable[:_MOST_NAMED]:
        message = f"{path}: this folder cannot be listed; check its permissions{_LEFT_OUT}"
        yield Notice("unreadable", message)
    for error in islice(reading.unreadable.values(), _MOST_NAMED):
        yield Notice("unreadable", f"{error}{_LEFT_OUT}")
    if more := _count_unnamed(reading):
        message = f"and {plural(more, 'more file')} that could not be read: see vanidl check"
        yield Notice("unreadable", f"{message}{_LEFT_OUT}")


def _count_unnamed(reading: Reading) -> int:
    """How many files that could not be read one warning stands for."""
    return max(0, len(reading.unreadable) - _MOST_NAMED)


def _tell_damage(logs: Sequence[TracerLog]) -> Iterator[Notice]:
    for log in logs:
        if not log.whole:
            yield Notice("damaged", f"{log.path}: {'; '.join(log.losses)}. {LOWER_BOUNDS}")


def _tell_losses(run: Group, counters: Mapping[str, CounterFile]) -> list[Notice]:
    """What the files of a run lost; of thousands the first, and how many more."""
    notices = []
    for log in run.logs:
        losses = counters[log.path].losses if log.path in counters else ()
        notices += [Notice("damaged", f"{log.path}: {loss}. {LOWER_BOUNDS}") for loss in losses]
    for profile in run.profiles:
        for loss in profile.losses:
            notices.append(Notice("damaged", f"{profile.path}: {loss}. {LOWER_BOUNDS}"))
        for loss in profile.slight:
            notices.append(Notice("damaged", f"{profile.path}: {loss}. The rest is used.", "info"))
    more = len(notices) - _MOST_NAMED
    if more <= 0:
        return notices
    message = f"and {plural(more, 'more loss', 'more losses')} of this kind: see vanidl check"
    return [*notices[:_MOST_NAMED], Notice("damaged", f"{message}. {LOWER_BOUNDS}")]


def _explain_nothing_usable(found: Found, notices: Sequence[Notice], unnamed: int) -> str:
    """Why there is no trace: files that cannot be read, an empty recording, other files only."""
    reasons = [n.message.removesuffix(_LEFT_OUT) for n in notices if n.code in UNUSABLE]
    if len(reasons) == 1:
        return reasons[0]
    if reasons:
        files = len(reasons) + max(0, unnamed - 1)
        return f"{found.root}: none of {files:,} files could be read; the first: {reasons[0]}"
    # A recorded command that did no I/O and trained nothing.
    recorded = run_folder.gather_records(found.run_records)[0].of_folder
    if recorded:
        record = recorded[-1][1]
        command = elided(run_folder.get_command(record), limit=_MOST_COMMAND)
        ended = describe_ending(record.ending) or "It ended with exit status 0."
        why_empty = [n.message for code in _EMPTY_FOR for n in notices if n.code == code]
        return (
            f"{found.root}: expected I/O or training steps of the recorded command {command}, "
            f"found none. {ended} "
            f"{''.join(f'{message} ' for message in why_empty[:_MOST_REASONS])}See what it printed "
            "and record it again; --wait names iterators that are not known."
        )
    # Logs of a tracer without any event.
    tracers = [known for known in registry.FORMATS if known.traces_io]
    titles = ", ".join(known.title for known in tracers)
    silent = [kind.title for known in tracers for kind in found.of(known)]
    if silent:
        return (
            f"{found.root}: expected a run, found no event in any {silent[0]}, as of a process "
            "that was stopped before it wrote one, or did nothing that is traced; record it again, "
            "and let each process end by itself (vanidl check says what is in each file)"
        )
    return (
        f"{found.root}: expected {titles} or training steps with their times, found other files "
        "of a run only (step tables without times, event files without steps, profiles of other "
        "tools). Add the folder with the logs."
    )
