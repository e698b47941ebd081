"""The wire format of protocol buffers: one message's fields by number, every length checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from vanidl.encoding.budget import OBJECT_BYTES, Budget
from vanidl.schema.dataclass import dataclass

_MOST_VARINT_BYTES = 10  # 64 bits, seven a byte
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types; 3 and 4 are groups, long gone
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
        # A key has the field's number above three bits of wire type (protobuf's guide to its
        # encoding).
        key, at = varint_at(data, at)
        number, wire = key >> 3, key & 7
        value: Value
        if wire == _VARINT:
            value, at = varint_at(data, at)
        else:
            low, at = _find_extent(data, at, wire)
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
    return _find_extent(data, at, key & 7)[1]


def varint_int64(value: int) -> int:
    """A varint as the signed 64-bit number that it stands for."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _find_extent(data: memoryview | bytes, at: int, wire: int) -> tuple[int, int]:
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


# Many messages of one type decoded together, field by field: the first of all, then the second.
#
# A message of a profile has a few fields and a profile has millions of them, so the loop runs
# over fields and numpy over messages. Where few messages are left, of a short line or with many
# fields, it runs over their bytes instead: the time of both is bounded by the number of bytes.

Int64Array = NDArray[np.int64]

PADDING = bytes(_MOST_VARINT_BYTES)
"""To be appended to the text: a number may be read beyond its end before that is noticed."""

_KNOWN = np.zeros(8, bool)
_KNOWN[[_VARINT, _FIXED64, _BYTES, _FIXED32]] = True


_FEW = 64  # messages: for fewer, numpy's overhead is more than decoding them one by one
_BLOCK = 1 << 15  # fields of few messages that are handed on together


@dataclass(frozen=True, slots=True)
class Round:
    """The next field of each message that has one more, or the next ones; one entry a field.

    Fields of one message are in their order in and over rounds: the last one counts. `value` is a
    varint as the signed number that its 64 bits hold, else the place of the field's bytes in the
    text.
    """

    message: Int64Array
    number: Int64Array
    is_varint: NDArray[np.bool_]
    value: Int64Array
    nbytes: Int64Array  # 0 for varints

    def varints(self, number: int) -> tuple[Int64Array, Int64Array]:
        """(messages, values) where this is a varint field of that number."""
        rows = (self.number == number) & self.is_varint
        return self.message[rows], self.value[rows]


def decode_rounds(text: NDArray[np.uint8], start: Int64Array, end: Int64Array) -> Iterator[Round]:
    """The fields of the messages [start, end), in turn.

    `text` ends with PADDING, beyond every message.

    Raises:
        NotProtobuf: A length leads out of its message or a wire type is unknown.
    """
    at = start.copy()
    message = np.flatnonzero(at < end)
    while message.size >= _FEW:
        here, stop = at[message], end[message]
        # One field of each message at a time: rounds of arrays, as messages of a kind are alike.
        key, here = _decode_varints(text, here)
        wire = key & 7
        if not _KNOWN[wire].all():
            raise NotProtobuf(f"wire type {int(wire[~_KNOWN[wire]][0])}")
        value, nbytes, here = _decode_values(text, here, wire)
        if ((here > stop) | (nbytes < 0)).any():
            raise NotProtobuf("a field that ends behind its message")
        yield Round(message, key >> 3, wire == _VARINT, value, nbytes)
        # The messages that go on; of few the rest is decoded one by one.
        at[message] = here
        message = message[here < stop]
    if message.size:
        yield from _decode_one_by_one(text.data, message, at[message], end[message])


def _decode_one_by_one(
    text: memoryview, message: Int64Array, start: Int64Array, end: Int64Array
) -> Iterator[Round]:
    """All fields of some messages."""
    rows: list[tuple[int, int, bool, int, int]] = []
    for number, low, high in zip(message.tolist(), start.tolist(), end.tolist(), strict=True):
        at = low
        while at < high:
            key, behind = varint_at(text, at)
            at = field_end(text, at)
            if at > high:
                raise NotProtobuf("a field that ends behind its message")
            rows.append((number, key >> 3, *_decode_value(text, key & 7, behind, at)))
            if len(rows) == _BLOCK:
                yield _make_round(rows)
                rows = []
    yield _make_round(rows)


def _decode_value(text: memoryview, wire: int, at: int, end: int) -> tuple[bool, int, int]:
    """(whether it is a varint, value or place, number of bytes) of one field."""
    if wire == _VARINT:
        return True, varint_int64(varint_at(text, at)[0]), 0
    low = varint_at(text, at)[1] if wire == _BYTES else at
    return False, low, end - low


def _make_round(rows: list[tuple[int, int, bool, int, int]]) -> Round:
    message, number, is_varint, value, nbytes = zip(*rows, strict=True) if rows else ((),) * 5
    whole = (np.array(column, np.int64) for column in (message, number, value, nbytes))
    of_message, of_number, of_value, of_nbytes = whole
    return Round(of_message, of_number, np.array(is_varint, bool), of_value, of_nbytes)


def _decode_values(
    text: NDArray[np.uint8], at: Int64Array, wire: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """(value or place, number of bytes, end) of the fields whose values start at `at`."""
    value, nbytes = at.copy(), np.zeros_like(at)
    nbytes[wire == _FIXED64], nbytes[wire == _FIXED32] = 8, 4
    counted = np.flatnonzero((wire == _VARINT) | (wire == _BYTES))
    number, behind = _decode_varints(text, at[counted])
    is_bytes = wire[counted] == _BYTES
    value[counted] = np.where(is_bytes, behind, number)
    # No text is longer than its place plus 2**62, so that sums stay in range.
    nbytes[counted] = np.where(is_bytes, np.minimum(number, 1 << 62), 0)
    end = at + nbytes
    end[counted] = behind + nbytes[counted]
    return value, nbytes, end


def _decode_varints(text: NDArray[np.uint8], at: Int64Array) -> tuple[Int64Array, Int64Array]:
    """(values, places behind them); beyond the text's end every byte counts as 0."""
    value = np.zeros(at.shape, np.uint64)
    end = at.copy()
    rest = np.arange(at.size)
    for shift in range(0, 7 * _MOST_VARINT_BYTES, 7):
        byte = text[np.minimum(end[rest], text.size - 1)]
        value[rest] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(shift)
        end[rest] += 1
        rest = rest[byte > 0x7F]
        if not rest.size:
            return value.view(np.int64), end
    raise NotProtobuf("a number without an end")
