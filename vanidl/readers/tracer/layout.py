"""How the files of vanidl's own tracer are laid out: as vanidl/record/tracer/format.h says.

A header, records of counters, then chunks of slots: a slot is one call, a piece of a file name, or
the thread that the following slots are of.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np

from vanidl.errors import InputError

MAGIC = b"VANIDLTR"
VERSION, VERSION_BY_BYTES = 1, 2
PAGE_BYTES = 4096
CHUNK_BYTES = 65536
SLOT_BYTES = 40
SLOTS = CHUNK_BYTES // SLOT_BYTES
COUNTER_BYTES = 256
FIRST_COUNTERS = (CHUNK_BYTES - PAGE_BYTES) // COUNTER_BYTES  # records before the first chunk

_HEADER = struct.Struct("<8s4I2i2I11Q2I2Q6q64s256s32sI")


NAME, NAME_MORE, THREAD, COUNTERS = 1, 2, 3, 4  # slots that are no calls


class Call(IntEnum):
    """Calls that move no data; a sixteenth of the number is the class of the call."""

    OPEN = 80
    CLOSE = 81
    DUP = 82
    LSEEK = 83
    STAT = 84
    FSTAT = 85
    ACCESS = 86
    UNLINK = 87
    RENAME = 88
    MKDIR = 89
    OPENDIR = 93
    READDIR = 94
    READLINK = 96
    FOPEN = 112
    FCLOSE = 113
    FSEEK = 114
    FFLUSH = 115
    FSYNC = 128
    FDATASYNC = 129
    SYNC_RANGE = 130
    MSYNC = 131
    MMAP = 144
    MUNMAP = 145


_LONGEST_NS = 100 * 366 * 86_400 * 10**9  # an uptime of 100 years
_LATEST_NS = 200 * 366 * 86_400 * 10**9  # since 1970

FIRST_MOVE, BEHIND_MOVES = 16, 80  # reads and writes, of descriptors, then of streams
FIRST_STREAM_MOVE = 48
STREAM_CLASSES, SYNC_CLASS = (3, 4, 7), 8

CHILDREN_WAITED = 1
"""In `Header.children`: no child that had ended was left to wait for. Else some were, or (0, as in
files of older libraries) it is not known."""

COUNTER = np.dtype(
    [("file", "<u4"), ("layer", "u1"), ("unused", "u1", 3)]
    + [(name, "<u8") for name in
       ("first_ns", "last_ns", "reads", "writes", "opens", "closes", "seeks", "stats", "others",
        "syncs", "maps", "failed", "bytes_read", "bytes_written", "read_ns", "write_ns",
        "metadata_ns", "sync_ns", "read_end", "write_end")]
    + [("read_sizes", "<u4", 10), ("write_sizes", "<u4", 10), ("rest", "u1", 8)]
)  # fmt: skip
"""One record of counters: what one file has of calls without slots of their own."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says of its process. Times are those of CLOCK_MONOTONIC."""

    by_bytes: bool  # the slots of each chunk lie by their bytes: it was compressed
    pid: int
    parent_pid: int
    user_id: int
    forked: bool
    start_monotonic_ns: int
    start_realtime_ns: int
    anchor_error_ns: int
    end_monotonic_ns: int  # 0: the process was killed, or goes on
    event_limit: int
    chunks: int
    counters: int
    missing_since_ns: int  # 0: every call has a slot
    missing_calls: int
    missing_reason: int
    names_missing: int
    other_read_nbytes: int  # through pipes, terminals, sockets and files that are left out
    kernel_read_nbytes: int | None  # of all that read, as the kernel counted them; None: not known
    host: str
    program: str
    tracer: str
    children: int  # whether `kernel_read_nbytes` has that of each child that ended before


def read_header(data: bytes, path: Path) -> Header:
    """The header of a file that begins so.

    Raises:
        InputError: it is no file of this tracer, or of another version.
    """
    raw = data[: _HEADER.size]
    if raw[: len(MAGIC)] != MAGIC:
        found = "another kind of file" if raw else "an empty file"
        raise InputError(
            f"{path}: expected calls that vanidl's tracer recorded, found {found}; name the folder "
            "that vanidl record wrote"
        )
    if len(data) < PAGE_BYTES:
        raise InputError(
            f"{path}: expected a header of {PAGE_BYTES:,} bytes, found {len(data):,}; the file is "
            "cut too short to be used: copy it again"
        )
    _, version, *rest = _HEADER.unpack(raw)
    sizes, (pid, parent, user, how), rest = rest[:3], rest[3:7], rest[7:]
    known = version in (VERSION, VERSION_BY_BYTES)
    if not known or sizes != [CHUNK_BYTES, SLOT_BYTES, COUNTER_BYTES]:
        raise InputError(
            f"{path}: expected calls in version {VERSION} or {VERSION_BY_BYTES} of the tracer's "
            f"format, found version {version} with pieces of {', '.join(map(str, sizes))} bytes; a "
            "newer vanidl may read it, or the header is damaged: copy it again"
        )
    start, real, error, end, _, limit, _, chunks, counters, since, missing = rest[:11]
    # Beyond these no sum of times is held by 64 bits, and no recording was made.
    running = end == 0 or start <= end < start + _LONGEST_NS
    if not (start < _LONGEST_NS and real < _LATEST_NS and error < _LONGEST_NS and running):
        raise InputError(
            f"{path}: expected the times of a recording in its header, found a start at "
            f"{start:,} ns of uptime and {real:,} ns since 1970, and an end at {end:,} ns; the "
            "header is damaged: copy it again"
        )
    reason, names_missing, other_read = rest[11:14]
    read_at_end, read_at_start = rest[15], rest[19]
    read = read_at_end - read_at_start if 0 <= read_at_start <= read_at_end else None
    host, program, tracer = (_text(raw) for raw in rest[-4:-1])
    return Header(
        version == VERSION_BY_BYTES, pid, parent, user, how == 1, start, real, error, end, limit,
        chunks, counters, since, missing, reason, names_missing, other_read, read, host, program,
        tracer, rest[-1],
    )  # fmt: skip


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")
