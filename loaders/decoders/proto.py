"""tf.train.Example as bytes, without protobuf: what CosmoFlow's TFRecords hold.

    Example {1: Features {1: repeated {1: name, 2: Feature}}}
    Feature {1: BytesList {1: bytes} | 2: FloatList {1: float32} | 3: Int64List {1: int64}}

Lists of numbers are read packed or not, and written packed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError

Feature = bytes | NDArray[np.float32] | NDArray[np.int64]
"""One byte string, or a list of numbers."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def example(features: Mapping[str, Feature]) -> bytes:
    """The serialised Example."""
    entries = (
        _field(1, _field(1, name.encode()) + _field(2, _feature(feature)))
        for name, feature in features.items()
    )
    return _field(1, b"".join(entries))


def parse_example(data: bytes) -> dict[str, Feature]:
    """The features of a serialised Example; of several byte strings in one, the first.

    Raises:
        InputError: No Example.
    """
    found = {}
    for features in _of(data, 1):
        for entry in _of(features, 1):
            (name, *_), (feature, *_) = (*_of(entry, 1), b""), (*_of(entry, 2), b"")
            found[_text(name)] = _parsed(feature)
    return found


def _feature(feature: Feature) -> bytes:
    if isinstance(feature, bytes):
        return _field(1, _field(1, feature))
    if feature.dtype.kind == "f":
        return _field(2, _field(1, feature.astype("<f4").tobytes()))
    return _field(3, _field(1, b"".join(_varint(int(n) & (1 << 64) - 1) for n in feature)))


def _parsed(feature: bytes) -> Feature:
    for number, kind, value in _fields(feature):
        if kind == _BYTES and number == 1:
            return next(_of(value, 1), b"")
        if kind == _BYTES and number == 2:
            return np.frombuffer(_joined(value), "<f4")
        if kind == _BYTES and number == 3:
            return np.array(list(_integers(value)), np.uint64).astype(np.int64)
    return b""


def _joined(values: bytes) -> bytes:
    """The floats of a FloatList, packed and single ones in order."""
    joined = b"".join(value for number, _, value in _fields(values) if number == 1)
    if len(joined) % 4:
        raise InputError(f"expected floats of 4 bytes, found {len(joined)} bytes: fetch it again")
    return joined


def _integers(values: bytes) -> Iterator[int]:
    for number, kind, value in _fields(values):
        at = 0
        while number == 1 and kind in (_BYTES, _VARINT) and at < len(value):
            integer, at = _read_varint(value, at)
            yield integer


def _of(data: bytes, number: int) -> Iterator[bytes]:
    return (value for found, kind, value in _fields(data) if found == number and kind == _BYTES)


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Number, wire type and bytes of each field of a message."""
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            end = _read_varint(data, at)[1]
        elif kind == _BYTES:
            length, at = _read_varint(data, at)
            end = at + length
        elif kind in (_FIXED32, _FIXED64):
            end = at + (4 if kind == _FIXED32 else 8)
        else:
            raise InputError(f"expected a tf.train.Example, found wire type {kind}: no TFRecord?")
        if end > len(data):
            raise InputError(f"expected {end} bytes of a message, found {len(data)}: it was cut")
        yield number, kind, data[at:end]
        at = end


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value & (1 << 64) - 1, at
    raise InputError("expected an integer of up to 10 bytes, found more or none: no TFRecord?")


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"expected a feature's name in UTF-8, found {name!r}") from error
