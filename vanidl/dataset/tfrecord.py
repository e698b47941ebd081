"""TFRecord files without TensorFlow.

Framing (tensorflow/core/lib/io/record_writer.h): length (uint64), masked crc32c of the length
(uint32), data, masked crc32c of the data (uint32), little endian. Only the frames are read.
"""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from typing import BinaryIO

from vanidl.encoding.crc32c import masked_crc
from vanidl.errors import InputError
from vanidl.model.run_facts import Block, FileFacts

MOST_RECORDS = 100_000
READ_BUFFER = 256 * 1024
"""Bytes that tf.data's TFRecordDataset asks for at a time unless buffer_size is set."""

_FRAME = struct.Struct("<QI")
_OVERHEAD = _FRAME.size + 4  # length and its CRC, and the CRC of the record
_MOST_SIZES = 16


def read_facts(path: Path) -> FileFacts:
    """Number and sizes of the records; counting stops at MOST_RECORDS.

    Raises:
        InputError: the frames do not follow on one another.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        lengths, complete = _read_lengths(file, size, path)
    records = len(lengths)
    stored = sum(lengths) + records * _OVERHEAD
    common = Counter(n + _OVERHEAD for n in lengths).most_common(_MOST_SIZES)
    return FileFacts(
        str(path),
        "TFRecord",
        size,
        records if complete else None,
        stored / records if records else None,
        (),
        tuple(Block(n, count, "one record with its frame") for n, count in common),
        complete,
    )


def _read_lengths(file: BinaryIO, size: int, path: Path) -> tuple[list[int], bool]:
    """(bytes of each record's data, whether the end was reached)."""
    lengths: list[int] = []
    at = 0
    while at < size and len(lengths) < MOST_RECORDS:
        file.seek(at)
        head = file.read(_FRAME.size)
        length, crc = _FRAME.unpack(head) if len(head) == _FRAME.size else (0, -1)
        # A frame that would end behind the file is cut; a wrong checksum is no frame.
        if crc != masked_crc(head[:8]) or at + length + _OVERHEAD > size:
            raise InputError(
                f"{path}: expected a TFRecord frame at byte {at:,}, found other bytes. The file "
                "is cut, compressed or no TFRecord: leave it out of --inspect."
            )
        lengths.append(length)
        at += length + _OVERHEAD
    return lengths, at >= size
