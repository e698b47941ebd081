"""Which calls of DFTracer's POSIX and STDIO layers move bytes, open files or change folder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vanidl.readers.bounds import FARTHEST_OFFSET, LARGEST_NBYTES, LONGEST_NS
from vanidl.readers.dftracer.lines import ABSENT
from vanidl.readers.dftracer.trace_file import Events

Int64Array = NDArray[np.int64]

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
REMOVES = ("unlink", "unlinkat", "remove", "rmdir")
"""Darshan times none of them; they are no part of opening or looking at a file."""
LAYERS = ("POSIX", "STDIO")

ITEMS = ("fread", "fread_unlocked", "fwrite", "fwrite_unlocked")
_FOR_WRITING = 3  # O_ACCMODE: O_WRONLY or O_RDWR


def is_call(events: Events, layer: str, calls: Sequence[str]) -> NDArray[np.bool_]:
    """Which events are one of the calls of a layer; one entry per event."""
    return _where([c == layer and name in calls for c, name in events.names], events)


def is_layer(events: Events, layer: str) -> NDArray[np.bool_]:
    """Which events are calls of a layer, whatever they do."""
    return _where([category == layer for category, _ in events.names], events)


def nbytes(events: Events) -> Int64Array:
    """Bytes that each call moved; ABSENT or negative for one that moved none.

    fread and fwrite return items: bytes = items x size (C standard, 7.21.8). The events are
    possible ones, so no product leaves the integers.
    """
    items = _counts_items(events)
    moved = events.columns["ret"].copy()
    moved[items] *= events.columns["size"][items]
    return moved


def impossible(events: Events, tick_ns: int) -> NDArray[np.bool_]:
    """Calls that lasted longer, or moved more, than one operation can."""
    columns = events.columns
    moves = [is_call(events, layer, (*READS[layer], *WRITES[layer])) for layer in LAYERS]
    items = _counts_items(events)
    most = LARGEST_NBYTES // np.where(items, columns["size"], 1)
    wrong: NDArray[np.bool_] = np.any(moves, axis=0) & (columns["ret"] > most)
    wrong |= columns["offset"] > FARTHEST_OFFSET
    wrong |= columns["dur"] > LONGEST_NS // tick_ns
    return wrong


def _counts_items(events: Events) -> NDArray[np.bool_]:
    """Calls that returned a number of items, and the size of one is known."""
    items = _where([name in ITEMS for _, name in events.names], events)
    return items & (events.columns["size"] > 0) & (events.columns["ret"] > 0)


def opens_for_writing(events: Events, layer: str) -> NDArray[np.bool_]:
    """Which events open a file for writing, as far as their flags were recorded."""
    flags = events.columns["flags"]
    writes: NDArray[np.bool_] = (flags != ABSENT) & ((flags & _FOR_WRITING) > 0)
    return writes & is_call(events, layer, OPENS[layer])


def _where(of_name: Sequence[bool], events: Events) -> NDArray[np.bool_]:
    """What holds of each event's name; names that do not occur ask for nothing."""
    return np.array(of_name or [False], bool)[events.columns["name"]]
