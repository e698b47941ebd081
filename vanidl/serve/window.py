"""What a window of time shows: single slices where they are few, else how busy each bin was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.dataclass import dataclass
from vanidl.serve.store import REACH_ROWS, Segment, Store
from vanidl.viewer.lanes import COLUMNS, IO, Block, equal_edges
from vanidl.viewer.payload import pack_bins, slices

Int64Array = NDArray[np.int64]

MOST_SLICES = 20_000
MOST_WIDTH = 16_384
MOST_LANES = 256
_AT_ONCE = 1 << 22  # rows that are searched at a time


@dataclass(frozen=True, slots=True)
class Window:
    """A time in ns since the start of the job, the lanes in view, and how wide they are drawn."""

    low: int
    high: int
    width: int  # bins
    lanes: tuple[int, ...]


def answer(store: Store, window: Window) -> dict[str, Any]:
    """The slices of a window, or bins of the lanes that have too many; as a page reads them."""
    since = store.labels.since_ns
    low, high = window.low + since, window.high + since
    mine = [
        segment for segment in store.segments
        if segment.lane in window.lanes and segment.low_ns < high and segment.high_ns > low
    ]  # fmt: skip
    rows = [_rows(store, segment, low, high) for segment in mine]
    counts = dict.fromkeys(window.lanes, 0)
    for segment, (first, last) in zip(mine, rows, strict=True):
        counts[segment.lane] += last - first
    whole = _few(counts)
    held = [
        _block(store, segment, place, low)
        for segment, place in zip(mine, rows, strict=True) if segment.lane in whole
    ]  # fmt: skip
    amounts: dict[tuple[int, int, int], Int64Array] = {}
    edges = equal_edges(low, high, window.width)
    for segment in mine:
        if segment.lane not in whole:
            _add_busy(store, segment, edges, amounts)
    used = np.unique(np.concatenate([b.process for b in held])).tolist() if held else []
    return {
        **slices(held, store.labels, fast=True),
        "low": window.low,
        "high": window.high,
        "whole": sorted(whole),
        "windows": [],
        "bins": pack_bins(amounts, window.width, fast=True),
        "processes": {str(p): store.processes[p] for p in used if 0 <= p < len(store.processes)},
    }


def _few(counts: dict[int, int]) -> set[int]:
    """Lanes whose slices are sent, those with the fewest first."""
    left, found = MOST_SLICES, set()
    for lane, count in sorted(counts.items(), key=lambda item: item[1]):
        left -= count
        if left >= 0:
            found.add(lane)
    return found


def _rows(store: Store, segment: Segment, low: int, high: int) -> tuple[int, int]:
    """Rows among which are all slices of a segment that overlap [low, high)."""
    blocks = -(-(segment.last - segment.first) // REACH_ROWS)
    reach = store.columns["reach"][segment.reach : segment.reach + blocks]
    first = segment.first + int(np.searchsorted(reach, low, side="right")) * REACH_ROWS
    start = store.columns["start"][segment.first : segment.last]
    last = segment.first + int(np.searchsorted(start, high))
    begin = segment.first + int(np.searchsorted(start, low))
    first = min(first, begin)  # none that begins in the window is left out
    return first, max(last, first)


def _block(store: Store, segment: Segment, place: tuple[int, int], low: int) -> Block:
    rows = slice(*place)
    columns = {name: np.asarray(store.columns[name][rows]) for name in COLUMNS}
    block = Block(segment.lane, **columns)
    return block.pick(block.end > low)


def _add_busy(
    store: Store,
    segment: Segment,
    edges: Int64Array,
    amounts: dict[tuple[int, int, int], Int64Array],
) -> None:
    for row, fate, first, last in segment.busy:
        done = _busy_before(store, slice(first, last), edges)
        found = np.diff(done)
        if found.any():
            key = (segment.lane, row, fate)
            amounts[key] = amounts[key] + found if key in amounts else found


def _busy_before(store: Store, rows: slice, at: Int64Array) -> Int64Array:
    """For each instant how long one row was busy before it; looks at few of its intervals."""
    start, end, before = (store.columns[f"busy_{n}"][rows] for n in ("start", "end", "before"))
    index = np.searchsorted(start, at, side="right") - 1
    known = np.maximum(index, 0)
    done: Int64Array = before[known] + np.minimum(end[known], at) - start[known]
    return np.where(index >= 0, done, 0)


def find(store: Store, words: str) -> dict[str, Any]:
    """The first file whose name holds the words, how many do, and its earliest operation."""
    wanted = words.lower()
    matching = [i for i, path in enumerate(store.labels.paths) if wanted in path.lower()]
    if not matching:
        return {"matches": 0}
    code, count = matching[0], 0
    earliest: tuple[int, int, int] | None = None  # start, lane, row
    for segment in store.segments:
        if store.labels.lanes.lanes[segment.lane].kind != IO:
            continue
        rows = _rows_of(store, segment, code)
        count += len(rows)
        if len(rows):
            at = int(store.columns["start"][rows[0]])
            place = (at - store.labels.since_ns, segment.lane, int(store.columns["row"][rows[0]]))
            earliest = place if earliest is None else min(earliest, place)
    return {
        "matches": len(matching), "name": store.labels.paths[code], "count": count,
        "first": earliest,
    }  # fmt: skip


def _rows_of(store: Store, segment: Segment, code: int) -> Int64Array:
    found: Sequence[Int64Array] = [
        low + np.flatnonzero(store.columns["name"][low : min(low + _AT_ONCE, segment.last)] == code)
        for low in range(segment.first, segment.last, _AT_ONCE)
    ]
    return np.concatenate(found)
