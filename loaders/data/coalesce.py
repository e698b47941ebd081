"""Merging reads: a gap is read through only where that is faster than asking again.

Two requests become one where gap_bytes / bandwidth < latency. No constant is built in: both
are measured at the start (see `measure`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]

REPEATS, WIDE_NBYTES = 5, 4 << 20
"""Reads of each size in a measurement, and bytes of a large one, as far as it may read so much."""


@dataclass(frozen=True)
class StorageSpeed:
    """What one request costs: latency_s + nbytes / bytes_per_s."""

    latency_s: float
    bytes_per_s: float

    def most_gap_rows(self, row_nbytes: int) -> int:
        """Rows that are worth reading through rather than asking again."""
        return max(0, int(np.ceil(self.latency_s * self.bytes_per_s / row_nbytes)) - 1)


def runs(rows: Int64Array, most_gap: int) -> tuple[Int64Array, Int64Array]:
    """(start, stop) of the requests that cover sorted rows; gaps of up to `most_gap` are read."""
    if len(rows) == 0:
        return rows, rows
    border = np.flatnonzero(np.diff(rows) > most_gap + 1)
    start = rows[np.concatenate([[0], border + 1])]
    stop = rows[np.concatenate([border, [len(rows) - 1]])] + 1
    return start, stop


def measure(
    read: Callable[[int, int], object], rows: int, row_nbytes: int, most_rows: int
) -> StorageSpeed:
    """The storage's speed from small and large reads of places far apart.

    Args:
        read: Reads rows [start, stop).
        rows: How many there are.
        row_nbytes: Bytes of a row.
        most_rows: That may be read for it, at least 3.
    """
    repeats = min(REPEATS, max(1, most_rows // 3))
    widest = max(1, min(rows // 8, -(-WIDE_NBYTES // row_nbytes)))
    wide = min(widest, max(2, most_rows // repeats - 1))
    small = _median_s(read, rows, 1, repeats)
    large = _median_s(read, rows, wide, repeats)
    # Noise in the difference would make reading on or asking again free: no better than seen,
    # times four.
    per_row = max((large - small) / max(wide - 1, 1), large / (4 * wide), 1e-12)
    return StorageSpeed(max(small - per_row, small / 4), row_nbytes / per_row)


def _median_s(read: Callable[[int, int], object], rows: int, count: int, repeats: int) -> float:
    times = []
    for i in range(repeats):
        first = (rows - count) * (2 * i + 1) // (2 * repeats)
        start = time.perf_counter()
        read(first, first + count)
        times.append(time.perf_counter() - start)
    return float(np.median(times))
