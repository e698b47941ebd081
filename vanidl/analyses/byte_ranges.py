"""Which bytes of which file were touched: exact unions of byte ranges, many files at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.ordering import stable_order
from vanidl.parallel.threads import batches, in_threads

Int64Array = NDArray[np.int64]

_SAFE = 2**62
_BLOCK = 1 << 18  # ranges that are united at a time: few enough for the cache


class ByteRanges(NamedTuple):
    """Byte ranges [start, end) of each key, ascending; ranges of a key do not touch.

    The ranges of key[i] are the rows first[i] to first[i + 1]: at least one.
    """

    key: Int64Array
    first: Int64Array
    start: Int64Array
    end: Int64Array


_NONE = np.empty(0, np.int64)
NOTHING = ByteRanges(_NONE, np.zeros(1, np.int64), _NONE, _NONE)


def union_by_key(key: Int64Array, start: Int64Array, end: Int64Array) -> ByteRanges:
    """The union of byte ranges for each key, given in any order; empty ranges cover nothing."""
    if (key[1:] < key[:-1]).any():
        order = stable_order(key)
        key, start, end = key[order], start[order], end[order]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: len(key)])
    return of_groups(key[first], np.append(first, len(key)), start, end)


def of_groups(key: Int64Array, first: Int64Array, start: Int64Array, end: Int64Array) -> ByteRanges:
    """The union of the ranges first[i] to first[i + 1] for each key[i], all distinct.

    All keys are laid out behind one another, a byte apart, so that one union does for all.
    """
    if len(key) == 0:
        return NOTHING
    room = np.maximum.reduceat(end, first[:-1]) + 1
    if float(room.astype(float).sum()) > _SAFE:
        rows = (slice(a, b) for a, b in pairwise(first.tolist()))
        return _behind(key, [intervals.union(start[r], end[r]) for r in rows])
    base = np.cumsum(room) - room
    shift = np.repeat(base, np.diff(first))
    union = intervals.union(start + shift, end + shift)
    first = np.append(np.searchsorted(union.start, base), len(union.start))
    shift = np.repeat(base, np.diff(first))
    return _used(key, first, Intervals(union.start - shift, union.end - shift))


def by_owner(
    ranges: ByteRanges, owner: Int64Array, key: Int64Array
) -> Iterator[tuple[int, ByteRanges]]:
    """Each owner, ascending, and its ranges under other keys; those of equal keys are united.

    `owner` and `key` have an entry for each key of the ranges, in any order. Owners share the
    memory of the whole.
    """
    if (owner[1:] < owner[:-1]).any():
        order = stable_order(owner)
        ranges, owner, key = _ordered(ranges, order), owner[order], key[order]
    borders = np.flatnonzero(np.diff(owner, prepend=-1, append=-1)).tolist()
    rows = ranges.first[borders].tolist()
    falls = set(owner[1:][(key[1:] <= key[:-1]) & (owner[1:] == owner[:-1])].tolist())
    places = zip(owner[borders[:-1]].tolist(), pairwise(borders), pairwise(rows), strict=True)
    for each, (low, high), (begin, end) in places:
        first = ranges.first[low : high + 1] - begin
        own = ByteRanges(key[low:high], first, ranges.start[begin:end], ranges.end[begin:end])
        yield each, _united(own) if each in falls else own


def _ordered(ranges: ByteRanges, order: NDArray[np.intp]) -> ByteRanges:
    counts = np.diff(ranges.first)[order]
    first = np.append(0, np.cumsum(counts))
    rows = np.repeat(ranges.first[order] - first[:-1], counts) + np.arange(first[-1])
    return ByteRanges(ranges.key[order], first, ranges.start[rows], ranges.end[rows])


def _united(ranges: ByteRanges) -> ByteRanges:
    """The ranges with their keys, which are in any order, ascending."""
    return union_by_key(np.repeat(ranges.key, np.diff(ranges.first)), ranges.start, ranges.end)


def merge(a: ByteRanges, b: ByteRanges) -> ByteRanges:
    """The bytes in a or b."""
    return _all_of([c for c in (a, b) if len(c.key)])


def together(sets: Sequence[ByteRanges]) -> tuple[Int64Array, Int64Array, Int64Array]:
    """(distinct keys ascending, bytes in any of the sets, highest end) of each key.

    Keys are taken block by block, so that memory is that of a block, not of all sets.
    """
    held = (c for c in sets if len(c.key))
    # Small ones are united first, as many as fill a block: there may be thousands.
    sets = [_all_of(some) for some in batches(held, lambda c: len(c.start), _BLOCK)]
    if not sets:
        return _NONE, _NONE, _NONE
    keys, place = np.unique(np.concatenate([c.key for c in sets]), return_inverse=True)
    counts, ends = np.zeros((2, len(keys)), np.int64)
    np.add.at(counts, place, np.concatenate([np.diff(c.first) for c in sets]))
    np.maximum.at(ends, place, np.concatenate([c.end[c.first[1:] - 1] for c in sets]))
    blocks = list(_blocks(counts, ends))
    lengths = in_threads(lambda some: _lengths(sets, keys[some], ends[some]), blocks)
    return keys, np.concatenate(list(lengths)), ends


def _all_of(sets: Sequence[ByteRanges]) -> ByteRanges:
    """The bytes in any of the sets."""
    if len(sets) < 2:
        return sets[0] if sets else NOTHING
    counts = np.concatenate([np.diff(c.first) for c in sets])
    keys = np.repeat(np.concatenate([c.key for c in sets]), counts)
    return union_by_key(keys, *(np.concatenate([c[i] for c in sets]) for i in (2, 3)))


def _blocks(counts: Int64Array, ends: Int64Array) -> Iterator[slice]:
    """Neighbouring keys that are united at once: not too many ranges, not too far apart."""
    far = np.cumsum(ends.astype(float)) // (_SAFE / 4)
    many = np.cumsum(counts) // _BLOCK
    borders = np.flatnonzero((np.diff(far) != 0) | (np.diff(many) != 0)) + 1
    for low, high in pairwise([0, *borders.tolist(), len(counts)]):
        yield slice(low, high)


def _lengths(sets: Sequence[ByteRanges], keys: Int64Array, ends: Int64Array) -> Int64Array:
    """Bytes of each of these keys in any of the sets."""
    base = np.append(0, np.cumsum(ends + 1)[:-1])
    pieces = [_laid_out(c, keys, base) for c in sets]
    union = intervals.union(*(np.concatenate(column) for column in zip(*pieces, strict=True)))
    return np.add.reduceat(union.end - union.start, np.searchsorted(union.start, base))


def _laid_out(
    ranges: ByteRanges, keys: Int64Array, base: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Starts and ends of the keys' ranges, each key moved to its base."""
    low, high = np.searchsorted(ranges.key, keys[[0, -1]] + np.array([0, 1]))
    mine, first = ranges.key[low:high], ranges.first[low : high + 1]
    shift = np.repeat(base[np.searchsorted(keys, mine)], np.diff(first))
    rows = slice(int(first[0]), int(first[-1]))
    return ranges.start[rows] + shift, ranges.end[rows] + shift


def _behind(key: Int64Array, unions: Sequence[Intervals]) -> ByteRanges:
    first = np.append(0, np.cumsum([len(u.start) for u in unions]))
    bounds = (np.concatenate(column) for column in zip(*unions, strict=True))
    return _used(key, first, Intervals(*bounds))


def _used(key: Int64Array, first: Int64Array, ranges: Intervals) -> ByteRanges:
    """Without the keys that have no range left."""
    used = np.diff(first) > 0
    return ByteRanges(key[used], np.append(first[:-1][used], first[-1]), ranges.start, ranges.end)
