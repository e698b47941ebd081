"""Where training steps come from: which files to read, and which of them to use.

A profiler trace of a process wins over its event files, because it says more; one in which no
step was marked does not. Of several event files of one process the one with most steps is
used, and any that lies wholly before or after it; validation runs are not training steps, so
they are used only when asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vanidl import readers
from vanidl.errors import InputError, UsageError
from vanidl.merge import copies
from vanidl.model.benchmark import Benchmark
from vanidl.model.states import NO_STATES, States, join_states
from vanidl.model.trace import SpanKind
from vanidl.model.warnings import Notice
from vanidl.readers import discover
from vanidl.readers.discover import Found
from vanidl.readers.format import Format, Reading, Records
from vanidl.readers.records import (
    EventRecords,
    ProfileTrace,
    StepDurations,
    StepLog,
    same_host,
)

_EVALUATION = {"validation", "valid", "val", "evaluation", "eval", "test"}


@dataclass(frozen=True, slots=True)
class CountedSteps:
    """How many training steps the event file of one process stands for, and when they were."""

    first: ProfileTrace
    steps: int
    bounds: tuple[int, int]

    def of(self, profile: ProfileTrace) -> bool:
        """Whether the profile is of that process, at that time (clocks may differ by an hour)."""
        steps = profile.start_ns[profile.kind == SpanKind.STEP]
        if not len(steps) or not _same_process(self.first, profile):
            return False
        start, end = self.bounds
        return start - _HOUR_NS <= int(steps.min()) <= end + _HOUR_NS


_HOUR_NS = 3_600_000_000_000


@dataclass(frozen=True, slots=True)
class StepSources:
    """What profilers and event files say, ready to be put on the run's clock."""

    profiles: tuple[ProfileTrace, ...]
    durations: tuple[StepDurations, ...]
    notices: tuple[Notice, ...]
    events: tuple[EventRecords, ...] = ()  # of every event file, used for steps or not
    counted: tuple[CountedSteps, ...] = ()
    benchmarks: tuple[Benchmark, ...] = ()
    states: States = NO_STATES


@dataclass(frozen=True, slots=True)
class _Marked:
    """The steps that one file marks, one segment or more."""

    log: StepLog
    asked: bool  # named with --steps

    @property
    def steps(self) -> int:
        return sum(len(segment.step) for segment in self.log.segments)

    @property
    def training_steps(self) -> int:
        """How many training steps they stand for, where not every step was logged."""
        return sum(len(segment.step) * segment.every for segment in self.log.segments)

    @property
    def order(self) -> tuple[bool, bool, int, str]:
        """What was asked for first, then training, then the most steps."""
        return not self.asked, self.evaluates, -self.steps, str(self.log.path)

    @property
    def evaluates(self) -> bool:
        return bool(_EVALUATION & {part.lower() for part in self.log.path.parts})

    @property
    def bounds(self) -> tuple[int, int]:
        """First start and last end of its steps, ns."""
        starts = [int(segment.start_ns.min()) for segment in self.log.segments]
        return min(starts), max(int(segment.end_ns.max()) for segment in self.log.segments)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What lies at one `PATH[:TAG]` of --steps."""

    argument: str
    found: Found
    tag: str | None

    @property
    def paths(self) -> tuple[Path, ...]:
        """Its files of formats that tell of steps."""
        return _paths([self.found], traces_io=False)


def read_formats(places: Sequence[Found], reading: Reading, *, traces_io: bool) -> list[Records]:
    """What the files of each format say that records I/O, or of each that does not."""
    found = [
        (known, _files(known, places)) for known in readers.FORMATS if known.traces_io == traces_io
    ]
    return [known.read(files, reading) for known, files in found if any(files.values())]


def read(found: Found, asked: Sequence[str], reading: Reading) -> StepSources:
    """Everything that says when steps were, or how long they took.

    Args:
        found: the files of the run, without copies of one another.
        asked: `PATH[:TAG]`, each a file or folder of profiler output or event files.
        reading: how to read; takes note of files that cannot be read.

    Raises:
        InputError: a path that was asked for holds no steps.
        UsageError: no event file under a path has the tag asked for.
    """
    more = [_asked(argument) for argument in asked]
    named = [path for one in more for path in one.paths]
    places = [copies.distinct(found, named)[0] if named else found, *(o.found for o in more)]
    reading = replace(
        reading,
        every=_paths(places, traces_io=False),
        asked=tuple((path, one.tag) for one in more for path in one.paths),
    )
    records = read_formats(places, reading, traces_io=False)
    step_logs = [log for one in records for log in one.step_logs]
    for one in more:
        _require_steps(one, step_logs, reading)
    asked_for = {path.absolute() for path in named}
    marked = [_Marked(log, log.path.absolute() in asked_for) for log in step_logs if log.segments]
    profiles = [profile for one in records for profile in one.profiles]
    with_steps = [p for p in profiles if (p.kind == SpanKind.STEP).any()]
    used, notices = choose(marked, with_steps)
    durations = tuple(table for one in records for table in one.durations)
    events = tuple(one.log.records for one in marked if one.log.records is not None)
    read_notices = [notice for one in records for notice in one.notices]
    return StepSources(
        profiles=(*profiles, *used),
        durations=durations,
        notices=(*read_notices, *notices),
        events=events,
        counted=_counted(marked),
        benchmarks=tuple(each for one in records for each in one.benchmarks),
        states=join_states([one.states for one in records]),
    )


def _counted(marked: Sequence[_Marked]) -> tuple[CountedSteps, ...]:
    """How many steps the event files of training count."""
    return tuple(
        CountedSteps(one.log.segments[0], one.training_steps, one.bounds)
        for one in marked
        if not one.evaluates
    )


def _files(known: Format, places: Sequence[Found]) -> dict[str, tuple[Path, ...]]:
    """The files of a format at several places, each once."""
    paths: dict[str, dict[Path, None]] = {}
    for place in places:
        for kind, files in place.of(known).items():
            paths.setdefault(kind.name, {}).update(dict.fromkeys(files))
    return {kind: tuple(each) for kind, each in paths.items()}


def _paths(places: Sequence[Found], *, traces_io: bool) -> tuple[Path, ...]:
    """All files of the formats that record I/O, or of those that do not."""
    formats = [known for known in readers.FORMATS if known.traces_io == traces_io]
    return tuple(
        path for known in formats for each in _files(known, places).values() for path in each
    )


def choose(
    marked: Sequence[_Marked], profiles: Sequence[ProfileTrace]
) -> tuple[list[ProfileTrace], tuple[Notice, ...]]:
    """The segments of the event files to use, and what to say of those that are not."""
    used: list[_Marked] = []
    others: list[_Marked] = []
    longer: list[tuple[_Marked, list[ProfileTrace]]] = []
    for one in sorted(marked, key=lambda each: each.order):
        first = one.log.segments[0]
        beaten_by = [profile for profile in profiles if _same_process(first, profile)]
        if beaten_by:
            longer.append((one, beaten_by))
            if one.asked:
                others.append(one)
            continue
        beside = [u for u in used if _same_process(first, u.log.segments[0])]
        wanted = one.asked or not one.evaluates
        if wanted and all(_apart(one, u) for u in beside):
            used.append(one)
        else:
            others.append(one)
    segments = [segment for one in used for segment in one.log.segments]
    return segments, (*_unused(others), *_sampled(used), *_partly_profiled(longer))


def _asked(argument: str) -> _Asked:
    path, tag = split_tag(argument)
    asked = _Asked(argument, discover.find(Path(path)), tag)
    if not asked.paths:
        known = ", ".join(one.expected for one in readers.FORMATS if not one.traces_io)
        raise InputError(
            f"--steps {argument}: expected {known}, found none; give the folder that holds them"
        )
    return asked


def _require_steps(asked: _Asked, step_logs: Sequence[StepLog], reading: Reading) -> None:
    """Event files alone must mark steps where they were asked for."""
    paths = set(asked.paths)
    mine = [log for log in step_logs if log.path in paths and log.tag == asked.tag]
    if any(log.segments for log in mine) or {log.path for log in mine} != paths:
        return
    for log in mine:
        if log.path in reading.unreadable:
            raise reading.unreadable[log.path]
    tags = sorted({tag for log in mine for tag in log.tags})
    known = f"its tags: {', '.join(tags)}" if tags else "it has no tags"
    if asked.tag is not None and asked.tag not in tags:
        raise UsageError(
            f"--steps {asked.argument}: no event file with the tag {asked.tag!r}; {known}."
        )
    raise InputError(
        f"--steps {asked.argument}: expected at least two steps of one tag, found fewer; {known}. "
        "Log a scalar every step, for example the loss"
    )


def split_tag(argument: str) -> tuple[str, str | None]:
    """`PATH[:TAG]` -> (PATH, TAG or None); a path that exists is never split."""
    if Path(argument).exists() or ":" not in argument:
        return argument, None
    path, _, tag = argument.partition(":")
    while not Path(path).exists() and ":" in tag:
        more, _, tag = tag.partition(":")
        path = f"{path}:{more}"
    return path, tag


def _same_process(a: ProfileTrace, b: ProfileTrace) -> bool:
    """Whether nothing speaks against the same process: by pid, else by rank."""
    if not same_host(a.host, b.host):
        return False
    if a.pid is not None and b.pid is not None:
        return a.pid == b.pid
    return a.rank is None or b.rank is None or a.rank == b.rank


def _apart(a: _Marked, b: _Marked) -> bool:
    (start, end), (other_start, other_end) = a.bounds, b.bounds
    return end <= other_start or other_end <= start


def _unused(others: Sequence[_Marked]) -> Iterator[Notice]:
    if others:
        many = f"{len(others)} event file{'s' if len(others) > 1 else ''}"
        yield Notice(
            "steps_not_used",
            f"{many} with other steps of the same process not used (first: {others[0].log.path}): "
            "a profiler trace, a training run or a file with more steps goes first. Name one with "
            "--steps PATH[:TAG].",
            "info",
        )


def _partly_profiled(
    beaten: Sequence[tuple[_Marked, Sequence[ProfileTrace]]],
) -> Iterator[Notice]:
    """What a profile that saw less than half of the training does not say."""
    for marked, profiles in beaten:
        profiled = sum(int((p.kind == SpanKind.STEP).sum()) for p in profiles)
        steps = marked.training_steps
        if 2 * profiled < steps and not marked.evaluates:
            yield Notice(
                "steps_partly_profiled",
                f"{profiles[0].path}: {profiled:,} steps were profiled, of about {steps:,} that "
                f"{marked.log.path} counts. Step times, input wait and overlap are of the "
                "profiled steps; of the others they were not recorded.",
                "info",
            )
            return


def counted_steps(sources: StepSources, profiles: Sequence[ProfileTrace]) -> int | None:
    """Training steps of one process of a run, by its event file; None where none counts them."""
    found = [c.steps for c in sources.counted if any(c.of(profile) for profile in profiles)]
    return max(found, default=None)


def _sampled(used: Sequence[_Marked]) -> Iterator[Notice]:
    rare = [(one.log, part) for one in used for part in one.log.segments if part.every > 1]
    if rare:
        log, segment = max(rare, key=lambda row: row[1].every)
        yield Notice(
            "steps_sampled",
            f"{log.path}: {segment.names[0]!r} was logged every {segment.every} steps, so each row "
            f"of the step table stands for {segment.every} training steps.",
            "info",
        )
