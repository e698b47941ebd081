"""Files of a run -> one `Trace`: every source reads its own, `assemble` puts them together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TypeVar

from vanidl.assemble import Options, assemble
from vanidl.errors import InputError
from vanidl.filekinds import parse_rules
from vanidl.grouping import Group, choose, group
from vanidl.sources import counters, darshan, dftracer, discover, kineto, pfw, run_record
from vanidl.sources.counters import CounterFile
from vanidl.sources.discover import Found
from vanidl.sources.pieces import ProfileTrace, TracerLog
from vanidl.trace import Notice, Trace

Piece = TypeVar("Piece")

Progress = Callable[[str, int, int], None]
"""Called with (what is read, how many done, how many in all)."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What to read besides the run's path, and what the user knows about it."""

    steps: tuple[str, ...] = ()  # further paths with profiler output
    job_ids: tuple[str, ...] = ()
    wait_names: tuple[str, ...] = ()  # regular expressions of spans that are input waits
    kind_rules: tuple[str, ...] = ()  # "GLOB=KIND"
    clock_offset_s: float | None = None


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
    pending = counters.start_counters([str(p) for p in found.darshan])
    notices = list(_unread(found))
    read = _Reader(progress or _no_progress, notices)
    logs = read.all("Darshan logs", darshan.read_log, found.darshan)
    traced = dftracer.combine(read.all("DFTracer traces", pfw.read_file, found.dftracer))
    profiles = read.all(
        "profiler traces",
        lambda p: kineto.read_trace(p, wait_names=inputs.wait_names),
        [*found.profiler, *_profiler_output(inputs.steps)],
    )
    records, unusable = run_record.gather(found.run_records)
    notices += (*unusable, *run_record.losses(records), *traced.notices)
    logs = [run_record.complete(log, records) for log in (*logs, *traced.logs)]
    profiles += _own_profiles(traced.profiles, logs, profiles)
    if not logs and not profiles:
        raise InputError(_nothing_usable(found, notices))
    chosen = choose(group(logs, profiles), inputs.job_ids)
    counted = pending.result()
    notices += _losses(chosen, counted)
    sums = {path: file.layers for path, file in counted.items()} | dict(traced.counters)
    return assemble(chosen, sums, notices, Options(rules, inputs.clock_offset_s))


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
                self.notices.append(Notice("unreadable", str(error)))
        return pieces


def _profiler_output(paths: Iterable[str]) -> Iterator[Path]:
    for path in paths:
        found = discover.find(Path(path))
        if not found.profiler:
            raise InputError(
                f"--steps {path}: expected PyTorch profiler traces (.pt.trace.json, "
                ".pt.trace.json.gz), found none."
            )
        yield from found.profiler


def _unread(found: Found) -> Iterator[Notice]:
    for path in found.darshan_partial:
        message = f"{path}: a log that Darshan did not finish: its process is not in the report."
        yield Notice("unreadable", message)
    for path in found.unreadable:
        yield Notice("unreadable", f"{path}: this folder cannot be listed (permissions).")


def _losses(chosen: Group, counted: dict[str, CounterFile]) -> Iterator[Notice]:
    for log in chosen.logs:
        losses = counted[log.path].losses if log.path in counted else ()
        for loss in losses:
            yield Notice("damaged", f"{log.path}: {loss}")
    for profile in chosen.profiles:
        for loss in profile.losses:
            yield Notice("damaged", f"{profile.path}: {loss}")


def _nothing_usable(found: Found, notices: Sequence[Notice]) -> str:
    reasons = [n.message for n in notices if n.code in ("unreadable", "processes_missing")]
    if len(reasons) == 1:
        return reasons[0]
    if reasons:
        return f"{found.root}: none of {len(reasons)} files could be read; the first: {reasons[0]}"
    return (
        f"{found.root}: expected Darshan logs, DFTracer traces or PyTorch profiler traces, found "
        "other files of a run only (event files, profiles of other tools). Add the folder with "
        "the logs."
    )
