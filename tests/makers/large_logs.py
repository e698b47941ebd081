"""Large Darshan logs, fast: streamed to disk, vectorised, with counters that agree.

`write_log` writes one log of any number of operations, `write_logs` many logs of one job.
All that a log says obeys the laws of a real one: its operations do not overlap within a rank,
its counters are those of its operations, its regions tile the file.
"""

from __future__ import annotations

import bz2
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tests.makers.darshan_logs import (
    POSIX_COUNTERS,
    POSIX_TIMES,
    Log,
    header,
    header_length,
    job_record,
    name_records,
)

# Places in a POSIX record, from darshan-posix-log-format.h.
OPENS, READS, WRITES, MMAPS = 0, 3, 4, 7
BYTES, MAX_BYTE, CONSEC, SEQ, SWITCHES, SIZES = 14, 16, 18, 20, 22, 29
COMMON, COMMON_COUNTS = 57, 61
FIRST_START, LAST_END, TIME, META_TIME, LONGEST = 1, 5, 8, 10, 11
SIZE_EDGES = (101, 1025, 10241, 102401, 1048577, 4194305, 10485761, 104857601, 1073741825)

_CHUNK = 1 << 18  # segments that are compressed at once
_HEAD = "Qqq64sqq"

Compress = Callable[[], Any]


@dataclass(frozen=True)
class Workload:
    """What the processes of a job did: each reads its files in turn and writes a checkpoint."""

    segments: int  # operations of the log, over all its ranks
    ranks: int = 8
    files: int = 64  # that each rank reads; a rank holds one file's operations in memory
    checkpoints: int = 1  # files of each rank that it writes instead
    sample_nbytes: tuple[int, ...] = (4096, 131072, 131072, 524288)  # drawn for each operation
    folder: str = "/p/dataset"
    traced: bool = True  # whether Darshan traced the operations, or counted them only
    busy: float = 1.0  # operations last that much longer; at most 1.1, or they overlap
    seed: int = 0
    job: int = 4711


@dataclass
class Totals:
    """What a log holds, for whoever checks a reader."""

    reads: int = 0
    writes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0  # sum of all durations
    nbytes: int = 0  # of the log itself
    counters: list[bytes] = field(default_factory=list, repr=False)


def write_log(path: Path, work: Workload, log: Log | None = None) -> Totals:
    """Writes one log of `work.segments` traced POSIX operations; what is in it.

    Args:
        path: Where to.
        work: What the job did.
        log: Version, byte order, compression, job, times and partial flags. What it says of
            names, records and counters is replaced.
    """
    log = replace(
        log or Log(), names=_names(work), dxt={}, counters={}, job=(1000, work.job, work.ranks)
    )
    totals = Totals()
    with path.open("wb") as file:
        file.seek(header_length(log))
        _packed(file, log, job_record(log))
        regions = {"names": _region(file, log, [name_records(log)])}
        # Darshan puts counters before traces. Here they are known only behind them, and
        # readers go by the table of contents.
        traced = _traced(file, log, work, totals)
        if not work.traced:
            file.seek(traced[0])
            file.truncate()
        regions["POSIX"] = (*_region(file, log, [b"".join(totals.counters)])[:2], 4)
        if work.traced:
            regions["DXT_POSIX"] = (*traced, log.dxt_version["DXT_POSIX"])
        totals.nbytes = file.tell()
        file.seek(0)
        file.write(header(log, regions))
    return totals


def write_logs(folder: Path, count: int, work: Workload, log: Log | None = None) -> list[Path]:
    """Writes `count` logs of one job, a process each, as a run without MPI leaves them.

    `work` is what every process did; each has its own pid, start and seed.
    """
    log = log or Log()
    paths = []
    for i in range(count):
        one = replace(log, start=(log.start[0], log.start[1] + i))
        path = folder / f"me_python_id{work.job}-{10_000 + i}_1-2-3-{i + 1}_1.darshan"
        write_log(path, replace(work, ranks=1, seed=work.seed + i), one)
        paths.append(path)
    return paths


def _names(work: Workload) -> dict[int, bytes]:
    read = {i: f"{work.folder}/part-{i:06d}.h5".encode() for i in range(1, work.files + 1)}
    kept = range(work.files + 1, work.files + 1 + work.checkpoints * work.ranks)
    return read | {i: f"{work.folder}/../out/model-{i:06d}.pt".encode() for i in kept}


def _packed(file: BinaryIO, log: Log, data: bytes) -> None:
    pack = _packers(log)()
    file.write(pack.compress(data) + pack.flush())


def _region(file: BinaryIO, log: Log, streams: list[bytes]) -> tuple[int, int, int]:
    start = file.tell()
    for stream in streams:
        _packed(file, log, stream)
    return start, file.tell() - start, 0


def _traced(file: BinaryIO, log: Log, work: Workload, totals: Totals) -> tuple[int, int]:
    """One stream a rank; the region's first byte and its length."""
    start = file.tell()
    shares = _shares(work.segments, work.ranks)
    for rank, share in enumerate(shares):
        pack = _packers(log)()
        for raw in _rank(log, work, rank, share, totals):
            file.write(pack.compress(raw))
        file.write(pack.flush())
    return start, file.tell() - start


def _rank(log: Log, work: Workload, rank: int, share: int, totals: Totals) -> Iterator[bytes]:
    """The bytes of one rank's stream: record by record, chunk by chunk."""
    rng = np.random.default_rng((work.seed, rank))
    files = _shares(share, work.files + work.checkpoints)
    run_s, before = log.end[0] - log.start[0], 0
    for i, count in enumerate(files):
        writes = i >= work.files
        key = work.files + 1 + rank * work.checkpoints + i - work.files if writes else i + 1
        rows = _operations(rng, work, count, writes=writes)
        slot = run_s / max(share, 1)
        rows["start"] = (before + np.arange(count) + rows["start"]) * slot
        rows["end"] = rows["start"] + rows["end"] * (work.busy * slot)
        before += count
        totals.counters.append(_counters(log, key, rank, rows, write=writes, totals=totals))
        yield _head(log, key, rank, (count, 0) if writes else (0, count))
        yield from _chunks(log, rows)


def _shares(total: int, parts: int) -> list[int]:
    """`total` spread over parts as evenly as whole numbers allow."""
    return [total // parts + (i < total % parts) for i in range(parts)]


_ROW = np.dtype([("offset", "i8"), ("nbytes", "i8"), ("start", "f8"), ("end", "f8")])


def _operations(
    rng: np.random.Generator, work: Workload, count: int, *, writes: bool
) -> NDArray[Any]:
    """Operations of one file; start and end as shares of the operation's own time slot."""
    rows = np.empty(count, _ROW)
    sizes = np.array(work.sample_nbytes)
    rows["nbytes"] = sizes[rng.integers(0, len(sizes), count, np.int32)]
    if writes:
        rows["offset"] = np.cumsum(rows["nbytes"]) - rows["nbytes"]
    else:
        rows["offset"] = rng.integers(0, max(count, 1), count) * int(sizes.max())
    rows["start"] = rng.random(count, np.float32) * np.float32(0.3)
    rows["end"] = rng.random(count, np.float32) * np.float32(0.6)
    return rows


def _chunks(log: Log, rows: NDArray[Any]) -> Iterator[bytes]:
    threads = log.dxt_version["DXT_POSIX"] >= 2
    names = ["offset", "nbytes", "start", "end", *(["thread"] if threads else [])]
    kinds = {"start": "f8", "end": "f8", "thread": "u8"}
    form = np.dtype([(name, log.byte_order + kinds.get(name, "i8")) for name in names])
    for low in range(0, len(rows), _CHUNK):
        part = rows[low : low + _CHUNK]
        out = np.empty(len(part), form)
        for name in ("offset", "nbytes", "start", "end"):
            out[name] = part[name]
        if threads:
            out["thread"] = 139_000_000_000_000
        yield out.tobytes()


def _head(log: Log, key: int, rank: int, counts: tuple[int, int]) -> bytes:
    host = f"node{rank // 4:03d}".encode()
    return struct.pack(f"{log.byte_order}{_HEAD}", key, rank, 0, host, *counts)


def _counters(
    log: Log, key: int, rank: int, rows: NDArray[Any], *, write: bool, totals: Totals
) -> bytes:
    """The POSIX record that Darshan would have kept beside these operations."""
    counts, times = np.zeros(POSIX_COUNTERS, np.int64), np.zeros(POSIX_TIMES)
    counts[OPENS], counts[READS + write] = 1, len(rows)
    counts[MMAPS] = -1
    moved, seconds = int(rows["nbytes"].sum()), float((rows["end"] - rows["start"]).sum())
    if len(rows):
        _patterns(counts, rows, write=write)
        counts[BYTES + write] = moved
        times[[FIRST_START + write, LAST_END + write]] = rows["start"][0], rows["end"].max()
        times[TIME + write], times[META_TIME] = seconds, 1e-6
        times[LONGEST + write] = (rows["end"] - rows["start"]).max()
    _add(totals, len(rows), moved, seconds, write=write)
    form = f"{log.byte_order}Qq{POSIX_COUNTERS}q{POSIX_TIMES}d"
    return struct.pack(form, key, rank, *counts.tolist(), *times.tolist())


def _patterns(counts: NDArray[np.int64], rows: NDArray[Any], *, write: bool) -> None:
    """Darshan's rules: sequential and consecutive look at the last byte before, at first 0."""
    ends = rows["offset"] + rows["nbytes"]
    last = np.concatenate([[0], ends[:-1] - 1])
    counts[SEQ + write] = (rows["offset"] > last).sum()
    counts[CONSEC + write] = (rows["offset"] == last + 1).sum()
    counts[MAX_BYTE + write] = ends.max() - 1
    classes = np.searchsorted(SIZE_EDGES, rows["nbytes"], "right")
    counts[SIZES + 10 * write :][:10] = np.bincount(classes, minlength=10)
    sizes, times = np.unique(rows["nbytes"], return_counts=True)
    common = np.argsort(-times, kind="stable")[:4]
    counts[COMMON : COMMON + len(common)] = sizes[common]
    counts[COMMON_COUNTS : COMMON_COUNTS + len(common)] = times[common]


def _add(totals: Totals, count: int, moved: int, seconds: float, *, write: bool) -> None:
    totals.seconds += seconds
    if write:
        totals.writes, totals.bytes_written = totals.writes + count, totals.bytes_written + moved
    else:
        totals.reads, totals.bytes_read = totals.reads + count, totals.bytes_read + moved


class _Plain:
    """Stands in for a compressor where the log is not compressed."""

    def compress(self, data: bytes) -> bytes:
        return data

    def flush(self) -> bytes:
        return b""


def _packers(log: Log) -> Compress:
    """Fast ones: a log for a benchmark need not be small."""
    try:
        from isal import isal_zlib
    except ImportError:
        fast: Compress = lambda: zlib.compressobj(1)  # noqa: E731
    else:
        fast = lambda: isal_zlib.compressobj(level=1)  # noqa: E731
    return {"zlib": fast, "bz2": lambda: bz2.BZ2Compressor(1), "none": _Plain}[log.compression]
