"""Darshan's AutoPerf module for MPI: how long each rank was inside MPI calls.

Our own reader: Darshan's library tells the module's header from its records by a variable
that lives as long as the process, so of several logs it reads only the first one right.
Layout from darshan-apmpi-log-format.h: a header, then one record of fixed size per rank.
"""

from __future__ import annotations

import struct

from vanidl.readers.darshan.job import text
from vanidl.readers.records import MpiRecord

MODULE = "APMPI"

_HEADER_BYTES = 48
_SYNC_FLAG_AT = 24  # not 0: waits before collectives were timed
_COUNTERS = 396  # calls, bytes and size classes, which nothing here uses
_TIMES = 222 + 16  # seconds of single calls, and of their waits for others
_RECORD = f"Qq{8 * (_COUNTERS + _TIMES)}x2d128s"  # id, rank, ..., total and sync, host


def decode(data: bytes, byte_order: str) -> tuple[tuple[MpiRecord, ...], int]:
    """The records of a region, and how many bytes at its end are no whole record."""
    record = struct.Struct(byte_order + _RECORD)
    body = memoryview(data)[_HEADER_BYTES:]
    whole = len(body) - len(body) % record.size
    timed = any(data[_SYNC_FLAG_AT : _SYNC_FLAG_AT + 4])
    found = tuple(
        MpiRecord(rank, text(host), total_s, sync_s if timed else None)
        for _, rank, total_s, sync_s, host in record.iter_unpack(body[:whole])
    )
    return found, len(body) - whole
