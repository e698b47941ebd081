"""TensorFlow and JAX profiles of today, `plugins/profile/SESSION/HOST.xplane.pb`: bytes to spans.

Times are those of the machine's clock: the profile says when it began. Profiles that do not
are placed by the name of their folder.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vanidl.encoding.budget import OBJECT_BYTES, Budget, bounded_name, read_whole
from vanidl.encoding.protobuf import (
    PADDING,
    Fields,
    NotProtobuf,
    decode_rounds,
    field_end,
    fields,
    varint_at,
    varint_int64,
)
from vanidl.errors import InputError
from vanidl.readers.launches import match_launches
from vanidl.readers.names import compile_wait_names, parse_session_name
from vanidl.readers.records import ProfileTrace
from vanidl.readers.xprof import profile
from vanidl.readers.xprof.profile import (
    NO_STEP,
    NONE,
    Label,
    Placed,
    SessionEvents,
    Writer,
    build_profile,
)
from vanidl.schema.dataclass import dataclass

# Events of a TensorFlow or JAX profile (message XSpace) as columns, decoded many at a time.
#
# A profile is planes (a host, a device), a plane is lines (a thread, a stream), a line is
# events. Names of events and of statistics are numbers that the plane explains. Messages
# XSpace, XPlane, XLine, XEvent, XEventMetadata, XStat of tsl/profiler/protobuf/xplane.proto.

Int64Array = NDArray[np.int64]

_PLANES, _ERRORS, _HOSTS = 1, 2, 4
_NAME, _LINES, _EVENT_NAMES, _STAT_NAMES, _STATS = 2, 3, 4, 5, 6
_LINE_ID, _LINE_NAME, _LINE_START_NS, _EVENTS, _LINE_TITLE = 1, 2, 3, 4, 11
_KEY, _ENTRY, _TEXT, _TITLE = 1, 2, 2, 4
_EVENT, _OFFSET_PS, _DURATION_PS, _EVENT_STATS = 1, 2, 3, 4
_STAT, _UNSIGNED, _SIGNED = 1, 3, 4

_PLANE_TAG = _PLANES << 3 | 2
_EVENT_TAG = _EVENTS << 3 | 2
_ONE_BYTE = 0x80  # lengths below take one
_BLOCK = 1 << 16  # events decoded at a time: bounds memory

ABSENT = np.iinfo(np.int64).min
"""Value of a statistic that an event does not have."""


@dataclass(frozen=True, slots=True)
class Name:
    """What an event's name number stands for."""

    text: str
    title: str  # shorter; of a TensorFlow operator its type; "" where absent


@dataclass(frozen=True, slots=True)
class Plane:
    """A host or a device; `lines` are still encoded."""

    name: str
    lines: tuple[memoryview, ...]
    names: Mapping[int, Name]
    stat_names: Mapping[int, str]
    stats: Mapping[str, int]  # statistics of the plane itself that are whole numbers


@dataclass(frozen=True, slots=True)
class Space:
    """A profile: all planes that are whole."""

    planes: tuple[Plane, ...]
    hosts: tuple[str, ...]
    errors: tuple[str, ...]  # what the profiler itself says it could not record
    loss: str = ""  # why there are no more planes, "" for a whole profile


@dataclass(frozen=True, slots=True)
class Line:
    """Events of a thread or a stream: one entry per event in every array.

    Times are nanoseconds, rounded from picoseconds, from where the file counts; `name_code` is
    a key of `Plane.names`. `stats` holds each statistic that was asked for, ABSENT where an
    event lacks it; where it is no whole number, 0 says that it is there.
    """

    name: str
    start_ns: Int64Array
    end_ns: Int64Array
    name_code: Int64Array
    stats: Mapping[str, Int64Array]


def read_space(data: memoryview) -> Space:
    """The planes of a profile, their lines not yet decoded; of a cut one those before the cut.

    Raises:
        NotProtobuf: The bytes are no such message, or are cut within the first plane.
    """
    # What comes before the first field that is not whole.
    whole, loss = 0, ""
    try:
        while whole < len(data):
            whole = field_end(data, whole)
    except NotProtobuf as error:
        if data[0] != _PLANE_TAG:
            raise
        loss = f"the profile is cut ({error})"
        if not whole:
            raise NotProtobuf(loss) from error

    # Its planes; what they hold is bounded by the length of the file.
    budget = Budget.of_file(len(data))
    top = fields(data[:whole], budget)
    encoded = top.messages(_PLANES)
    _divide_budget(budget, len(encoded), "planes")
    planes = tuple(_read_plane(fields(plane, budget), budget) for plane in encoded)
    return Space(
        planes, _decode_texts(top.messages(_HOSTS)), _decode_texts(top.messages(_ERRORS)), loss
    )


def _divide_budget(budget: Budget, pieces: int, what: str) -> None:
    if not budget.divide(pieces):
        raise NotProtobuf(f"its {what} are more than {budget.pieces_limit}")


def read_blocks(encoded: memoryview, plane: Plane, stats: Sequence[str]) -> Iterator[Line]:
    """The events of one line, some thousands at a time, with the statistics of these names.

    Raises:
        NotProtobuf: The bytes are no such message.
    """
    text = b"".join((encoded, PADDING))
    head, start, end = _split_line(text)
    name = _decode_text(head.messages(_LINE_TITLE)) or _decode_text(head.messages(_LINE_NAME))
    base = varint_int64(head.varint(_LINE_START_NS))

    # Blocks of events bound the memory, however long the line is.
    codes = {code: stats.index(name) for code, name in plane.stat_names.items() if name in stats}
    for low in range(0, len(start), _BLOCK):
        block = slice(low, low + _BLOCK)
        columns = _decode_block(
            np.frombuffer(text, np.uint8), start[block], end[block], (len(stats), codes)
        )
        begun, lasted = columns[_OFFSET_PS], columns[_DURATION_PS]
        yield Line(
            name,
            base + _to_nanoseconds(begun),
            base + _to_nanoseconds(begun + np.maximum(lasted, 0)),
            columns[_EVENT],
            {name: columns[_EVENT_STATS + i] for i, name in enumerate(stats)},
        )


def _read_plane(plane: Fields, budget: Budget) -> Plane:
    # Events and statistics are named by codes of their own plane.
    names = {
        code: Name(
            bounded_name(_decode_text(entry.messages(_TEXT))),
            bounded_name(_decode_text(entry.messages(_TITLE))),
        )
        for code, entry in _read_entries(plane, _EVENT_NAMES, budget)
    }
    stat_names = {
        code: _decode_text(entry.messages(_TEXT))
        for code, entry in _read_entries(plane, _STAT_NAMES, budget)
    }
    stats = {}
    for stat in map(fields, plane.messages(_STATS)):
        value = stat.varint(_UNSIGNED) or varint_int64(stat.varint(_SIGNED))
        stats[stat_names.get(stat.varint(_STAT), "")] = value
    lines = tuple(plane.messages(_LINES))
    # Each line takes records of its own, so that their number is bounded.
    _divide_budget(budget, len(lines), "lines of planes")
    return Plane(_decode_text(plane.messages(_NAME)), lines, names, stat_names, stats)


def _read_entries(plane: Fields, number: int, budget: Budget) -> Iterator[tuple[int, Fields]]:
    """A map of the plane: (key, value)."""
    for pair in map(fields, plane.messages(number)):
        values = pair.messages(_ENTRY)
        if values:
            if not budget.hold(2 * OBJECT_BYTES):
                raise NotProtobuf(f"its names take more than {budget.memory_limit}")
            yield varint_int64(pair.varint(_KEY)), fields(values[-1])


def _split_line(text: bytes) -> tuple[Fields, Int64Array, Int64Array]:
    """A line's own fields, and the starts and ends of its events."""
    stop = len(text) - len(PADDING)
    starts, ends, head = array("q"), array("q"), []  # an event may take two bytes of the file
    at = 0
    while at < stop:
        if text[at] != _EVENT_TAG:
            low, at = at, field_end(text, at)
            head.append(text[low:at])
            continue
        # An event: nearly always its length takes one byte.
        size = text[at + 1]
        if size < _ONE_BYTE:
            at += 2
        else:
            size, at = varint_at(text, at + 1)
        starts.append(at)
        at += size
        ends.append(at)
    if at != stop:
        raise NotProtobuf("a line that ends behind its plane")
    own = fields(memoryview(b"".join(head)))
    return own, np.frombuffer(starts, np.int64), np.frombuffer(ends, np.int64)


def _decode_block(
    text: NDArray[np.uint8], start: Int64Array, end: Int64Array, wanted: tuple[int, dict[int, int]]
) -> Int64Array:
    """Fields 1 to 3 of events in rows 1 to 3, then a row for each statistic; row 0 is empty."""
    count, codes = wanted
    columns = np.zeros((_EVENT_STATS + count, len(start)), np.int64)
    # A field that is not there is 0, as always in such messages; a statistic is marked.
    columns[_EVENT_STATS:] = ABSENT
    for found in decode_rounds(text, start, end):
        for number in (_EVENT, _OFFSET_PS, _DURATION_PS):
            event, value = found.varints(number)
            columns[number, event] = value
        is_stat = (found.number == _EVENT_STATS) & ~found.is_varint
        if codes and is_stat.any():
            low = found.value[is_stat]
            code, value = _decode_stats(text, low, low + found.nbytes[is_stat])
            event = found.message[is_stat]
            for wanted_code, row in codes.items():
                of_code = code == wanted_code
                columns[_EVENT_STATS + row, event[of_code]] = value[of_code]
    return columns


def _decode_stats(
    text: NDArray[np.uint8], start: Int64Array, end: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """(name code, value) of each statistic; 0 for what is no whole number."""
    columns = np.zeros((_SIGNED + 1, len(start)), np.int64)
    for found in decode_rounds(text, start, end):
        for number in (_STAT, _UNSIGNED, _SIGNED):
            stat, value = found.varints(number)
            columns[number, stat] = value
    return columns[_STAT], columns[_UNSIGNED] + columns[_SIGNED]


def _to_nanoseconds(ps: Int64Array) -> Int64Array:
    """To the nearest; order is kept, so what lies within something still does."""
    return (ps + 500) // 1000


def _decode_texts(values: Sequence[memoryview]) -> tuple[str, ...]:
    return tuple(str(value, "utf-8", "replace") for value in values)


def _decode_text(values: Sequence[memoryview]) -> str:
    return str(values[-1], "utf-8", "replace") if values else ""


SOURCE = "xplane"

_STEP, _HLO, _CORRELATION = "step_num", "hlo_op", "correlation_id"
_BEGAN_NS, _PID = "profile_start_time", "process_id"
_LARGEST_PID = 2**31 - 1
_Key = tuple[int | None, int]  # number of a name, and two bits: a numbered step, of XLA
_USELESS = -1  # code of a label whose events mean nothing
_EXPECTED = "expected a TensorFlow or JAX profile"
_REMEDY = "give a *.xplane.pb file that TensorFlow's or JAX's profiler wrote"


def read_xplane(
    path: str | Path, *, wait_names: Sequence[str] = (), utc_offset_s: int = 0
) -> ProfileTrace:
    """The spans of one profile, sorted by start.

    Of a cut file the planes before the cut are used; `losses` says what is missing. A thread
    or device stream has a code of its own.

    Args:
        path: The profile.
        wait_names: Regular expressions, searched in names of events of the host, that mark
            input waits beside `span_kinds.WAIT_NAMES`.
        utc_offset_s: Local time minus UTC, for profiles that do not say when they began.

    Raises:
        InputError: The file cannot be read, is no such profile, or holds nothing of use.
        UsageError: One of `wait_names` is no regular expression.
    """
    waits = compile_wait_names(wait_names, profile.WAIT_NAMES)
    try:
        space = read_space(memoryview(read_whole(path)))
        collected = _Collected()
        for plane in space.planes:
            for encoded in plane.lines:
                known: dict[_Key, int] = {}
                for block in read_blocks(encoded, plane, (_STEP, _HLO, _CORRELATION)):
                    collected.add(plane, block, known, waits)
    except OSError as error:
        raise InputError(f"{path}: {_EXPECTED}, found {error.strerror}; check the path") from error
    except NotProtobuf as error:
        raise InputError(f"{path}: {_EXPECTED}, found {error}; {_REMEDY}") from error
    if not collected.seen:
        what = space.loss or "a file without events"
        raise InputError(f"{path}: {_EXPECTED}, found {what}; {_REMEDY}")
    events, refused = profile.drop_impossible(collected.events())
    losses = [f"{space.loss}; what comes before was read"] if space.loss else []
    losses += [f"the profiler itself reported: {error}" for error in space.errors]
    losses += [f"events left out as their time is impossible: {refused:,}"] if refused else []

    # The process and host that wrote it, and where its times count from.
    pids = {pid for pid in _get_plane_stats(space, _PID) if 0 < pid <= _LARGEST_PID}
    pid = pids.pop() if len(pids) == 1 else None
    session = parse_session_name(Path(path))
    host = space.hosts[0] if len(space.hosts) == 1 else session.host if session else ""
    writer = Writer(Path(path), SOURCE, host, pid, tuple(losses))
    placed = _place_profile(Path(path), space, events, utc_offset_s)
    return build_profile(events, writer, waits, placed)


@dataclass(slots=True)
class _Collected:
    """The events that may mean something: what else there is goes block by block."""

    seen: int = 0  # events of any kind
    labels: dict[Label, int] = field(default_factory=dict)
    columns: tuple[list[Int64Array], ...] = field(
        default_factory=lambda: tuple([] for _ in range(5))
    )
    calls: tuple[list[Int64Array], ...] = field(
        default_factory=lambda: tuple([] for _ in range(2))
    )  # number and start of those that hand work to devices

    def add(
        self, plane: Plane, block: Line, known: dict[_Key, int], waits: Sequence[re.Pattern[str]]
    ) -> None:
        """Keep what has a meaning of some events of a line; `known` are its codes of labels."""
        self.seen += len(block.start_ns)
        step = block.stats[_STEP]
        numbered, is_hlo = step != ABSENT, block.stats[_HLO] != ABSENT
        key = block.name_code * 4 + numbered * 2 + is_hlo

        # Codes of labels: those that this plane has not used yet are judged once.
        different, place = np.unique(key, return_inverse=True)
        # Names that the plane does not explain are one, so that `known` stays as small as it is.
        keys = [(k >> 2 if k >> 2 in plane.names else None, k & 3) for k in different.tolist()]
        new = list(dict.fromkeys(key for key in keys if key not in known))
        labels = [_build_label(plane, block.name, *key) for key in new]
        kinds = profile.classify_labels(labels, waits).tolist()
        for new_key, label, kind in zip(new, labels, kinds, strict=True):
            means = kind != NONE or label.numbered or profile.is_device_step(label)
            known[new_key] = self.labels.setdefault(label, len(self.labels)) if means else _USELESS
        code = np.array([known[key] for key in keys], np.int64)[place]
        useful = code != _USELESS
        numbers = np.where(numbered, np.maximum(step, NO_STEP), NO_STEP)
        correlation = np.maximum(block.stats[_CORRELATION], 0)
        row = (block.start_ns, block.end_ns, code, numbers, correlation)
        for kept, column in zip(self.columns, row, strict=True):
            kept.append(column[useful])
        if not profile.is_device(plane.name):
            calls = correlation > 0
            self.calls[0].append(correlation[calls])
            self.calls[1].append(block.start_ns[calls])

    def events(self) -> SessionEvents:
        """All that was kept, which is here no longer."""
        start, end, label, step, correlation = map(_take_all, self.columns)
        launch = match_launches(correlation, *map(_take_all, self.calls))
        return SessionEvents(start, end, label, step, tuple(self.labels), launch)


def _take_all(parts: list[Int64Array]) -> Int64Array:
    whole = np.concatenate(parts) if parts else np.empty(0, np.int64)
    parts.clear()
    return whole


def _build_label(plane: Plane, line: str, code: int | None, marks: int) -> Label:
    name = None if code is None else plane.names[code]
    text = name.text if name else ""
    # XLA names events of a device after the whole text of the operation.
    short = name.title if name and text.startswith("%") and name.title else text
    return Label(plane.name, line, short, numbered=bool(marks & 2), is_hlo=bool(marks & 1))


def _place_profile(path: Path, space: Space, events: SessionEvents, utc_offset_s: int) -> Placed:
    if profile.is_absolute(events):
        return Placed(0)
    began_ns = [ns for ns in _get_plane_stats(space, _BEGAN_NS) if profile.is_epoch(ns)]
    if began_ns:
        return Placed(began_ns[0])
    return profile.place_by_folder(path, events, utc_offset_s)


def _get_plane_stats(space: Space, name: str) -> list[int]:
    """Values of a statistic of whole planes."""
    return [plane.stats[name] for plane in space.planes if name in plane.stats]
