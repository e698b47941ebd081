"""TFRecord files without TensorFlow: records framed by their length and masked CRC-32C.

A record is {length uint64, masked CRC-32C of these 8 bytes, data, masked CRC-32C of the data},
little-endian; masked: rotated right by 15 bits, plus 0xA282EAD8. A name ending in .gz is the
same inside gzip. Format: TensorFlow's documentation of TFRecord; CRC-32C: RFC 3720, B.4.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, cast

import google_crc32c

from ..errors import InputError

_LENGTH, _CRC = struct.Struct("<Q"), struct.Struct("<I")


def write_records(path: str | Path, records: Iterable[bytes]) -> None:
    """Writes the records, replacing the file."""
    with _open(Path(path), "wb") as file:
        for record in records:
            length = _LENGTH.pack(len(record))
            file.write(length + _CRC.pack(_masked(length)))
            file.write(record)
            file.write(_CRC.pack(_masked(record)))


def read_records(path: str | Path) -> Iterator[bytes]:
    """The records of a file, in order.

    Raises:
        InputError: The file is cut, or a CRC does not match.
    """
    path = Path(path)
    with _open(path, "rb") as file:
        while head := _read(path, file, _LENGTH.size + _CRC.size, may_end=True):
            length = head[: _LENGTH.size]
            _check(path, length, head[_LENGTH.size :])
            record = _read(path, file, _LENGTH.unpack(length)[0])
            _check(path, record, _read(path, file, _CRC.size))
            yield record


def _masked(data: bytes) -> int:
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _check(path: Path, data: bytes, crc: bytes) -> None:
    if _CRC.unpack(crc)[0] != _masked(data):
        raise InputError(f"expected a matching CRC-32C in {path}, found another: fetch it again")


def _read(path: Path, file: IO[bytes], nbytes: int, *, may_end: bool = False) -> bytes:
    try:
        data = file.read(nbytes)
    except (EOFError, OSError, OverflowError, zlib.error) as error:
        raise InputError(f"expected a whole {path}, found: {error}; fetch it again") from error
    if len(data) < nbytes and not (may_end and not data):
        raise InputError(f"expected {nbytes} bytes more in {path}, found {len(data)}: it was cut")
    return data


def _open(path: Path, mode: str) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path, mode))
    return cast(IO[bytes], path.open(mode))
