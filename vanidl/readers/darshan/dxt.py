"""Darshan's traced operations (DXT): inflated streams to columns.

A stream holds the records of one rank. A record is a head (file id, rank, whether it is
shared, host name, number of writes and of reads) and then its segments of 8-byte words,
writes first: offset, length, start and end in seconds, and from record version 2 (MPI-IO:
3) on the pthread id.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.encoding.budget import OBJECT_BYTES, Budget
from vanidl.encoding.inflate import Stream
from vanidl.model.trace import MPIIO, POSIX, READ, WRITE
from vanidl.readers.darshan.header import DXT_MODULES
from vanidl.readers.darshan.job import decode_text
from vanidl.readers.records import OperationTable, describe_left_out, find_impossible_operations
from vanidl.schema.dataclass import dataclass

# The records of DXT: where their heads lie in a stream, what these say, and the words between.
#
# A head is a file id, a rank, whether the record is shared, a host name and the numbers of writes
# and reads; segments of 8-byte words follow it.

_HEAD_BYTES = 104
_HEAD_WORDS = _HEAD_BYTES // 8
_FILE, _RANK, _HOST, _COUNTS = 0, 1, slice(3, 11), slice(11, 13)  # words of a head
_HELD_BYTES = 3 * OBJECT_BYTES  # of a record: its head, its host and the view of its segments

HeadWords = NDArray[np.int64]
"""The words of some heads in the log's order of bytes, shape (records, words)."""

Segments = NDArray[np.int64]
"""The words of some segments, one segment behind the other."""


@dataclass(frozen=True, slots=True)
class StreamRecords:
    """The records of one stream: places of their heads, in words, and what is wrong at its end."""

    places: list[int]
    last: tuple[int, int] | None  # writes and reads of the last one that are there, if not all
    problem: str


def walk_stream(
    data: bytes | memoryview, width: int, byte_order: str, budget: Budget
) -> StreamRecords:
    """Goes from head to head through one stream."""
    counts, counted_at = struct.Struct(byte_order + "qq").unpack_from, 8 * _COUNTS.start
    places: list[int] = []
    at, size, row_bytes = 0, len(data), 8 * width
    most = max(0, budget.held_bytes) // _HELD_BYTES
    while size - at >= _HEAD_BYTES:
        if len(places) >= most:
            budget.hold((most + 1) * _HELD_BYTES)
            return StreamRecords(places, None, f"its records take more than {budget.memory_limit}")
        # A head says how many operations follow; more than there is room for: the stream is cut.
        writes, reads = counts(data, at + counted_at)
        left = size - at - _HEAD_BYTES
        places.append(at // 8)
        if (writes + reads) * row_bytes > left or writes < 0 or reads < 0:
            budget.hold(len(places) * _HELD_BYTES)
            return _cut_last_record(places, (writes, reads), left // row_bytes)
        at += _HEAD_BYTES + row_bytes * (writes + reads)
    budget.hold(len(places) * _HELD_BYTES)
    wrong = f"{size - at} bytes at the end of a stream are no record" if at < size else ""
    return StreamRecords(places, None, wrong)


def _cut_last_record(places: list[int], announced: tuple[int, int], room: int) -> StreamRecords:
    """A stream whose last record announces other operations than it has room for."""
    writes, reads = announced
    complete = max(0, min(writes + reads, room))
    written = min(max(0, writes), complete)
    problem = (
        f"a record announces {writes:,} writes and {reads:,} reads, "
        f"{complete:,} operations of it are there"
    )
    return StreamRecords(places, (written, complete - written), problem)


def read_stream(
    data: bytes | memoryview, width: int, byte_order: str, budget: Budget
) -> tuple[HeadWords, list[Segments], str]:
    """The heads of one stream, their segments, and what is wrong with the stream's end."""
    records = walk_stream(data, width, byte_order, budget)
    words = get_words(data, byte_order)
    heads = words[np.array(records.places, np.intp)[:, None] + np.arange(_HEAD_WORDS)]
    if records.last:
        heads[-1, _COUNTS] = records.last
    words = words.astype(np.int64, copy=False)
    rows = heads[:, _COUNTS].sum(axis=1).tolist()
    segments = [
        words[place + _HEAD_WORDS : place + _HEAD_WORDS + width * count]
        for place, count in zip(records.places, rows, strict=True)
        if count  # a view of nothing would hold the whole stream
    ]
    return heads, segments, records.problem


def get_words(data: bytes | memoryview, byte_order: str) -> NDArray[np.int64]:
    """The words of a stream as they are stored."""
    return np.frombuffer(data, f"{byte_order}i8", len(data) // 8)


def split_heads(words: NDArray[np.int64], places: NDArray[np.intp]) -> tuple[HeadWords, Segments]:
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
    hosts = {one: decode_text(one) for one in set(raw)}
    words = words.astype(np.int64, copy=False)
    file, rank = np.ascontiguousarray(words[:, (_FILE, _RANK)].T)
    return Heads(file.view(np.uint64), rank, tuple([hosts[one] for one in raw]), words[:, _COUNTS])


def read_first_host(data: bytes | memoryview) -> str:
    """The host that the first record of a stream names, "" for none."""
    if len(data) < _HEAD_BYTES:
        return ""
    return decode_text(bytes(data[8 * _HOST.start : 8 * _HOST.stop]))


LAYERS = dict(zip(DXT_MODULES, (POSIX, MPIIO), strict=True))
THREAD_VERSION = {POSIX: 2, MPIIO: 3}
NEWEST_VERSION = {POSIX: 2, MPIIO: 3}

_BLOCK = 16384  # rows that stay in the cache between two passes
_FREE_ROOM = 1 << 26  # rows: memory that is not written to costs nothing, moving it later does

_SHIFT = np.float64(3 << 51)

_Table = dict[str, NDArray[Any]]


def decode_dxt(
    streams: Iterable[Stream],
    name: str,
    version: int,
    *,
    byte_order: str,
    nbytes: int,
    budget: Budget | None = None,
) -> tuple[OperationTable, tuple[str, ...]]:
    """The operations of one DXT region as columns, and a sentence for each loss.

    Args:
        streams: The region's streams, as `inflate.streams` makes them.
        name: "DXT_POSIX" or "DXT_MPIIO".
        version: Of the records, from the log's header.
        byte_order: "<" or ">".
        nbytes: Length of the compressed region, to guess the number of rows.
        budget: Of the file; by default that of a file which is the region.
    """
    budget = budget or Budget.of_file(nbytes)
    layer = LAYERS[name]
    columns = _Columns(_get_width(layer, version), nbytes)

    # Stream by stream: the heads of records, and their segments into columns.
    heads, losses, longest = list[HeadWords](), list[str](), 0
    for stream in streams:
        budget.hold(max(0, len(stream.data) - longest))  # one is held at a time
        longest = max(longest, len(stream.data))
        found, segments, loss = read_stream(stream.data, columns.width, byte_order, budget)
        heads.append(found)
        columns.add(segments, stream.end)
        if stream.problem or loss:
            losses.append(f"{name} is incomplete: {stream.problem or loss}")
        if budget.held_bytes < 0:
            break

    # One table of all; what cannot be is left out.
    records = read_heads(heads)
    table = _build_table(records, columns)
    if layer == MPIIO and version == 1:
        # This version wrote no valid offsets.
        table["offset"] = np.full(len(table["op"]), -1, np.int64)
    if not columns.plain and (loss := _drop_nonsense(table)):
        losses.append(f"{name}: {loss}")
    return _build_operations(layer, records, table), tuple(losses)


def _get_width(layer: str, version: int) -> int:
    """Words of a segment."""
    return 5 if version >= THREAD_VERSION[layer] else 4


@dataclass(frozen=True, slots=True)
class Walked:
    """The records of one short region, not yet decoded."""

    layer: str
    width: int
    words: NDArray[np.int64]  # of the whole region, in the order of bytes of its log
    places: list[int]  # of heads in them


def walk_region(
    data: bytes | memoryview, name: str, version: int, byte_order: str, budget: Budget
) -> Walked | None:
    """The records of the only stream of a short region; None for what `decode` has to look at."""
    layer = LAYERS[name]
    if layer == MPIIO and version == 1:
        return None
    width = _get_width(layer, version)
    records = walk_stream(data, width, byte_order, budget)
    if not records.places or records.problem:
        return None
    return Walked(layer, width, get_words(data, byte_order), records.places)


_Place = tuple[int, int, int, int]
"""Where the rows of a log begin and end among those of many, and where its records do."""


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Which operations of many logs, decoded together, are one log's: sent for their table."""

    whole: OperationTable
    layer: str
    place: _Place

    @property
    def record_host(self) -> tuple[str, ...]:
        """As the table's."""
        return self.whole.record_host[slice(*self.place[2:])]

    def cut(self) -> OperationTable:
        """The table of the log."""
        return _slice_table(self.whole, self.layer, self.place)

    def __reduce__(self) -> tuple[Any, ...]:
        return _slice_table, (self.whole, self.layer, self.place)


def decode_regions(walked: Sequence[Walked]) -> list[TablePlace] | None:
    """The operations of many short regions, decoded at once; None where any is impossible."""
    found: dict[int, TablePlace] = {}
    for kind in {(one.width, one.words.dtype) for one in walked}:
        places = [i for i, one in enumerate(walked) if (one.width, one.words.dtype) == kind]
        some = _decode_alike([walked[i] for i in places], kind[0])
        if some is None:
            return None
        found |= zip(places, some, strict=True)
    return [found[i] for i in range(len(walked))]


def _decode_alike(walked: Sequence[Walked], width: int) -> list[TablePlace] | None:
    """As `decode_regions`, of rows of one width: one table of all, and what is whose."""
    words = np.concatenate([one.words for one in walked], dtype=walked[0].words.dtype)
    counts = [len(one.places) for one in walked]
    first = [0, *accumulate(len(one.words) for one in walked)][:-1]
    at = np.repeat(first, counts) + np.array([place for one in walked for place in one.places])

    # One table of all logs.
    heads, segments = split_heads(words, at)
    columns = _Columns(width, 0)
    columns.add([segments], 1)
    records = read_heads([heads])
    whole = _build_operations(POSIX, records, _build_table(records, columns))
    if not columns.plain:
        return None

    # Where the rows and records of each log begin and end in it.
    of_records = list(pairwise(accumulate(counts, initial=0)))
    ends = np.append(0, np.cumsum(records.counts.sum(axis=1)))[[0, *accumulate(counts)]].tolist()
    return [
        TablePlace(whole, one.layer, (*rows, *of))
        for one, rows, of in zip(walked, pairwise(ends), of_records, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _OperationSlice(OperationTable):
    """The operations of one of many logs that were decoded together: sent as places in these."""

    whole: OperationTable
    place: _Place

    def __post_init__(self) -> None:
        """Nothing: the hosts of `whole` are as they may be shown."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _slice_table, (self.whole, self.layer, self.place)


def _slice_table(whole: OperationTable, layer: str, place: _Place) -> OperationTable:
    rows, records = slice(*place[:2]), slice(*place[2:])
    kind = _choose_code_type(records.stop - records.start)
    record: NDArray[Any] = (whole.record[rows] - np.int32(records.start)).astype(kind)
    record.setflags(write=False)
    return _OperationSlice(
        layer,
        whole.record_file[records],
        whole.record_rank[records],
        whole.record_host[records],
        record,
        whole.op[rows],
        whole.offset[rows],
        whole.nbytes[rows],
        whole.start_ns[rows],
        whole.end_ns[rows],
        None if whole.thread is None else whole.thread[rows],
        whole,
        place,
    )


class _Columns:
    """Columns that grow stream by stream; what lies behind `rows` is not in use."""

    def __init__(self, width: int, nbytes: int) -> None:
        self.width = width  # words a segment
        self.rows = 0
        self.plain = True  # no row can be impossible
        self._nbytes = nbytes
        # Offsets and lengths in 32 bits as long as all fit. Apart, so that the memory of one
        # goes when only others are kept.
        types = [np.uint32, np.uint32, *(width - 2) * [np.int64]]
        self._columns: list[NDArray[Any]] = [np.empty(0, each) for each in types]
        self._scratch = np.empty(0, np.int64)
        self._waiting: list[Segments] = []  # of streams too short to be worth a pass each
        self._waiting_rows = 0

    def add(self, segments: list[Segments], used: int) -> None:
        """Append the segments of a stream that ends `used` bytes into the region."""
        self._waiting += segments
        self._waiting_rows += sum(map(len, segments)) // self.width
        if self._waiting_rows >= _BLOCK:
            self._flush(used)

    def column(self, index: int) -> NDArray[Any]:
        """One column: offset, length, start, end or thread."""
        self._flush(self._nbytes)
        return self._columns[index][: self.rows]

    def _flush(self, used: int) -> None:
        if not self._waiting_rows:
            return
        first, self.rows = self.rows, self.rows + self._waiting_rows
        if self.rows > len(self._columns[0]):
            # Room for all rows of the region, as its bytes so far suggest: a guess, and so bounded.
            expected = self.rows * self._nbytes // max(used, 1) * 9 // 8
            room = max(
                self.rows, min(expected, max(16 * self.rows, min(_FREE_ROOM, 256 * self.rows)))
            )
            for i, column in enumerate(self._columns):
                self._columns[i] = np.empty(room, column.dtype)
                self._columns[i][:first] = column[:first]
        segments = self._join_waiting()
        for low in range(0, len(segments), _BLOCK):
            self._store_block(segments[low : low + _BLOCK], first + low)
        self._waiting, self._waiting_rows = [], 0

    def _join_waiting(self) -> NDArray[np.int64]:
        """What waits, one row a segment."""
        # Into memory that is used again: fresh memory costs more than the copying.
        if len(self._waiting) == 1:
            return self._waiting[0].reshape(-1, self.width)
        words = self._waiting_rows * self.width
        if words > len(self._scratch):
            self._scratch = np.empty(words * 9 // 8, np.int64)
        joined = np.concatenate(self._waiting, out=self._scratch[:words])
        return joined.reshape(-1, self.width)

    def _store_block(self, block: NDArray[np.int64], first: int) -> None:
        """Writes rows into the columns from row `first` on."""
        rows = slice(first, first + len(block))
        narrow = [self._keep(i, block[:, i], rows) for i in (0, 1)]
        for i in range(4, self.width):
            self._columns[i][rows] = block[:, i]
        start, end = (self._columns[i][rows] for i in (2, 3))
        plain = [_to_ns(block[:, i].view(np.float64), self._columns[i][rows]) for i in (2, 3)]
        # Within 26 days, in order, and below 4 GiB: no need to look at each of the bounds.
        if not (all(narrow) and all(plain) and (end >= start).all()):
            self.plain &= not find_impossible_operations(block[:, 0], block[:, 1], start, end).any()

    def _keep(self, index: int, values: NDArray[np.int64], rows: slice) -> bool:
        """Writes offsets or lengths; whether they fit into 32 bits."""
        # A negative number is a very large one where it is taken without its sign.
        fits = int(values.view(np.uint64).max()) <= np.iinfo(np.uint32).max
        if not fits and self._columns[index].dtype == np.uint32:
            held = self._columns[index]
            self._columns[index] = np.empty(len(held), np.int64)
            self._columns[index][: rows.start] = held[: rows.start]
        self._columns[index][rows] = values
        return fits


def _to_ns(seconds: NDArray[np.float64], out: NDArray[np.int64]) -> bool:
    """Seconds to whole nanoseconds, rounded half to even like `rint(seconds * 1e9)`.

    Returns whether all lie within 26 days from 0 on.

    A float64 near _SHIFT has steps of 1, so adding it rounds, and the sum's low bits are the
    integer: twice as fast as rint and a cast. It keeps the order of all numbers, so a result
    outside [0, 2**51) tells that an input was outside of it, and only then is the slow way
    taken.
    """
    times = out.view(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):  # nonsense is dropped afterwards
        np.multiply(seconds, 1e9, out=times)
        times += _SHIFT
        out -= _SHIFT.view(np.int64)
        # A negative number is a very large one where it is taken without its sign.
        plain = int(out.view(np.uint64).max()) < 1 << 51
        if not plain:
            out[:] = np.rint(seconds * 1e9)
    return plain


def _choose_code_type(count: int) -> type[np.uint16] | type[np.int32]:
    """Of numbers of records: a row has one each."""
    return np.uint16 if count <= 1 << 16 else np.int32


def _build_table(records: Heads, columns: _Columns) -> _Table:
    counts = records.counts
    number = np.arange(len(counts), dtype=_choose_code_type(len(counts)))
    table: _Table = {
        "record": np.repeat(number, counts.sum(axis=1)),
        "op": np.repeat(np.tile(np.array([WRITE, READ], np.uint8), len(counts)), counts.ravel()),
    }
    names = ("offset", "nbytes", "start_ns", "end_ns", "thread")[: columns.width]
    table |= {name: columns.column(i) for i, name in enumerate(names)}
    return table


def _drop_nonsense(table: _Table) -> str:
    """What was wrong with the rows that were dropped; "" where none was."""
    wrong = find_impossible_operations(
        table["offset"], table["nbytes"], table["start_ns"], table["end_ns"]
    )
    if not wrong.any():
        return ""
    for name, column in table.items():
        table[name] = column[~wrong]
    return describe_left_out(int(wrong.sum()), len(wrong))


def _build_operations(layer: str, records: Heads, table: _Table) -> OperationTable:
    thread = table["thread"].view(np.uint64) if "thread" in table else None
    result = OperationTable(
        layer=layer,
        record_file=records.file,
        record_rank=records.rank,
        record_host=records.host,
        record=table["record"],
        op=table["op"],
        offset=table["offset"],
        nbytes=table["nbytes"],
        start_ns=table["start_ns"],
        end_ns=table["end_ns"],
        thread=thread,
    )
    for column in (result.record_file, result.record_rank, thread, *table.values()):
        if column is not None:
            column.setflags(write=False)
    return result
