"""What lines that stand for many calls say: bytes, calls and seconds as counters."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from vanidl.readers.bounds import LARGEST_NBYTES, LONGEST_NS
from vanidl.readers.dftracer.calls import ITEMS, LAYERS, READS, REMOVES, WRITES, is_call, is_layer
from vanidl.readers.dftracer.lines import ABSENT
from vanidl.readers.dftracer.trace_file import Events
from vanidl.readers.records import CounterRecords

Int64Array = NDArray[np.int64]
Mask = NDArray[np.bool_]


def impossible(summed: Events, tick_ns: int) -> Mask:
    """Lines that hold more than one operation can: the bounds of one hold for each line."""
    columns = summed.columns
    moves = [is_call(summed, layer, (*READS[layer], *WRITES[layer])) for layer in LAYERS]
    wrong: Mask = np.any(moves, axis=0) & (columns["ret"] > LARGEST_NBYTES // _item_size(summed))
    wrong |= (columns["calls"] < 1) | (columns["calls"] > LARGEST_NBYTES)
    wrong |= (columns["dur"] < 0) | (columns["dur"] > LONGEST_NS // tick_ns)
    return wrong


def _item_size(summed: Events) -> Int64Array:
    """Bytes that one unit of a result stands for: the least where items differ."""
    size = summed.columns["size"]
    return np.where(_counts_items(summed) & (size > 0), size, 1)


def _counts_items(summed: Events) -> Mask:
    return np.array([name in ITEMS for _, name in summed.names] or [False])[summed.columns["name"]]


def moved(summed: Events) -> Int64Array:
    """Bytes of each line: the least that it can stand for, ABSENT where it holds no result."""
    ret = summed.columns["ret"]
    return np.where(ret == ABSENT, ABSENT, np.maximum(ret, 0) * _item_size(summed))


def lower_bounds(summed: Events) -> bool:
    """Whether bytes of some line are not exact: items of several sizes, or calls that failed.

    A result of -1 takes a byte from the sum. Such lines give the least that they can stand for.
    """
    columns = summed.columns
    mixed = _counts_items(summed) & (columns["size"] != columns["largest"])
    failed = (columns["least"] < 0) & (columns["least"] != ABSENT) & (columns["calls"] > 1)
    return bool((mixed | failed).any())


def counters(summed: Events) -> tuple[CounterRecords, ...]:
    """Counters of one process, one entry a layer that it used; `file` is a path code."""
    return tuple(r for r in (_records(summed, layer) for layer in LAYERS) if len(r.file))


def _records(summed: Events, layer: str) -> CounterRecords:
    """Counters of one layer.

    Opens are not among them: DFTracer counts the calls of a sum by the last of their numbers, and
    not every open has a mode. Reads and writes have all of theirs.
    """
    used = is_layer(summed, layer)
    columns = {name: column[used] for name, column in summed.columns.items()}
    of_layer = Events(columns, summed.names, summed.files)
    files, place = np.unique(columns["file"], return_inverse=True)
    known = columns["ret"] != ABSENT
    nbytes = np.where(known, moved(of_layer), 0)
    calls = np.where(_all_failed(columns), 0, columns["calls"])
    reads = is_call(of_layer, layer, READS[layer])
    writes = is_call(of_layer, layer, WRITES[layer])
    group = _Groups(place, len(files))
    counts = {
        f"{layer}_READS": group.sum(calls, reads),
        f"{layer}_WRITES": group.sum(calls, writes),
        f"{layer}_BYTES_READ": group.sum(nbytes, reads, known),
        f"{layer}_BYTES_WRITTEN": group.sum(nbytes, writes, known),
    }
    removes = is_call(of_layer, layer, REMOVES)
    others = ~reads & ~writes & ~removes
    times = {"READ": reads, "WRITE": writes, "META": others, "REMOVE": removes}
    seconds = {
        f"{layer}_F_{what}_TIME": group.sum(columns["dur"], rows) / 1e9
        for what, rows in times.items()
    }
    ranks = np.zeros(len(files), np.int64)
    return CounterRecords(layer, files.astype(np.uint64), ranks, counts, seconds)


def _all_failed(columns: Mapping[str, Int64Array]) -> Mask:
    """Lines of a single call that failed."""
    failed: Mask = (columns["calls"] == 1) & (columns["ret"] < 0) & (columns["ret"] != ABSENT)
    return failed


class _Groups:
    """Rows that belong to one file each."""

    def __init__(self, place: Int64Array, files: int) -> None:
        self._place, self._files = place, files

    def sum(self, values: Int64Array, rows: Mask, known: Mask | None = None) -> Int64Array:
        """Sum over some rows of each file; -1, not monitored, where a value is not known."""
        total = np.zeros(self._files, np.int64)
        np.add.at(total, self._place[rows], values[rows])
        if known is not None:
            total[np.unique(self._place[rows & ~known])] = -1
        return total
