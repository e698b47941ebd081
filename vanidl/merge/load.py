"""Files of a run -> one `Trace`: every source reads its own, `assemble` puts them together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TypeVar

from vanidl.dataset.locate import DataOptions, read_user_data
from vanidl.errors import InputError
from vanidl.merge import steps as merge_steps
from vanidl.merge.assemble import LOWER_BOUNDS, Options, assemble
from vanidl.merge.jobs import Group, choose, group
from vanidl.model.file_kinds import parse_rules
from vanidl.model.trace import Notice, Trace
from vanidl.parallel.batches import batches
from vanidl.parallel.executors import shared_out
from vanidl.parallel.workers import children
from vanidl.readers import discover, run_json
from vanidl.readers.darshan import library
from vanidl.readers.darshan import log as darshan_log
from vanidl.readers.dftracer import run, trace_file
from vanidl.readers.discover import Found
from vanidl.readers.records import CounterFile, ProfileTrace, TracerLog
from vanidl.readers.xprof import start_time

Piece = TypeVar("Piece")

_LEFT_OUT = ". Nothing of it is in this report."
_LOGS = "Darshan logs"
_BATCH = 16  # logs that a worker reads at a time, of a cluster
_HERE = 128  # the same of this machine
_BATCH_NBYTES = 8 << 20  # and not more than that, but for a log that is larger itself
_MANY = 512  # logs that are worth starting workers on this machine

Progress = Callable[[str, int, int], None]
"""Called with (what is read, how many done, how many in all)."""


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
    pending: library.PendingCounters | None = None,
    executor: Executor | None = None,
) -> Trace:
    """The trace of the run in files that were found.

    Args:
        found: the files.
        inputs: what else to read, and what the user knows.
        progress: told of every file.
        pending: counters that Darshan's library already reads.
        executor: its workers read the Darshan logs; None: this process does.

    Raises:
        InputError, SeveralJobsError, UsageError: as `read_trace`.
    """
    rules = parse_rules(inputs.kind_rules)
    notices = list(_unread(found))
    every_log = [*found.darshan, *found.darshan_partial]
    read = _Reader(progress or _no_progress, notices)
    logs = read.logs(every_log, executor)
    counting = _counting(logs, pending)
    traced = run.combine(read.all("DFTracer traces", trace_file.read_file, found.dftracer))
    records, unusable = run_json.gather(found.run_records)
    logs = [run_json.complete(log, records) for log in (*logs, *traced.logs)]
    offset_s = start_time.utc_offset_s((log.path, log.start_ns) for log in logs)
    known = merge_steps.Known(inputs.wait_names, offset_s)
    steps = merge_steps.read(found, inputs.steps, known, read)
    profiles = [*steps.profiles, *_own_profiles(traced.profiles, logs, steps.profiles)]
    notices += (*unusable, *run_json.losses(records), *traced.notices, *steps.notices)
    if not logs and not profiles:
        raise InputError(_nothing_usable(found, notices))
    chosen = choose(group(logs, profiles), inputs.job_ids)
    counted = counting() | {p: CounterFile(c) for p, c in traced.counters.items()}
    notices += _losses(chosen, counted)
    options = Options(rules, inputs.clock_offset_s)
    trace = assemble(chosen, counted, notices, options, steps.durations, steps.events)
    return _with_user_data(trace, inputs)


def _with_user_data(trace: Trace, inputs: Inputs) -> Trace:
    """The trace with what the user states about its data, and what opening them showed."""
    user_data, notices = read_user_data(trace, inputs.data)
    return replace(trace, user_data=user_data, warnings=(*trace.warnings, *notices))


def _counting(
    logs: Sequence[TracerLog], pending: library.PendingCounters | None
) -> Callable[[], dict[str, CounterFile]]:
    """Starts Darshan's library on the counters that need it; the function waits for them."""
    mine = {log.path: log.counters for log in logs if log.counters is not None}
    others = [log.path for log in logs if log.counters is None]
    asked = set(pending.paths) if pending is not None else set()
    started = library.start_counters([path for path in others if path not in asked])
    known = [started] if pending is None else [started, pending]
    return lambda: {path: file for one in known for path, file in one.result().items()} | mine


def _own_profiles(
    marked: Iterable[ProfileTrace], logs: Sequence[TracerLog], profiles: Sequence[ProfileTrace]
) -> list[ProfileTrace]:
    """A tracer's profiles of the processes that have none of a profiler, which says more."""
    profiled = {p.pid for p in profiles}
    return [run_json.complete_profile(p, logs) for p in marked if p.pid not in profiled]


def _no_progress(what: str, done: int, total: int) -> None:
    """The library is silent unless asked."""


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads files one by one; a file that cannot be read becomes a notice."""

    progress: Progress
    notices: list[Notice]

    def all(self, what: str, read: Callable[[Path], Piece], paths: Sequence[Path]) -> list[Piece]:
        """The pieces of all readable paths."""
        pieces = []
        for i, path in enumerate(paths):
            self.progress(what, i, len(paths))
            try:
                pieces.append(read(path))
            except InputError as error:
                self.notices.append(Notice("unreadable", f"{error}{_LEFT_OUT}"))
        return pieces

    def logs(self, paths: Sequence[Path], executor: Executor | None) -> list[TracerLog]:
        """What the Darshan logs say, read here or by the workers of an executor, in order."""
        if executor is not None:
            return self._shared_out(paths, executor, _BATCH)
        if len(paths) < _MANY:
            return self.all(_LOGS, darshan_log.read_log, paths)
        with children() as workers:
            return self._shared_out(paths, workers, _HERE)

    def _shared_out(self, paths: Sequence[Path], executor: Executor, size: int) -> list[TracerLog]:
        found: dict[Path, TracerLog | InputError] = {}
        some_each = list(_batches(paths, size))
        for some, pieces in shared_out(darshan_log.read_logs, some_each, executor, _killed):
            found |= zip(some, pieces, strict=True)
            self.progress(_LOGS, len(found), len(paths))
        lost = [p for path in paths if isinstance(p := found[path], InputError)]
        self.notices.extend(Notice("unreadable", f"{one}{_LEFT_OUT}") for one in lost)
        return [p for path in paths if isinstance(p := found[path], TracerLog)]


def _batches(paths: Sequence[Path], size: int) -> Iterator[list[Path]]:
    """The paths in lists of so many at most, shorter ones of large logs."""

    def weight(path: Path) -> int:
        nbytes = path.stat().st_size if path.exists() else 0
        return max(nbytes * size, _BATCH_NBYTES)

    return batches(paths, weight, _BATCH_NBYTES * size)


def _killed(path: Path) -> InputError:
    return InputError(f"{path}: the worker that read it ended twice; read it with `vanidl check`")


def _unread(found: Found) -> Iterator[Notice]:
    for path in found.unreadable:
        message = f"{path}: this folder cannot be listed; check its permissions{_LEFT_OUT}"
        yield Notice("unreadable", message)


def _losses(chosen: Group, counted: dict[str, CounterFile]) -> Iterator[Notice]:
    for log in chosen.logs:
        losses = counted[log.path].losses if log.path in counted else ()
        for loss in losses:
            yield Notice("damaged", f"{log.path}: {loss}. {LOWER_BOUNDS}")
    for profile in chosen.profiles:
        for loss in profile.losses:
            yield Notice("damaged", f"{profile.path}: {loss}. {LOWER_BOUNDS}")


def _nothing_usable(found: Found, notices: Sequence[Notice]) -> str:
    unusable = ("unreadable", "processes_missing")
    reasons = [n.message.removesuffix(_LEFT_OUT) for n in notices if n.code in unusable]
    if len(reasons) == 1:
        return reasons[0]
    if reasons:
        return f"{found.root}: none of {len(reasons)} files could be read; the first: {reasons[0]}"
    return (
        f"{found.root}: expected Darshan logs, DFTracer traces or training steps with their "
        "times, found other files of a run only (step tables without times, event files without "
        "steps, profiles of other tools). Add the folder with the logs."
    )
