"""Exact totals of each file, under Darshan's names: of calls with a slot, and of all others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vanidl.model.trace import POSIX, READ, STDIO, WRITE
from vanidl.readers.bounds import LONGEST_NS
from vanidl.readers.records import CounterFile, CounterRecords, OperationTable
from vanidl.readers.tracer.calls_file import CallsFile
from vanidl.readers.tracer.layout import STREAM_CLASSES, SYNC_CLASS, Call
from vanidl.readers.tracer.slots import Numbers, Others, numbered

Int64Array = NDArray[np.int64]
Places = NDArray[np.intp]

_LAYERS = ((1, POSIX), (2, STDIO))  # by the number that records of counters have for it
_WORDS = {READ: ("READ", "READ"), WRITE: ("WRITE", "WRITTEN")}
_CALLS: dict[str, tuple[int, ...]] = {
    "OPENS": (Call.OPEN, Call.FOPEN),
    "CLOSES": (Call.CLOSE, Call.FCLOSE),
    "SEEKS": (Call.LSEEK, Call.FSEEK),
    "STATS": (Call.STAT, Call.FSTAT),
    "MMAPS": (Call.MMAP,),
    "FSYNCS": (Call.FSYNC, Call.FDATASYNC, Call.SYNC_RANGE, Call.MSYNC),
}
_NAME_OF = np.full(256, len(_CALLS), np.uint8)  # of a call, its place in `_CALLS`
_NAME_OF[[call for calls in _CALLS.values() for call in calls]] = [
    place for place, calls in enumerate(_CALLS.values()) for _ in calls
]
_COUNTED = {"OPENS": "opens", "SEEKS": "seeks", "STATS": "stats", "READS": "reads",
            "WRITES": "writes", "BYTES_READ": "bytes_read", "BYTES_WRITTEN": "bytes_written",
            "CLOSES": "closes", "FSYNCS": "syncs", "MMAPS": "maps"}  # fmt: skip
_SPENT = {"READ": "read_ns", "WRITE": "write_ns", "META": "metadata_ns", "SYNC": "sync_ns"}
_WORD_OF = np.full(256, list(_SPENT).index("META"), np.uint8)  # of a call, its place in `_SPENT`
_WORD_OF[: Call.OPEN] = 1 - (np.arange(Call.OPEN) >> 4 & 1)  # classes of reads are odd
_WORD_OF[SYNC_CLASS << 4 : (SYNC_CLASS + 1) << 4] = list(_SPENT).index("SYNC")
_OF_STREAM = np.isin(np.arange(256) >> 4, STREAM_CLASSES)
_SIZES = np.array(
    [100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30]
)
_SIZE_NAMES = ("0_100", "100_1K", "1K_10K", "10K_100K", "100K_1M", "1M_4M", "4M_10M", "10M_100M",
               "100M_1G", "1G_PLUS")  # fmt: skip
_LARGEST = 1 << 56  # bytes or calls of one file
_LEAST_ROWS = 1 << 18  # operations that are added at once: they fit the cache


def totals(file: CallsFile, operations: Sequence[OperationTable]) -> CounterFile:
    """The totals of one process, whose operations are `operations` already."""
    table_of = {table.layer: table for table in operations}
    found = (_records(file, number, layer, table_of.get(layer)) for number, layer in _LAYERS)
    return CounterFile(tuple(records for records in found if len(records.file)))


def _records(
    file: CallsFile, number: int, layer: str, table: OperationTable | None
) -> CounterRecords:
    """The totals of one layer."""
    others = file.found.others
    mine = _OF_STREAM[others.call] == (layer == STDIO)
    others = others if mine.all() else others.pick(mine)
    numbers, place = numbered(others.file)
    kept = file.counters[file.counters["layer"] == number]
    kept = kept[_used(kept)]
    known = [numbers, kept["file"], *([table.record_file] if table is not None else [])]
    files = np.unique(np.concatenate([some.astype(np.int64) for some in known]))
    sums = _Sums(files)
    sums.add_kept(kept)
    if table is not None:
        sums.add_operations(table, sizes=len(kept) > 0)
    sums.add_others(others, np.searchsorted(files, numbers)[place])
    return sums.records(layer)


def _used(kept: NDArray[np.void]) -> NDArray[np.bool_]:
    """Records that count something, and nothing impossible."""
    counts = np.stack([kept[name] for name in (*_COUNTED.values(), "others")])
    possible = (counts <= _LARGEST).all(axis=0)
    possible &= np.stack([kept[name] <= LONGEST_NS for name in _SPENT.values()]).all(axis=0)
    return np.asarray(possible & (counts > 0).any(axis=0), np.bool_)


class _Sums:
    """Totals of some files, in the order of their numbers, as far as they are added up."""

    def __init__(self, files: Int64Array) -> None:
        self._files = files
        self._counts = {name: np.zeros(len(files), np.int64) for name in _COUNTED}
        self._ns = {word: np.zeros(len(files), np.int64) for word in _SPENT}

    def add_kept(self, kept: NDArray[np.void]) -> None:
        """Adds what the tracer summed up itself, with classes of sizes."""
        if not len(kept):
            return
        place = np.searchsorted(self._files, kept["file"])
        for name, field in _COUNTED.items():
            np.add.at(self._counts[name], place, kept[field].astype(np.int64))
        for word, field in _SPENT.items():
            np.add.at(self._ns[word], place, kept[field].astype(np.int64))
        for word, _ in _WORDS.values():
            for i, size in enumerate(_SIZE_NAMES):
                calls = self._counts.setdefault(f"SIZE_{word}_{size}", np.zeros_like(self._files))
                np.add.at(calls, place, kept[f"{word.lower()}_sizes"][:, i].astype(np.int64))

    def add_operations(self, table: OperationTable, *, sizes: bool) -> None:
        """Adds reads and writes."""
        twice = 2 * len(self._files)
        calls, nbytes, spent = (np.zeros(twice, np.int64) for _ in range(3))
        place_of = 2 * np.searchsorted(self._files, table.record_file.astype(np.int64))
        at_once = max(_LEAST_ROWS, 2 * twice)
        for low in range(0, len(table.op), at_once):
            rows = slice(low, low + at_once)
            place = place_of[table.record[rows]] + table.op[rows]
            calls += np.bincount(place, minlength=twice)
            nbytes += _sums(place, table.nbytes[rows], twice)
            spent += _sums(place, table.end_ns[rows] - table.start_ns[rows], twice)
            if sizes:
                size = np.searchsorted(_SIZES, table.nbytes[rows])
                for i, name in enumerate(_SIZE_NAMES):
                    of_size = np.bincount(place[size == i], minlength=twice)
                    for op, (word, _) in _WORDS.items():
                        self._counts[f"SIZE_{word}_{name}"] += of_size[op::2]
        for op, (word, moved) in _WORDS.items():
            self._counts[f"{word}S"] += calls[op::2]
            self._counts[f"BYTES_{moved}"] += nbytes[op::2]
            self._ns[word] += spent[op::2]

    def add_others(self, others: Others, place: Places) -> None:
        """Adds calls that moved no data, each of the file at its place.

        Those that failed count as time alone.
        """
        kinds = len(_CALLS) + 1
        key = place * kinds + _NAME_OF[others.call]
        counts = np.bincount(key[others.result >= 0], minlength=len(self._files) * kinds)
        for i, name in enumerate(_CALLS):
            self._counts[name] += counts[i::kinds]
        key = place * len(_SPENT) + _WORD_OF[others.call]
        spent = _sums(key, others.end_ns - others.start_ns, len(self._files) * len(_SPENT))
        for i, word in enumerate(_SPENT):
            self._ns[word] += spent[i :: len(_SPENT)]

    def records(self, layer: str) -> CounterRecords:
        """All of it. As in Darshan, time of syncs is time of writing; it is told apart as well."""
        spent = self._ns | {"WRITE": self._ns["WRITE"] + self._ns["SYNC"]}
        return CounterRecords(
            layer,
            self._files.astype(np.uint64),
            np.zeros(len(self._files), np.int64),
            {f"{layer}_{name}": values for name, values in self._counts.items()},
            {f"{layer}_F_{word}_TIME": ns / 1e9 for word, ns in spent.items()},
        )


def _sums(place: Places, values: Numbers, count: int) -> Int64Array:
    """Sums by place: exact, as no sum of a file reaches 2^53."""
    return np.bincount(place, values, count).astype(np.int64)
