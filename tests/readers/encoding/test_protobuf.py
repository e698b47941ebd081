from __future__ import annotations

import struct

import pytest

from tests.makers.event_files import message, varint
from vanidl.readers.encoding.protobuf import NotProtobuf, fields, varint_int64


@pytest.mark.parametrize("value", [0, 1, 127, 128, 2**31, 2**63 - 1, -1, -(2**63)])
def test_numbers(value):
    read = fields(memoryview(b"\x08" + varint(value))).varint(1)
    assert varint_int64(read) == value


def test_every_wire_type_in_order():
    data = (
        message(2, b"first") + b"\x08\x05" + b"\x19" + struct.pack("<d", 1.5)
        + b"\x25" + struct.pack("<f", 2.0) + message(2, b"") + b"\x08\x07"
    )  # fmt: skip
    found = fields(memoryview(data))
    assert [bytes(m) for m in found.messages(2)] == [b"first", b""]
    assert found.varint(1) == 7  # the last one counts
    assert struct.unpack("<d", found.fixed64(3)) == (1.5,)
    assert (found.varint(9), found.fixed64(9), found.messages(9)) == (0, bytes(8), [])


@pytest.mark.parametrize(
    "data",
    [b"\x08", b"\x80" * 12, b"\x0a\x05abc", b"\x09abc", b"\x0b", b"\x0a\xff\xff\xff\xff\xff\x0f"],
)
def test_what_is_no_message(data):
    with pytest.raises(NotProtobuf):
        fields(memoryview(data))
