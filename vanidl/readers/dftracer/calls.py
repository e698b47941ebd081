"""Which calls of DFTracer's POSIX and STDIO layers move bytes, open files or change folder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vanidl.readers.dftracer.trace_file import ABSENT, Events
from vanidl.readers.records import FARTHEST_OFFSET, LARGEST_NBYTES, LONGEST_NS

Int64Array = NDArray[np.int64]
Mask = NDArray[np.bool_]

READS = {
    "POSIX": ("read", "pread", "pread64", "readv", "preadv", "preadv64"),
    "STDIO": ("fread", "fread_unlocked"),
}
WRITES = {
    "POSIX": ("write", "pwrite", "pwrite64", "writev", "pwritev", "pwritev64"),
    "STDIO": ("fwrite", "fwrite_unlocked"),
}
OPENS = {
    "POSIX": ("open", "open64", "openat", "openat64", "creat", "creat64"),
    "STDIO": ("fopen", "fopen64", "freopen", "freopen64"),
}
CLOSES = ("close", "close64")
SYNCS = ("fsync", "fdatasync")
"""They wait until data are on storage: Darshan's counters have their time among that of writes."""
REMOVES = ("unlink", "unlinkat", "remove", "rmdir")
"""Darshan times none of them; they are no part of opening or looking at a file."""
OF_PROCESSES = ("fork", "vfork", "posix_spawn", "posix_spawnp", "execve", "system",
                "wait", "waitpid", "wait3", "wait4", "waitid")  # fmt: skip
"""Calls of the same layer that start processes and wait for them: no work on files."""
LAYERS = ("POSIX", "STDIO")

ITEMS = ("fread", "fread_unlocked", "fwrite", "fwrite_unlocked")
_FOR_WRITING = 3  # O_ACCMODE: O_WRONLY or O_RDWR


def is_call(events: Events, layer: str, calls: Sequence[str]) -> NDArray[np.bool_]:
    """Which events are one of the calls of a layer; one entry per event."""
    return _spread_over_events([c == layer and name in calls for c, name in events.names], events)


def is_layer(events: Events, layer: str) -> NDArray[np.bool_]:
    """Which events are calls of a layer, whatever they do."""
    return _spread_over_events([category == layer for category, _ in events.names], events)


def get_nbytes(events: Events) -> Int64Array:
    """Bytes that each call moved; ABSENT or negative for one that moved none.

    fread and fwrite return items: bytes = items x size (C standard, 7.21.8). The events are
    possible ones, so no product leaves the integers.
    """
    items = _returns_items(events)
    moved = events.columns["ret"].copy()
    moved[items] *= events.columns["size"][items]
    return moved


def find_impossible(events: Events, tick_ns: int) -> NDArray[np.bool_]:
    """Calls that lasted longer, or moved more, than one operation can."""
    columns = events.columns
    moves = [is_call(events, layer, (*READS[layer], *WRITES[layer])) for layer in LAYERS]
    items = _returns_items(events)
    most = LARGEST_NBYTES // np.where(items, columns["size"], 1)
    wrong: NDArray[np.bool_] = np.any(moves, axis=0) & (columns["ret"] > most)
    wrong |= columns["offset"] > FARTHEST_OFFSET
    wrong |= columns["dur"] > LONGEST_NS // tick_ns
    return wrong


def _returns_items(events: Events) -> NDArray[np.bool_]:
    """Calls that returned a number of items, and the size of one is known."""
    items = _spread_over_events([name in ITEMS for _, name in events.names], events)
    return items & (events.columns["size"] > 0) & (events.columns["ret"] > 0)


def find_impossible_sums(summed: Events, tick_ns: int) -> Mask:
    """Lines that hold more than one operation can: the bounds of one hold for each line."""
    columns = summed.columns
    moves = [is_call(summed, layer, (*READS[layer], *WRITES[layer])) for layer in LAYERS]
    wrong: Mask = np.any(moves, axis=0) & (
        columns["ret"] > LARGEST_NBYTES // _get_item_size(summed)
    )
    wrong |= (columns["calls"] < 1) | (columns["calls"] > LARGEST_NBYTES)
    wrong |= (columns["dur"] < 0) | (columns["dur"] > LONGEST_NS // tick_ns)
    return wrong


def _get_item_size(summed: Events) -> Int64Array:
    """Bytes that one unit of a result stands for: the least where items differ."""
    size = summed.columns["size"]
    return np.where(_sums_items(summed) & (size > 0), size, 1)


def _sums_items(summed: Events) -> Mask:
    return np.array([name in ITEMS for _, name in summed.names] or [False])[summed.columns["name"]]


def get_summed_nbytes(summed: Events) -> Int64Array:
    """Bytes of each line: the least that it can stand for, ABSENT where it holds no result."""
    ret = summed.columns["ret"]
    return np.where(ret == ABSENT, ABSENT, np.maximum(ret, 0) * _get_item_size(summed))


def has_lower_bounds(summed: Events) -> bool:
    """Whether bytes of some line are not exact: items of several sizes, or calls that failed.

    A result of -1 takes a byte from the sum. Such lines give the least that they can stand for.
    """
    columns = summed.columns
    mixed = _sums_items(summed) & (columns["size"] != columns["largest"])
    failed = (columns["least"] < 0) & (columns["least"] != ABSENT) & (columns["calls"] > 1)
    return bool((mixed | failed).any())


def opens_for_writing(events: Events, layer: str) -> NDArray[np.bool_]:
    """Which events open a file for writing, as far as their flags were recorded."""
    flags = events.columns["flags"]
    writes: NDArray[np.bool_] = (flags != ABSENT) & ((flags & _FOR_WRITING) > 0)
    return writes & is_call(events, layer, OPENS[layer])


def _spread_over_events(of_name: Sequence[bool], events: Events) -> NDArray[np.bool_]:
    """What holds of each event's name; names that do not occur ask for nothing."""
    return np.array(of_name or [False], bool)[events.columns["name"]]
