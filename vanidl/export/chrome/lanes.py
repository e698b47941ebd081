"""Tracks on which no two slices cross: viewers drop slices that overlap without nesting."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]

_NEVER, _FOREVER = -(2**63), 2**63
_FEW = 8  # lanes that are looked through in turn


class NestedLanes:
    """Lanes for spans that may contain each other, as calls do."""

    def __init__(self) -> None:
        self._open: list[list[int]] = []  # ends of the spans around, outermost first; few lanes
        self._more = _ManyLanes()

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
        if len(self._open) < _FEW:
            self._open.append([end])
            return len(self._open) - 1
        return _FEW + self._more.take(start, end)


class _ManyLanes:
    """The same for thousands of lanes: what each still takes stands in a tree of maxima."""

    def __init__(self) -> None:
        self._open: list[list[int]] = []
        self._ends: list[tuple[int, int]] = []  # heap of (end, lane) of all open spans
        self._width = 1
        self._room = [_NEVER, _NEVER]  # tree: node n lies over 2n and 2n + 1, lanes are leaves

    def take(self, start: int, end: int) -> int:
        """The first lane whose innermost span is over, or holds this one."""
        while self._ends and self._ends[0][0] <= start:
            lane = heappop(self._ends)[1]
            around = self._open[lane]
            while around and around[-1] <= start:
                around.pop()
            self._set(lane, around[-1] if around else _FOREVER)
        lane = self._first(end)
        self._open[lane].append(end)
        heappush(self._ends, (end, lane))
        self._set(lane, end)
        return lane

    def _first(self, end: int) -> int:
        if self._room[1] < end:
            return self._new()
        node = 1
        while node < self._width:
            node = 2 * node + (self._room[2 * node] < end)
        return node - self._width

    def _new(self) -> int:
        lane = len(self._open)
        self._open.append([])
        if lane == self._width:
            leaves = self._room[self._width :]
            self._width *= 2
            self._room = [_NEVER] * self._width + leaves + [_NEVER] * len(leaves)
            for node in range(self._width - 1, 0, -1):
                self._room[node] = max(self._room[2 * node], self._room[2 * node + 1])
        return lane

    def _set(self, lane: int, room: int) -> None:
        node = self._width + lane
        self._room[node] = room
        while node := node // 2:
            self._room[node] = max(self._room[2 * node], self._room[2 * node + 1])
