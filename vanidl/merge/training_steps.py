"""Training steps: which files to read, which of them to use, and which of their spans train.

A profiler trace of a process wins over its event files, because it says more; one in which no
step was marked does not. Of several event files of one process the one with most steps is
used, and any that lies wholly before or after it; validation runs are not training steps, so
they are used only when asked for.

Where nothing marked any, a step lasts from the end of one wait that got a batch to the end of the
next, and the last one to the end of the wait that found the loader at its end. Of marked and
derived steps two kinds do not train: a last one in which nothing was computed (the loop had ended,
and its marker was still open), and those of validation, without a backward pass where others
have one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.errors import InputError, UsageError
from vanidl.formatting.units import plural
from vanidl.merge import copies
from vanidl.merge.processes import ProcessTable
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.run_facts import Benchmark
from vanidl.model.states import NO_STATES, States, join_states
from vanidl.model.trace import FROM_WAITS, SpanKind
from vanidl.model.warnings import Notice
from vanidl.readers import discover, registry
from vanidl.readers.discover import Found
from vanidl.readers.format import Format, Reading, Records
from vanidl.readers.names import BACKWARD, SAMPLING
from vanidl.readers.records import (
    EventRecords,
    ProfileTrace,
    StepDurations,
    StepLog,
    freeze,
    same_host,
)
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]
Mask = NDArray[np.bool_]

_HOUR_NS = 3_600_000_000_000
_EVALUATION = {"validation", "valid", "val", "evaluation", "eval", "test"}

_NO_WORK = 0.05  # of the operations between two waits: what creating a loader's iterator takes
_STUB = 0.1  # of the usual compute, or of the shortest step
_FEWEST_STEPS = 3  # before the last one says anything about it
_COLUMNS = ("start_ns", "end_ns", "step", "kind", "thread", "name")

# Which files tell of steps, and which of them are used.


@dataclass(frozen=True, slots=True)
class CountedSteps:
    """How many training steps the event file of one process stands for, and when they were."""

    first: ProfileTrace
    steps: int
    bounds: tuple[int, int]

    def is_of(self, profile: ProfileTrace) -> bool:
        """Whether the profile is of that process, at that time (clocks may differ by an hour)."""
        steps = profile.start_ns[profile.kind == SpanKind.STEP]
        if not len(steps) or not _is_same_process(self.first, profile):
            return False
        start, end = self.bounds
        return start - _HOUR_NS <= int(steps.min()) <= end + _HOUR_NS


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
class _EventFile:
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
class _StepsArgument:
    """What lies at one `PATH[:TAG]` of --steps."""

    argument: str
    found: Found
    tag: str | None

    @property
    def paths(self) -> tuple[Path, ...]:
        """Its files of formats that tell of steps."""
        return _files_of_formats([self.found], traces_io=False)


def read_formats(places: Sequence[Found], reading: Reading, *, traces_io: bool) -> list[Records]:
    """What the files of each format say that records I/O, or of each that does not."""
    records = []
    for known in registry.FORMATS:
        if known.traces_io == traces_io:
            files = _find_files(known, places)
            if any(files.values()):
                records.append(known.read(files, reading))
    return records


def read_step_sources(found: Found, asked: Sequence[str], reading: Reading) -> StepSources:
    """Everything that says when steps were, or how long they took.

    Args:
        found: the files of the run, without copies of one another.
        asked: `PATH[:TAG]`, each a file or folder of profiler output or event files.
        reading: how to read; takes note of files that cannot be read.

    Raises:
        InputError: a path that was asked for holds no steps.
        UsageError: no event file under a path has the tag asked for.
    """
    # Files of the run, and those that the user named beside it.
    more = [_find_asked(argument) for argument in asked]
    named = [path for one in more for path in one.paths]
    places = [copies.drop_copies(found, named)[0] if named else found, *(o.found for o in more)]
    reading = replace(
        reading,
        every=_files_of_formats(places, traces_io=False),
        asked=tuple((path, one.tag) for one in more for path in one.paths),
    )
    records = read_formats(places, reading, traces_io=False)

    # Event files with steps; those that were asked for must have some.
    step_logs = [log for one in records for log in one.step_logs]
    for one in more:
        _require_steps(one, step_logs, reading)
    asked_for = {path.absolute() for path in named}
    marked = [
        _EventFile(log, log.path.absolute() in asked_for) for log in step_logs if log.segments
    ]

    # Which of them are used beside the profiles.
    profiles = [profile for one in records for profile in one.profiles]
    with_steps = [p for p in profiles if (p.kind == SpanKind.STEP).any()]
    used, notices = choose_steps(marked, with_steps)
    return StepSources(
        profiles=(*profiles, *used),
        durations=tuple(table for one in records for table in one.durations),
        notices=(*(notice for one in records for notice in one.notices), *notices),
        events=tuple(one.log.records for one in marked if one.log.records is not None),
        counted=tuple(
            CountedSteps(one.log.segments[0], one.training_steps, one.bounds)
            for one in marked
            if not one.evaluates
        ),
        benchmarks=tuple(each for one in records for each in one.benchmarks),
        states=join_states([one.states for one in records]),
    )


def _find_files(known: Format, places: Sequence[Found]) -> dict[str, tuple[Path, ...]]:
    """The files of a format at several places, each once."""
    paths: dict[str, dict[Path, None]] = {}
    for place in places:
        for kind, files in place.of(known).items():
            paths.setdefault(kind.name, {}).update(dict.fromkeys(files))
    return {kind: tuple(each) for kind, each in paths.items()}


def _files_of_formats(places: Sequence[Found], *, traces_io: bool) -> tuple[Path, ...]:
    """All files of the formats that record I/O, or of those that do not."""
    formats = [known for known in registry.FORMATS if known.traces_io == traces_io]
    return tuple(
        path for known in formats for each in _find_files(known, places).values() for path in each
    )


def choose_steps(
    marked: Sequence[_EventFile], profiles: Sequence[ProfileTrace]
) -> tuple[list[ProfileTrace], tuple[Notice, ...]]:
    """The segments of the event files to use, and what to say of those that are not."""
    used: list[_EventFile] = []
    others: list[_EventFile] = []
    longer: list[tuple[_EventFile, list[ProfileTrace]]] = []
    for one in sorted(marked, key=lambda each: each.order):
        first = one.log.segments[0]
        # A profiler trace of the process says more.
        beaten_by = [profile for profile in profiles if _is_same_process(first, profile)]
        if beaten_by:
            longer.append((one, beaten_by))
            if one.asked:
                others.append(one)
            continue
        # Of its event files the first in order, and what lies wholly before or after that.
        beside = [u for u in used if _is_same_process(first, u.log.segments[0])]
        wanted = one.asked or not one.evaluates
        if wanted and not any(_overlap(one, u) for u in beside):
            used.append(one)
        else:
            others.append(one)
    segments = [segment for one in used for segment in one.log.segments]
    return segments, (*_tell_unused(others), *_tell_sampled(used), *_tell_partly_profiled(longer))


def _find_asked(argument: str) -> _StepsArgument:
    path, tag = split_tag(argument)
    asked = _StepsArgument(argument, discover.find(Path(path)), tag)
    if not asked.paths:
        known = ", ".join(one.expected for one in registry.FORMATS if not one.traces_io)
        raise InputError(
            f"--steps {argument}: expected {known}, found none; give the folder that holds them"
        )
    return asked


def _require_steps(asked: _StepsArgument, step_logs: Sequence[StepLog], reading: Reading) -> None:
    """Event files alone must mark steps where they were asked for."""
    paths = set(asked.paths)
    mine = [log for log in step_logs if log.path in paths and log.tag == asked.tag]
    if any(log.segments for log in mine) or {log.path for log in mine} != paths:
        return
    # That a file could not be read says more than that it holds no steps.
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


def _is_same_process(a: ProfileTrace, b: ProfileTrace) -> bool:
    """Whether nothing speaks against the same process: by pid, else by rank."""
    if not same_host(a.host, b.host):
        return False
    if a.pid is not None and b.pid is not None:
        return a.pid == b.pid
    return a.rank is None or b.rank is None or a.rank == b.rank


def _overlap(a: _EventFile, b: _EventFile) -> bool:
    (start, end), (other_start, other_end) = a.bounds, b.bounds
    return start < other_end and other_start < end


def _tell_unused(others: Sequence[_EventFile]) -> Iterator[Notice]:
    if others:
        many = f"{len(others)} event file{'s' if len(others) > 1 else ''}"
        yield Notice(
            "steps_not_used",
            f"{many} with other steps of the same process not used (first: {others[0].log.path}): "
            "a profiler trace, a training run or a file with more steps goes first. Name one with "
            "--steps PATH[:TAG].",
            "info",
        )


def _tell_partly_profiled(
    beaten: Sequence[tuple[_EventFile, Sequence[ProfileTrace]]],
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


def count_steps(sources: StepSources, profiles: Sequence[ProfileTrace]) -> int | None:
    """Training steps of one process of a run, by its event file; None where none counts them."""
    steps = [c.steps for c in sources.counted if any(c.is_of(profile) for profile in profiles)]
    return max(steps, default=None)


def _tell_sampled(used: Sequence[_EventFile]) -> Iterator[Notice]:
    rare = [(one.log, part) for one in used for part in one.log.segments if part.every > 1]
    if rare:
        log, segment = max(rare, key=lambda row: row[1].every)
        yield Notice(
            "steps_sampled",
            f"{log.path}: {segment.names[0]!r} was logged every {segment.every} steps, so each row "
            f"of the step table stands for {segment.every} training steps.",
            "info",
        )


# Which spans of a profile train.


@dataclass(frozen=True, slots=True)
class Settled:
    """Profiles whose STEP spans are training steps, and what to say of it."""

    profiles: list[ProfileTrace]
    notices: tuple[Notice, ...]


def settle_steps(profiles: Sequence[ProfileTrace], processes: ProcessTable) -> Settled:
    """The profiles with steps found, and those that do not train left out.

    A profile without marks gets none where another source marked steps of its process.
    """
    marked = {
        processes.of_profile[k] for k, p in enumerate(profiles) if (p.kind == SpanKind.STEP).any()
    }
    with_steps = [
        p if processes.of_profile[k] in marked else derive_from_waits(p)
        for k, p in enumerate(profiles)
    ]
    trained = [set_validation_apart(drop_stub(p)) for p in with_steps]
    return Settled(trained, tuple(_tell_settled(with_steps, trained)))


def derive_from_waits(profile: ProfileTrace) -> ProfileTrace:
    """The profile with a step from each wait's end to the next one's."""
    borders = _find_borders(profile)
    steps = len(borders) - 1
    if steps < 1:
        return profile
    # Steps of no thread and with a name of their own, among the spans that there are.
    more = {
        "start_ns": borders[:-1],
        "end_ns": borders[1:],
        "step": np.arange(steps, dtype=np.int32),
        "kind": np.full(steps, SpanKind.STEP, np.uint8),
        "thread": np.full(steps, -1, np.int32),
        "name": np.full(steps, len(profile.names), np.int32),
    }
    names = (*profile.names, "step between input waits")
    both = {c: np.concatenate([getattr(profile, c), own]) for c, own in more.items()}
    order = np.argsort(both["start_ns"], kind="stable")
    return _with_columns(replace(profile, names=names, steps_from=FROM_WAITS), both, order)


def _find_borders(profile: ProfileTrace) -> Int64Array:
    """Ends of the waits that got a batch, and of the one after them that got none."""
    # Waits that lie in no other one, in order.
    waits = profile.kind == SpanKind.INPUT_WAIT
    start, end = profile.start_ns[waits], profile.end_ns[waits]
    order = np.lexsort((-end, start))
    start, end = start[order], end[order]
    before = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, end))[:-1]
    outermost = start >= before
    start, end = start[outermost], end[outermost]
    batch = got_batch(profile, start, end)
    borders = end[batch]
    after = end[~batch][end[~batch] > borders[-1]] if len(borders) else borders
    return np.append(borders, after[:1])


def got_batch(profile: ProfileTrace, start: Int64Array, end: Int64Array) -> Mask:
    """Which waits got a batch: after one that found the loader at its end nothing is computed.

    All of them where no computing was recorded.
    """
    sampling = np.array([bool(SAMPLING.fullmatch(name)) for name in profile.names] or [False])
    work = np.isin(profile.kind, (SpanKind.OP, SpanKind.KERNEL)) & ~sampling[profile.name]
    begun = profile.start_ns[work]
    until = np.append(start[1:], np.iinfo(np.int64).max)
    operations = np.searchsorted(begun, until) - np.searchsorted(begun, end)
    usual = float(np.median(operations[operations > 0])) if operations.any() else 0.0
    return operations >= _NO_WORK * usual


def drop_stub(profile: ProfileTrace) -> ProfileTrace:
    """The profile without a last step that alone computed nothing, or did next to nothing."""
    rows = np.flatnonzero(profile.kind == SpanKind.STEP)
    seen = np.isin(profile.kind, (SpanKind.INPUT_WAIT, SpanKind.OP, SpanKind.KERNEL)).any()
    if profile.steps_from or profile.marks_loop or len(rows) <= _FEWEST_STEPS or not seen:
        return profile  # an event file has nothing beside its steps, a recorded loop no marker
    start, end = profile.start_ns[rows], profile.end_ns[rows]
    computed = intervals.covered_within(_find_compute(profile), start, end)
    length = end - start
    usual = float(np.median(computed[:-1]))
    # Where the step before it computed nothing either, the device's times end early: no stub.
    idle = usual > 0 and computed[-1] < _STUB * usual <= computed[-2]
    if not idle and length[-1] >= _STUB * length[:-1].min():
        return profile
    kept = np.ones(len(profile.kind), bool)
    kept[rows[-1]] = False
    return _with_columns(profile, {c: getattr(profile, c) for c in _COLUMNS}, np.flatnonzero(kept))


def _find_compute(profile: ProfileTrace) -> Intervals:
    """When a device computed, or where no kernel was recorded the CPU outside input waits."""

    def when(kind: SpanKind) -> Intervals:
        mine = profile.kind == kind
        return intervals.union(profile.start_ns[mine], profile.end_ns[mine])

    kernels = when(SpanKind.KERNEL)
    if len(kernels.start):
        return kernels
    return intervals.subtract(when(SpanKind.OP), when(SpanKind.INPUT_WAIT))


def set_validation_apart(profile: ProfileTrace) -> ProfileTrace:
    """The profile with steps that have no backward pass, where others have one, as validation.

    A reader that knows validation by its marks has said so already.
    """
    if (profile.kind == SpanKind.EVALUATION).any():
        return profile
    backward = np.array([bool(BACKWARD.match(name)) for name in profile.names] or [False])
    begun = profile.start_ns[(profile.kind == SpanKind.OP) & backward[profile.name]]
    rows = np.flatnonzero(profile.kind == SpanKind.STEP)
    # A step trains if an operation of the backward pass begins in it.
    first = np.searchsorted(begun, profile.start_ns[rows])
    trains = np.searchsorted(begun, profile.end_ns[rows]) > first
    if trains.all() or not trains.any():
        return profile
    kind, step = profile.kind.copy(), profile.step.copy()
    kind[rows[~trains]] = SpanKind.EVALUATION
    step[rows[~trains]] = -1
    # Derived steps are numbered without gaps; marked ones keep their numbers.
    if profile.steps_from:
        step[rows[trains]] = np.arange(trains.sum())
    return replace(profile, kind=freeze(kind), step=freeze(step))


def _tell_settled(
    marked: Sequence[ProfileTrace], trained: Sequence[ProfileTrace]
) -> Iterator[Notice]:
    derived = [p for p in trained if p.steps_from == FROM_WAITS]
    if derived:
        yield Notice(
            "steps_from_waits",
            f"{_name_files(derived)}: no training step is marked in it, so steps are from the end "
            f"of one of its {plural(_count(derived, SpanKind.INPUT_WAIT), 'input wait')} to the "
            "end of the next. Mark them where a step is something else: prof.step() after each "
            "batch, jax.profiler.StepTraceAnnotation around it.",
            "info",
        )
    validation = [p for p in trained if (p.kind == SpanKind.EVALUATION).any()]
    if validation:
        steps = _count(validation, SpanKind.EVALUATION)
        yield Notice(
            "validation_steps",
            f"{_name_files(validation)}: {plural(steps, 'step')} without a backward pass, or "
            "marked as validation, are not counted as training steps.",
            "info",
        )
    # Fewer steps than were marked: the last one was left out.
    ended = [
        (a, b)
        for a, b in zip(marked, trained, strict=True)
        if _count([a], SpanKind.STEP) > _count([b], SpanKind.STEP, SpanKind.EVALUATION)
    ]
    if ended:
        yield Notice(
            "last_step_empty",
            f"{_name_files([a for a, _ in ended])}: the last marked step computed next to nothing "
            "(the loop had ended, and the profiler marks a step until it stops): it is not "
            "counted.",
            "info",
        )


def _name_files(profiles: Sequence[ProfileTrace]) -> str:
    more = f" and {len(profiles) - 1} more" if len(profiles) > 1 else ""
    return f"{profiles[0].path}{more}"


def _count(profiles: Sequence[ProfileTrace], *kinds: SpanKind) -> int:
    return sum(int(np.isin(p.kind, kinds).sum()) for p in profiles)


def _with_columns(
    profile: ProfileTrace, columns: Mapping[str, NDArray[Any]], rows: Int64Array
) -> ProfileTrace:
    """The profile with these rows of these columns."""
    picked: dict[str, Any] = {name: freeze(column[rows]) for name, column in columns.items()}
    return replace(profile, **picked)
