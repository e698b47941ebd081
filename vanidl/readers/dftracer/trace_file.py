"""One DFTracer trace file (`.pfw`, `.pfw.gz`) as columns, whatever version wrote it.

A trace is one JSON object a line, in one gzip member or several. Three dialects are about:
numbers as strings and names in place (2023), hash tables in metadata lines with `ph` "M" and
"X" between brackets (1.0 to 2.1.0), the same with `ph` 4 and 1 and a `type`, without brackets
(later ones). Lines of calls that were summed up have `ph` 3, once "C", which samples of telemetry
have as well. Nothing is believed: what is no sound event is counted and left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from vanidl.encoding.budget import OBJECT_BYTES, Budget
from vanidl.encoding.text_stream import TextStream
from vanidl.errors import InputError
from vanidl.schema.dataclass import dataclass

# Lines of a trace -> objects of JSON, and the integers that they hold.

Event = dict[str, Any]

ABSENT = -(2**62)
"""Stands for an integer that an event does not hold."""

_MOST_CHUNKS = 256  # of one line, 64 MiB: a lost line end must not pull the file into memory
_TOO_LONG = b"\xff"  # in place of such a line: no JSON
_NO_ARGUMENTS: Event = {}


def to_integer(value: object) -> int:
    """The integer that a JSON value holds, as number or as text; ABSENT for anything else."""
    if type(value) is int:
        return value if -(2**62) < value < 2**62 else ABSENT
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) < 19:
        return int(value)
    return ABSENT


def get_arguments(event: Event) -> Event:
    """What an event says beside its columns; empty where it says nothing."""
    arguments = event.get("args")
    return arguments if isinstance(arguments, dict) else _NO_ARGUMENTS


def split_lines(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
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


def strip_line(line: bytes) -> bytes:
    """The line without the brackets and commas that some versions write around objects."""
    return line.strip(b" \t\r\n,[]\0")


def decode_lines(lines: Sequence[bytes]) -> tuple[list[Event], int]:
    """The objects of the lines, and how many lines hold none."""
    try:
        values = orjson.loads(b"[" + b",".join(lines) + b"]")
    except orjson.JSONDecodeError:
        values = []
    if len(values) != len(lines):  # a broken line, or one that only fits its neighbours
        values = [orjson.loads(line) for line in lines if is_json(line)]
    events = [value for value in values if isinstance(value, dict)]
    return events, len(lines) - len(events)


def is_json(line: bytes) -> bool:
    """Whether a line is JSON."""
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True


# What DFTracer was told to record: settings of the whole run, as its traces state them.
#
# Traces of 2.1 and later state them in the event that ends the process, earlier ones in none or
# in lines of metadata. Where none states them they are not known.

TICK_NS = {"NS": 1, "US": 1_000, "MS": 1_000_000, "S": 1_000_000_000, "SEC": 1_000_000_000}

_KNOWN = ("io", "posix", "stdio", "trace_all_files", "aggregation_enable", "trace_interval_ms")
_VERSION = re.compile(r"v?(\d{1,6}(\.\d{1,6}){1,3})")
_METRIC = "time_metric"
_MOST_DIGITS = {19: 1, 16: 1_000, 13: 1_000_000, 10: 1_000_000_000}
"""Digits of a moment between 2001 and 2286 to the unit that it is given in."""


class Settings:
    """The settings that one file states; later ones replace earlier ones."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.tick_ns: int | None = None

    def take(self, name: str, value: object) -> None:
        """One setting; what is none that is used here is left out."""
        if name == _METRIC:
            self.tick_ns = TICK_NS.get(str(value).upper(), self.tick_ns)
        elif name in _KNOWN and (number := to_integer(value)) != ABSENT:
            self.values[name] = number

    def take_all(self, stated: object) -> None:
        """Those of the end event."""
        if isinstance(stated, Mapping):
            for name in (_METRIC, *_KNOWN):
                if name in stated:
                    self.take(name, stated[name])


def guess_tick_ns(moment: int) -> int:
    """The unit of a moment, by its size; microseconds, the default, where that tells nothing."""
    return _MOST_DIGITS.get(len(str(abs(moment))), 1_000)


def read_version(stated: object) -> str:
    """A version as people write it: "2.0.3" of "v2.0.3" and 20003, "1.0.5" of 100005."""
    number = to_integer(stated)
    if number < 0:
        match = _VERSION.match(str(stated))
        return match[1] if match else ""
    first = 100_000 if number >= 100_000 else 10_000  # of the major number, until 2.0 and since
    return f"{number // first}.{number % first // 100}.{number % 100}"


# Which layer made an event: by its `type`, which newer traces have, else by its category.
#
# A category is free text: a program may call its own regions "POSIX". Where there is a type it
# decides, and such regions are kept apart.

MPI = "MPI"
MPI_IO = "MPI-IO"
HDF5 = "HDF5"
GPU = "GPU"

ABOVE = (MPI_IO, HDF5)
"""Layers whose bytes go through POSIX."""

_LIBC_IO = 3
_OF_TYPE = {4: GPU, 5: HDF5, 10: MPI, 11: GPU, 14: GPU}
_OF_CATEGORY = {"MPIIO": MPI_IO, "MPI": MPI, "HDF5": HDF5}
_RESERVED = frozenset({"POSIX", "STDIO", MPI, MPI_IO, HDF5, GPU, "MPIIO"})
_REGION = "region "


def classify_event(event: Event) -> str:
    """POSIX, STDIO, a layer of this module, or the category that the program gave."""
    named = str(event.get("cat"))
    kind = to_integer(event.get("type"))
    if kind in _OF_TYPE:
        return MPI_IO if kind == 10 and named == "MPIIO" else _OF_TYPE[kind]
    if kind == ABSENT:
        return _OF_CATEGORY.get(named, named)
    return _REGION + named if kind != _LIBC_IO and named in _RESERVED else named


# Lines that stand for many calls: DFTracer sums up where it is told to aggregate.
#
# One line holds all calls of one name by one thread in one interval, one second unless set: how
# many, and the sum, least and largest of each number that they have. Newer versions do not keep
# the file. A copy of what was not yet written goes into each forked process, under its number.

SUMMED_COLUMNS = (
    "pid", "tid", "ts", "name", "file", "calls", "dur", "ret", "least", "size", "largest",
)  # fmt: skip
"""`dur` and `ret` are sums, `least` the least `ret`, `size` and `largest` bounds of an item."""

_COUNT = "dft_cnt"


def is_summed(event: Event) -> bool:
    """Whether a line stands for calls that were summed up, and not for a sample of a counter."""
    return _COUNT in get_arguments(event)


def read_summed_row(event: Event) -> list[int]:
    """The numbers of one line: all of SUMMED_COLUMNS but name and file."""
    arguments = get_arguments(event)
    calls = to_integer(arguments.get(_COUNT))
    return [
        *(to_integer(event.get(key)) for key in ("pid", "tid", "ts")),
        calls,
        _get_sum(arguments, "dur", calls),
        _get_sum(arguments, "ret", calls),
        _get_bound(arguments, "ret", "min"),
        _get_bound(arguments, "size", "min"),
        _get_bound(arguments, "size", "max"),
    ]


def _get_sum(found: Event, name: str, calls: int) -> int:
    """The sum over all calls; a number that was the same in all may be given once."""
    if (total := to_integer(found.get(f"{name}_sum"))) != ABSENT:
        return total
    each = to_integer(found.get(name))
    return ABSENT if each == ABSENT else to_integer(each * calls)


def _get_bound(found: Event, name: str, end: str) -> int:
    return to_integer(found.get(f"{name}_{end}", found.get(name)))


Int64Array = NDArray[np.int64]

NOT_RECORDED = ("recorded without", "were never written")
"""In the losses of what was never recorded, which leave the file whole."""

# Tuples: membership is by equality, so that a value that cannot be hashed is no error.
_COMPLETE = (1, "1", "X")
_METADATA = (4, "4", "M")
_SUMMED = (3, "3", "A", 2, "2", "C")  # samples of counters have some of these as well
_LATEST_NS = 1 << 61  # 73 years after 1970
_TRACER = "dftracer"
_BROKEN_LINES = 3  # sound lines, beside itself, that a broken one takes the time of
_LINE_BYTES = 260  # of memory until all is read: columns, joined, and those of sound ones
_PIECES_A_PROCESS = 10  # of the budget: each has tables of its own from here to the report

COLUMNS = (
    "pid", "tid", "ts", "dur", "name", "file", "ret", "size", "offset", "flags", "epoch", "number",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Events:
    """Columns of equal length, one entry per event; times in ticks of the file.

    `name` is an index into `names`, pairs of (category, name); `file` an index into `files`,
    keys of a hash table or names, -1 where the event names none; `number` counts the events of a
    process. ABSENT: not in the event. Those of calls that were summed up have SUMMED_COLUMNS.
    """

    columns: dict[str, Int64Array]
    names: tuple[tuple[str, str], ...]
    files: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.columns["pid"])


NO_CALLS = Events({name: np.empty(0, np.int64) for name in SUMMED_COLUMNS}, (), ())


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
    summed: Events = NO_CALLS  # calls that were summed up
    ranks: Mapping[int, int] = field(default_factory=dict)  # pid -> its rank in MPI
    settings: Mapping[str, int] = field(default_factory=dict)
    samples: int = 0  # of telemetry and of counters of the hardware
    unknown: int = 0  # lines of a kind that is not known here
    ambiguous: int = 0  # names of files whose hash stands for another name already

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
        of_events = (*self.events.columns["pid"].tolist(), *self.summed.columns["pid"].tolist())
        return len({*of_events, *(start.pid for start in self.starts)})

    @property
    def empty(self) -> bool:
        """Whether no process wrote anything into it."""
        return not (len(self.events) or len(self.summed) or self.starts or self.samples)


def read_trace_file(path: str | Path) -> TraceFile:
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
    trace = content.trace_file()
    # Each process takes records of its own, so a file may name only as many as fit its size.
    if not content.budget.divide(_PIECES_A_PROCESS * trace.processes):
        raise InputError(
            f"{path}: expected the trace of one process, or of some, found {trace.processes:,} "
            f"process numbers, which are more than {content.budget.pieces_limit}"
        )
    return trace


@dataclass(slots=True)
class _Content:
    """What the text of a trace holds, read once from start to end."""

    path: Path
    lines: int = 0
    sound: int = 0
    broken: int = 0
    without_arguments: int = 0
    cut: bool = False
    samples: int = 0
    unknown: int = 0
    ambiguous: int = 0
    settings: Settings = field(default_factory=Settings)
    tick_ns: int = 1_000  # known once all is read
    host: str = ""
    starts: list[Start] = field(default_factory=list)
    ranks: dict[int, int] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)  # pid -> tick
    tables: dict[str, dict[str, str]] = field(
        default_factory=lambda: {"HH": {}, "FH": {}, "SH": {}}
    )
    names: dict[tuple[str, str], int] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    blocks: list[Int64Array] = field(default_factory=list)
    summed: list[Int64Array] = field(default_factory=list)
    numbers: list[Int64Array] = field(default_factory=list)  # rows: pid, number of a line
    damage: str = ""
    budget: Budget = field(default_factory=lambda: Budget.of_file(0))

    def read(self) -> None:
        text = TextStream(self.path)
        self.budget = text.budget
        for lines in split_lines(text):
            if not self.budget.parse(len(lines)):
                self.damage = f"its lines are more than {self.budget.values_limit}"
                return
            if not self.budget.hold(_LINE_BYTES * len(lines)):
                self.damage = f"its events take more than {self.budget.memory_limit}"
                return
            self._take(lines)
        self.damage = text.damage

    def _take(self, lines: list[bytes]) -> None:
        kept = [line for line in map(strip_line, lines) if line]
        events, broken = decode_lines(kept)
        self.budget.parse(_BROKEN_LINES * broken)
        self.lines += len(kept)
        self.broken += broken
        self.cut = bool(kept) and broken > 0 and not is_json(kept[-1])
        # Process and number of each line that has one; DFTracer counts from 0 or 1 without gaps.
        pairs = [(to_integer(e.get("pid")), to_integer(e.get("id"))) for e in events]
        numbered = [pair for pair in pairs if pair[1] >= 0]
        self.numbers.append(np.array(numbered, np.int64).reshape(-1, 2).T)

        # Names and settings first: calls of the same block may use them.
        rows = [e for e in events if e.get("ph") in _COMPLETE]
        self.sound += len(rows)
        others = [e for e in events if e.get("ph") not in _COMPLETE]
        for event in others:
            if event.get("ph") in _METADATA:
                self._take_metadata(event)
        for event in rows:
            if event.get("cat") == _TRACER:
                self._take_mark(event)

        # Calls, sums of calls and samples.
        if calls := [e for e in rows if e.get("cat") != _TRACER]:
            self.blocks.append(self._columns(calls))
        self._take_series([e for e in others if e.get("ph") not in _METADATA])

    def _take_series(self, events: Sequence[Event]) -> None:
        """Lines that are neither a call nor about names: sums of calls, and samples."""
        sums = [e for e in events if e.get("ph") in _SUMMED]
        summed = [e for e in sums if is_summed(e)]
        self.sound += len(sums)
        self.samples += len(sums) - len(summed)
        self.unknown += len(events) - len(sums)
        if summed:
            rows = np.array([read_summed_row(e) for e in summed], np.int64).T
            self.summed.append(np.vstack([rows[:3], *self._coded(summed), rows[3:]]))

    def _take_metadata(self, event: Event) -> None:
        arguments = get_arguments(event)
        name, value = str(arguments.get("name", "")), arguments.get("value")
        self.sound += 1
        kind = str(event.get("name"))
        if kind in self.tables:
            known = self.tables[kind].setdefault(str(value), name)
            self.ambiguous += kind == "FH" and known != name
            self.host = self.host or (str(value) if kind == "HH" else "")
        elif kind == "CM":
            self.settings.take(name, value)
        elif kind == "PR" and name == "rank" and self.budget.hold(OBJECT_BYTES):
            self.ranks[to_integer(event.get("pid"))] = to_integer(value)

    def _take_mark(self, event: Event) -> None:
        arguments, pid = get_arguments(event), to_integer(event.get("pid"))
        self.settings.take_all(arguments.get("cfg"))
        if event.get("name") == "end":
            self.ended[pid] = to_integer(event.get("ts"))
        elif event.get("name") == "start":
            parent = to_integer(arguments.get("ppid"))
            self.starts.append(
                Start(
                    pid,
                    None if parent == ABSENT else parent,
                    str(arguments.get("hhash", "")),
                    str(arguments.get("cmd_hash", "")),
                    str(arguments.get("cwd", "")),
                    read_version(arguments.get("version")),
                    to_integer(event.get("ts")),
                )
            )

    def _coded(self, events: Sequence[Event]) -> tuple[list[int], list[int]]:
        """The code of each event's name, and of its file."""
        names, keys = self.names, self.keys
        arguments = (get_arguments(e) for e in events)
        named = (a.get("fhash", a.get("fname")) for a in arguments)
        return (
            [names.setdefault((classify_event(e), str(e.get("name"))), len(names)) for e in events],
            [-1 if key is None else keys.setdefault(str(key), len(keys)) for key in named],
        )

    def _columns(self, events: Sequence[Event]) -> Int64Array:
        """One row per column, in the order of COLUMNS."""
        arguments = [get_arguments(e) for e in events]
        # A process that goes on in another file does not name its host there again.
        self.host = self.host or str(arguments[0].get("hhash", arguments[0].get("hostname", "")))
        self.without_arguments += sum(not a for a in arguments)
        columns = [
            *([to_integer(e.get(key)) for e in events] for key in ("pid", "tid", "ts", "dur")),
            *self._coded(events),
            *([to_integer(a.get(key)) for a in arguments] for key in ("ret", "size", "offset")),
            [_get_flags(a) for a in arguments],
            [to_integer(a.get("epoch")) for a in arguments],
            [to_integer(e.get("id")) for e in events],
        ]
        table = np.array(columns, np.int64)
        sound = (table[:4] != ABSENT).all(axis=0) & (table[3] >= 0)
        self.broken += int((~sound).sum())
        return table[:, sound]

    def trace_file(self) -> TraceFile:
        """Everything as one frozen record; call once."""
        # First the unit of times, by which ends are converted as well.
        self.tick_ns = self._find_tick_ns()
        calls = self._events(COLUMNS, self.blocks)
        summed = self._events(SUMMED_COLUMNS, self.summed)
        numbered, unwritten = self._count_numbers()
        return TraceFile(
            path=str(self.path),
            events=calls,
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
            summed=summed,
            ranks=self.ranks,
            settings=self.settings.values,
            samples=self.samples,
            unknown=self.unknown,
            ambiguous=self.ambiguous,
        )

    def _events(self, names: tuple[str, ...], blocks: Sequence[Int64Array]) -> Events:
        """All events of one shape whose times are possible; the others count as broken."""
        table = np.concatenate([np.empty((len(names), 0), np.int64), *blocks], axis=1)
        of_sum = names == SUMMED_COLUMNS
        times = [names.index(name) for name in (("ts",) if of_sum else ("ts", "dur"))]
        needed = [names.index(name) for name in ("pid", "tid", "ts", "calls")] if of_sum else []
        sound = (np.abs(table[times]) <= self._latest).all(axis=0)
        sound &= (table[needed] != ABSENT).all(axis=0)
        self.broken += int((~sound).sum())
        columns = dict(zip(names, table[:, sound], strict=True))
        return Events(columns, tuple(self.names), tuple(self.keys))

    def _find_tick_ns(self) -> int:
        """The unit of its times: as stated, else by the size of the first."""
        if self.settings.tick_ns is not None:
            return self.settings.tick_ns
        moments = [start.ts for start in self.starts]
        moments += [int(b[2, 0]) for b in (*self.blocks, *self.summed) if b.shape[1]]
        return guess_tick_ns(moments[0]) if moments else 1_000

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

    def _count_numbers(self) -> tuple[int, int]:
        """How many numbers lines have, and how many between them no line has.

        Lines that hold no sound event may have had those, and are counted elsewhere. Where calls
        were summed up, nobody can tell: a sum does not always count the calls that it holds.
        """
        pid, number = np.concatenate([*self.numbers, np.empty((2, 0), np.int64)], axis=1)
        order = np.lexsort((number, pid))
        pid, number = pid[order], number[order]
        # Sums of differences would not fit into 64 bits, a single one does.
        steps = np.diff(number)[pid[1:] == pid[:-1]]
        gaps = sum(steps[steps > 1].tolist()) - int((steps > 1).sum())
        numbers = len(number) - int((steps == 0).sum())
        return numbers, 0 if self.summed else max(gaps - self.broken, 0)


def _get_flags(found: Event) -> int:
    """Flags of open(2); of fopen 1 (O_WRONLY) where its mode says that it writes."""
    mode = found.get("mode")
    if isinstance(mode, str) and not mode.isdecimal():
        return int("w" in mode or "a" in mode)
    return to_integer(found.get("flags"))
