"""Operations of one process -> counters of each of its files, as Darshan's runtime keeps them.

Definitions are those of darshan-runtime/lib/darshan-posix.c, darshan-mpiio.c, darshan-stdio.c and
of the macros in darshan-common.h, with two differences. Darshan begins anew where a file is opened
again, which operations do not tell: here a file's accesses are one sequence. And of access sizes
and strides it counts the first 32 distinct ones of a file, here all count.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vanidl.model.ordering import stable_order
from vanidl.model.trace import READ, WRITE, Part
from vanidl.readers.darshan.counter_names import SIZES
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]
Mask = NDArray[np.bool_]

_FREQUENT = 4  # access sizes and strides that a record names
_LARGEST_OF_CLASS = np.array(
    [100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30]
)
_NEVER = np.iinfo(np.int64).min
_NO_OP = 255  # before the first operation of a file
_KEY_BITS = 62  # of file and value in one number


@dataclass(frozen=True, slots=True)
class _Rows:
    """Operations of one kind, file by file, in a file by start; `first` of each of `files`."""

    slot: Int64Array  # place of the file among those of the process
    offset: Int64Array
    nbytes: Int64Array
    start: Int64Array
    end: Int64Array
    first: Int64Array
    files: Int64Array

    @property
    def last(self) -> Int64Array:
        """The last operation on each of the files."""
        return np.append(self.first[1:], len(self.slot)) - 1


class FileCounters:
    """Counters by name, without the prefix of a layer: one entry a file, in the order of `codes`.

    Sizes, counts and places are in `counters`, seconds since the start of the log in `seconds`.
    """

    def __init__(self, codes: Int64Array, zero_ns: int) -> None:
        """For files of these codes, in ascending order; times count from `zero_ns`."""
        self.codes = codes
        self.counters: dict[str, Int64Array] = {}
        self.seconds: dict[str, NDArray[np.float64]] = {}
        self._zero_ns = zero_ns
        self._last_byte = np.zeros((2, len(codes)), np.int64)
        self._busy_until = np.full((2, len(codes)), _NEVER)
        self._last_op = np.full(len(codes), _NO_OP, np.uint8)
        self._unplaced = np.zeros(len(codes), bool)
        self._common: dict[str, list[Int64Array]] = {"ACCESS": [], "STRIDE": []}

    @classmethod
    def of(cls, parts: Sequence[Part], zero_ns: int) -> FileCounters:
        """Those of all operations of one process, whose parts follow each other in time."""
        found = [np.unique(part.file) for part in parts]
        counters = cls(np.unique(np.concatenate(found)).astype(np.int64), zero_ns)
        for part in parts:
            counters._add(part)
        counters._finish()
        return counters

    def _add(self, part: Part) -> None:
        slot = np.searchsorted(self.codes, part.file)
        order = stable_order(slot)
        slot, op = slot[order], part.op[order]
        # Between reading and writing: each operation beside the one before it on its file.
        first = _find_first_of_each(slot)
        before = np.append(op[:1], op[:-1])
        before[first] = self._last_op[slot[first]]
        switches = (before != op) & (before != _NO_OP)
        self._count("RW_SWITCHES", slot[switches])
        self._last_op[slot[first]] = op[np.append(first[1:], len(op)) - 1]
        self._unplaced[slot[part.offset[order] < 0]] = True
        # Sizes, strides and times are counted of reads and of writes.
        for kind in (READ, WRITE):
            rows = order[op == kind]
            if len(rows):
                mine = slot[op == kind]
                begins = _find_first_of_each(mine)
                self._add_kind(
                    kind,
                    _Rows(
                        mine,
                        part.offset[rows],
                        part.nbytes[rows],
                        part.start[rows] - self._zero_ns,
                        part.end[rows] - self._zero_ns,
                        begins,
                        mine[begins],
                    ),
                )

    def _add_kind(self, kind: int, rows: _Rows) -> None:
        """Adds reads, or writes."""
        word, moved = ("READ", "READ") if kind == READ else ("WRITE", "WRITTEN")
        self._count(f"{word}S", rows.slot)
        self._sums(f"BYTES_{moved}")[rows.files] += np.add.reduceat(rows.nbytes, rows.first)
        # Where each begins, beside the last byte of the one before.
        last = rows.offset + rows.nbytes - 1
        before = np.append(last[:1], last[:-1])
        before[rows.first] = self._last_byte[kind, rows.files]
        self._last_byte[kind, rows.files] = last[rows.last]
        later = rows.offset > before
        self._count(f"SEQ_{word}S", rows.slot[later])
        self._count(f"CONSEC_{word}S", rows.slot[rows.offset == before + 1])
        stride = np.where(later & (before != 0), rows.offset - before - 1, 0)
        farthest = self._sums(f"MAX_BYTE_{moved}")
        np.maximum.at(farthest, rows.files, np.maximum.reduceat(last, rows.first))
        # How large they are.
        size_class = np.searchsorted(_LARGEST_OF_CLASS, rows.nbytes)
        for i, size in enumerate(SIZES):
            self._count(f"SIZE_{word}_{size}", rows.slot[size_class == i])
        self._common["ACCESS"].append(_count_frequencies(rows.slot, rows.nbytes))
        self._common["STRIDE"].append(_count_frequencies(rows.slot, stride))
        self._add_times(kind, word, rows)

    def _add_times(self, kind: int, word: str, rows: _Rows) -> None:
        """Adds first start, last end, the time of all of them and the longest."""
        starts = self._times(f"{word}_START_TIMESTAMP", np.inf)
        np.minimum.at(starts, rows.files, rows.start[rows.first] / 1e9)
        latest = np.maximum.reduceat(rows.end, rows.first)
        np.maximum.at(self._times(f"{word}_END_TIMESTAMP"), rows.files, latest / 1e9)
        # Time in which several overlap counts once.
        before = _find_latest_before(rows, self._busy_until[kind, rows.files])
        np.maximum.at(self._busy_until[kind], rows.files, latest)
        alone = np.maximum(rows.end - np.maximum(rows.start, before), 0)
        self._times(f"{word}_TIME")[rows.files] += np.add.reduceat(alone, rows.first) / 1e9
        # The longest, and its size: of equal ones the first.
        took = rows.end - rows.start
        longest = np.maximum.reduceat(took, rows.first)
        which = np.flatnonzero(took == np.repeat(longest, np.diff(rows.first, append=len(took))))
        which = which[_find_first_of_each(rows.slot[which])]
        known = self._times(f"MAX_{word}_TIME")
        more = took[which] / 1e9 > known[rows.files]
        files, which = rows.files[more], which[more]
        known[files] = took[which] / 1e9
        self._sums(f"MAX_{word}_TIME_SIZE")[files] = rows.nbytes[which]

    def _finish(self) -> None:
        """Puts the most frequent sizes and strides in their places, and hides what is unknown."""
        for what, some in self._common.items():
            value_of = "ACCESS" if what == "ACCESS" else "STRIDE"
            slot, value, count, place = _find_most_frequent(np.concatenate(some, axis=1))
            for i in range(_FREQUENT):
                at = place == i
                self._sums(f"{what}{i + 1}_{value_of}")[slot[at]] = value[at]
                self._sums(f"{what}{i + 1}_COUNT")[slot[at]] = count[at]
        for name, times in self.seconds.items():
            self.seconds[name] = np.where(np.isinf(times), 0, times)
        # Counters of places need offsets: -1 of files where one was not recorded.
        for name, values in self.counters.items():
            if name.startswith(_OF_PLACES):
                values[self._unplaced] = -1

    def _sums(self, name: str) -> Int64Array:
        return self.counters.setdefault(name, np.zeros(len(self.codes), np.int64))

    def _times(self, name: str, initial: float = 0.0) -> NDArray[np.float64]:
        return self.seconds.setdefault(name, np.full(len(self.codes), initial))

    def _count(self, name: str, slot: NDArray[np.integer]) -> None:
        self._sums(name)[:] += np.bincount(slot, minlength=len(self.codes))


_OF_PLACES = ("SEQ_", "CONSEC_", "STRIDE", "MAX_BYTE_")
"""What cannot be told of operations whose place in the file was not recorded."""


def _find_first_of_each(slot: Int64Array) -> Int64Array:
    """The first row of each of the runs of equal numbers."""
    return np.flatnonzero(np.append(True, slot[1:] != slot[:-1])[: len(slot)])


def _find_latest_before(rows: _Rows, carried: Int64Array) -> Int64Array:
    """For each operation the latest end of those before it on its file."""
    low = int(rows.end.min())
    span = int(rows.end.max()) - low + 1
    since = rows.end - low
    latest = np.empty_like(since)
    # A running maximum over files at once: ends of each file above all those of the one before.
    at_once = max(1, (1 << _KEY_BITS) // span)
    borders = np.append(rows.first, len(since))
    for low_file in range(0, len(rows.first), at_once):
        of_files = borders[low_file : low_file + at_once + 1]
        some, lengths = slice(of_files[0], of_files[-1]), np.diff(of_files)
        lift = span * np.repeat(np.arange(len(lengths)), lengths)
        latest[some] = np.maximum.accumulate(since[some] + lift) - lift
    before = np.append(latest[:1], latest[:-1]) + low
    before[rows.first] = _NEVER
    return np.maximum(before, np.repeat(carried, np.diff(borders)))


def _count_frequencies(slot: Int64Array, value: Int64Array) -> Int64Array:
    """File, value and how often it occurs there, shape (3, pairs)."""
    values, code = np.unique(value, return_inverse=True)
    pairs, count = np.unique(slot * len(values) + code, return_counts=True)
    return np.stack([pairs // len(values), values[pairs % len(values)], count])


def _find_most_frequent(pairs: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """(file, value, how often, its place among those of the file), the most frequent first.

    Of values that are equally frequent the larger ones come first; 0 never counts.
    """
    slot, value, count = pairs[:, pairs[1] != 0]
    # Each value of a file once, with how often it was counted in all parts.
    order = np.lexsort((value, slot))
    slot, value, count = slot[order], value[order], count[order]
    first = np.flatnonzero(
        np.append(True, (slot[1:] != slot[:-1]) | (value[1:] != value[:-1]))[: len(slot)]
    )
    if not len(first):
        return slot, value, count, count
    slot, value, count = slot[first], value[first], np.add.reduceat(count, first)
    # The most frequent of each file first, and four of them, as a record has room for.
    order = np.lexsort((-value, -count, slot))
    slot, value, count = slot[order], value[order], count[order]
    begins = _find_first_of_each(slot)
    place = np.arange(len(slot)) - np.repeat(begins, np.diff(begins, append=len(slot)))
    kept = place < _FREQUENT
    return slot[kept], value[kept], count[kept], place[kept]
