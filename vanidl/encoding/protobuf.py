"""The wire format of protocol buffers: one message's fields by number, every length checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from vanidl.encoding.budget import OBJECT_BYTES, Budget

_MOST_VARINT_BYTES = 10
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}

Value: TypeAlias = "int | memoryview"


class NotProtobuf(ValueError):
    """The bytes are no message, or are cut; the text says why, as half a sentence."""


class Fields:
    """The fields of one message. What is absent, or of another wire type, is the default."""

    def __init__(self, found: Mapping[tuple[int, int], list[Value]]) -> None:
        self._found = found

    def varint(self, number: int) -> int:
        """The last unsigned value of a varint field, 0 where it is absent."""
        values = self._found.get((number, _VARINT))
        return int(values[-1]) if values else 0

    def fixed64(self, number: int) -> bytes:
        """The eight bytes of a double or fixed64 field, zeros where it is absent."""
        values = self._found.get((number, _FIXED64))
        return bytes(values[-1]) if values else bytes(8)

    def messages(self, number: int) -> list[memoryview]:
        """The bytes of every message, string or packed value of a field, in order."""
        return self._found.get((number, _BYTES), [])  # type: ignore[return-value]


def fields(data: memoryview, budget: Budget | None = None) -> Fields:
    """The fields of a message.

    Args:
        data: The message.
        budget: Of the file; by default that of a file which is the message.

    Raises:
        NotProtobuf: A length leads out of the message, a wire type is unknown, or there are more
            fields than a file of its size may have.
    """
    found: dict[tuple[int, int], list[Value]] = {}
    budget = budget or Budget.of_file(len(data))
    at, end, left = 0, len(data), budget.objects
    while at < end:
        if not left:
            raise NotProtobuf(f"its fields take more than {budget.memory_limit}")
        left -= 1
        key, at = varint_at(data, at)
        number, wire = key >> 3, key & 7
        value: Value
        if wire == _VARINT:
            value, at = varint_at(data, at)
        else:
            low, at = _extent(data, at, wire)
            value = data[low:at]
        found.setdefault((number, wire), []).append(value)
    budget.hold((budget.objects - left) * OBJECT_BYTES)
    return Fields(found)


def field_end(data: memoryview | bytes, at: int) -> int:
    """Where the field that starts at `at` ends.

    Raises:
        NotProtobuf: A length leads out of the message or the wire type is unknown.
    """
    key, at = varint_at(data, at)
    if key & 7 == _VARINT:
        return varint_at(data, at)[1]
    return _extent(data, at, key & 7)[1]


def varint_int64(value: int) -> int:
    """A varint as the signed 64-bit number that it stands for."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _extent(data: memoryview | bytes, at: int, wire: int) -> tuple[int, int]:
    """Bounds of the value of a field that is no varint."""
    if wire == _BYTES:
        length, at = varint_at(data, at)
    elif wire in _FIXED:
        length = _FIXED[wire]
    else:
        raise NotProtobuf(f"wire type {wire}")
    if length > len(data) - at:
        raise NotProtobuf(f"a field of {length:,} bytes where {len(data) - at:,} are left")
    return at, at + length


def varint_at(data: memoryview | bytes, at: int) -> tuple[int, int]:
    """(unsigned value, position behind it) of the varint at a position.

    Raises:
        NotProtobuf: It does not end.
    """
    value = shift = 0
    for byte in data[at : at + _MOST_VARINT_BYTES]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value & (1 << 64) - 1, at + shift // 7
    raise NotProtobuf("a number without an end")
