"""Tracks on which no two slices cross: viewers drop slices that overlap without nesting."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]

_EVER = np.iinfo(np.int64).min


class FlatLanes:
    """Lanes for operations that do not contain each other; blocks come in order of start."""

    def __init__(self) -> None:
        self._ends: list[int] = [_EVER]  # of the last operation of each lane

    def place(self, start: Int64Array, end: Int64Array) -> Int64Array:
        """Lane of each operation, the lowest that is free; sorted by start."""
        lane = np.zeros(len(start), np.int64)
        if not len(start):
            return lane
        before = np.maximum.accumulate(np.concatenate([[max(self._ends)], end]))[:-1]
        free = start >= before
        alone = free & np.append(free[1:], True)
        lane[~alone] = self._taken(start[~alone].tolist(), end[~alone].tolist())
        if alone[-1]:
            self._ends[0] = int(end[-1])
        return lane

    def _taken(self, start: list[int], end: list[int]) -> list[int]:
        ends, found = self._ends, []
        for begin, finish in zip(start, end, strict=True):
            lane = next((i for i, until in enumerate(ends) if until <= begin), len(ends))
            ends[lane : lane + 1] = [finish]
            found.append(lane)
        return found


class NestedLanes:
    """Lanes for spans that may contain each other, as calls do."""

    def __init__(self) -> None:
        self._open: list[list[int]] = [[]]  # ends of the spans around, outermost first

    def place(self, start: Int64Array, end: Int64Array) -> Int64Array:
        """Lane of each span; sorted by start, of equal ones the longest first."""
        rows = zip(start.tolist(), end.tolist(), strict=True)
        return np.array([self._take(begin, finish) for begin, finish in rows], np.int64)

    def _take(self, start: int, end: int) -> int:
        for lane, around in enumerate(self._open):
            while around and around[-1] <= start:
                around.pop()
            if not around or end <= around[-1]:
                around.append(end)
                return lane
        self._open.append([end])
        return len(self._open) - 1
