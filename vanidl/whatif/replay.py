"""Plays a run's batches through loaders that read ahead, as PyTorch's DataLoader does.

Batch k is made by worker k mod N, one after another; it is begun when the worker is free and
batch k - N * ahead has been handed over. Batches are handed over in order. All ranks begin a
step together, when the slowest has ended the one before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def replay(
    load_s: Sequence[Array],
    compute_s: Sequence[Array],
    first: NDArray[np.bool_],
    loaders: Sequence[tuple[int, int]],
) -> Array:
    """Length of every step in seconds, shape (steps,).

    Args:
        load_s: for each rank how long its batches take to load, shape (steps,).
        compute_s: for each rank the rest of its steps, shape (steps,).
        first: whether a batch is the first of an epoch, before which nothing is read.
        loaders: for each rank (workers, batches ahead of each); 0 workers: in the step itself.
    """
    queues = [_Queue(*loader) for loader in loaders]
    now, lengths = 0.0, np.zeros(len(first))
    for k, begins in enumerate(first.tolist()):
        ends = []
        for rank, queue in enumerate(queues):
            if begins or k == 0:
                queue.restart(now)
            handed = queue.next(float(load_s[rank][k]), now)
            ends.append(handed + float(compute_s[rank][k]))
        lengths[k], now = max(ends) - now, max(ends)
    return lengths


class _Queue:
    """The workers of one rank, and when they and their places are free."""

    def __init__(self, workers: int, ahead: int) -> None:
        self._workers, self._places = workers, workers * ahead
        self.restart(0.0)

    def restart(self, now: float) -> None:
        """An epoch begins: workers and places are free."""
        self._free = [now] * self._workers
        self._handed = [now] * self._places
        self._made = 0

    def next(self, load_s: float, now: float) -> float:
        """When the next batch, asked for at `now`, is handed over."""
        if not self._workers:
            return now + load_s
        worker, place = self._made % self._workers, self._made % self._places
        ready = max(self._free[worker], self._handed[place]) + load_s
        self._free[worker] = ready
        self._handed[place] = max(ready, now)
        self._made += 1
        return max(ready, now)
