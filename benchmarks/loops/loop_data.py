"""Data of the loops that name an iterator of another module."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from timers import BATCHES, READ_S


def batches(count: int) -> Iterator[np.ndarray]:
    """As many, each of which takes its time."""
    for i in range(count):
        time.sleep(READ_S)
        yield np.full((2, 2), i, np.float32)


class Rows:
    """A row takes its time."""

    def __init__(self, rows: int = 2 * BATCHES) -> None:
        self.rows = rows

    def __len__(self) -> int:
        """How many there are."""
        return self.rows

    def __getitem__(self, i: int) -> np.ndarray:
        """Row i."""
        time.sleep(READ_S / 2)
        return np.full(2, i, np.float32)
