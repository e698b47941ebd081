"""Iterators of a project of one's own, which no recorder knows."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np


def batches(count: int, seconds: float) -> Iterator[np.ndarray]:
    """So many batches, each of which takes so long."""
    for i in range(count):
        time.sleep(seconds)
        yield np.full((2, 2), i, np.float32)


class Counted:
    """An iterator that is its own."""

    def __init__(self, count: int, seconds: float) -> None:
        self.count, self.seconds = count, seconds

    def __iter__(self) -> Counted:
        return self

    def __next__(self) -> np.ndarray:
        """One batch."""
        if not self.count:
            raise StopIteration
        self.count -= 1
        time.sleep(self.seconds)
        return np.zeros((2, 2), np.float32)
