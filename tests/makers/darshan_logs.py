"""A writer of Darshan logs: every version, byte order and compression of the format.

Written from the format's description, apart from the reader: it shares no code with it.
"""

from __future__ import annotations

import bz2
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

MAGIC = 6567223
POSIX_COUNTERS, POSIX_TIMES = 69, 17
STDIO_COUNTERS, STDIO_TIMES = 14, 15

# Module numbers by version of the log format.
NUMBERS = {
    "3.00": {"POSIX": 1, "MPI-IO": 2, "STDIO": 7, "DXT_POSIX": 8, "DXT_MPIIO": 9},
    "3.10": {"POSIX": 1, "MPI-IO": 2, "STDIO": 7, "DXT_POSIX": 8, "DXT_MPIIO": 9},
    "3.20": {"POSIX": 1, "MPI-IO": 2, "STDIO": 8, "DXT_POSIX": 9, "DXT_MPIIO": 10},
    "3.21": {"POSIX": 1, "MPI-IO": 2, "STDIO": 8, "DXT_POSIX": 9, "DXT_MPIIO": 10},
    "3.41": {
        "POSIX": 1,
        "MPI-IO": 2,
        "STDIO": 9,
        "DXT_POSIX": 10,
        "DXT_MPIIO": 11,
        "APXC": 13,
        "DFS": 16,
        "DAOS": 17,
        "module 20": 20,
        "module 21": 21,
    },
}
COMPRESSORS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "zlib": (0, zlib.compress),
    "bz2": (1, bz2.compress),
    "none": (2, bytes),
}


@dataclass
class Record:
    """One file as one rank used it. Rows: offset, length, start (s), end (s), thread."""

    file: int
    rank: int
    host: str
    writes: list[tuple[int, int, float, float, int]]
    reads: list[tuple[int, int, float, float, int]]


@dataclass
class Log:
    """What a log shall say. `dxt` maps a module to streams, each the records of one rank."""

    version: str = "3.41"
    byte_order: str = "<"
    compression: str = "zlib"
    job: tuple[int, int, int] = (1000, 4711, 2)  # user, job, processes
    start: tuple[int, int] = (1_700_000_000, 250_000_000)  # seconds, nanoseconds
    end: tuple[int, int] = (1_700_000_060, 750_000_000)
    metadata: bytes = b"lib_ver=3.4.7\nfork_parent=12\n"
    command: bytes = b"python train.py"
    mounts: list[tuple[str, str]] = field(default_factory=lambda: [("ext4", "/"), ("lustre", "/p")])
    names: dict[int, bytes] = field(default_factory=dict)
    dxt: dict[str, list[list[Record]]] = field(default_factory=dict)
    dxt_version: dict[str, int] = field(default_factory=lambda: {"DXT_POSIX": 1, "DXT_MPIIO": 2})
    counters: dict[str, list[tuple[int, int, Sequence[int], Sequence[float]]]] = field(
        default_factory=dict
    )
    partial: tuple[str, ...] = ()
    raw: dict[str, bytes] = field(default_factory=dict)  # module -> its records


def log_bytes(log: Log) -> bytes:
    """The log as a file's bytes."""
    return b"".join(log_parts(log))


def log_parts(log: Log) -> list[bytes]:
    """The log in pieces: header, job, names, then every stream of every module."""
    _, compress = COMPRESSORS[log.compression]
    numbers = NUMBERS[log.version]
    job, names = compress(job_record(log)), compress(name_records(log)) if log.names else b""
    parts = [job, names]
    position = header_length(log) + len(job)
    regions = {"names": (position, len(names), 0)} if names else {}
    position += len(names)
    for module, (version, streams) in sorted(_modules(log).items(), key=lambda m: numbers[m[0]]):
        packed = [compress(stream) for stream in streams]
        regions[module] = (position, sum(map(len, packed)), version)
        position += sum(map(len, packed))
        parts += packed
    return [header(log, regions), *parts]


def header_length(log: Log) -> int:
    """Bytes of the header, which nothing compresses."""
    return _header_form(log).size


def header(log: Log, regions: dict[str, tuple[int, int, int]]) -> bytes:
    """The header for regions: (first byte, bytes, version of the records) by "names" or module."""
    slots = _slots(log)
    table, versions = [0] * (2 * slots + 2), [0] * slots
    for name, (start, length, version) in regions.items():
        number = -1 if name == "names" else NUMBERS[log.version][name]
        table[2 * number + 2 : 2 * number + 4] = start, length
        if number >= 0:
            versions[number] = version
    flags = sum(1 << NUMBERS[log.version][module] for module in log.partial)
    code, _ = COMPRESSORS[log.compression]
    fixed = (log.version.encode(), MAGIC, code, flags)
    return _header_form(log).pack(*fixed, *table, *versions)


def _slots(log: Log) -> int:
    return 64 if log.version == "3.41" else 16


def _header_form(log: Log) -> struct.Struct:
    slots = _slots(log)
    head = "8sqB7xQ" if slots == 64 else "8sqB3xI"
    return struct.Struct(f"{log.byte_order}{head}{2 * slots + 2}Q{slots}I")


def _modules(log: Log) -> dict[str, tuple[int, list[bytes]]]:
    modules = {
        name: (log.dxt_version[name], [_stream(log, name, records) for records in streams])
        for name, streams in log.dxt.items()
    }
    for name, rows in log.counters.items():
        modules[name] = ({"POSIX": 4, "STDIO": 2}[name], [_counters(log, name, rows)])
    modules |= {name: (1, [records]) for name, records in log.raw.items()}
    return modules


def job_record(log: Log) -> bytes:
    """The job's record, its command and the mount table, not compressed."""
    user, job, processes = log.job
    times = [*log.start, *log.end] if log.version == "3.41" else [log.start[0], log.end[0]]
    fixed = struct.pack(f"{log.byte_order}{3 + len(times)}q", user, *times, processes, job)
    lines = "".join(f"\n{kind}\t{path}" for kind, path in log.mounts)
    return fixed + log.metadata.ljust(1024, b"\0") + log.command + lines.encode() + b"\0"


def name_records(log: Log) -> bytes:
    """The file names, not compressed."""
    if log.version == "3.00":
        form = struct.Struct(f"{log.byte_order}QI")
        return b"".join(form.pack(i, len(name)) + name for i, name in log.names.items())
    form = struct.Struct(f"{log.byte_order}Q")
    return b"".join(form.pack(i) + name + b"\0" for i, name in log.names.items())


def _stream(log: Log, module: str, records: list[Record]) -> bytes:
    threads = log.dxt_version[module] >= {"DXT_POSIX": 2, "DXT_MPIIO": 3}[module]
    head = struct.Struct(f"{log.byte_order}Qqq64sqq")
    segment = struct.Struct(f"{log.byte_order}qqdd{'Q' if threads else ''}")
    raw = []
    for r in records:
        host = r.host.encode()
        raw.append(head.pack(r.file, r.rank, -1, host, len(r.writes), len(r.reads)))
        raw += [segment.pack(*row[: 4 + threads]) for row in (*r.writes, *r.reads)]
    return b"".join(raw)


def _counters(
    log: Log, module: str, rows: list[tuple[int, int, Sequence[int], Sequence[float]]]
) -> bytes:
    ints, floats = {
        "POSIX": (POSIX_COUNTERS, POSIX_TIMES),
        "STDIO": (STDIO_COUNTERS, STDIO_TIMES),
    }[module]
    form = struct.Struct(f"{log.byte_order}Qq{ints}q{floats}d")
    return b"".join(form.pack(file, rank, *c, *s) for file, rank, c, s in rows)


def random_records(
    seed: int, *, ranks: int = 3, files: int = 4, rows: int = 50
) -> list[list[Record]]:
    """Streams of `ranks` ranks with up to `files` records of up to `rows` operations."""
    rng = np.random.default_rng(seed)
    return [
        [_random_record(rng, rank, 2**63 + 17 * file, rows) for file in range(files)]
        for rank in range(ranks)
    ]


def _random_record(rng: np.random.Generator, rank: int, file: int, rows: int) -> Record:
    def segments() -> list[tuple[int, int, float, float, int]]:
        n = int(rng.integers(0, rows))
        start = np.sort(rng.uniform(0, 60, n))
        end = start + rng.exponential(1e-3, n)
        offset, length = rng.integers(0, 2**40, n), rng.integers(0, 2**22, n)
        thread = rng.integers(1, 2**64, n, np.uint64)
        columns = (offset, length, start, end, thread)
        return list(zip(*(c.tolist() for c in columns), strict=True))

    return Record(file, rank, f"node{rank:02d}", segments(), segments())
