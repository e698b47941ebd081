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

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .threads import compiled

_LENGTH, _CRC = struct.Struct("<Q"), struct.Struct("<I")
_POLYNOMIAL = 0x82F63B78  # Castagnoli, bits reversed


def _tables() -> NDArray[np.uint32]:
    """(8, 256): CRC of a byte followed by 0 to 7 zero bytes."""
    tables = np.zeros((8, 256), np.uint32)
    crc = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = np.where(crc & 1, (crc >> 1) ^ np.uint32(_POLYNOMIAL), crc >> 1).astype(np.uint32)
    tables[0] = crc
    for row in range(1, 8):
        tables[row] = (tables[row - 1] >> 8) ^ crc[tables[row - 1] & 0xFF]
    return tables


TABLES = _tables()


def crc32c(data: bytes | memoryview) -> int:
    """CRC-32C of the bytes."""
    return int(_crc32c(np.frombuffer(data, np.uint8), TABLES)) if len(data) else 0


@compiled
def _crc32c(data: NDArray[np.uint8], tables: NDArray[np.uint32]) -> np.uint32:
    """Eight bytes at a time: the CRC is linear, so each byte's part comes from its own table."""
    crc, ones = np.uint32(0xFFFFFFFF), np.uint32(0xFF)
    whole = len(data) // 8 * 8
    for at in range(0, whole, 8):
        mixed = np.uint32(0)
        for i in range(4):
            low = (crc >> np.uint32(8 * i)) & ones
            mixed ^= tables[7 - i, low ^ np.uint32(data[at + i])]
            mixed ^= tables[3 - i, data[at + 4 + i]]
        crc = mixed
    for at in range(whole, len(data)):
        crc = (crc >> np.uint32(8)) ^ tables[0, (crc ^ np.uint32(data[at])) & ones]
    return crc ^ np.uint32(0xFFFFFFFF)


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
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _check(path: Path, data: bytes, crc: bytes) -> None:
    if _CRC.unpack(crc)[0] != _masked(data):
        raise InputError(f"expected a matching CRC-32C in {path}, found another: fetch it anew")


def _read(path: Path, file: IO[bytes], nbytes: int, *, may_end: bool = False) -> bytes:
    try:
        data = file.read(nbytes)
    except (EOFError, OSError, OverflowError, zlib.error) as error:
        raise InputError(f"expected a whole {path}, found: {error}; fetch it anew") from error
    if len(data) < nbytes and not (may_end and not data):
        raise InputError(f"expected {nbytes} bytes more in {path}, found {len(data)}: it was cut")
    return data


def _open(path: Path, mode: str) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path, mode))
    return cast(IO[bytes], path.open(mode))
