"""One DFTracer trace file (`.pfw`, `.pfw.gz`) as columns, whatever version wrote it.

A trace is one JSON object a line, in one gzip member or several. Three dialects are about:
numbers as strings and names in place (2023), hash tables in metadata lines with `ph` "M" and
"X" (DLIO's traces of 2024 and 2025), the same with `ph` 4 and 1 (today). Nothing is
believed: what is no sound event is counted and left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from vanidl.errors import InputError
from vanidl.readers.budget import Budget
from vanidl.readers.encoding.text_stream import TextStream

Event = dict[str, Any]
Int64Array = NDArray[np.int64]

NOT_RECORDED = ("recorded without", "were never written")
"""In the losses of what was never recorded, which leave the file whole."""

ABSENT = -(2**62)
"""Stands for an integer that an event does not hold."""

# Tuples: membership is by equality, so that a value that cannot be hashed is no error.
_COMPLETE = (1, "1", "X")
_METADATA = (4, "4", "M")
_TICK_NS = {"NS": 1, "US": 1_000, "MS": 1_000_000, "S": 1_000_000_000, "SEC": 1_000_000_000}
_LATEST_NS = 1 << 61  # 73 years after 1970
_IO_CATEGORIES = ("POSIX", "STDIO")
_TRACER = "dftracer"
_MOST_CHUNKS = 256  # of one line, 64 MiB: a lost line end must not pull the file into memory
_TOO_LONG = b"\xff"  # in place of such a line: no JSON
_NO_ARGUMENTS: Event = {}
_BROKEN_LINES = 3  # sound lines, beside itself, that a broken one takes the time of
_PIECES_A_PROCESS = 10  # of the budget: each has tables of its own from here to the report

COLUMNS = (
    "pid", "tid", "ts", "dur", "name", "file", "ret", "size", "offset", "flags", "epoch", "number",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Events:
    """Columns of equal length, one entry per event; times in ticks of the file.

    `name` is an index into `names`, pairs of (category, name); `file` an index into `files`,
    keys of a hash table or names, -1 where the event names none; `number` counts the events of a
    process. ABSENT: not in the event.
    """

    columns: dict[str, Int64Array]
    names: tuple[tuple[str, str], ...]
    files: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.columns["pid"])


@dataclass(frozen=True, slots=True)
class Start:
    """What the first event of a process says; hashes are keys of the tables."""

    pid: int
    parent_pid: int | None
    host: str
    command: str
    cwd: str
    version: str
    ts: int


@dataclass(frozen=True, slots=True)
class TraceFile:
    """What one trace file says. Tables map a hash, as text, to what it stands for."""

    path: str
    events: Events
    starts: tuple[Start, ...]
    ends: tuple[tuple[int, int], ...]  # (pid, ns): processes whose trace is whole, and its end
    hosts: dict[str, str]
    files: dict[str, str]
    strings: dict[str, str]
    tick_ns: int
    host: str  # key in hosts, or a name
    losses: tuple[str, ...]
    numbered: int = 0  # lines that have a number
    unwritten: int = 0  # numbers between theirs that no line has

    @property
    def never_written(self) -> tuple[str, ...]:
        """A sentence about the events that were numbered and never written, where there are."""
        if not self.unwritten:
            return ()
        total = self.numbered + self.unwritten
        return (f"{self.unwritten:,} of {total:,} events {NOT_RECORDED[1]}, by their numbers",)

    @property
    def processes(self) -> int:
        """How many process numbers it names."""
        pids = np.unique(self.events.columns["pid"])
        return len({*pids.tolist(), *(start.pid for start in self.starts)})

    @property
    def empty(self) -> bool:
        """Whether no process wrote anything into it."""
        return not len(self.events) and not self.starts


def read_file(path: str | Path) -> TraceFile:
    """One trace file; an empty one has no events.

    Raises:
        InputError: the file cannot be read, or holds text but no line of a DFTracer trace.
    """
    content = _Content(Path(path))
    try:
        content.read()
    except OSError as error:
        raise InputError(
            f"{path}: expected a DFTracer trace, found no readable file ({error.strerror}); check "
            "the path and its permissions"
        ) from error
    if content.lines and not content.sound:
        raise InputError(
            f"{path}: expected a DFTracer trace, one JSON object a line; found {content.lines:,} "
            "lines, none of them an event; record it again"
        )
    found = content.trace_file()
    if not content.budget.divide(_PIECES_A_PROCESS * found.processes):
        raise InputError(
            f"{path}: expected the trace of one process, or of some, found {found.processes:,} "
            "process numbers: more than a file of its size may have; record it again"
        )
    return found


@dataclass(slots=True)
class _Content:
    """What the text of a trace holds, read once from start to end."""

    path: Path
    lines: int = 0
    sound: int = 0
    broken: int = 0
    without_arguments: int = 0
    cut: bool = False
    tick_ns: int = 1_000
    host: str = ""
    starts: list[Start] = field(default_factory=list)
    ended: dict[int, int] = field(default_factory=dict)  # pid -> tick
    tables: dict[str, dict[str, str]] = field(
        default_factory=lambda: {"HH": {}, "FH": {}, "SH": {}}
    )
    names: dict[tuple[str, str], int] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    blocks: list[Int64Array] = field(default_factory=list)
    numbers: list[Int64Array] = field(default_factory=list)  # rows: pid, number of a line
    damage: str = ""
    budget: Budget = field(default_factory=lambda: Budget.of_file(0))

    def read(self) -> None:
        text = TextStream(self.path)
        self.budget = text.budget
        for lines in _line_blocks(text):
            if not self.budget.parse(len(lines)):
                self.damage = "more lines than a file of its size may have"
                return
            self._take(lines)
        self.damage = text.damage

    def _take(self, lines: list[bytes]) -> None:
        kept = [line for line in map(_trimmed, lines) if line]
        events, broken = _decoded(kept)
        self.budget.parse(_BROKEN_LINES * broken)
        self.lines += len(kept)
        self.broken += broken
        self.cut = bool(kept) and broken > 0 and not _is_json(kept[-1])
        rows = [e for e in events if e.get("ph") in _COMPLETE]
        self.numbers.append(_numbers(events))
        self.sound += len(rows)
        for event in events:
            if event.get("ph") in _METADATA:
                self._take_metadata(event)
        calls = [e for e in rows if e.get("cat") != _TRACER]
        for event in rows:
            if event.get("cat") == _TRACER:
                self._take_mark(event)
        if calls:
            self.blocks.append(self._columns(calls))

    def _take_metadata(self, event: Event) -> None:
        arguments = _arguments(event)
        name, value = str(arguments.get("name", "")), arguments.get("value")
        self.sound += 1
        kind = str(event.get("name"))
        if kind in self.tables:
            self.tables[kind].setdefault(str(value), name)
            self.host = self.host or (str(value) if kind == "HH" else "")
        elif kind == "CM" and name == "time_metric":
            self.tick_ns = _TICK_NS.get(str(value).upper(), self.tick_ns)

    def _take_mark(self, event: Event) -> None:
        arguments, pid = _arguments(event), integer(event.get("pid"))
        if event.get("name") == "end":
            self.ended[pid] = integer(event.get("ts"))
        elif event.get("name") == "start":
            parent = integer(arguments.get("ppid"))
            self.starts.append(
                Start(
                    pid,
                    None if parent == ABSENT else parent,
                    str(arguments.get("hhash", "")),
                    str(arguments.get("cmd_hash", "")),
                    str(arguments.get("cwd", "")),
                    str(arguments.get("version", "")),
                    integer(event.get("ts")),
                )
            )

    def _columns(self, events: Sequence[Event]) -> Int64Array:
        """One row per column, in the order of COLUMNS."""
        arguments = [_arguments(e) for e in events]
        self.host = self.host or str(arguments[0].get("hostname", ""))
        names, keys = self.names, self.keys
        name = [
            names.setdefault((str(e.get("cat")), str(e.get("name"))), len(names)) for e in events
        ]
        file = [
            -1 if key is None else keys.setdefault(str(key), len(keys))
            for key in (a.get("fhash", a.get("fname")) for a in arguments)
        ]
        self.without_arguments += sum(not a for a in arguments)
        columns = [
            *([integer(e.get(key)) for e in events] for key in ("pid", "tid", "ts", "dur")),
            name,
            file,
            *([integer(a.get(key)) for a in arguments] for key in ("ret", "size", "offset")),
            [_flags(a) for a in arguments],
            [integer(a.get("epoch")) for a in arguments],
            [integer(e.get("id")) for e in events],
        ]
        table = np.array(columns, np.int64)
        sound = (table[:4] != ABSENT).all(axis=0) & (table[3] >= 0)
        self.broken += int((~sound).sum())
        return table[:, sound]

    def trace_file(self) -> TraceFile:
        """Everything as one frozen record; call once."""
        table = np.concatenate(self.blocks or [np.empty((len(COLUMNS), 0), np.int64)], axis=1)
        sound = (np.abs(table[2:4]) <= self._latest).all(axis=0)
        self.broken += int((~sound).sum())
        table = table[:, sound]
        columns = dict(zip(COLUMNS, table, strict=True))
        numbered, unwritten = self._numbered()
        return TraceFile(
            path=str(self.path),
            events=Events(columns, tuple(self.names), tuple(self.keys)),
            starts=tuple(s for s in self.starts if abs(s.ts) <= self._latest),
            ends=tuple(
                (pid, ts * self.tick_ns)
                for pid, ts in self.ended.items()
                if abs(ts) <= self._latest
            ),
            hosts=self.tables["HH"],
            files=self.tables["FH"],
            strings=self.tables["SH"],
            tick_ns=self.tick_ns,
            host=self.host,
            losses=tuple(self._losses()),
            numbered=numbered,
            unwritten=unwritten,
        )

    @property
    def _latest(self) -> int:
        """The latest tick whose time in nanoseconds leaves room to add and subtract."""
        return _LATEST_NS // self.tick_ns

    def _losses(self) -> Iterator[str]:
        broken = self.broken - self.cut
        if self.damage:
            yield f"{self.damage}; {self.sound:,} events before that were read"
        if self.cut:
            yield "the last line is cut"
        if broken:
            yield f"lines left out as they are no sound event: {broken:,}"
        if self.without_arguments and not self.keys:
            yield (
                f"{self.without_arguments:,} events without file and size: {NOT_RECORDED[0]} "
                "DFTRACER_INC_METADATA=1, they are in no number"
            )

    def _numbered(self) -> tuple[int, int]:
        """How many numbers lines have, and how many between them no line has.

        Lines that hold no sound event may have had those, and are counted elsewhere.
        """
        pid, number = np.concatenate([*self.numbers, np.empty((2, 0), np.int64)], axis=1)
        order = np.lexsort((number, pid))
        pid, number = pid[order], number[order]
        # Sums of differences would not fit into 64 bits, a single one does.
        steps = np.diff(number)[pid[1:] == pid[:-1]]
        gaps = sum(steps[steps > 1].tolist()) - int((steps > 1).sum())
        found = len(number) - int((steps == 0).sum())
        return found, max(gaps - self.broken, 0)


def integer(value: object) -> int:
    """The integer that a JSON value holds, as number or as text; ABSENT for anything else."""
    if type(value) is int:
        return value if -(2**62) < value < 2**62 else ABSENT
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) < 19:
        return int(value)
    return ABSENT


def _arguments(event: Event) -> Event:
    arguments = event.get("args")
    return arguments if isinstance(arguments, dict) else _NO_ARGUMENTS


def _numbers(events: Sequence[Event]) -> Int64Array:
    """Process and number of each line that has one; DFTracer counts from 0 or 1 without gaps."""
    pairs = [(integer(e.get("pid")), integer(e.get("id"))) for e in events]
    return np.array([pair for pair in pairs if pair[1] >= 0], np.int64).reshape(-1, 2).T


def _flags(arguments: Event) -> int:
    """Flags of open(2); of fopen 1 (O_WRONLY) where its mode says that it writes."""
    mode = arguments.get("mode")
    if isinstance(mode, str) and not mode.isdecimal():
        return int("w" in mode or "a" in mode)
    return integer(arguments.get("flags"))


def _line_blocks(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Whole lines, block by block; the last block holds what follows the last line end."""
    rest: list[bytes] = []
    for chunk in chunks:
        lines = chunk.split(b"\n")
        if len(lines) > 1:
            lines[0] = b"".join([*rest, lines[0]])
            rest = [lines.pop()]
            yield lines
        elif len(rest) < _MOST_CHUNKS:
            rest.append(chunk)
        else:
            rest[:] = [_TOO_LONG] * _MOST_CHUNKS
    if any(rest):
        yield [b"".join(rest)]


def _trimmed(line: bytes) -> bytes:
    """The line without the brackets and commas that some versions write around objects."""
    return line.strip(b" \t\r\n,[]\0")


def _decoded(lines: Sequence[bytes]) -> tuple[list[Event], int]:
    """The objects of the lines, and how many lines hold none."""
    try:
        values = orjson.loads(b"[" + b",".join(lines) + b"]")
    except orjson.JSONDecodeError:
        values = []
    if len(values) != len(lines):  # a broken line, or one that only fits its neighbours
        values = [orjson.loads(line) for line in lines if _is_json(line)]
    events = [value for value in values if isinstance(value, dict)]
    return events, len(lines) - len(events)


def _is_json(line: bytes) -> bool:
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True
