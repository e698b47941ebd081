"""The records of DXT: where their heads lie in a stream, what these say, and the words between.

A head is a file id, a rank, whether the record is shared, a host name and the numbers of writes
and reads; segments of 8-byte words follow it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.encoding.budget import OBJECT_BYTES, Budget
from vanidl.readers.darshan.job import text

_HEAD_BYTES = 104
_HEAD_WORDS = _HEAD_BYTES // 8
_FILE, _RANK, _HOST, _COUNTS = 0, 1, slice(3, 11), slice(11, 13)  # words of a head
_HELD_BYTES = 3 * OBJECT_BYTES  # of a record: its head, its host and the view of its segments

HeadWords = NDArray[np.int64]
"""The words of some heads in the log's order of bytes, shape (records, words)."""

Segments = NDArray[np.int64]
"""The words of some segments, one segment behind the other."""


@dataclass(frozen=True, slots=True)
class Found:
    """The records of one stream: places of their heads, in words, and what is wrong at its end."""

    places: list[int]
    last: tuple[int, int] | None  # writes and reads of the last one that are there, if not all
    problem: str


def walked(data: bytes | memoryview, width: int, byte_order: str, budget: Budget) -> Found:
    """Goes from head to head through one stream."""
    counts, counted_at = struct.Struct(byte_order + "qq").unpack_from, 8 * _COUNTS.start
    places: list[int] = []
    at, size, row_bytes = 0, len(data), 8 * width
    most = max(0, budget.held_bytes) // _HELD_BYTES
    while size - at >= _HEAD_BYTES:
        if len(places) >= most:
            budget.hold((most + 1) * _HELD_BYTES)
            return Found(places, None, f"its records take more than {budget.memory_limit}")
        writes, reads = counts(data, at + counted_at)
        left = size - at - _HEAD_BYTES
        places.append(at // 8)
        if (writes + reads) * row_bytes > left or writes < 0 or reads < 0:
            budget.hold(len(places) * _HELD_BYTES)
            return _ended(places, (writes, reads), left // row_bytes)
        at += _HEAD_BYTES + row_bytes * (writes + reads)
    budget.hold(len(places) * _HELD_BYTES)
    wrong = f"{size - at} bytes at the end of a stream are no record" if at < size else ""
    return Found(places, None, wrong)


def _ended(places: list[int], announced: tuple[int, int], room: int) -> Found:
    """A stream whose last record announces other operations than it has room for."""
    writes, reads = announced
    found = max(0, min(writes + reads, room))
    written = min(max(0, writes), found)
    problem = (
        f"a record announces {writes:,} writes and {reads:,} reads, "
        f"{found:,} operations of it are there"
    )
    return Found(places, (written, found - written), problem)


def records_of(
    data: bytes | memoryview, width: int, byte_order: str, budget: Budget
) -> tuple[HeadWords, list[Segments], str]:
    """The heads of one stream, their segments, and what is wrong with the stream's end."""
    found = walked(data, width, byte_order, budget)
    words = words_of(data, byte_order)
    heads = words[np.array(found.places, np.intp)[:, None] + np.arange(_HEAD_WORDS)]
    if found.last:
        heads[-1, _COUNTS] = found.last
    words = words.astype(np.int64, copy=False)
    rows = heads[:, _COUNTS].sum(axis=1).tolist()
    segments = [
        words[place + _HEAD_WORDS : place + _HEAD_WORDS + width * count]
        for place, count in zip(found.places, rows, strict=True)
        if count  # a view of nothing would hold the whole stream
    ]
    return heads, segments, found.problem


def words_of(data: bytes | memoryview, byte_order: str) -> NDArray[np.int64]:
    """The words of a stream as they are stored."""
    return np.frombuffer(data, f"{byte_order}i8", len(data) // 8)


def parted(words: NDArray[np.int64], places: NDArray[np.intp]) -> tuple[HeadWords, Segments]:
    """The heads at their places, and the words of all segments between them."""
    at = places[:, None] + np.arange(_HEAD_WORDS)
    of_segments = np.ones(len(words), bool)
    of_segments[at] = False
    return words[at], words[of_segments].astype(np.int64, copy=False)


@dataclass(frozen=True, slots=True)
class Heads:
    """What heads say, one entry a record."""

    file: NDArray[np.uint64]
    rank: NDArray[np.int64]
    host: tuple[str, ...]
    counts: NDArray[np.int64]  # writes and reads, shape (records, 2)


def read_heads(heads: list[HeadWords]) -> Heads:
    """What the heads of a log's streams say."""
    if not heads:
        return Heads(np.empty(0, np.uint64), np.empty(0, np.int64), (), np.empty((0, 2), np.int64))
    words = np.concatenate(heads, dtype=heads[0].dtype)  # else in this machine's order of bytes
    raw = np.ascontiguousarray(words[:, _HOST]).view("S64").ravel().tolist()
    hosts = {one: text(one) for one in set(raw)}
    words = words.astype(np.int64, copy=False)
    file, rank = np.ascontiguousarray(words[:, (_FILE, _RANK)].T)
    return Heads(file.view(np.uint64), rank, tuple([hosts[one] for one in raw]), words[:, _COUNTS])


def first_host(data: bytes | memoryview) -> str:
    """The host that the first record of a stream names, "" for none."""
    if len(data) < _HEAD_BYTES:
        return ""
    return text(bytes(data[8 * _HOST.start : 8 * _HOST.stop]))
