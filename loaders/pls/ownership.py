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
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .permutation import permuted

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
    order = _dealt(range(samples), samples, ranks, partition, seed)
    homes: NDArray[Any] = np.full((-(-samples // ranks), ranks), NOBODY, order.dtype)
    for rank, block in enumerate(np.array_split(order, ranks)):
        homes[: len(block), rank] = block
    return homes


def deal_to(
    rank: int, samples: int, ranks: int, *, partition: str = "shuffled", seed: int = 0
) -> Int64Array:
    """Ids whose home is one rank, by slot: its column of `deal`.

    Raises:
        UsageError: As `deal`.
    """
    first, count = rank * (samples // ranks) + min(rank, samples % ranks), samples // ranks
    mine = range(first, first + count + (rank < samples % ranks))
    return _dealt(mine, samples, ranks, partition, seed).astype(np.int64)


def _dealt(places: range, samples: int, ranks: int, partition: str, seed: int) -> IdTable:
    """Some of all ids, those of rank 0 first."""
    if not 1 <= ranks <= samples:
        raise UsageError(f"expected a sample for each of {ranks} ranks, found {samples}: make more")
    if partition not in PARTITIONS:
        known = ", ".join(PARTITIONS)
        raise UsageError(f"expected a partition among {known}, found {partition}: choose one")
    # Half the memory where 32 bits hold the ids.
    order: NDArray[Any] = np.arange(
        places.start, places.stop, dtype=np.int32 if samples <= _MOST_32_BIT else np.int64
    )
    for at in range(0, len(order) if partition == "shuffled" else 0, _AT_ONCE):
        part = order[at : at + _AT_ONCE]
        part[:] = permuted(part.astype(np.int64), samples, (seed, _HOMES))
    return order


def sizes_of(samples: int, ranks: int) -> Int64Array:
    """n_r: samples of each rank, in every epoch."""
    return samples // ranks + (np.arange(ranks, dtype=np.int64) < samples % ranks)


@dataclass(frozen=True)
class RankExchange:
    """One epoch's exchange as one rank sees it: an entry per item that it has.

    Attributes:
        items: Of the rank that has most.
        slots: As in `Exchange`, like the following.
        targets: To whom.
        sources: From whom.
    """

    items: int
    slots: NDArray[np.int32]
    targets: NDArray[np.int32]
    sources: NDArray[np.int32]


def rank_exchange(
    rank: int, samples: int, ranks: int, fraction: float, *, seed: int = 0, epoch: int = 0
) -> RankExchange:
    """A column of `Ownership.exchange`: all is drawn, what this rank does not need is dropped."""
    sizes = sizes_of(samples, ranks)
    items = items_of(sizes, fraction)
    random = np.random.default_rng((seed, _EXCHANGE, epoch))
    targets, sources = np.empty((2, int(items[rank])), np.int32)
    for first, block in _permutations(random, items):
        having = np.flatnonzero(items > first + len(block) - 1)
        if rank in having:
            of_block = slice(first, first + len(block))
            targets[of_block] = block[:, np.searchsorted(having, rank)]
            sources[of_block] = having[np.argmax(block == rank, axis=1)]
    slots = np.empty(0, np.int32)
    for size in sizes[: rank + 1].tolist():
        slots = _shuffled_slots(random, size)
    return RankExchange(int(items.max()), slots[: int(items[rank])].copy(), targets, sources)


def _permutations(
    random: np.random.Generator, items: Int64Array
) -> Iterator[tuple[int, NDArray[np.int32]]]:
    """(first item, (items, ranks) permutations of the ranks that have them), item by item."""
    ranks, common = np.arange(len(items), dtype=np.int32), int(items.min())
    rows = max(_AT_ONCE // len(items), 1)
    for first in range(0, common, rows):
        block = np.tile(ranks, (min(rows, common - first), 1))
        yield first, random.permuted(block, axis=1, out=block)
    for item in range(common, int(items.max())):  # at most one: sizes differ by one
        yield item, random.permutation(ranks[items > item])[None]


def _shuffled_slots(random: np.random.Generator, size: int) -> NDArray[np.int32]:
    order = np.arange(size, dtype=np.int32)
    random.shuffle(order)
    return order


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
        self.homes, self.fraction, self.seed = homes, fraction, seed
        self.sizes: Int64Array = (homes != NOBODY).sum(axis=0)
        self.items = items_of(self.sizes, fraction)
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
            slots[:items, rank] = _shuffled_slots(random, int(size))[:items]
        return slots

    def _targets(self, random: np.random.Generator) -> NDArray[np.int32]:
        """A permutation of the ranks for each item that all have; of those that have it else."""
        targets = np.full((int(self.items.max()), self.ranks), NOBODY, np.int32)
        for first, block in _permutations(random, self.items):
            having = self.items > first + len(block) - 1
            targets[first : first + len(block), having] = block
        return targets


def items_of(sizes: Int64Array, fraction: float) -> Int64Array:
    """How many samples each rank gives away in an epoch."""
    if not 0 <= fraction <= 1:
        raise UsageError(f"expected a fraction in 0..1, found {fraction}: correct it")
    known = {size: _items(size, fraction) for size in np.unique(sizes).tolist()}
    return np.array([known[size] for size in sizes.tolist()], np.int64)


def _items(size: int, fraction: float) -> int:
    """floor(Q n), undisturbed by the binary rounding of Q (0.29 * 100 is 29)."""
    return math.floor(round(fraction * size, 9))


def home_fraction(ranks: int, fraction: float, epochs: int) -> float:
    """Expected share of samples that are on their home rank after some epochs.

    1/M + (1 - 1/M)(1 - Q)^e: a sample has stayed in each epoch with probability 1 - Q, and is on
    any rank alike once it was given away.
    """
    return 1 / ranks + (1 - 1 / ranks) * (1 - fraction) ** epochs
