"""The text of a Darshan log: the job record, the command, the mount table and the names."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from functools import lru_cache
from sys import intern

from vanidl.encoding.budget import (
    MOST_NAME_BYTES,
    OBJECT_BYTES,
    Budget,
    bounded_name,
    decode_long_name,
)
from vanidl.readers.darshan.header import Header
from vanidl.schema.dataclass import dataclass

METADATA_BYTES = 1024
SECOND = 1_000_000_000

_SHORT_NAMES = 64 << 10  # bytes: of longer regions not one is kept in memory


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What a log says about its job; times in nanoseconds since the epoch."""

    user_id: int
    job_id: int
    nprocs: int
    start_ns: int
    end_ns: int
    start_resolution_ns: int
    metadata: dict[str, str]
    command: str
    mounts: tuple[tuple[str, str], ...]  # (mount point, type), longest mount point first


def decode_text(raw: bytes) -> str:
    """Printable text of bytes up to the first NUL; what is not UTF-8 as backslash codes."""
    return raw.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")


def read_job(data: bytes, header: Header) -> JobRecord | None:
    """The job record in the bytes of its region; None where they are too few.

    A log of whole seconds ends with its end second, as Darshan's own run time has it.
    """
    fields = struct.Struct(header.byte_order + header.layout.job)
    if len(data) < fields.size + METADATA_BYTES:
        return None
    user, *times, nprocs, job = fields.unpack_from(data)
    if header.layout.whole_seconds:
        times = [times[0], 0, times[1], 0]
    exact = bool(times[1] or times[3])
    start, end = (times[i] * SECOND + times[i + 1] for i in (0, 2))
    # Its texts: metadata, then the command and the mounts.
    command, _, mounts = decode_text(data[fields.size + METADATA_BYTES :]).partition("\n")
    lines = decode_text(data[fields.size : fields.size + METADATA_BYTES])
    pairs = (line.partition("=") for line in lines.split("\n"))
    metadata = {key: value for key, mark, value in pairs if mark}
    return JobRecord(
        user_id=user,
        job_id=job,
        nprocs=nprocs,
        start_ns=start,
        end_ns=end if exact else end + SECOND,
        start_resolution_ns=1 if exact else SECOND,
        metadata=metadata,
        command=command.strip(),
        mounts=_split_mounts(mounts),
    )


def read_names(data: bytes, header: Header, budget: Budget) -> tuple[Mapping[int, str], int]:
    """Names by file id, and how many bytes at the end are no whole name, or one too many."""
    form = header.layout.counted_names, header.byte_order
    if len(data) <= _SHORT_NAMES:
        names = _read_repeated_names(data, *form)
        if budget.held_bytes >= names.held_bytes:
            budget.hold(names.held_bytes)
            return names.names, len(data) - names.end
    names = _read_names_within(data, *form, budget)
    return names.names, len(data) - names.end


@dataclass(frozen=True, slots=True)
class _Names:
    """Names by file id, the first byte behind them, and what they took of the budget."""

    names: dict[int, str]
    end: int
    held_bytes: int


@lru_cache(16)  # ranks that read the same files in turn name them alike, in thousands of logs
def _read_repeated_names(data: bytes, counted: bool, order: str) -> _Names:
    return _read_names_within(data, counted, order, Budget.of_file(len(data)))


def _read_names_within(data: bytes, counted: bool, order: str, budget: Budget) -> _Names:
    """The names that a budget has room for."""
    walk = _walk_counted_names if counted else _walk_marked_names
    names: dict[int, str] = {}
    position, before = 0, budget.held_bytes
    for key, first, last, end in walk(data, order):
        if last - first <= MOST_NAME_BYTES:
            name = bounded_name(data[first:last].decode("utf-8", "backslashreplace"))
        else:
            name = decode_long_name(memoryview(data)[first:last])
        if not budget.hold(OBJECT_BYTES + len(name)):
            break
        position = end
        # Logs of a job name the same files: one object for all of them is sent and hashed once.
        # Darshan, too, keeps the first that is not empty.
        names[key] = names.get(key) or intern(name)
    return _Names(names, position, before - budget.held_bytes)


def _walk_counted_names(data: bytes, order: str) -> Iterator[tuple[int, int, int, int]]:
    """(file id, first byte of its name, first behind the name, first behind both) of every one."""
    head = struct.Struct(f"{order}QI")
    position = 0
    while len(data) - position >= head.size:
        key, length = head.unpack_from(data, position)
        first = position + head.size
        position = first + length
        if position > len(data):
            return
        last = data.find(b"\0", first, position)
        yield key, first, last if last >= 0 else position, position


def _walk_marked_names(data: bytes, order: str) -> Iterator[tuple[int, int, int, int]]:
    """The same of names that end with a NUL."""
    key = struct.Struct(f"{order}Q")
    size, unpack = key.size, key.unpack_from
    position = 0
    while (end := data.find(b"\0", position + size)) >= 0:
        yield unpack(data, position)[0], position + size, end, end + 1
        position = end + 1


@lru_cache(16)  # one table in thousands of logs of a job
def _split_mounts(lines: str) -> tuple[tuple[str, str], ...]:
    fields = (line.split() for line in lines.split("\n"))
    mounts = [(row[1], row[0]) for row in fields if len(row) == 2]
    return tuple(sorted(mounts, key=lambda mount: -len(mount[0])))
