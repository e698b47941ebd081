"""A writer of the files of vanidl's own tracer, from vanidl/record/tracer/format.h.

It shares no code with the reader.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

CHUNK, SLOT_BYTES, PAGE, COUNTER_BYTES = 65536, 40, 4096, 256
SLOTS = CHUNK // SLOT_BYTES
START_MONOTONIC_NS = 5_000_000_000_000
START_REALTIME_NS = 1_700_000_000_000_000_000
FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F,
           0xE7037ED1A0B428DB)  # fmt: skip
OF_PLACE = 0x9E3779B97F4A7C15

NAME, NAME_MORE, THREAD, COUNTERS, FORK, SPAWN, EXEC, SEALED = range(1, 9)
READ, PREAD, WRITE, PWRITE, FREAD, FWRITE = 16, 17, 32, 33, 48, 64
OPEN, CLOSE, LSEEK, STAT, UNLINK, RENAME, MKDIR = 80, 81, 83, 84, 87, 88, 89
FOPEN, FCLOSE, FSYNC, MMAP = 112, 113, 128, 144

SLOT = np.dtype(
    [("start", "<u8"), ("offset", "<i8"), ("result", "<i8"), ("size", "<u4"), ("duration", "<u4"),
     ("file", "<u4"), ("call", "u1"), ("high", "u1"), ("check", "<u2")]
)  # fmt: skip
RECORD = struct.Struct("<IB3x20Q20I8x")
HEADER = struct.Struct("<8sIIIIiiIIQQQQQQQQQQQIIQQqqqqqq64s256s32sII")


@dataclass(frozen=True)
class Call:
    """One call. `start` counts from the start of the recording, in ns."""

    call: int
    start: int
    took: int = 0
    offset: int = 0
    result: int = 0
    file: int = 0
    size: int = 0


@dataclass(frozen=True)
class Counted:
    """What one file has of calls without slots; the order is that of the header file."""

    file: int
    layer: int = 1
    first_ns: int = 0
    last_ns: int = 0
    reads: int = 0
    writes: int = 0
    opens: int = 0
    closes: int = 0
    seeks: int = 0
    stats: int = 0
    others: int = 0
    syncs: int = 0
    maps: int = 0
    failed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    read_ns: int = 0
    write_ns: int = 0
    metadata_ns: int = 0
    sync_ns: int = 0
    read_end: int = 0
    write_end: int = 0
    read_sizes: tuple[int, ...] = (0,) * 10
    write_sizes: tuple[int, ...] = (0,) * 10

    @property
    def calls(self) -> int:
        """All that it counts."""
        return (self.reads + self.writes + self.opens + self.closes + self.seeks + self.stats
                + self.others + self.syncs + self.maps)  # fmt: skip


@dataclass(frozen=True)
class Calls:
    """What a file shall say. `threads` maps a thread to its calls, in their order."""

    threads: dict[int, Sequence[Call] | NDArray[np.void]] = field(default_factory=dict)
    names: dict[int, bytes] = field(default_factory=dict)
    counted: tuple[Counted, ...] = ()
    pid: int = 4711
    parent_pid: int = 1
    how: int = 0
    user_id: int = 1000
    host: bytes = b"node01"
    program: bytes = b"/usr/bin/python3.11"
    start: int = 0  # ns after the time that all others here count from
    ended: int | None = 60_000_000_000
    missing_since: int = 0
    missing_reason: int = 0
    names_missing: int = 0
    anchors: tuple[int, ...] = (
        0,
    )  # of the system's clock, ns off START_REALTIME_NS, chunk by chunk
    other_read: int = 0
    rchar: tuple[int, int] = (-1, -1)  # at the start and at the end
    children: int = 1  # 0: not known, 1: all that ended were waited for, 2: some were not
    written_every_ms: int = 0
    room: int = 0  # bytes of zeros behind the last chunk

    @property
    def name(self) -> str:
        """As the tracer names such a file."""
        return f"{self.pid}-{START_MONOTONIC_NS + self.start}.calls"


def calls_file(calls: Calls) -> bytes:
    """The file as its bytes."""
    chunks: list[bytes] = []
    names = {key: _name_slots(key, name) for key, name in calls.names.items()}
    for thread, rows in calls.threads.items():
        slots = rows if isinstance(rows, np.ndarray) else _slots(rows)
        # All names come before the calls of the first thread, whole names in one chunk.
        pieces = [*names.values(), slots]
        names = {}
        chunks += _thread_chunks(calls, thread, pieces, len(chunks) + 1)
    records = [RECORD.pack(*_fields(one)) for one in _counted(calls)]
    first, more = records[:240], records[240:]
    while more:
        chunks.append(_counter_chunk(more[:255], len(chunks) + 1))
        more = more[255:]
    head = header(calls, 1 + len(chunks), len(records)).ljust(PAGE, b"\0")
    return b"".join([(head + b"".join(first)).ljust(CHUNK, b"\0"), *chunks, bytes(calls.room)])


def by_bytes(content: bytes) -> bytes:
    """A file as it is compressed: of another version, each chunk by the bytes of its slots."""
    chunks = [content[at : at + CHUNK] for at in range(CHUNK, len(content), CHUNK)]
    parted = [
        b"".join(chunk[place : SLOTS * SLOT_BYTES : SLOT_BYTES] for place in range(SLOT_BYTES))
        + chunk[SLOTS * SLOT_BYTES :]
        for chunk in chunks
    ]
    return b"".join([content[:8], struct.pack("<I", 2), content[12:CHUNK], *parted])


def header(calls: Calls, chunks: int, counters: int) -> bytes:
    """The header of a file with so many chunks and records of counters."""
    ended = calls.ended
    since = calls.missing_since
    return HEADER.pack(
        b"VANIDLTR", 1, CHUNK, SLOT_BYTES, COUNTER_BYTES, calls.pid, calls.parent_pid,
        calls.user_id, calls.how, START_MONOTONIC_NS + calls.start,
        START_REALTIME_NS + calls.start, 40,
        0 if ended is None else START_MONOTONIC_NS + ended,
        0 if ended is None else START_REALTIME_NS + ended,
        2_000_000, 4096, chunks, counters, since and START_MONOTONIC_NS + since,
        sum(one.calls for one in calls.counted), calls.missing_reason, calls.names_missing,
        calls.other_read, 0, calls.rchar[1], -1, -1, -1, calls.rchar[0], -1,
        calls.host, calls.program, b"0.1.0", calls.children, calls.written_every_ms,
    )  # fmt: skip


def _counted(calls: Calls) -> list[Counted]:
    """The two records of files without their own come first."""
    zero = {one.layer: one for one in calls.counted if one.file == 0}
    others = [one for one in calls.counted if one.file]
    return [zero.get(1, Counted(0, 1)), zero.get(2, Counted(0, 2)), *others]


def _fields(one: Counted) -> list[int]:
    first, last = (t and START_MONOTONIC_NS + t for t in (one.first_ns, one.last_ns))
    values = [getattr(one, name) for name in one.__dataclass_fields__]
    return [*values[:2], first, last, *values[4:-2], *one.read_sizes, *one.write_sizes]


def _slots(rows: Sequence[Call]) -> NDArray[np.void]:
    slots = np.zeros(len(rows), SLOT)
    for i, row in enumerate(rows):
        slots[i] = (START_MONOTONIC_NS + row.start, row.offset, row.result, row.size,
                    row.took & 0xFFFFFFFF, row.file, row.call, row.took >> 32, 0)  # fmt: skip
    return slots


def _name_slots(key: int, name: bytes) -> NDArray[np.void]:
    pieces = [name[i : i + 32] for i in range(0, len(name), 32)] or [b""]
    raw = b"".join(
        struct.pack("<32sIBBH", piece, key, NAME_MORE if i else NAME, len(piece), 0)
        for i, piece in enumerate(pieces)
    )
    return np.frombuffer(raw, SLOT)


def _thread_chunks(
    calls: Calls, thread: int, pieces: Sequence[NDArray[np.void]], first: int
) -> list[bytes]:
    chunks: list[bytes] = []
    held: list[NDArray[np.void]] = []
    room = SLOTS - 1

    def close() -> None:
        at = first + len(chunks)
        shift = calls.anchors[min(at - 1, len(calls.anchors) - 1)]
        head = np.zeros(1, SLOT)
        began = next((int(p["start"][0]) for p in held if p["call"][0] > EXEC), START_MONOTONIC_NS)
        since = began - START_MONOTONIC_NS
        head[0] = (began, START_REALTIME_NS + since + shift, thread, 50, 0, 0, THREAD, 0, 0)
        chunks.append(checked(np.concatenate([head, *held]), at).ljust(CHUNK, b"\0"))
        held.clear()

    for piece in pieces:
        whole = piece["call"][:1].tolist() in ([NAME], [NAME_MORE])
        while len(piece):
            if not room or (whole and len(piece) > room):
                close()
                room = SLOTS - 1
            held.append(piece[:room])
            piece, room = piece[room:], room - len(held[-1])
    if held:
        close()
    return chunks


def checked(slots: NDArray[np.void], chunk: int) -> bytes:
    """The slots with their checks, as they lie from the beginning of a chunk on."""
    slots = slots.copy()
    slots["check"] = 0
    words = slots.view("<u8").reshape(-1, 5)
    place = np.arange(len(slots), dtype=np.uint64) * np.uint64(SLOT_BYTES)
    sums = (place + np.uint64(CHUNK * chunk + 1)) * np.uint64(OF_PLACE)
    for i, factor in enumerate(FACTORS):
        sums += words[:, i] * np.uint64(factor)
    slots["check"] = sums >> np.uint64(48)
    return slots.tobytes()


def _counter_chunk(records: Sequence[bytes], chunk: int) -> bytes:
    head = np.zeros(1, SLOT)
    head["call"] = COUNTERS
    return (checked(head, chunk).ljust(COUNTER_BYTES, b"\0") + b"".join(records)).ljust(
        CHUNK, b"\0"
    )


def read_loop(
    count: int, *, files: int = 4, start: int = 1000, took: int = 600, nbytes: int = 4096
) -> NDArray[np.void]:
    """So many preads as slots, quickly: in turn of each file, one behind the other."""
    i = np.arange(count)
    slots = np.zeros(count, SLOT)
    slots["start"] = START_MONOTONIC_NS + start + 1000 * i
    slots["offset"], slots["result"], slots["size"] = i // files * nbytes, nbytes, nbytes
    slots["duration"], slots["file"], slots["call"] = took + i % 7, 1 + i % files, PREAD
    return slots


def changed(calls: Calls, **fields: object) -> Calls:
    """The same with other fields."""
    return replace(calls, **fields)  # type: ignore[arg-type]
