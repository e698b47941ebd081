from __future__ import annotations

import struct

import numpy as np
import pytest

from tests.makers.event_files import message, varint
from vanidl.encoding import protobuf
from vanidl.encoding.budget import OBJECT_BYTES, Budget
from vanidl.encoding.protobuf import NotProtobuf, fields, varint_int64


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


@pytest.mark.parametrize("few", [1, 1 << 60])
def test_columns_are_the_fields_of_each_message(monkeypatch, few):
    """Decoded together and one by one: the same fields in the same order."""
    monkeypatch.setattr(protobuf, "_FEW", few)
    monkeypatch.setattr(protobuf, "_BLOCK", 5)
    rng = np.random.default_rng(3)
    messages = []
    for _ in range(40):
        parts = [
            b"\x08" + varint(int(rng.integers(-(2**63), 2**63))),
            message(2, rng.bytes(int(rng.integers(0, 300)))),
            b"\x19" + rng.bytes(8),
            b"\x25" + rng.bytes(4),
        ]
        messages.append(b"".join(parts[i] for i in rng.integers(0, 4, int(rng.integers(0, 9)))))
    ends = np.cumsum([len(one) for one in messages])
    text = np.frombuffer(b"".join(messages) + protobuf.PADDING, np.uint8)
    found: dict[int, list[tuple[int, object]]] = {}
    for one in protobuf.decode_rounds(text, ends - [len(m) for m in messages], ends):
        rows = zip(one.message, one.number, one.is_varint, one.value, one.nbytes, strict=True)
        for i, number, is_varint, value, nbytes in rows:
            content = int(value) if is_varint else bytes(text[value : value + nbytes])
            found.setdefault(int(i), []).append((int(number), content))
    for i, one in enumerate(messages):
        expected = fields(memoryview(one))
        mine = found.get(i, [])
        assert [v for n, v in mine if n == 2] == [bytes(m) for m in expected.messages(2)]
        assert ([varint_int64(0), *(v for n, v in mine if n == 1)])[-1] == varint_int64(
            expected.varint(1)
        )
        assert ([bytes(8), *(v for n, v in mine if n == 3)])[-1] == expected.fixed64(3)


@pytest.mark.parametrize(("missing", "whole"), [(0, True), (1, False)])
@pytest.mark.parametrize(
    "field", [b"\x0a\x05abcde", b"\x09" + bytes(8), b"\x0d" + bytes(4), b"\x08\x80\x01"]
)
def test_a_field_that_ends_with_its_message_is_whole_and_one_byte_less_is_not(
    field, missing, whole
):
    data = memoryview(b"\x10\x07" + field)[: 2 + len(field) - missing]
    if whole:
        assert fields(data).varint(2) == 7
    else:
        with pytest.raises(NotProtobuf):
            fields(data)


@pytest.mark.parametrize("count", [0, 1, 7, 300])
def test_each_field_takes_an_object_of_the_files_budget(count):
    budget = Budget.of_file(1000)
    before = budget.objects
    assert len(fields(memoryview(b"\x08\x05" * count), budget)._found.get((1, 0), [])) == count
    assert budget.objects == before - count


@pytest.mark.parametrize(("more", "fits"), [(0, True), (1, False)])
def test_a_message_has_no_more_fields_than_are_left(more, fits):
    budget = Budget(0, 40 * OBJECT_BYTES, 0, 0)
    data = memoryview(b"\x08\x05" * (40 + more))
    if fits:
        assert fields(data, budget).varint(1) == 5
        assert budget.objects == 0
    else:
        with pytest.raises(NotProtobuf, match="its fields take more than"):
            fields(data, budget)
