"""Who holds which sample in which epoch: computed from the seed alone, by anyone, offline.

Rank r holds n_r samples in slots 0 .. n_r - 1, where n_r is N / M rounded down or up: the first
N mod M ranks hold one more. In an epoch every rank gives k_r = floor(Q n_r) of its samples away.
Item i of the exchange is the i-th of each rank; a permutation of the ranks, drawn again for every
item, says to whom it goes. So each rank sends one and receives one, sizes never change, and who
sends to whom needs no message. Where the permutation leaves a rank in its place, its item stays.

Source: Nguyen et al., Why Globally Re-shuffle? Revisiting Data Shuffling in Large Scale Deep
Learning, IPDPS 2022.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError

Int64Array = NDArray[np.int64]
IdTable = NDArray[np.int32] | NDArray[np.int64]

NOBODY = -1
"""In tables: no sample in this slot, no such item of this rank."""
PARTITIONS = ("shuffled", "blocks")
_HOMES, _EXCHANGE = 0, 1  # streams of random numbers
_MOST_32_BIT = np.iinfo(np.int32).max
_AT_ONCE = 1 << 20
"""Items that are moved in one go: their arrays are small beside the table."""


def deal(samples: int, ranks: int, *, partition: str = "shuffled", seed: int = 0) -> IdTable:
    """Home of every sample: (slots, ranks) ids, `NOBODY` where a rank has no such slot.

    Args:
        samples: N, at least M.
        ranks: M.
        partition: `blocks` deals ids in order, each rank a contiguous block; `shuffled` a random
            permutation of them.
        seed: Of that permutation.

    Raises:
        UsageError: Fewer samples than ranks, or no such partition.
    """
    if not 1 <= ranks <= samples:
        raise UsageError(f"expected a sample for each of {ranks} ranks, found {samples}: make more")
    if partition not in PARTITIONS:
        known = ", ".join(PARTITIONS)
        raise UsageError(f"expected a partition among {known}, found {partition}: choose one")
    # Half the memory where 32 bits hold the ids.
    order = np.arange(samples, dtype=np.int32 if samples <= _MOST_32_BIT else np.int64)
    if partition == "shuffled":
        np.random.default_rng((seed, _HOMES)).shuffle(order)
    homes: NDArray[Any] = np.full((-(-samples // ranks), ranks), NOBODY, order.dtype)
    for rank, block in enumerate(np.array_split(order, ranks)):
        homes[: len(block), rank] = block
    return homes


@dataclass(frozen=True)
class Exchange:
    """One epoch's exchange; all arrays are (items, ranks), `NOBODY` past a rank's last item.

    Attributes:
        slots: Slot of the sample that a rank gives as its i-th item.
        targets: Rank that gets it; the rank itself where it stays.
        sources: Rank from which a rank gets its i-th item, into the slot that it gave.
    """

    slots: NDArray[np.int32]
    targets: NDArray[np.int32]
    sources: NDArray[np.int32]

    def __len__(self) -> int:
        """Items of the rank that has most."""
        return len(self.slots)

    def moved(self, held: IdTable) -> IdTable:
        """What every rank holds after the exchange; `held` is (slots, ranks) ids."""
        after, rows = held.copy(), max(_AT_ONCE // held.shape[1], 1)
        for first in range(0, len(self), rows):
            slots, sources = self.slots[first : first + rows], self.sources[first : first + rows]
            item, rank = np.nonzero(slots != NOBODY)
            source = sources[item, rank]
            after[slots[item, rank], rank] = held[slots[item, source], source]
        return after


class Ownership:
    """The samples that every rank holds, epoch by epoch.

    Args:
        homes: Of `deal`.
        fraction: Q, 0 to 1: share of its samples that a rank gives away in an epoch.
        seed: Of the exchanges.

    Raises:
        UsageError: Q is not in 0 .. 1.
    """

    def __init__(self, homes: IdTable, fraction: float, seed: int = 0) -> None:
        if not 0 <= fraction <= 1:
            raise UsageError(f"expected a fraction in 0..1, found {fraction}: correct it")
        self.homes, self.fraction, self.seed = homes, fraction, seed
        self.sizes: Int64Array = (homes != NOBODY).sum(axis=0)
        self.items = np.array([_items(n, fraction) for n in self.sizes.tolist()], np.int64)
        self._epoch, self._held = 0, homes

    @property
    def ranks(self) -> int:
        """M."""
        return self.homes.shape[1]

    def held(self, epoch: int) -> IdTable:
        """(slots, ranks) ids at the beginning of an epoch. Epochs in order cost one step each."""
        if epoch < self._epoch:
            self._epoch, self._held = 0, self.homes
        while self._epoch < epoch:
            self._held = self.exchange(self._epoch).moved(self._held)
            self._epoch += 1
        return self._held

    def held_by(self, rank: int, epoch: int) -> Int64Array:
        """Ids of one rank in slot order at the beginning of an epoch."""
        return self.held(epoch)[: int(self.sizes[rank]), rank].astype(np.int64)

    def exchange(self, epoch: int) -> Exchange:
        """What is exchanged during an epoch."""
        random = np.random.default_rng((self.seed, _EXCHANGE, epoch))
        targets = self._targets(random)
        sources = np.full_like(targets, NOBODY)
        rows = max(_AT_ONCE // self.ranks, 1)
        for first in range(0, len(targets), rows):
            of_rows = targets[first : first + rows]
            item, rank = np.nonzero(of_rows != NOBODY)
            sources[first : first + rows][item, of_rows[item, rank]] = rank
        return Exchange(self._slots(random), targets, sources)

    def _slots(self, random: np.random.Generator) -> NDArray[np.int32]:
        """A random choice without repetition of each rank's slots."""
        slots = np.full((int(self.items.max()), self.ranks), NOBODY, np.int32)
        for rank, (size, items) in enumerate(zip(self.sizes, self.items, strict=True)):
            order = np.arange(size, dtype=np.int32)
            random.shuffle(order)
            slots[:items, rank] = order[:items]
        return slots

    def _targets(self, random: np.random.Generator) -> NDArray[np.int32]:
        """A permutation of the ranks for each item that all have; of those that have it else."""
        ranks, common = np.arange(self.ranks, dtype=np.int32), int(self.items.min())
        targets = np.full((int(self.items.max()), self.ranks), NOBODY, np.int32)
        targets[:common] = ranks
        random.permuted(targets[:common], axis=1, out=targets[:common])
        for item in range(common, len(targets)):  # at most one: sizes differ by one
            having = ranks[self.items > item]
            targets[item, having] = random.permutation(having)
        return targets


def _items(size: int, fraction: float) -> int:
    """floor(Q n), undisturbed by the binary rounding of Q (0.29 * 100 is 29)."""
    return math.floor(round(fraction * size, 9))


def home_fraction(ranks: int, fraction: float, epochs: int) -> float:
    """Expected share of samples that are on their home rank after some epochs.

    1/M + (1 - 1/M)(1 - Q)^e: a sample has stayed in each epoch with probability 1 - Q, and is on
    any rank alike once it was given away.
    """
    return 1 / ranks + (1 - 1 / ranks) * (1 - fraction) ** epochs
