"""Lines of a trace -> objects of JSON, and the integers that they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson

Event = dict[str, Any]

ABSENT = -(2**62)
"""Stands for an integer that an event does not hold."""

_MOST_CHUNKS = 256  # of one line, 64 MiB: a lost line end must not pull the file into memory
_TOO_LONG = b"\xff"  # in place of such a line: no JSON
_NO_ARGUMENTS: Event = {}


def integer(value: object) -> int:
    """The integer that a JSON value holds, as number or as text; ABSENT for anything else."""
    if type(value) is int:
        return value if -(2**62) < value < 2**62 else ABSENT
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) < 19:
        return int(value)
    return ABSENT


def arguments(event: Event) -> Event:
    """What an event says beside its columns; empty where it says nothing."""
    found = event.get("args")
    return found if isinstance(found, dict) else _NO_ARGUMENTS


def line_blocks(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
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


def trimmed(line: bytes) -> bytes:
    """The line without the brackets and commas that some versions write around objects."""
    return line.strip(b" \t\r\n,[]\0")


def decoded(lines: Sequence[bytes]) -> tuple[list[Event], int]:
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
