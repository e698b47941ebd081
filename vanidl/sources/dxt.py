"""Darshan's traced operations (DXT): inflated streams to columns.

A stream holds the records of one rank. A record is a head of 13 words of 8 bytes (file id,
rank, shared record, 64 bytes of host name, writes, reads) and then its segments, writes
first: offset, length, start and end in seconds, and from record version 2 (MPI-IO: 3) on
the pthread id.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.sources.darshan_job import text
from vanidl.sources.inflate import Stream
from vanidl.sources.pieces import DxtTable
from vanidl.trace import MPIIO, POSIX, READ, WRITE

LAYERS = {"DXT_POSIX": POSIX, "DXT_MPIIO": MPIIO}
THREAD_VERSION = {POSIX: 2, MPIIO: 3}
NEWEST_VERSION = {POSIX: 2, MPIIO: 3}

_Table = dict[str, NDArray[Any]]

_HEAD_WORDS = 13
_HOST = slice(24, 88)  # bytes of the head
_LATEST_NS = 1 << 62  # 146 years: beyond it a time is nonsense
_BLOCK = 8192  # rows that stay in the cache between two passes
_THREAD_ROWS = 16384  # from here on a second thread is worth its start


@dataclass(slots=True)
class _Record:
    file: int
    rank: int
    host: str
    writes: int
    reads: int
    words: NDArray[np.int64]  # its segments


def decode(
    streams: Iterable[Stream], name: str, version: int, *, swapped: bool, nbytes: int
) -> tuple[DxtTable, tuple[str, ...]]:
    """The operations of one DXT region as columns, and a sentence for each loss.

    While one stream is inflated, the one before it is turned into columns by a second
    thread: both leave the interpreter's lock alone most of the time.

    Args:
        streams: The region's streams, as `inflate.streams` makes them.
        name: "DXT_POSIX" or "DXT_MPIIO".
        version: Of the records, from the log's header.
        swapped: The log's byte order is not this machine's.
        nbytes: Length of the compressed region, to guess the number of rows.
    """
    layer = LAYERS[name]
    columns = _Columns(threads=version >= THREAD_VERSION[layer], nbytes=nbytes)
    records: list[_Record] = []
    losses: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        for stream in streams:
            if stream.problem:
                losses.append(f"{name} is incomplete: {stream.problem}")
            found, loss = _records(stream.data, columns.width, swapped=swapped)
            losses += [f"{name} is incomplete: {loss}"] if loss and not stream.problem else []
            records += found
            columns.add(found, stream.end, pool)
    if layer == MPIIO and version == 1:
        columns.column(0)[:] = -1  # this version wrote no valid offsets
    return _table(layer, records, columns, losses)


class _Columns:
    """Columns that grow stream by stream; the rows behind `rows` are not in use."""

    def __init__(self, *, threads: bool, nbytes: int) -> None:
        self.width = 5 if threads else 4  # words a segment
        self.rows = 0
        self._nbytes = nbytes
        self._filling: list[Future[None]] = []
        self._ints = np.empty((self.width, 0), np.int64)

    def add(self, records: list[_Record], used: int, pool: ThreadPoolExecutor) -> None:
        """Append the segments of a stream that ends `used` bytes into the region."""
        first = self.rows
        self.rows += sum(len(r.words) for r in records) // self.width
        self._reserve(used)
        if self.rows - first < _THREAD_ROWS:
            self._fill(first, records)
        else:
            self._filling.append(pool.submit(self._fill, first, records))

    def column(self, index: int) -> NDArray[np.int64]:
        """One column, complete: offset, length, start, end or thread."""
        self._wait()
        return self._ints[index, : self.rows]

    def _reserve(self, used: int) -> None:
        if self.rows <= self._ints.shape[1]:
            return
        self._wait()
        expected = self.rows * self._nbytes // max(used, 1) * 9 // 8
        larger = np.empty((self.width, max(self.rows, min(expected, 16 * self.rows))), np.int64)
        held = self._ints.shape[1]
        larger[:, :held] = self._ints
        self._ints = larger

    def _wait(self) -> None:
        for future in self._filling:
            future.result()
        self._filling.clear()

    def _fill(self, first: int, records: list[_Record]) -> None:
        scratch = np.empty((2, _BLOCK))
        for record in records:
            rows = record.words.reshape(-1, self.width)
            for low in range(0, len(rows), _BLOCK):
                block = rows[low : low + _BLOCK]
                _store(block, self._ints[:, first + low : first + low + len(block)], scratch)
            first += len(rows)


def _store(block: NDArray[np.int64], out: NDArray[np.int64], scratch: NDArray[np.float64]) -> None:
    out[:2] = block[:, :2].T
    out[4:] = block[:, 4:].T
    times = scratch[:, : len(block)]
    with np.errstate(invalid="ignore", over="ignore"):  # nonsense is sorted out afterwards
        np.multiply(block[:, 2:4].view(np.float64).T, 1e9, out=times)
        np.rint(times, out=times)
        out[2:4] = times


def _records(data: bytes | memoryview, width: int, *, swapped: bool) -> tuple[list[_Record], str]:
    """The records of one stream, and what is wrong with its end ("" for nothing)."""
    words = np.frombuffer(data, np.int64, len(data) // 8)
    if swapped:
        words = words.byteswap()
    records: list[_Record] = []
    at = 0
    while len(words) - at >= _HEAD_WORDS:
        record, at, problem = _record(words, at, data, width)
        records += [record] if record is not None else []
        if problem:
            return records, problem
    left = len(data) - 8 * at
    return records, f"{left} bytes at the end of a stream are no record" if left else ""


def _record(
    words: NDArray[np.int64], at: int, data: bytes | memoryview, width: int
) -> tuple[_Record | None, int, str]:
    """The record at a word, the word behind it, and what is wrong with it."""
    writes, reads = int(words[at + 11]), int(words[at + 12])
    if writes < 0 or reads < 0:
        return None, at, f"a record announces {writes} writes and {reads} reads"
    start = at + _HEAD_WORDS
    fitting = (len(words) - start) // width
    found = min(writes + reads, fitting)
    host = text(bytes(data[8 * at : 8 * start][_HOST]))
    segments = words[start : start + width * found]
    file, rank = int(words[at]) % 2**64, int(words[at + 1])
    written = min(writes, found)
    record = _Record(file, rank, host, written, found - written, segments)
    problem = (
        ""
        if found == writes + reads
        else (f"a record announces {writes + reads:,} operations, {found:,} of them are there")
    )
    return record, start + width * found, problem


def _table(
    layer: str, records: list[_Record], columns: _Columns, losses: list[str]
) -> tuple[DxtTable, tuple[str, ...]]:
    counts = np.array([(r.writes, r.reads) for r in records], np.int64).reshape(-1, 2)
    table: _Table = {
        "record": np.repeat(np.arange(len(records), dtype=np.int32), counts.sum(axis=1)),
        "op": np.repeat(np.tile(np.array([WRITE, READ], np.uint8), len(records)), counts.ravel()),
        "offset": columns.column(0),
        "nbytes": columns.column(1),
        "start_ns": columns.column(2),
        "end_ns": columns.column(3),
    }
    if columns.width == 5:
        table["thread"] = columns.column(4).view(np.uint64)
    table = _sensible(table, layer, losses)
    table["record_file"] = np.array([r.file for r in records], np.uint64)
    table["record_rank"] = np.array([r.rank for r in records], np.int64)
    for column in table.values():
        column.setflags(write=False)
    hosts = tuple(r.host for r in records)
    return DxtTable(layer, record_host=hosts, **{"thread": None, **table}), tuple(losses)


def _sensible(table: _Table, layer: str, losses: list[str]) -> _Table:
    """The columns without rows that cannot be; how many those are goes to `losses`."""
    start, end, nbytes = table["start_ns"], table["end_ns"], table["nbytes"]
    # NaN and infinity became the smallest integer, on some machines the largest.
    wrong = (start < 0) | (end < start) | (end > _LATEST_NS) | (nbytes < 0)
    if not wrong.any():
        return table
    losses.append(
        f"{int(wrong.sum()):,} of {len(wrong):,} traced {layer} operations have an impossible "
        "time or length and are left out"
    )
    return {name: column[~wrong] for name, column in table.items()}
