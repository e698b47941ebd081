"""Where training steps come from: which files to read, and which of them to use.

A profiler trace of a process wins over its event files, because it says more; one in which no
step was marked does not. Of several event files of one process the one with most steps is
used, and any that lies wholly before or after it; validation runs are not training steps, so
they are used only when asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from vanidl.errors import InputError, UsageError
from vanidl.merge.jobs import same_host
from vanidl.merge.sessions import SessionFiles, read_sessions
from vanidl.model.trace import Notice, SpanKind
from vanidl.readers import discover
from vanidl.readers.discover import Found
from vanidl.readers.pytorch import trace
from vanidl.readers.records import EventRecords, ProfileTrace, StepDurations
from vanidl.readers.tensorboard import event_file, input_pipeline

Piece = TypeVar("Piece")

_EVALUATION = {"validation", "valid", "val", "evaluation", "eval", "test"}


class Reader(Protocol):
    """Reads files one by one; what cannot be read becomes a notice."""

    def all(self, what: str, read: Callable[[Path], Piece], paths: Sequence[Path]) -> list[Piece]:
        """The pieces of all readable paths."""


@dataclass(frozen=True, slots=True)
class StepSources:
    """What profilers and event files say, ready to be put on the run's clock."""

    profiles: tuple[ProfileTrace, ...]
    durations: tuple[StepDurations, ...]
    notices: tuple[Notice, ...]
    events: tuple[EventRecords, ...] = ()  # of every event file, used for steps or not


@dataclass(frozen=True, slots=True)
class _Events:
    """One event file's steps, one piece a segment."""

    path: Path
    pieces: tuple[ProfileTrace, ...]
    asked: bool  # named with --steps
    records: EventRecords | None = None

    @property
    def steps(self) -> int:
        return sum(len(piece.step) for piece in self.pieces)

    @property
    def order(self) -> tuple[bool, bool, int, str]:
        """What was asked for first, then training, then the most steps."""
        return not self.asked, self.evaluates, -self.steps, str(self.path)

    @property
    def evaluates(self) -> bool:
        return bool(_EVALUATION & {part.lower() for part in self.path.parts})

    @property
    def bounds(self) -> tuple[int, int]:
        """First start and last end of its steps, ns."""
        starts = [int(piece.start_ns.min()) for piece in self.pieces]
        return min(starts), max(int(piece.end_ns.max()) for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the profiles before they are read."""

    wait_names: Sequence[str] = ()  # regular expressions of spans that are input waits
    utc_offset_s: int = 0  # local time minus UTC where they were recorded


def read(found: Found, asked: Sequence[str], known: Known, reader: Reader) -> StepSources:
    """Everything that says when steps were, or how long they took.

    Args:
        found: the files of the run.
        asked: `PATH[:TAG]`, each a file or folder of profiler output or event files.
        known: names of waits, time zone.
        reader: reads the files and keeps notices of those it cannot.

    Raises:
        InputError: a path that was asked for holds no steps.
        UsageError: no event file under a path has the tag asked for.
    """
    more = [(argument, *_asked(argument)) for argument in asked]
    traces = [*found.profiler, *(p for _, files, _ in more for p in files.profiler)]
    names = known.wait_names
    profiles = reader.all(
        "profiler traces", lambda p: trace.read_trace(p, wait_names=names), traces
    )
    sessions = SessionFiles.of([found, *(files for _, files, _ in more)])
    profiles += read_sessions(sessions, names, known.utc_offset_s, reader)
    events = [_read_asked(*each, reader) for each in more]
    named = {e.path.absolute() for files in events for e in files}
    rest = [p for p in found.event_files if p.absolute() not in named]
    every = [e for files in events for e in files] + _read_found(rest, reader)
    used, notices = choose(every, [p for p in profiles if (p.kind == SpanKind.STEP).any()])
    tables = [*found.input_pipeline, *(p for _, files, _ in more for p in files.input_pipeline)]
    durations = reader.all("step tables", input_pipeline.read_durations, tables)
    records = tuple(e.records for e in every if e.records is not None)
    return StepSources((*profiles, *used), tuple(durations), notices, records)


def choose(
    events: Sequence[_Events], profiles: Sequence[ProfileTrace]
) -> tuple[list[ProfileTrace], tuple[Notice, ...]]:
    """The segments of the event files to use, and what to say of those that are not."""
    used: list[_Events] = []
    others: list[_Events] = []
    longer: list[tuple[_Events, list[ProfileTrace]]] = []
    for events_of_file in sorted(events, key=lambda e: e.order):
        piece = events_of_file.pieces[0]
        beaten_by = [profile for profile in profiles if _same_process(piece, profile)]
        if beaten_by:
            longer.append((events_of_file, beaten_by))
            if events_of_file.asked:
                others.append(events_of_file)
            continue
        beside = [u for u in used if _same_process(piece, u.pieces[0])]
        wanted = events_of_file.asked or not events_of_file.evaluates
        if wanted and all(_apart(events_of_file, u) for u in beside):
            used.append(events_of_file)
        else:
            others.append(events_of_file)
    pieces = [piece for events_of_file in used for piece in events_of_file.pieces]
    return pieces, (*_unused(others), *_sampled(used), *_partly_profiled(longer))


def _asked(argument: str) -> tuple[Found, str | None]:
    path, tag = event_file.split_tag(argument)
    files = discover.find(Path(path))
    if not (_traces(files) or files.event_files or files.input_pipeline):
        raise InputError(
            f"--steps {argument}: expected PyTorch profiler traces (.pt.trace.json, "
            ".pt.trace.json.gz), TensorFlow or JAX profiles (.xplane.pb, .trace.json.gz), event "
            "files (events.out.tfevents.*) or step tables (.input_pipeline.pb), found none; give "
            "the folder that holds them"
        )
    return files, tag


def _traces(files: Found) -> tuple[Path, ...]:
    return files.profiler + files.xplane + files.trace_viewer


def _read_asked(argument: str, files: Found, tag: str | None, reader: Reader) -> list[_Events]:
    events = _events(files.event_files, tag, reader, asked=True)
    if files.event_files and not events and not (_traces(files) or files.input_pipeline):
        tags = sorted({t for p in files.event_files for t in event_file.read_events(p).tags})
        known = f"its tags: {', '.join(tags)}" if tags else "it has no tags"
        if tag is not None and tag not in tags:
            raise UsageError(f"--steps {argument}: no event file with the tag {tag!r}; {known}.")
        raise InputError(
            f"--steps {argument}: expected at least two steps of one tag, found fewer; {known}. "
            "Log a scalar every step, for example the loss"
        )
    return events


def _read_found(paths: Sequence[Path], reader: Reader) -> list[_Events]:
    return _events(paths, None, reader, asked=False)


def _events(
    paths: Sequence[Path], tag: str | None, reader: Reader, *, asked: bool
) -> list[_Events]:
    def read_one(path: Path) -> _Events:
        content = event_file.read_events(path)
        steps = event_file.steps_of(path, content, tag)
        return _Events(path, steps, asked, event_file.records_of(path, content))

    return [e for e in reader.all("event files", read_one, paths) if e.pieces]


def _same_process(a: ProfileTrace, b: ProfileTrace) -> bool:
    """Whether nothing speaks against the same process: by pid, else by rank."""
    if not same_host(a.host, b.host):
        return False
    if a.pid is not None and b.pid is not None:
        return a.pid == b.pid
    return a.rank is None or b.rank is None or a.rank == b.rank


def _apart(a: _Events, b: _Events) -> bool:
    (start, end), (other_start, other_end) = a.bounds, b.bounds
    return end <= other_start or other_end <= start


def _unused(others: Sequence[_Events]) -> Iterator[Notice]:
    if others:
        many = f"{len(others)} event file{'s' if len(others) > 1 else ''}"
        yield Notice(
            "steps_not_used",
            f"{many} with other steps of the same process not used (first: {others[0].path}): a "
            "profiler trace, a training run or a file with more steps goes first. Name one with "
            "--steps PATH[:TAG].",
            "info",
        )


def _partly_profiled(
    beaten: Sequence[tuple[_Events, Sequence[ProfileTrace]]],
) -> Iterator[Notice]:
    """What a profile that saw less than half of the training does not say."""
    for events, profiles in beaten:
        profiled = sum(int((p.kind == SpanKind.STEP).sum()) for p in profiles)
        steps = sum(len(p.step) * p.every for p in events.pieces)
        if 2 * profiled < steps and not events.evaluates:
            yield Notice(
                "steps_partly_profiled",
                f"{profiles[0].path}: {profiled:,} steps were profiled, of about {steps:,} that "
                f"{events.path} counts. Step times, input wait and overlap are of the "
                "profiled steps; of the others they were not recorded.",
                "info",
            )
            return


def _sampled(used: Sequence[_Events]) -> Iterator[Notice]:
    rare = [(e, piece) for e in used for piece in e.pieces if piece.every > 1]
    if rare:
        events, piece = max(rare, key=lambda row: row[1].every)
        yield Notice(
            "steps_sampled",
            f"{events.path}: {piece.names[0]!r} was logged every {piece.every} steps, so each row "
            f"of the step table stands for {piece.every} training steps.",
            "info",
        )
