"""Sharing the misses of a step out among ranks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError

Int64Array = NDArray[np.int64]

BALANCES = ("load", "batch", "time")


def costs(balance: str, load_s: float, compute_s: float) -> tuple[float, float]:
    """(seconds of a load, seconds of training on a sample) that a balance weighs by.

    "load" levels what ranks read, "batch" the sizes of their batches, "time" both by their
    measured seconds per sample.

    Raises:
        UsageError: No balance of that name.
    """
    if balance not in BALANCES:
        raise UsageError(f"expected a balance among {', '.join(BALANCES)}, found {balance}")
    return {"load": (1.0, 0.0), "batch": (0.0, 1.0), "time": (load_s, compute_s)}[balance]


def shares(held: Int64Array, misses: int, load_s: float, compute_s: float) -> Int64Array:
    """How many of `misses` each rank reads, so that the largest cost over ranks is smallest.

    Rank r holds held[r] samples of the step already. Its cost is load_s * n + compute_s *
    (held[r] + n) where n is its share. Filled like water: every next miss goes to the rank
    whose cost is then lowest, to the one that holds least where costs are equal, to the
    lowest rank where that is equal as well. Whole misses below the level go at once, at most
    one per rank is left.
    """
    slope = load_s + compute_s
    base = compute_s * held.astype(np.float64)
    count = np.zeros(len(held), np.int64)
    if misses == 0:
        return count
    if slope > 0:
        count = _below(base, slope, _level(base, slope, misses))
    left = misses - int(count.sum())
    while left > 0:
        order = np.lexsort((np.arange(len(held)), held + count, base + slope * (count + 1)))
        count[order[:left]] += 1
        left = misses - int(count.sum())
    return count


def within_nodes(
    held: Int64Array, loads: Int64Array, ranks: int, turn: int
) -> tuple[Int64Array, Int64Array]:
    """(held samples, loads) of each rank, from those of each node of `ranks` ranks.

    A node's batch is dealt as DistributedSampler deals a global one: sizes differ by one at most,
    the first ranks have the larger. Loads differ by one at most, too; which ranks have one more
    goes with `turn`, where the batch divides evenly.
    """
    if ranks == 1:
        return held, loads
    local = np.arange(ranks)
    total, rest = np.divmod((held + loads)[:, None], ranks)
    size = total + (local < rest)
    first = np.where(rest == 0, turn % ranks, 0)
    read, more = np.divmod(loads[:, None], ranks)
    of_rank = read + ((local - first) % ranks < more)
    return (size - of_rank).reshape(-1), of_rank.reshape(-1)


def _below(base: NDArray[np.float64], slope: float, level: float) -> Int64Array:
    """Misses that each rank can take without exceeding the level."""
    return np.maximum(np.floor((level - base) / slope), 0).astype(np.int64)


def _level(base: NDArray[np.float64], slope: float, misses: int) -> float:
    """How high `misses` stand where they are a liquid, a unit of it as high as `slope`.

    No whole misses below it are too many: all that cost no more are taken one by one, too.
    """
    lowest = np.sort(base)
    levels = (np.cumsum(lowest) + slope * misses) / np.arange(1, len(base) + 1)
    # The liquid stands over the k lowest, where it does not reach the next.
    reached = np.append(levels[:-1] <= lowest[1:], True)
    return float(levels[np.argmax(reached)])
