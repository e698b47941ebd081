"""Which bytes of which file were touched: exact unions of byte ranges, many files at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vanidl import intervals

Int64Array = NDArray[np.int64]

_SAFE = 2**62


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
    distinct = np.unique(key)
    code = np.searchsorted(distinct, key)
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


def _one_key(key: int, start: Int64Array, end: Int64Array) -> Cover:
    union = intervals.union(start, end)
    return Cover(np.full(len(union.start), key, np.int64), union.start, union.end)
