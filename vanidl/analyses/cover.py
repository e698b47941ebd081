"""Which bytes of which file were touched: exact unions of byte ranges, many files at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vanidl import intervals
from vanidl.analyses.sorting import compact

Int64Array = NDArray[np.int64]

_SAFE = 2**62
_BLOCK = 1 << 22  # ranges that are united at a time


class Cover(NamedTuple):
    """Byte ranges [start[i], end[i]) of key[i], by key and start; ranges of a key do not touch."""

    key: Int64Array
    start: Int64Array
    end: Int64Array


_NONE = np.empty(0, np.int64)
NOTHING = Cover(_NONE, _NONE, _NONE)


def covered(key: Int64Array, start: Int64Array, end: Int64Array) -> Cover:
    """The union of byte ranges for each key, given in any order; empty ranges cover nothing.

    All keys are laid out behind one another, a byte apart, so that one union does for all.
    """
    keep = end > start
    if not keep.all():
        key, start, end = key[keep], start[keep], end[keep]
    if len(key) == 0:
        return NOTHING
    distinct, code = compact(key)
    room = np.zeros(len(distinct), np.int64)
    np.maximum.at(room, code, end)
    room += 1
    if float(room.astype(float).sum()) > _SAFE:
        pieces = [_one_key(k, start[key == k], end[key == k]) for k in distinct.tolist()]
        return Cover(*(np.concatenate(column) for column in zip(*pieces, strict=True)))
    base = np.cumsum(room) - room
    shift = base[code]
    union = intervals.union(start + shift, end + shift)
    which = np.searchsorted(base, union.start, side="right") - 1
    return Cover(distinct[which], union.start - base[which], union.end - base[which])


def merge(a: Cover, b: Cover) -> Cover:
    """The bytes in a or b."""
    if len(a.key) == 0 or len(b.key) == 0:
        return a if len(b.key) == 0 else b
    return covered(*(np.concatenate([getattr(a, n), getattr(b, n)]) for n in Cover._fields))


def lengths(cover: Cover) -> tuple[Int64Array, Int64Array]:
    """(distinct keys ascending, number of bytes of each)."""
    if len(cover.key) == 0:
        return _NONE, _NONE
    first = np.flatnonzero(np.concatenate([[True], cover.key[1:] != cover.key[:-1]]))
    return cover.key[first], np.add.reduceat(cover.end - cover.start, first)


def together(covers: Sequence[Cover]) -> tuple[Int64Array, Int64Array, Int64Array]:
    """(distinct keys ascending, bytes in any of the covers, highest end) of each key.

    Keys are taken block by block, so that memory is that of a block, not of all covers.
    """
    keys, counts = _counts(covers)
    if len(keys) == 0:
        return _NONE, _NONE, _NONE
    lengths_of, ends = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
    block = np.cumsum(counts) // _BLOCK
    for low in np.flatnonzero(np.diff(block, prepend=-1)).tolist():
        high = int(np.searchsorted(block, block[low], "right"))
        pieces = [_between(c, int(keys[low]), int(keys[high - 1])) for c in covers]
        union = covered(*(np.concatenate(column) for column in zip(*pieces, strict=True)))
        place = np.searchsorted(keys, union.key)
        np.add.at(lengths_of, place, union.end - union.start)
        np.maximum.at(ends, place, union.end)
    return keys, lengths_of, ends


def _counts(covers: Sequence[Cover]) -> tuple[Int64Array, Int64Array]:
    """Every key of any cover, and how many ranges it has in all of them."""
    found = [np.unique(c.key, return_counts=True) for c in covers if len(c.key)]
    if not found:
        return _NONE, _NONE
    keys, inverse = np.unique(np.concatenate([k for k, _ in found]), return_inverse=True)
    counts = np.zeros(len(keys), np.int64)
    np.add.at(counts, inverse, np.concatenate([n for _, n in found]))
    return keys, counts


def _between(cover: Cover, lowest: int, highest: int) -> Cover:
    low = int(np.searchsorted(cover.key, lowest))
    high = int(np.searchsorted(cover.key, highest, "right"))
    return Cover(*(column[low:high] for column in cover))


def _one_key(key: int, start: Int64Array, end: Int64Array) -> Cover:
    union = intervals.union(start, end)
    return Cover(np.full(len(union.start), key, np.int64), union.start, union.end)
