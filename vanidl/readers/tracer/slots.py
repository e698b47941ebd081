"""Chunks of slots -> columns of calls, names of files and anchors of the clock.

No loop over slots: a block of chunks that fits the processor's cache is checked, parted and copied
into columns by a few calls of NumPy. What has a wrong check is left out and counted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.encoding.budget import OBJECT_BYTES, Budget, bounded_name
from vanidl.errors import InputError
from vanidl.formatting.units import plural
from vanidl.readers.records import FARTHEST_OFFSET, LARGEST_NBYTES, LATEST_NS, describe_left_out
from vanidl.schema.dataclass import dataclass

# How the files of vanidl's own tracer are laid out: as vanidl/record/tracer/format.h says.
#
# A header, records of counters, then chunks of slots: a slot is one call, a piece of a file name,
# or the thread that the following slots are of.

MAGIC = b"VANIDLTR"
VERSION, VERSION_BY_BYTES = 1, 2
PAGE_BYTES = 4096
CHUNK_BYTES = 65536
SLOT_BYTES = 40
SLOTS = CHUNK_BYTES // SLOT_BYTES
COUNTER_BYTES = 256
FIRST_COUNTERS = (CHUNK_BYTES - PAGE_BYTES) // COUNTER_BYTES  # records before the first chunk

_HEADER = struct.Struct("<8s4I2i2I11Q2I2Q6q64s256s32s2I")


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
    written_every_ms: int  # 0: at once; else what was done since is missing of one that was killed


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

    # Versions differ in how slots lie; the sizes of pieces are those of all of them.
    _, version, *rest = _HEADER.unpack(raw)
    sizes, (pid, parent, user, how), rest = rest[:3], rest[3:7], rest[7:]
    is_known = version in (VERSION, VERSION_BY_BYTES)
    if not is_known or sizes != [CHUNK_BYTES, SLOT_BYTES, COUNTER_BYTES]:
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
    host, program, tracer = (_decode_text(raw) for raw in rest[-5:-2])
    return Header(
        version == VERSION_BY_BYTES, pid, parent, user, how == 1, start, real, error, end, limit,
        chunks, counters, since, missing, reason, names_missing, other_read, read, host, program,
        tracer, *rest[-2:],
    )  # fmt: skip


def _decode_text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")


Int64Array = NDArray[np.int64]
Mask = NDArray[np.bool_]
Numbers = NDArray[np.int64] | NDArray[np.uint32]

BLOCK_BYTES = 16 * CHUNK_BYTES
"""How much is decoded at once."""

EARLIEST_NS = 1_000_000_000
"""How long before the recording a call can begin: that of a forked process begins within its first
call, after the clock was read."""

_SLOTS_BYTES = SLOTS * SLOT_BYTES  # of a chunk: behind them lie unused bytes
_PIECE = 32  # bytes of a name in one slot
_LOW, _HIGH = np.uint64(0xFFFFFFFF), np.uint64(32)
_MOST_NARROW = (1 << 32) - 1
_MOST_DENSE = 1 << 24  # numbers of files up to here have a place of their own in a table

_FACTORS = np.array(
    [0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F,
     0xE7037ED1A0B428DB], np.uint64,
)  # fmt: skip
_OF_PLACE = 0x9E3779B97F4A7C15
_WORDS = 1 << 64
_WORDS_A_SLOT = len(_FACTORS)
_PLACES = (np.arange(SLOTS, dtype=np.uint64) * np.uint64(SLOT_BYTES)) * np.uint64(_OF_PLACE)
"""What the place of a slot in its chunk adds to its sum."""
_OWN_SHARE = np.uint16((int(_FACTORS[4]) + 1) & 0xFFFF)
"""The check stands in the upper 16 bits of the last word, and is to be taken as 0: with it the sum
is too large by check * factor in its upper 16 bits, so these must be check * (factor + 1)."""


@dataclass(frozen=True, slots=True)
class Moves:
    """Calls that moved bytes, chunk by chunk; one entry a call in every array."""

    start_ns: Int64Array  # since the start of the recording
    end_ns: Int64Array
    offset: Numbers  # -1 where nobody knows; in 32 bits where all fit
    nbytes: Numbers
    file: NDArray[np.uint32]
    call: NDArray[np.uint8]
    thread: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.start_ns)

    def pick(self, rows: Mask) -> Moves:
        """Those that a mask picks."""
        return Moves(*(getattr(self, name)[rows] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Others:
    """All other calls, and those that failed."""

    start_ns: Int64Array
    end_ns: Int64Array
    result: Int64Array  # negative: it failed
    file: NDArray[np.uint32]
    call: NDArray[np.uint8]

    def pick(self, rows: Mask) -> Others:
        """Those that a mask picks."""
        return Others(*(getattr(self, name)[rows] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Anchors:
    """Instants on both clocks: monotonic, and how much more the system's clock says."""

    monotonic_ns: Int64Array
    ahead_ns: Int64Array
    error_ns: Int64Array


@dataclass(frozen=True, slots=True)
class Decoded:
    """What the chunks of one file hold."""

    moves: Moves
    others: Others
    names: Mapping[int, str]
    anchors: Anchors
    counters: NDArray[np.void]  # records of `layout.COUNTER`
    losses: tuple[str, ...]


def decode_chunks(
    blocks: Iterable[bytes | memoryview], header: Header, budget: Budget
) -> tuple[Decoded, int]:
    """Everything in the chunks of a file, and how many it has, one for what comes before the first.

    Args:
        blocks: the chunks from the first on, some at once; what is no whole chunk is left out.
        header: of the file.
        budget: of the file.
    """
    # Where its end is missing, each thread may have been at a slot.
    ended, most = header.end_monotonic_ns != 0, max(budget.text_bytes, 0) // CHUNK_BYTES
    room = min(max(header.chunks - 1, 0), most) * SLOTS
    content, at = _Found(header.start_monotonic_ns, budget, room, ended=ended), 1
    for each in blocks:
        block = _Block.of(each, at, by_bytes=header.by_bytes)
        # All that were handed out, and those behind them that were begun all the same.
        chunks = len(block.call)
        count = min(max(header.chunks - at, 0), chunks)
        if at + count >= header.chunks:
            while count < chunks and block.sound[count, 0]:
                count += 1
        if count:
            content.add(block if count == chunks else block.cut(count))
        at += count
        if count < chunks:
            break
    return content.decoded(), at


@dataclass(frozen=True, slots=True)
class _Block:
    """Some chunks, slot by slot: what they are, and which are sound."""

    tails: NDArray[np.uint8]  # shape (chunks, bytes): what lies behind the slots
    columns: NDArray[np.uint64]  # shape (words of a slot, chunks, slots)
    call: NDArray[np.uint8]  # shape (chunks, slots)
    sound: Mask
    marks: NDArray[np.intp]  # places of sound slots that are no calls, chunks behind one another

    @classmethod
    def of(cls, content: bytes | memoryview, first: int, *, by_bytes: bool) -> _Block:
        """The whole chunks of some bytes, from chunk `first` on.

        With `by_bytes` the first bytes of all slots of a chunk lie side by side, then the second
        ones, and so on.
        """
        count = len(content) // CHUNK_BYTES
        flat = np.frombuffer(content, np.uint8, count * CHUNK_BYTES).reshape(-1, CHUNK_BYTES)
        slots = flat[:, :_SLOTS_BYTES]
        columns = np.empty((_WORDS_A_SLOT, count, SLOTS), "<u8")
        if by_bytes:
            whole = columns.view(np.uint8).reshape(*columns.shape, 8)
            whole[...] = slots.reshape(count, _WORDS_A_SLOT, 8, SLOTS).transpose(1, 0, 3, 2)
        else:
            columns[...] = slots.reshape(count, SLOTS, SLOT_BYTES).view("<u8").transpose(2, 0, 1)
        # The check of each slot: a sum over its words and its place, in 16 bits.
        begins = [_OF_PLACE * (CHUNK_BYTES * (first + i) + 1) % _WORDS for i in range(count)]
        sums = np.array(begins, np.uint64)[:, None] + _PLACES
        product = np.empty_like(sums)  # one for all: it stays in the cache
        for column, factor in zip(columns, _FACTORS, strict=True):
            sums += np.multiply(column, factor, out=product)
        sums >>= np.uint64(48)
        call = (columns[4] >> _HIGH).astype(np.uint8)
        sound = sums == (columns[4] >> np.uint64(48)).astype(np.uint16) * _OWN_SHARE
        sound &= call != 0
        marks = np.flatnonzero(call < FIRST_MOVE)
        return cls(flat[:, _SLOTS_BYTES:], columns, call, sound, marks[sound.ravel()[marks]])

    def cut(self, count: int) -> _Block:
        """Its first chunks."""
        columns = np.ascontiguousarray(self.columns[:, :count])
        marks = self.marks[self.marks < count * SLOTS]
        return _Block(self.tails[:count], columns, self.call[:count], self.sound[:count], marks)

    def counters(self, chunk: int) -> NDArray[np.void]:
        """The records that a chunk of counters holds."""
        slots = np.ascontiguousarray(self.columns[:, chunk].T).view(np.uint8).ravel()
        return np.concatenate([slots, self.tails[chunk]])[COUNTER_BYTES:].view(COUNTER)

    def marked(self, call: int) -> NDArray[np.intp]:
        """Places of sound slots of one kind that is no call."""
        is_kind: Mask = self.call.ravel()[self.marks] == call
        return self.marks[is_kind]


class _Found:
    """What was found so far."""

    def __init__(self, since_ns: int, budget: Budget, slots: int, *, ended: bool) -> None:
        self._since_ns, self._budget, self._ended = since_ns, budget, ended
        self._moves = _Columns(slots)
        self._others: list[Others] = []
        self._runs: list[tuple[NDArray[np.uint64], Int64Array]] = []  # threads, moves of each
        self._names: dict[int, str] = {}
        self._instants: list[Int64Array] = []
        self._counters: list[NDArray[np.void]] = []
        self._unfilled: list[_Unfilled] = []
        self._damaged = self._holes = self._impossible = self._broken_names = self._unnamed = 0

    def add(self, block: _Block) -> None:
        """Takes the next chunks."""
        of_counters = block.marked(COUNTERS) // SLOTS
        if len(of_counters):
            self._counters += [block.counters(chunk) for chunk in of_counters.tolist()]
            block.sound[of_counters] = True  # as nothing is wrong with them
            block.call[of_counters] = COUNTERS
        whole = bool(block.sound.all())
        if not whole:
            self._look_at_the_rest(block)
        # Copies what the calls say into columns.
        words = block.columns.reshape(_WORDS_A_SLOT, -1)
        call, result = block.call.ravel(), words[2].view(np.int64)
        moved = (call - np.uint8(FIRST_MOVE)) < np.uint8(BEHIND_MOVES - FIRST_MOVE)
        moved &= result >= 0
        other = call >= FIRST_MOVE
        if not whole:
            moved &= block.sound.ravel()
            other &= block.sound.ravel()
        other ^= moved
        start = words[0].view(np.int64) - self._since_ns
        high = words[4] >> np.uint64(40)
        high &= np.uint64(0xFF)
        high <<= _HIGH
        high |= words[3] >> _HIGH
        end = high.view(np.int64)
        end += start
        offset, file = words[1].view(np.int64), words[4].astype(np.uint32)
        rows, rest = np.flatnonzero(moved), np.flatnonzero(other)
        if not _is_plain(start, end, offset, result):
            rows, rest = self._pick_possible(rows, rest, (start, end, offset, result))
        self._moves.add((start, end, offset, result, file, call), rows)
        if len(rest):
            self._others.append(
                Others(start[rest], end[rest], result[rest], file[rest], call[rest])
            )
        self._take_threads(block, rows)
        self._take_names(block)

    def _pick_possible(
        self, moves: NDArray[np.intp], others: NDArray[np.intp], columns: Sequence[Int64Array]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Those of some rows that can be, of moves and of other calls."""
        start, end, offset, nbytes = columns
        wrong = (start < -EARLIEST_NS) | (end > LATEST_NS)
        others_wrong = wrong[others]
        wrong |= (nbytes > LARGEST_NBYTES) | (offset > FARTHEST_OFFSET) | (offset < -1)
        self._impossible += int(wrong[moves].sum() + others_wrong.sum())
        return moves[~wrong[moves]], others[~others_wrong]

    def _take_threads(self, block: _Block, rows: NDArray[np.intp]) -> None:
        """Whose each of the moves is: of the thread that the last slot before it names."""
        says = block.marked(THREAD)
        places = np.union1d(says, SLOTS * np.arange(len(block.call)))
        thread = np.zeros(len(places), np.uint64)
        said = block.columns.reshape(_WORDS_A_SLOT, -1)[:, says]
        thread[np.searchsorted(places, says)] = said[2]
        self._runs.append((thread, np.diff(np.searchsorted(rows, places), append=len(rows))))
        # Instants on both clocks, and how many slots of a name follow.
        call, of_name = block.call.ravel(), np.zeros(len(says), np.int64)
        for i in np.flatnonzero(call[np.minimum(says + 1, len(call) - 1)] == NAME).tolist():
            of_name[i] = 1 + int(np.argmin(np.append(call[says[i] + 2 :] == NAME_MORE, False)))
        columns = [said[0], said[1], said[3] & _LOW, said[2]]
        self._instants.append(np.column_stack([*(c.view(np.int64) for c in columns), of_name]))

    def _look_at_the_rest(self, block: _Block) -> None:
        """Counts slots that are damaged, and those that are missing between others."""
        place = np.arange(SLOTS)
        written = block.columns.any(axis=0) | (block.call == COUNTERS)
        last_sound = np.where(block.sound, place, -1).max(axis=1)
        damaged = written & ~block.sound
        if not self._ended:  # the slot that a thread was writing when it was killed
            damaged &= place != last_sound[:, None] + 1
        self._damaged += int(damaged.sum())
        behind = np.where(written, place, -1).max(axis=1)
        self._holes += int((~written & (place < behind[:, None])).sum())
        # Chunks that are not full, and when their last thread was where.
        for i in np.flatnonzero((last_sound >= 0) & (behind < SLOTS - 1)).tolist():
            start = block.columns[0, i].view(np.int64)
            says = np.flatnonzero((block.call[i] == THREAD) & block.sound[i])
            calls = np.flatnonzero((block.call[i] >= FIRST_MOVE) & block.sound[i])
            if len(says) and len(calls):
                thread, empty = int(block.columns[2, i, says[-1]]), SLOTS - 1 - int(behind[i])
                first_ns, last_ns = start[calls[[0, -1]]].tolist()
                self._unfilled.append(_Unfilled(thread, first_ns, last_ns, empty))

    def _take_names(self, block: _Block) -> None:
        """Joins the pieces of names, which lie side by side in one chunk."""
        call = block.call.ravel()
        rows = block.marks[call[block.marks] <= NAME_MORE]
        if not len(rows):
            return
        words = block.columns.reshape(_WORDS_A_SLOT, -1)[:, rows]
        raw = np.ascontiguousarray(words.T).view(np.uint8)
        file = np.ascontiguousarray(raw[:, _PIECE : _PIECE + 4]).view("<u4").ravel()
        lengths = np.minimum(raw[:, 37], _PIECE)
        # A piece goes on with the one before it where that is full, of the same file and beside it.
        follows = np.zeros(len(rows), bool)
        follows[1:] = (rows[1:] == rows[:-1] + 1) & (file[1:] == file[:-1])
        follows[1:] &= (lengths[:-1] == _PIECE) & (call[rows[1:]] == NAME_MORE)
        follows &= rows % SLOTS > 0
        first = np.flatnonzero(~follows)
        last = np.append(first[1:], len(rows)) - 1
        # It begins with a beginning; a full last piece is the last only where a sound slot follows.
        behind = np.minimum(rows[last] + 1, len(call) - 1)
        goes_on = (lengths[last] == _PIECE) & (behind % SLOTS > 0) & (behind > rows[last])
        whole = (call[rows[first]] == NAME) & ~(goes_on & ~block.sound.ravel()[behind])
        self._broken_names += int((~whole).sum())
        text = raw[:, :_PIECE].tobytes()
        begins, ends = _PIECE * first[whole], _PIECE * last[whole] + lengths[last[whole]]
        for number, begin, end in zip(
            file[first[whole]].tolist(), begins.tolist(), ends.tolist(), strict=True
        ):
            name = bounded_name(text[begin:end].decode("utf-8", "backslashreplace"))
            if not self._budget.hold(OBJECT_BYTES + len(name)):
                self._unnamed += 1
            elif self._names.setdefault(number, name) != name:
                self._broken_names += 1

    def decoded(self) -> Decoded:
        """All of it; call once."""
        # The columns of all blocks, each in one piece.
        moves = self._moves.finished(_repeat_numbers(self._runs))
        others = Others(
            *(
                np.concatenate([np.empty(0, kind), *(getattr(o, name) for o in self._others)])
                for name, kind in _OF_OTHERS.items()
            )
        )
        instants = np.concatenate([np.empty((0, 5), np.int64), *self._instants])
        monotonic, real, error, thread, of_name = instants.T
        calls = len(moves) + len(others.call)
        threads = np.column_stack([monotonic, thread, of_name])
        # What is missing, in sentences.
        losses = []
        if self._damaged:
            losses.append(f"{plural(self._damaged, 'call')} left out for a wrong check")
        if missing := self._holes + sum(one.missing(threads) for one in self._unfilled):
            losses.append(f"up to {plural(missing, 'call')} between others are missing")
        if self._impossible:
            losses.append(describe_left_out(self._impossible, calls + self._impossible))
        if self._broken_names:
            losses.append(f"{plural(self._broken_names, 'file name')} could not be read")
        if self._unnamed:
            losses.append(f"its file names take more than {self._budget.memory_limit}")
        return Decoded(
            moves,
            others,
            self._names,
            Anchors(monotonic, real - monotonic, error),
            np.concatenate([np.empty(0, COUNTER), *self._counters]),
            tuple(losses),
        )


_OF_OTHERS: dict[str, type[np.generic]] = {
    "start_ns": np.int64,
    "end_ns": np.int64,
    "result": np.int64,
    "file": np.uint32,
    "call": np.uint8,
}


def _is_plain(start: Int64Array, end: Int64Array, offset: Int64Array, nbytes: Int64Array) -> bool:
    """Whether no number of a block is beyond what a call can be."""
    return bool(
        start.min() >= -EARLIEST_NS
        and end.max() <= LATEST_NS
        and nbytes.max() <= LARGEST_NBYTES
        and offset.max() <= FARTHEST_OFFSET
        and offset.min() >= -1
    )


def _repeat_numbers(runs: Sequence[tuple[NDArray[np.uint64], Int64Array]]) -> NDArray[np.uint64]:
    """Each number as often as it is said."""
    value = np.concatenate([np.empty(0, np.uint64), *(values for values, _ in runs)])
    count = np.concatenate([np.empty(0, np.int64), *(counts for _, counts in runs)])
    value, count = value[count > 0], count[count > 0]
    if len(value) and (value == value[0]).all():
        return np.broadcast_to(value[0], (int(count.sum()),))  # takes no memory
    return np.repeat(value, count)


class _Columns:
    """Columns of moves that are filled block by block; what is behind their end takes no memory.

    There is room for as many as the header says, and for more where it is wrong.
    """

    def __init__(self, room: int) -> None:
        narrow, wide = np.uint32, np.int64
        types: list[type[np.generic]] = [wide, wide, narrow, narrow, np.uint32, np.uint8]
        self._all: list[NDArray[Any]] = [np.empty(room, kind) for kind in types]
        self._rows = 0

    def add(self, columns: Sequence[NDArray[Any]], rows: NDArray[np.intp]) -> None:
        """Appends these rows of a block."""
        first, self._rows = self._rows, self._rows + len(rows)
        if self._rows > len(self._all[0]):
            self._all = [np.resize(kept, 2 * self._rows) for kept in self._all]
        for i, column in enumerate(columns):
            kept = self._all[i]
            if kept.dtype == column.dtype:
                column.take(rows, out=kept[first : self._rows], mode="clip")
                continue
            picked = column[rows]
            # A negative number is a very large one where it is taken without its sign.
            if len(picked) and int(picked.view(np.uint64).max()) > _MOST_NARROW:
                self._all[i] = np.empty(len(kept), np.int64)
                self._all[i][:first] = kept[:first]
            self._all[i][first : self._rows] = picked

    def finished(self, thread: NDArray[np.uint64]) -> Moves:
        """What was appended, and the thread of each."""
        start, end, offset, nbytes, file, call = (column[: self._rows] for column in self._all)
        return Moves(start, end, offset, nbytes, file, call, thread)


def number_files(file: NDArray[np.uint32]) -> tuple[Int64Array, NDArray[np.int32]]:
    """The numbers that occur, and for each call the place of its own among them."""
    last = int(file.max(initial=0))
    if last >= _MOST_DENSE:
        files, record = np.unique(file, return_inverse=True)
        return files.astype(np.int64), record.astype(np.int32)
    occurs = np.zeros(last + 1, bool)
    occurs[file] = True
    numbers = np.flatnonzero(occurs)
    if len(numbers) and numbers[-1] - numbers[0] + 1 == len(numbers):  # as a tracer gives them
        return numbers.astype(np.int64), (file - np.uint32(numbers[0])).view(np.int32)
    place = np.zeros(last + 1, np.int32)
    place[numbers] = np.arange(len(numbers))
    return numbers.astype(np.int64), place[file]


@dataclass(frozen=True, slots=True)
class _Unfilled:
    """A chunk with empty slots at its end, of the thread that wrote there last."""

    thread: int
    first_ns: int
    last_ns: int
    empty: int

    def missing(self, threads: Int64Array) -> int:
        """How many of its slots were written once: its thread went on elsewhere soon.

        A thread leaves a chunk that is full, or has no room for the name that it writes next.
        `threads` has a row a slot that names a thread: instant, thread, slots of that name.
        """
        later = threads[(threads[:, 1] == self.thread) & (threads[:, 0] > self.last_ns)]
        if not len(later):
            return 0
        began, _, of_name = later[later[:, 0].argmin()].tolist()
        soon = began - self.last_ns <= self.last_ns - self.first_ns
        return self.empty if soon and of_name <= self.empty else 0
