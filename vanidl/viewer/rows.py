"""Rows in which no two operations overlap in time."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]

_EVER = np.iinfo(np.int64).min


class FlatLanes:
    """Lanes for operations that do not contain each other; blocks come in order of start."""

    def __init__(self) -> None:
        self._count = 1
        self._latest = _EVER  # end of all operations
        self._busy: list[tuple[int, int]] = []  # heap of (end, lane)
        self._free = [0]  # heap

    def place(self, start: Int64Array, end: Int64Array) -> Int64Array:
        """Lane of each operation, the lowest that is free; sorted by start."""
        lane = np.zeros(len(start), np.int64)
        if not len(start):
            return lane
        before = np.maximum.accumulate(np.concatenate([[self._latest], end]))
        free = start >= before[:-1]
        alone = free & np.append(free[1:], True)
        lane[~alone] = self._taken(start[~alone].tolist(), end[~alone].tolist())
        self._latest = int(before[-1])
        if alone[-1]:
            self._busy, self._free = [(int(end[-1]), 0)], list(range(1, self._count))
        return lane

    def _taken(self, start: list[int], end: list[int]) -> list[int]:
        found = []
        for begin, finish in zip(start, end, strict=True):
            while self._busy and self._busy[0][0] <= begin:
                heappush(self._free, heappop(self._busy)[1])
            if not self._free:
                heappush(self._free, self._count)
                self._count += 1
            lane = heappop(self._free)
            heappush(self._busy, (finish, lane))
            found.append(lane)
        return found
