"""What vanidl knows of one format of logs or traces, and what reading its files gives.

A reader is a folder whose `__init__` exports a `Format`, and a line in `registry.FORMATS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import orjson

from vanidl.encoding.file_bytes import read_one
from vanidl.encoding.text_stream import TextStream
from vanidl.errors import InputError
from vanidl.model.run_facts import Benchmark
from vanidl.model.states import NO_STATES, States
from vanidl.model.warnings import Notice
from vanidl.readers.records import CounterFile, ProfileTrace, StepDurations, StepLog, TracerLog
from vanidl.schema.dataclass import dataclass

if TYPE_CHECKING:
    from vanidl.readers.verdict import Verdict

# The beginning of a file whose name says nothing, for formats that know themselves by it.

_HEAD_BYTES = 16
_TEXT_BYTES = 1 << 16
_EVENT_KEYS = {"ph", "ts", "pid"}


class Opening:
    """How a file begins.

    Raises:
        OSError: The file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = path.name
        with path.open("rb") as file:
            self.head = file.read(_HEAD_BYTES)

    @cached_property
    def text(self) -> bytes:
        """The first text in it, inflated where the file is compressed; without white space.

        At least 64 KiB where it holds as many.
        """
        text = b""
        for chunk in TextStream(self._path):
            text += chunk if text else chunk.lstrip()
            if len(text) >= _TEXT_BYTES:
                break
        return text.removeprefix(b"\xef\xbb\xbf").lstrip()

    @property
    def is_json(self) -> bool:
        """Whether it is an object or an array of JSON."""
        return self.text.startswith((b"{", b"["))

    @cached_property
    def is_event_a_line(self) -> bool:
        """Whether it is JSON whose first line, but for a bracket, is a whole trace event."""
        if not self.is_json:
            return False
        line = self.text.removeprefix(b"[").lstrip().split(b"\n", 1)[0]
        try:
            event = orjson.loads(line.rstrip().rstrip(b","))
        except orjson.JSONDecodeError:
            return False
        return isinstance(event, dict) and event.keys() >= _EVENT_KEYS


# Files that tell again, and less completely, what another file of the run tells.

_MOST_NAMES = 3


def warn_of_versions(pairs: Sequence[tuple[str, str]]) -> Iterator[Notice]:
    """A warning about pairs of (path left out, path used instead), where there is one."""
    if not pairs:
        return
    named = "; ".join(f"{path}, used: {used}" for path, used in pairs[:_MOST_NAMES])
    more = "; ..." if len(pairs) > _MOST_NAMES else ""
    yield Notice(
        "versions_left_out",
        f"{len(pairs):,} of the files tell of the same process and time as another one and are "
        f"left out: the most complete one counts, alone ({named}{more}). Remove what is out of "
        "date, or name the file to use.",
    )


Record = TypeVar("Record")

Progress = Callable[[str, int, int], None]
"""Called with (what is read, how many done, how many in all)."""

Files = Mapping[str, tuple[Path, ...]]
"""Files by the name of their kind."""


@dataclass(frozen=True, slots=True)
class FileKind:
    """One kind of file of a format: known by the end or beginning of its name, or all of it.

    Names with one of the ends `perhaps` are given to other files as well: such a file is of this
    kind where `Format.sniff_among` says so. `is_log`: each file is one `TracerLog`, so copies show
    once it is read.
    """

    name: str
    title: str  # "Darshan log": what `check` calls it
    suffixes: tuple[str, ...] = ()
    prefix: str = ""
    perhaps: tuple[str, ...] = ()
    pattern: str = ""  # regular expression for the whole name
    is_log: bool = False
    by_content: bool = False  # other tools give such names, too: `Format.sniff_among` goes first


@dataclass(frozen=True, slots=True)
class Reading:
    """How files are read, and what is known before they are.

    Attributes:
        progress: called before every file.
        executor: its workers read many logs; None: this process does.
        wait_names: regular expressions of spans that are input waits.
        utc_offset_s: local time minus UTC where the run was recorded.
        every: all files of the run, of any format.
        asked: files that the user named with --steps, and the tag that marks their steps.
        unreadable: files that could not be read, and why.
    """

    progress: Progress
    executor: Executor | None = None
    wait_names: Sequence[str] = ()
    utc_offset_s: int = 0
    every: tuple[Path, ...] = ()
    asked: tuple[tuple[Path, str | None], ...] = ()
    unreadable: dict[Path, InputError] = field(default_factory=dict)

    def each(
        self, what: str, read: Callable[[Path], Record], paths: Sequence[Path]
    ) -> list[Record]:
        """The records of all readable paths, read one by one."""
        records = []
        for i, path in enumerate(paths):
            self.progress(what, i, len(paths))
            try:
                records.append(read_one(read, path))
            except InputError as error:
                self.unreadable[path] = error
        return records


def warn_of_unused(path: str | Path, losses: Iterable[str]) -> Iterator[Notice]:
    """Warnings about a file of which so little is left that no record speaks for it."""
    for loss in losses:
        yield Notice("damaged", f"{path}: {loss}. Nothing of it is in this report.")


@dataclass(frozen=True, slots=True)
class Records:
    """What the files of one format say of a run."""

    logs: tuple[TracerLog, ...] = ()
    counters: Mapping[str, CounterFile] = field(default_factory=dict)  # by path
    profiles: tuple[ProfileTrace, ...] = ()
    step_logs: tuple[StepLog, ...] = ()
    durations: tuple[StepDurations, ...] = ()
    notices: tuple[Notice, ...] = ()
    utc_offset_s: int | None = None  # local time minus UTC, where the files tell
    benchmarks: tuple[Benchmark, ...] = ()
    states: States = NO_STATES


def _sniff_nothing(opening: Opening) -> str:
    """For formats that no first bytes tell from others."""
    del opening
    return ""


Check = Callable[[Sequence[tuple[FileKind, Path]], Callable[[], None]], Sequence["Verdict"]]
"""One verdict a file, in turn; the second argument is called before each."""


def check_by_reading(
    losses_of: Mapping[str, Callable[[Path], Sequence[str]]],
    state_of: Callable[[Sequence[str]], str] | None = None,
) -> Check:
    """The check of a format whose files are read one by one.

    Args:
        losses_of: reads a file of a kind; a sentence for each loss. Others are not checked.
        state_of: what losses say of a file; by default `verdict.state_by_losses`.
    """

    def check(
        files: Sequence[tuple[FileKind, Path]], before_each: Callable[[], None]
    ) -> list[Verdict]:
        from vanidl.readers.verdict import check_file, report_unchecked

        verdicts = []
        for kind, path in files:
            before_each()
            read = losses_of.get(kind.name)
            verdicts.append(
                check_file(path, kind.title, read, state_of)
                if read
                else report_unchecked(path, kind.title)
            )
        return verdicts

    return check


@dataclass(frozen=True, slots=True)
class Format:
    """One format: its files, and the functions that read and check them.

    Attributes:
        title: what messages call its files, in the plural.
        patterns: names of its files, for messages that say what was expected.
        read: the records of a run's files of this format.
        traces_io: whether it records I/O. Those that do are read first, and the profiles that
            they hold give way to those of other formats for the same process.
        sniff: the kind of a renamed file by its first bytes, "" for none.
        sniff_among: the same of a file that lies among others of a folder: only what is certain.
        outputs: regular expression for paths that its writer writes during the run: those are
            logs of the run, neither data nor checkpoints.
    """

    name: str
    title: str
    patterns: tuple[str, ...]
    kinds: tuple[FileKind, ...]
    read: Callable[[Files, Reading], Records]
    check: Check
    traces_io: bool = False
    sniff: Callable[[Opening], str] = _sniff_nothing
    sniff_among: Callable[[Opening], str] = _sniff_nothing
    outputs: str = ""

    @property
    def expected(self) -> str:
        """`Darshan logs (.darshan)`."""
        return f"{self.title} ({', '.join(self.patterns)})"
