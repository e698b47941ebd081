"""Events of a TensorFlow or JAX profile (message XSpace) as columns, decoded many at a time.

A profile is planes (a host, a device), a plane is lines (a thread, a stream), a line is
events. Names of events and of statistics are numbers that the plane explains. Messages
XSpace, XPlane, XLine, XEvent, XEventMetadata, XStat of tsl/profiler/protobuf/xplane.proto.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.encoding.budget import OBJECT_BYTES, Budget, bounded_name
from vanidl.encoding.protobuf import (
    Fields,
    NotProtobuf,
    field_end,
    fields,
    varint_at,
    varint_int64,
)
from vanidl.encoding.protobuf_columns import PADDING, rounds

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


def space(data: memoryview) -> Space:
    """The planes of a profile, their lines not yet decoded; of a cut one those before the cut.

    Raises:
        NotProtobuf: The bytes are no such message, or are cut within the first plane.
    """
    budget = Budget.of_file(len(data))
    whole, loss = _whole(data)
    top = fields(data[:whole], budget)
    found = top.messages(_PLANES)
    _divide(budget, len(found), "planes")
    planes = tuple(_plane(fields(plane, budget), budget) for plane in found)
    return Space(planes, _texts(top.messages(_HOSTS)), _texts(top.messages(_ERRORS)), loss)


def _divide(budget: Budget, pieces: int, what: str) -> None:
    if not budget.divide(pieces):
        raise NotProtobuf(f"its {what} are more than {budget.pieces_limit}")


def _whole(data: memoryview) -> tuple[int, str]:
    """Number of bytes before the first field that is not whole, and what is wrong with it."""
    whole = 0
    try:
        while whole < len(data):
            whole = field_end(data, whole)
    except NotProtobuf as error:
        if data[0] != _PLANE_TAG:
            raise
        why = f"the profile is cut ({error})"
        if not whole:
            raise NotProtobuf(why) from error
        return whole, why
    return whole, ""


def blocks(encoded: memoryview, plane: Plane, stats: Sequence[str]) -> Iterator[Line]:
    """The events of one line, some thousands at a time, with the statistics of these names.

    Raises:
        NotProtobuf: The bytes are no such message.
    """
    text = b"".join((encoded, PADDING))
    head, start, end = _parts(text)
    name = _text(head.messages(_LINE_TITLE)) or _text(head.messages(_LINE_NAME))
    base = varint_int64(head.varint(_LINE_START_NS))
    codes = {code: stats.index(name) for code, name in plane.stat_names.items() if name in stats}
    for low in range(0, len(start), _BLOCK):
        block = slice(low, low + _BLOCK)
        columns = _block(
            np.frombuffer(text, np.uint8), start[block], end[block], (len(stats), codes)
        )
        begun, lasted = columns[_OFFSET_PS], columns[_DURATION_PS]
        yield Line(
            name,
            base + _nanoseconds(begun),
            base + _nanoseconds(begun + np.maximum(lasted, 0)),
            columns[_EVENT],
            {name: columns[_EVENT_STATS + i] for i, name in enumerate(stats)},
        )


def _plane(plane: Fields, budget: Budget) -> Plane:
    names = {
        code: Name(
            bounded_name(_text(entry.messages(_TEXT))), bounded_name(_text(entry.messages(_TITLE)))
        )
        for code, entry in _entries(plane, _EVENT_NAMES, budget)
    }
    stat_names = {
        code: _text(entry.messages(_TEXT)) for code, entry in _entries(plane, _STAT_NAMES, budget)
    }
    stats = {}
    for stat in map(fields, plane.messages(_STATS)):
        value = stat.varint(_UNSIGNED) or varint_int64(stat.varint(_SIGNED))
        stats[stat_names.get(stat.varint(_STAT), "")] = value
    lines = tuple(plane.messages(_LINES))
    _divide(budget, len(lines), "lines of planes")
    return Plane(_text(plane.messages(_NAME)), lines, names, stat_names, stats)


def _entries(plane: Fields, number: int, budget: Budget) -> Iterator[tuple[int, Fields]]:
    """A map of the plane: (key, value)."""
    for pair in map(fields, plane.messages(number)):
        values = pair.messages(_ENTRY)
        if values:
            if not budget.hold(2 * OBJECT_BYTES):
                raise NotProtobuf(f"its names take more than {budget.memory_limit}")
            yield varint_int64(pair.varint(_KEY)), fields(values[-1])


def _parts(text: bytes) -> tuple[Fields, Int64Array, Int64Array]:
    """A line's own fields, and the starts and ends of its events."""
    stop = len(text) - len(PADDING)
    starts, ends, head = array("q"), array("q"), []  # an event may take two bytes of the file
    at = 0
    while at < stop:
        if text[at] != _EVENT_TAG:
            low, at = at, field_end(text, at)
            head.append(text[low:at])
            continue
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


def _block(
    text: NDArray[np.uint8], start: Int64Array, end: Int64Array, wanted: tuple[int, dict[int, int]]
) -> Int64Array:
    """Fields 1 to 3 of events in rows 1 to 3, then a row for each statistic; row 0 is empty."""
    count, codes = wanted
    columns = np.zeros((_EVENT_STATS + count, len(start)), np.int64)
    columns[_EVENT_STATS:] = ABSENT
    for found in rounds(text, start, end):
        for field in (_EVENT, _OFFSET_PS, _DURATION_PS):
            event, value = found.varints(field)
            columns[field, event] = value
        is_stat = (found.number == _EVENT_STATS) & ~found.is_varint
        if codes and is_stat.any():
            low = found.value[is_stat]
            code, value = _stats(text, low, low + found.nbytes[is_stat])
            event = found.message[is_stat]
            for wanted_code, row in codes.items():
                mine = code == wanted_code
                columns[_EVENT_STATS + row, event[mine]] = value[mine]
    return columns


def _stats(
    text: NDArray[np.uint8], start: Int64Array, end: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """(name code, value) of each statistic; 0 for what is no whole number."""
    columns = np.zeros((_SIGNED + 1, len(start)), np.int64)
    for found in rounds(text, start, end):
        for field in (_STAT, _UNSIGNED, _SIGNED):
            stat, value = found.varints(field)
            columns[field, stat] = value
    return columns[_STAT], columns[_UNSIGNED] + columns[_SIGNED]


def _nanoseconds(ps: Int64Array) -> Int64Array:
    """To the nearest; order is kept, so what lies within something still does."""
    return (ps + 500) // 1000


def _texts(values: Sequence[memoryview]) -> tuple[str, ...]:
    return tuple(str(value, "utf-8", "replace") for value in values)


def _text(values: Sequence[memoryview]) -> str:
    return str(values[-1], "utf-8", "replace") if values else ""
