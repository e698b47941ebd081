"""Protocol buffers as trees of fields: parsed without a schema, changed, and written again.

Lengths around what was changed are right, so that it reaches the code behind them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.makers.event_files import varint

Rng = np.random.Generator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIDTH = {_FIXED64: 8, _FIXED32: 4}
_NUMBERS = (0, 1, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
_TEXTS = (
    b"", b"/", b"a" * 70_000, b"\xff\xfe\x00", b"9" * 5001, b"\x1b]0;x\x07", b"\xed\xa0\x80",
    b"<script>alert(1)</script>", b"=1+1", b"\x0a\x00" * 500, b"profile_start_time", b"step_num",
)  # fmt: skip

_MOST_COPIED_NBYTES = 2_000_000  # copies of a field with copies in it: a file of gigabytes else


@dataclass
class Field:
    """One field: its number, its wire type, and a number, bytes or fields."""

    number: int
    kind: int
    value: Any


def parse(content: bytes) -> list[Field] | None:
    """The fields of a message; None where the bytes are none."""
    fields, at = [], 0
    while at < len(content):
        head, at = _number(content, at)
        if at < 0 or not head >> 3 or head & 7 not in (_VARINT, _BYTES, *_WIDTH):
            return None
        size = _WIDTH.get(head & 7, 0)
        value: Any
        if not size:
            value, at = _number(content, at)
            size = value if head & 7 == _BYTES else 0
        if at < 0 or at + size > len(content):
            return None
        if head & 7 != _VARINT:
            value = content[at : at + size]
        if head & 7 == _BYTES and size > 1 and not value.isascii():
            value = parse(value) or value
        fields.append(Field(head >> 3, head & 7, value))
        at += size
    return fields


def _number(content: bytes, at: int) -> tuple[int, int]:
    """(varint, the place after it); -1 where it is cut."""
    value = 0
    for i in range(10):
        if at + i >= len(content):
            break
        value |= (content[at + i] & 0x7F) << 7 * i
        if content[at + i] < 0x80:
            return value, at + i + 1
    return 0, -1


def encode(fields: list[Field]) -> bytes:
    """The message of the fields."""
    return b"".join(_encoded(field) for field in fields)


def _encoded(field: Field) -> bytes:
    head = varint(field.number << 3 | field.kind)
    if field.kind == _VARINT:
        return head + varint(field.value)
    body = encode(field.value) if isinstance(field.value, list) else field.value
    return head + (varint(len(body)) if field.kind == _BYTES else b"") + body


def changed(content: bytes, rng: Rng) -> bytes:
    """The message with one to four fields changed, wherever they are."""
    fields = parse(content)
    assert fields is not None
    for _ in range(int(rng.integers(1, 5))):
        every = list(_messages(fields))
        among = every[int(rng.integers(0, len(every)))]
        if among:
            _change(among, int(rng.integers(0, len(among))), rng)
    return encode(fields)


def _messages(fields: list[Field]) -> Any:
    yield fields
    for field in fields:
        if isinstance(field.value, list):
            yield from _messages(field.value)


def _change(among: list[Field], i: int, rng: Rng) -> None:
    """Another value, number or place for a field; gone, or there many times."""
    field = among[i]
    way = int(rng.integers(0, 7))
    if way < 3:
        among[i] = _other_value(field, rng)
    elif way == 3:
        among[i] = Field(int(rng.integers(1, 12)), field.kind, field.value)
    elif way == 4:
        del among[i]
    elif way == 5:
        copies = int(rng.integers(1, 3000))
        among[i:i] = [field] * min(copies, _MOST_COPIED_NBYTES // len(_encoded(field)))
    else:
        among.insert(int(rng.integers(0, len(among))), among.pop(i))


def _other_value(field: Field, rng: Rng) -> Field:
    if field.kind == _VARINT:
        return Field(field.number, _VARINT, _NUMBERS[int(rng.integers(0, len(_NUMBERS)))])
    if field.kind in _WIDTH:
        return Field(field.number, field.kind, rng.bytes(_WIDTH[field.kind]))
    return Field(field.number, _BYTES, _TEXTS[int(rng.integers(0, len(_TEXTS)))])
