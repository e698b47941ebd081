"""Making long things short enough to draw, without changing what they add up to."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from vanidl.formatting.units import count


def folded(
    edges: NDArray[np.float64], values: NDArray[np.int64], limit: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """At most `limit` bins, shape (rows, bins), each the exact sum of neighbouring bins."""
    bins = values.shape[1]
    width = -(-bins // limit)
    if width <= 1:
        return edges, values
    starts = np.arange(0, bins, width)
    sums = np.add.reduceat(values, starts, axis=1)
    return np.append(edges[starts], edges[-1]), sums


def rates(edges: NDArray[np.float64], sums: NDArray[np.int64]) -> NDArray[np.float64]:
    """Amount per second in each bin, 0 in bins without length, shape as `sums`."""
    lengths = np.broadcast_to(np.diff(edges), sums.shape)
    return np.divide(sums, lengths, out=np.zeros(sums.shape), where=lengths > 0)


def spread_out(total: int, limit: int) -> NDArray[np.intp]:
    """At most `limit` positions out of `total`, first and last among them."""
    if total <= limit:
        return np.arange(total, dtype=np.intp)
    return np.unique(np.linspace(0, total - 1, limit).round().astype(np.intp))


def rounded(values: Iterable[float]) -> list[float | int | None]:
    """Values with four significant digits, compact in JSON; what is not a number is None."""
    return [_rounded(value) for value in values]


def _rounded(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() else short


def n_of_m(shown: int, total: int, noun: str) -> str:
    """`64 of 1,024 ranks`, or "" where all are shown."""
    return "" if shown >= total else f"{count(shown)} of {count(total)} {noun}"
