"""Interval algebra on sorted, disjoint, half-open int64 intervals.

All functions are exact: times are integers (nanoseconds), nothing is rounded.
An interval of zero length covers nothing and is dropped by `union`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from vanidl.parallel.threads import batches, in_threads

Int64Array = NDArray[np.int64]
Key = TypeVar("Key", bound=Hashable)

_MIN = np.iinfo(np.int64).min
_MAX = np.iinfo(np.int64).max
_SAFE = 2**62
_CELL_BITS = 14  # of the number of cells: counts of them stay in the cache
_LONG = 1 << 14  # intervals that are worth a call for each instant
_FEW = 16  # instants that are not worth sorting intervals for
_WINDOW = 1 << 18  # intervals that are united at a time: few enough for the cache


class Intervals(NamedTuple):
    """Disjoint intervals [start[i], end[i]) in ascending order, none of them empty."""

    start: Int64Array
    end: Int64Array

    @property
    def length(self) -> int:
        """Total time covered, in the unit of the bounds."""
        return int((self.end - self.start).sum())

    def shifted(self, offset_ns: int) -> Intervals:
        """The same, so much later."""
        return Intervals(self.start + offset_ns, self.end + offset_ns)


EMPTY = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


def union(start: Int64Array, end: Int64Array) -> Intervals:
    """The time covered by any of the intervals [start[i], end[i]), in any order.

    Where none of them touch and they are in order, they are the result themselves.
    """
    keep = end > start
    if not keep.all():
        start, end = start[keep], end[keep]
    if len(start) == 0:
        return EMPTY
    if (start[1:] > end[:-1]).all():
        return Intervals(start, end)
    # One begins where nothing before it reaches.
    start, reach = ordered(start, end)
    gap = np.flatnonzero(start[1:] > reach[:-1])
    return Intervals(start[np.append(0, gap + 1)], reach[np.append(gap, len(start) - 1)])


def ordered(start: Int64Array, end: Int64Array) -> tuple[Int64Array, Int64Array]:
    """(starts ascending, reach): between reach[i - 1] and a later start[i] nothing is covered.

    Starts and ends may be sorted apart, which is faster than together: where nothing is
    covered, the intervals that started before are those that ended before, however many. So
    reach[i] is the i-th smallest end, or of intervals in order the largest so far.
    """
    if (start[1:] < start[:-1]).any():
        # Mostly runs in order: file by file, rank by rank. A merge is several times as fast.
        return np.sort(start, kind="stable"), np.sort(end, kind="stable")
    return start, np.maximum.accumulate(end)


def union_by_group(
    group: NDArray[np.intp], start: Int64Array, end: Int64Array, count: int
) -> list[Intervals]:
    """`union` of the intervals of each group in [0, count).

    All groups are laid out behind one another in time, so that one union does for all.
    """
    if len(start) == 0:
        return [EMPTY] * count
    since = int(start.min())
    length = int(end.max()) - since + 1
    if count * length > _SAFE:
        return [union(start[group == i], end[group == i]) for i in range(count)]
    shift = group * length - since
    together = union(start + shift, end + shift)
    first = np.searchsorted(together.start, np.arange(count + 1) * length)
    back = np.repeat(np.arange(count) * length - since, np.diff(first))
    starts, ends = together.start - back, together.end - back
    return [Intervals(starts[a:b], ends[a:b]) for a, b in pairwise(first.tolist())]


def merge(a: Intervals, b: Intervals) -> Intervals:
    """The time covered by a or b."""
    if len(a.start) == 0:
        return b
    if len(b.start) == 0:
        return a
    if b.start[0] < a.start[0]:
        a, b = b, a
    return union(np.concatenate([a.start, b.start]), np.concatenate([a.end, b.end]))


def merge_by_key(a: Mapping[Key, Intervals], b: Mapping[Key, Intervals]) -> dict[Key, Intervals]:
    """The time covered by a or b under each key; mostly they have few keys in common."""
    both = {key: merge(a[key], b[key]) for key in a.keys() & b.keys()}
    return {**a, **b, **both}


def length_of_all(sets: Iterable[Intervals]) -> int:
    """Total time covered by any of the sets, window by window: memory is that of a window."""
    sets = [_unite_sets(batch) for batch in _split_batches(sets)]
    if not sets:
        return 0
    low = min(int(one.start[0]) for one in sets)
    high = max(int(one.end[-1]) for one in sets)
    windows = -(-sum(len(one.start) for one in sets) // _WINDOW)
    edges = [low + (high - low) * i // windows for i in range(windows + 1)]
    return sum(in_threads(lambda window: _length_within(sets, *window), list(pairwise(edges))))


def lengths(sets: Iterable[Intervals]) -> list[int]:
    """The length of each set; of many small ones without a call of numpy for each."""
    totals: list[int] = []
    for batch in batches(sets, lambda one: len(one.start), _WINDOW):
        if len(batch) == 1:  # a large one is not copied
            totals.append(batch[0].length)
            continue
        start, end = (np.concatenate(bounds) for bounds in zip(*batch, strict=True))
        until = np.append(0, np.cumsum(end - start))
        last = np.append(0, np.cumsum([len(one.start) for one in batch]))
        totals += np.diff(until[last]).tolist()
    return totals


def _split_batches(sets: Iterable[Intervals]) -> Iterator[list[Intervals]]:
    """Sets that are not empty, small ones together, as many as fill a window."""
    return batches((one for one in sets if len(one.start)), lambda one: len(one.start), _WINDOW)


def _unite_sets(sets: Sequence[Intervals]) -> Intervals:
    """The time covered by any of the sets, at least one."""
    if len(sets) == 1:
        return sets[0]
    return union(*_thin_intervals(*(np.concatenate(column) for column in zip(*sets, strict=True))))


def _thin_intervals(start: Int64Array, end: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The same time by fewer intervals, at best: all that lies in cells that are covered is one.

    Of thousands of ranks nearly all does, and the rest is sorted in a moment. None may be empty.
    """
    low, high = int(start.min()), int(end.max())
    if high - low > _SAFE:
        return start, end
    wide = max(0, (high - low).bit_length() - _CELL_BITS)  # a cell has 2**wide units
    begin, until = start - low, end - low
    cells = ((high - low) >> wide) + 2
    first, behind = (begin + ((1 << wide) - 1)) >> wide, until >> wide
    whole = behind > first
    changes = [np.bincount(at[whole], minlength=cells) for at in (first, behind)]
    covered = np.cumsum(changes[0] - changes[1]) > 0
    bare = np.append(0, np.cumsum(~covered))  # cells that are not, before each
    loose = bare[((until - 1) >> wide) + 1] > bare[begin >> wide]
    runs = (np.flatnonzero(np.diff(covered, prepend=False, append=False)) << wide) + low
    return np.append(start[loose], runs[::2]), np.append(end[loose], runs[1::2])


def _length_within(sets: Sequence[Intervals], low: int, high: int) -> int:
    pieces = [clipped(one, low, high) for one in sets]
    start, end = (np.concatenate(column) for column in zip(*pieces, strict=True))
    if len(start) == 0:
        return 0
    start, reach = ordered(start, end)
    gaps = np.maximum(start[1:] - reach[:-1], 0)
    return int(reach[-1] - start[0] - gaps.sum())


def clipped(a: Intervals, low: int, high: int) -> Intervals:
    """The time that a covers in [low, high); none where that is empty."""
    if high <= low:
        return EMPTY
    first = int(np.searchsorted(a.end, low, side="right"))
    last = int(np.searchsorted(a.start, high, side="left"))
    inside = slice(first, max(first, last))
    return Intervals(np.maximum(a.start[inside], low), np.minimum(a.end[inside], high))


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """The time covered by both a and b."""
    if not len(a.start):
        return a
    if len(b.start) == 1:
        return clipped(a, int(b.start[0]), int(b.end[0]))
    low = np.searchsorted(b.end, a.start, side="right")
    high = np.searchsorted(b.start, a.end, side="left")
    count = np.maximum(high - low, 0)
    in_a = np.repeat(np.arange(len(a.start)), count)
    before = np.cumsum(count) - count
    in_b = np.repeat(low - before, count) + np.arange(len(in_a))
    start = np.maximum(a.start[in_a], b.start[in_b])
    return Intervals(start, np.minimum(a.end[in_a], b.end[in_b]))


def complement(a: Intervals) -> Intervals:
    """All the time that a does not cover."""
    start = np.concatenate([np.array([_MIN], np.int64), a.end])
    end = np.concatenate([a.start, np.array([_MAX], np.int64)])
    # Before what begins with time itself, and after what ends with it, there is nothing.
    rest = slice(int(end[0] == _MIN), len(end) - int(start[-1] == _MAX))
    return Intervals(start[rest], end[rest])


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """The time covered by a and not by b."""
    if not len(a.start) or not len(b.start):
        return a
    return intersect(a, complement(b))


def covered_within_all(sets: Iterable[Intervals], start: Int64Array, end: Int64Array) -> Int64Array:
    """For each window [start[i], end[i]): how much of it each set covers, added up."""
    total = np.zeros(len(start), np.int64)
    for batch in _split_batches(sets) if len(start) else ():
        begun, ended = np.split(_covered_by_any_number(batch, np.concatenate([start, end])), 2)
        total += ended - begun
    return total


def most_covered_within(
    sets: Iterable[Intervals], start: Int64Array, end: Int64Array
) -> Int64Array:
    """For each window [start[i], end[i]): how much of it that set covers which covers most."""
    most = np.zeros(len(start), np.int64)
    for batch in _split_batches(sets) if len(start) else ():
        if len(batch) == 1 or len(start) > _FEW:
            for one in batch:
                np.maximum(most, covered_within(one, start, end), out=most)
            continue
        begun, ended = (np.concatenate(column) for column in zip(*batch, strict=True))
        first = np.cumsum([0, *(len(one.start) for one in batch[:-1])])
        for window, (low, high) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
            covered = np.maximum(np.minimum(ended, high) - np.maximum(begun, low), 0)
            most[window] = max(most[window], int(np.add.reduceat(covered, first).max()))
    return most


def _covered_by_any_number(sets: Sequence[Intervals], at: Int64Array) -> Int64Array:
    """For each instant: the total length of all sets before it.

    What began before an instant was covered since then, but for the time since what has ended.
    """
    if len(sets) == 1:
        return _covered_before(sets[0], at)
    bounds = [np.concatenate(column) for column in zip(*sets, strict=True)]
    since = int(min(bounds[0].min(), at.min()))
    if len(bounds[0]) * (int(max(bounds[1].max(), at.max())) - since) > _MAX:
        return sum((_covered_before(one, at) for one in sets), np.zeros(len(at), np.int64))
    if len(at) <= _FEW:
        lengths = (_length_before(bounds[0], bounds[1], instant) for instant in at.tolist())
        return np.fromiter(lengths, np.int64, len(at))
    begun, ended = (_time_since(np.sort(column) - since, at - since) for column in bounds)
    return begun - ended


def _length_before(start: Int64Array, end: Int64Array, instant: int) -> int:
    """The total length of intervals, in any order, before an instant."""
    length = np.minimum(end, instant)
    length -= np.minimum(start, instant)
    return int(length.sum())


def _time_since(events: Int64Array, at: Int64Array) -> Int64Array:
    """For each instant the sum of the times since each event before it; events ascending."""
    before = np.searchsorted(events, at)
    done = np.append(0, np.cumsum(events))
    since: Int64Array = at * before - done[before]
    return since


def covered_within(a: Intervals, start: Int64Array, end: Int64Array) -> Int64Array:
    """For each window [start[i], end[i]): how much of it a covers. Windows may overlap."""
    before = _covered_before(a, np.concatenate([start, end]))
    return before[len(start) :] - before[: len(start)]


def covered_between(a: Intervals, edges: Int64Array) -> Int64Array:
    """How much of each window between neighbouring edges, which ascend, a covers."""
    return np.diff(_covered_before(a, edges))


def _covered_before(a: Intervals, at: Int64Array) -> Int64Array:
    """For each instant: the total length of a before it."""
    if len(a.start) == 0:
        return np.zeros(len(at), np.int64)
    index = np.searchsorted(a.start, at, side="right")
    if len(at) <= _FEW and len(a.start) >= _LONG:  # sums take a third of the time of running ones
        places, at_place = np.unique(np.append(0, index), return_inverse=True)
        pieces = [int((a.end[i:k] - a.start[i:k]).sum()) for i, k in pairwise(places.tolist())]
        until = np.cumsum([0, *pieces], dtype=np.int64)[at_place[1:]]
    else:
        until = np.append(0, np.cumsum(a.end - a.start))[index]
    overshoot = a.end[np.maximum(index - 1, 0)] - at
    overshoot = np.where(index > 0, np.maximum(overshoot, 0), 0)
    result: Int64Array = until - overshoot
    return result


def span_each(spans: Iterable[tuple[Key, int, int]]) -> dict[Key, tuple[int, int]]:
    """From the first start to the last end of each key, of (key, start, end) in any order."""
    each: dict[Key, tuple[int, int]] = {}
    for key, start, end in spans:
        first, last = each.get(key, (start, end))
        each[key] = min(first, start), max(last, end)
    return each


def find_gap(spans: Mapping[Key, tuple[int, int]]) -> tuple[Key, Key, int] | None:
    """The first gap in what the spans cover: the keys before and behind it, and its length.

    None where every span meets one that began before it; to touch is to meet.
    """
    order = sorted(spans, key=lambda key: spans[key])
    reached = _MIN
    for before, after in pairwise(order):
        reached = max(reached, spans[before][1])
        if spans[after][0] > reached:
            return before, after, spans[after][0] - reached
    return None
