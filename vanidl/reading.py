"""Files of a run -> one `Trace`: every source reads its own, `assemble` puts them together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TypeVar

from vanidl import step_sources
from vanidl.assemble import LOWER_BOUNDS, Options, assemble
from vanidl.datafolder import DataOptions, told
from vanidl.errors import InputError
from vanidl.filekinds import parse_rules
from vanidl.grouping import Group, choose, group
from vanidl.sources import counters, darshan, dftracer, discover, pfw, run_record
from vanidl.sources.discover import Found
from vanidl.sources.pieces import CounterFile, ProfileTrace, TracerLog
from vanidl.trace import Notice, Trace

Piece = TypeVar("Piece")

_LEFT_OUT = ". Nothing of it is in this report."

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
    path: str | PathLike[str], inputs: Inputs, progress: Progress | None = None
) -> Trace:
    """The trace of the run at a path, not yet analysed.

    Raises:
        InputError: nothing usable was found; the message says what to do.
        SeveralJobsError: the folder holds unrelated jobs.
        UsageError: an option names what is not there.
    """
    rules = parse_rules(inputs.kind_rules)
    found = discover.find(Path(path))
    notices = list(_unread(found))
    every_log = [*found.darshan, *found.darshan_partial]
    pending = counters.start_counters([str(p) for p in every_log])
    read = _Reader(progress or _no_progress, notices)
    logs = read.all("Darshan logs", darshan.read_log, every_log)
    traced = dftracer.combine(read.all("DFTracer traces", pfw.read_file, found.dftracer))
    records, unusable = run_record.gather(found.run_records)
    logs = [run_record.complete(log, records) for log in (*logs, *traced.logs)]
    steps = step_sources.read(found, inputs.steps, inputs.wait_names, read)
    profiles = [*steps.profiles, *_own_profiles(traced.profiles, logs, steps.profiles)]
    notices += (*unusable, *run_record.losses(records), *traced.notices, *steps.notices)
    if not logs and not profiles:
        raise InputError(_nothing_usable(found, notices))
    chosen = choose(group(logs, profiles), inputs.job_ids)
    counted = pending.result() | {p: CounterFile(c) for p, c in traced.counters.items()}
    notices += _losses(chosen, counted)
    options = Options(rules, inputs.clock_offset_s)
    trace = assemble(chosen, counted, notices, options, steps.durations)
    known, more = told(trace, inputs.data)
    return replace(trace, told=known, warnings=(*trace.warnings, *more))


def _own_profiles(
    marked: Iterable[ProfileTrace], logs: Sequence[TracerLog], profiles: Sequence[ProfileTrace]
) -> list[ProfileTrace]:
    """A tracer's profiles of the processes that have none of a profiler, which says more."""
    profiled = {p.pid for p in profiles}
    return [run_record.complete_profile(p, logs) for p in marked if p.pid not in profiled]


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
