"""Files of a run -> one `Trace`: every source reads its own, `assemble` puts them together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from itertools import islice
from os import PathLike
from pathlib import Path

from vanidl import readers
from vanidl.dataset.locate import DataOptions, read_user_data
from vanidl.errors import InputError
from vanidl.formatting.from_logs import clean_path
from vanidl.formatting.units import plural
from vanidl.merge import copies
from vanidl.merge import steps as merge_steps
from vanidl.merge.assemble import LOWER_BOUNDS, Options, assemble
from vanidl.merge.ceilings import left_out
from vanidl.merge.fetches import with_trainers
from vanidl.merge.jobs import Group, choose, group, hosts_apart
from vanidl.merge.profiles import without_bare_loops
from vanidl.merge.states import states_on_clock
from vanidl.merge.tracers import traced_once
from vanidl.model.file_kinds import parse_rules
from vanidl.model.trace import Trace
from vanidl.model.warnings import UNUSABLE, Notice
from vanidl.readers import ceiling_json, discover, memory_looks, run_json
from vanidl.readers.discover import Found
from vanidl.readers.format import Progress, Reading, Records
from vanidl.readers.records import CounterFile, ProfileTrace, TracerLog

_MOST_NAMED = 100
"""Warnings of a kind that name a file each; a hundred thousand files are one job, too."""
_EMPTY_FOR, _MOST_REASONS = ("steps_incomplete", "recording_stopped", "recording"), 3
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
    return trace_of(discover.find(Path(path)), inputs, progress, executor=executor)


def trace_of(
    found: Found,
    inputs: Inputs,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Trace:
    """The trace of the run in files that were found.

    Args:
        found: the files.
        inputs: what else to read, and what the user knows.
        progress: called with every file.
        executor: its workers read many logs; None: this process does.

    Raises:
        InputError, SeveralJobsError, UsageError: as `read_trace`.
    """
    rules = parse_rules(inputs.kind_rules)
    reading = Reading(progress or _no_progress, executor, inputs.wait_names)
    read = _read(found, inputs, reading)
    if not read.logs and not read.profiles:
        raise InputError(_nothing_usable(found, read.notices, _not_named(reading)))
    chosen = choose(group(read.logs, read.profiles), inputs.job_ids)
    once, both = traced_once(chosen.logs)
    chosen = replace(chosen, logs=once)
    counted = {path: file for one in read.traced for path, file in one.counters.items()}
    notices = [*read.notices, *both, *_losses(chosen, counted)]
    if apart := hosts_apart(chosen.logs):
        why = "so the run time spans what lies between, and times of one say nothing of the other"
        notices.append(Notice("clock_unverified", f"{apart}, {why}."))
    options = Options(rules, inputs.clock_offset_s)
    steps = read.steps
    trace = assemble(chosen, counted, notices, options, steps.durations, steps.events)
    recordings = {profile.recording for profile in chosen.profiles}
    trace = replace(
        trace,
        steps_counted=merge_steps.counted_steps(steps, chosen.profiles),
        benchmarks=tuple(
            replace(b, folder=clean_path(b.folder))
            for b in steps.benchmarks
            if b.folder in recordings
        ),
        states=states_on_clock(steps.states, trace),
    )
    of_files = [*(log.path for log in chosen.logs), *(p.path for p in chosen.profiles)]
    trace = _with_record(trace, read.records.of_all(of_files))
    return _with_ceiling(_with_user_data(trace, inputs), found)


def trace_of_logs(logs: Sequence[TracerLog]) -> Trace:
    """The trace of logs of one job that are read already.

    Raises:
        SeveralJobsError: they are of unrelated jobs.
    """
    chosen = choose(group(logs, []), ())
    counted = {log.path: log.counters for log in logs if log.counters is not None}
    return assemble(chosen, counted, _losses(chosen, counted))


@dataclass(frozen=True, slots=True)
class _Read:
    """What the files say, each process and time once."""

    logs: Sequence[TracerLog]
    profiles: Sequence[ProfileTrace]
    traced: Sequence[Records]  # of the formats that record I/O
    steps: merge_steps.StepSources
    notices: Sequence[Notice]
    records: run_json.Records


def _read(found: Found, inputs: Inputs, reading: Reading) -> _Read:
    records, unusable = run_json.gather(found.run_records)
    found, ceilings = left_out(found, records)
    many = copies.many_logs(found)
    once, doubled = copies.distinct(found, later=many)
    traced = merge_steps.read_formats([once], reading, traces_io=True)
    every = [run_json.complete(log, records) for one in traced for log in one.logs]
    every, doubled_logs = copies.distinct_logs(every, found, many)
    logs, other_logs = copies.most_complete_logs(every)
    offsets = (one.utc_offset_s for one in traced if one.utc_offset_s is not None)
    reading = replace(reading, utc_offset_s=next(offsets, 0))
    steps = merge_steps.read(once, inputs.steps, reading)
    logs = with_trainers(logs, steps.profiles)
    own = _own_profiles((p for one in traced for p in one.profiles), logs, steps.profiles)
    told = without_bare_loops([*steps.profiles, *own])
    profiles, other_profiles = copies.most_complete_profiles(told)
    notices = [*_unread(found, reading), *doubled, *doubled_logs, *other_logs, *other_profiles]
    notices += [*unusable, *ceilings, *run_json.losses(records)]
    notices += [*(n for one in traced for n in one.notices)]
    notices += _without_seen(steps.notices, logs)
    return _Read(logs, profiles, traced, steps, notices, records)


def _without_seen(notices: Iterable[Notice], logs: Sequence[TracerLog]) -> Iterator[Notice]:
    """The notices without those of reads that the tracer of the run saw after all."""
    every_call = any(log.tracer == "vanidl" for log in logs)
    return (n for n in notices if not (every_call and n.code == "files_loaded"))


def _with_user_data(trace: Trace, inputs: Inputs) -> Trace:
    """The trace with what the user states about its data, and what opening them showed."""
    user_data, notices = read_user_data(trace, inputs.data)
    return replace(trace, user_data=user_data, warnings=(*trace.warnings, *notices))


def _with_record(trace: Trace, record: run_json.RunRecord | None) -> Trace:
    """The trace with what the recorder knows of its command: how it ended, and more without tracer.

    Without one the first call of a loader is the first that is known of the run by its files.
    """
    if record is None:
        return trace
    job = trace.job
    if record.tracer == run_json.NO_TRACER:
        job = replace(
            job,
            id=record.id,
            command=job.command or run_json.command_of(record),
            start_ns=min(job.start_ns, record.start_ns),
            end_ns=max(job.end_ns, record.end_ns),
        )
    return replace(trace, job=job, ending=record.ending)


def _with_ceiling(trace: Trace, found: Found) -> Trace:
    """The trace with what `vanidl ceiling` measured of the run, and with its memory."""
    ceiling, notices = ceiling_json.gather(found.run_records)
    memory, unreadable = memory_looks.gather(found.run_records)
    warnings = (*trace.warnings, *notices, *unreadable)
    return replace(trace, ceiling=ceiling, memory=memory, warnings=warnings)


def _own_profiles(
    marked: Iterable[ProfileTrace], logs: Sequence[TracerLog], profiles: Sequence[ProfileTrace]
) -> list[ProfileTrace]:
    """A tracer's profiles of the processes that have none of a profiler, which says more."""
    profiled = {p.pid for p in profiles if not p.marks_loop}
    return [run_json.complete_profile(p, logs) for p in marked if p.pid not in profiled]


def _no_progress(what: str, done: int, total: int) -> None:
    """The library is silent unless asked."""


def _unread(found: Found, reading: Reading) -> Iterator[Notice]:
    """Folders and files that could not be read."""
    for path in found.unreadable[:_MOST_NAMED]:
        message = f"{path}: this folder cannot be listed; check its permissions{_LEFT_OUT}"
        yield Notice("unreadable", message)
    for error in islice(reading.unreadable.values(), _MOST_NAMED):
        yield Notice("unreadable", f"{error}{_LEFT_OUT}")
    if more := _not_named(reading):
        message = f"and {plural(more, 'more file')} that could not be read: see vanidl check"
        yield Notice("unreadable", f"{message}{_LEFT_OUT}")


def _not_named(reading: Reading) -> int:
    """How many files that could not be read one warning stands for."""
    return max(0, len(reading.unreadable) - _MOST_NAMED)


def _losses(chosen: Group, counted: dict[str, CounterFile]) -> list[Notice]:
    """What the chosen files lost; of thousands the first, and how many more."""
    found = list(_every_loss(chosen, counted))
    more = len(found) - _MOST_NAMED
    if more <= 0:
        return found
    message = f"and {plural(more, 'more loss', 'more losses')} of this kind: see vanidl check"
    return [*found[:_MOST_NAMED], Notice("damaged", f"{message}. {LOWER_BOUNDS}")]


def _every_loss(chosen: Group, counted: dict[str, CounterFile]) -> Iterator[Notice]:
    for log in chosen.logs:
        losses = counted[log.path].losses if log.path in counted else ()
        for loss in losses:
            yield Notice("damaged", f"{log.path}: {loss}. {LOWER_BOUNDS}")
    for profile in chosen.profiles:
        for loss in profile.losses:
            yield Notice("damaged", f"{profile.path}: {loss}. {LOWER_BOUNDS}")
        for loss in profile.slight:
            yield Notice("damaged", f"{profile.path}: {loss}. The rest is used.", "info")


def _reasons(notices: Sequence[Notice]) -> str:
    """What the recording itself says of why it may be empty, and a blank."""
    said = [n.message for code in _EMPTY_FOR for n in notices if n.code == code]
    return "".join(f"{message} " for message in said[:_MOST_REASONS])


def _nothing_usable(found: Found, notices: Sequence[Notice], not_named: int) -> str:
    reasons = [n.message.removesuffix(_LEFT_OUT) for n in notices if n.code in UNUSABLE]
    if len(reasons) == 1:
        return reasons[0]
    if reasons:
        files = len(reasons) + max(0, not_named - 1)
        return f"{found.root}: none of {files:,} files could be read; the first: {reasons[0]}"
    recorded = run_json.gather(found.run_records)[0].of_folder
    if recorded:
        ending = recorded[-1][1].ending
        error = f": {ending.last_error}" if ending.last_error else ""
        return (
            f"{found.root}: expected I/O or training steps of the recorded command (exit status "
            f"{ending.exit_status}{error}), found none. {_reasons(notices)}See what it printed "
            "and record it again; --wait names iterators that are not known."
        )
    titles = ", ".join(known.title for known in readers.FORMATS if known.traces_io)
    return (
        f"{found.root}: expected {titles} or training steps with their times, found other files "
        "of a run only (step tables without times, event files without steps, profiles of other "
        "tools). Add the folder with the logs."
    )
