"""`open_run`: a path in, everything known about the run out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from vanidl import frames, step_sources
from vanidl.analyses import Results, analyse
from vanidl.analyses.access import Access
from vanidl.analyses.balance import Balance
from vanidl.analyses.coverage import Coverage
from vanidl.analyses.dataset import Dataset
from vanidl.analyses.files import FileTotals
from vanidl.analyses.overlap import Overlap
from vanidl.analyses.phases import Phases
from vanidl.analyses.sizes import Sizes
from vanidl.analyses.steps import Steps
from vanidl.analyses.summary import Summary
from vanidl.analyses.timeline import Timeline
from vanidl.assemble import LOWER_BOUNDS, Options, assemble
from vanidl.datafolder import DataOptions, told
from vanidl.errors import InputError
from vanidl.filekinds import parse_rules
from vanidl.grouping import Group, choose, group
from vanidl.report.headline import headline
from vanidl.selection import Selection
from vanidl.sources import counters, darshan, discover
from vanidl.sources.discover import Found
from vanidl.sources.pieces import CounterFile
from vanidl.trace import Notice, Trace

if TYPE_CHECKING:
    import pandas

Piece = TypeVar("Piece")

_LEFT_OUT = ". Nothing of it is in this report."

Progress = Callable[[str, int, int], None]
"""Called with (what is read, how many done, how many in all)."""


@dataclass(frozen=True)
class Run:
    """One run: its trace and every result, all frozen.

    `run.summary`, `run.overlap` and so on are the results of the same name;
    `run.frame(name)` gives pandas frames.
    """

    trace: Trace
    results: Results
    selection: Selection

    @property
    def coverage(self) -> Coverage:
        """What the numbers rest on, and what they miss."""
        return self.results.coverage

    @property
    def summary(self) -> Summary:
        """How much I/O there was and how long it took."""
        return self.results.summary

    @property
    def sizes(self) -> Sizes:
        """Exact transfer sizes and histograms."""
        return self.results.sizes

    @property
    def timeline(self) -> Timeline | None:
        """Bytes and operations over time."""
        return self.results.timeline

    @property
    def access(self) -> Access | None:
        """Where operations start relative to the one before."""
        return self.results.access

    @property
    def files(self) -> FileTotals:
        """Traffic of each file, kind and mount point."""
        return self.results.files

    @property
    def balance(self) -> Balance | None:
        """Load over ranks."""
        return self.results.balance

    @property
    def steps(self) -> Steps | None:
        """Profiled steps."""
        return self.results.steps

    @property
    def overlap(self) -> Overlap | None:
        """Whether I/O is hidden behind compute or exposed."""
        return self.results.overlap

    @property
    def dataset(self) -> Dataset | None:
        """How the job used its dataset."""
        return self.results.dataset

    @property
    def phases(self) -> Phases | None:
        """Start-up, training, epochs, checkpoints, tail."""
        return self.results.phases

    @property
    def headline(self) -> str:
        """The answer in words, the same as in the report."""
        return str(headline(self.trace, self.results))

    def select(self, selection: Selection) -> Run:
        """The same run through another filter."""
        return Run(self.trace, analyse(self.trace, selection), selection)

    def frame(self, name: str) -> pandas.DataFrame:
        """One result as a pandas frame; names: see `vanidl.frames.FRAMES`.

        Raises:
            UsageError: there is no frame of that name.
        """
        return frames.frame(name, self.trace, self.results, self.selection)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What to read besides the run's path, and what the user knows about it."""

    steps: tuple[str, ...] = ()  # further PATH[:TAG] of profiler output and event files
    job_ids: tuple[str, ...] = ()
    wait_names: tuple[str, ...] = ()  # regular expressions of spans that are input waits
    kind_rules: tuple[str, ...] = ()  # "GLOB=KIND"
    clock_offset_s: float | None = None
    data: DataOptions = field(default_factory=DataOptions)


def open_run(
    path: str | PathLike[str],
    *,
    selection: Selection | None = None,
    inputs: Inputs | None = None,
    progress: Progress | None = None,
) -> Run:
    """Reads a log file, or a folder of logs and profiler output, and analyses it.

    Raises:
        InputError: nothing usable was found; the message says what to do.
        SeveralJobsError: the folder holds unrelated jobs.
        UsageError: an option names what is not there.
    """
    trace = read_trace(path, inputs or Inputs(), progress)
    chosen = selection or Selection()
    return Run(trace, analyse(trace, chosen), chosen)


def read_trace(
    path: str | PathLike[str], inputs: Inputs, progress: Progress | None = None
) -> Trace:
    """The trace of the run at a path, not yet analysed. Raises as `open_run`."""
    rules = parse_rules(inputs.kind_rules)
    found = discover.find(Path(path))
    notices = list(_unread(found))
    every_log = [*found.darshan, *found.darshan_partial]
    pending = counters.start_counters([str(p) for p in every_log])
    read = _Reader(progress or _no_progress, notices)
    logs = read.all("Darshan logs", darshan.read_log, every_log)
    steps = step_sources.read(found, inputs.steps, inputs.wait_names, read)
    notices += steps.notices
    if not logs and not steps.profiles:
        raise InputError(_nothing_usable(found, notices))
    chosen = choose(group(logs, steps.profiles), inputs.job_ids)
    counted = pending.result()
    notices += _losses(chosen, counted)
    options = Options(rules, inputs.clock_offset_s)
    trace = assemble(chosen, counted, notices, options, steps.durations)
    known, more = told(trace, inputs.data)
    return replace(trace, told=known, warnings=(*trace.warnings, *more))


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
    reasons = [n.message.removesuffix(_LEFT_OUT) for n in notices if n.code == "unreadable"]
    if len(reasons) == 1:
        return reasons[0]
    if reasons:
        return f"{found.root}: none of {len(reasons)} files could be read; the first: {reasons[0]}"
    return (
        f"{found.root}: expected Darshan logs or training steps with their times, found other "
        "files of a run only (step tables without times, event files without steps, profiles of "
        "other tools). Add the folder with the Darshan logs."
    )
