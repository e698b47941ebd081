"""Who holds which sample in which epoch, and who sends it to whom: computed from the seed alone.

Rank r holds n_r samples in slots 0 .. n_r - 1, where n_r is N / M rounded down or up: the first
N mod M ranks hold one more. In an epoch every rank gives k_r = floor(Q n_r) of its samples away.
Item i of the exchange is the i-th of each rank, which a permutation of its slots chooses; another
one of the ranks, for every item, says to whom it goes. So each rank sends one and receives one,
sizes never change, and who sends to whom needs no message. Where the permutation leaves a rank in
its place, its item stays.

Permutations of 0 .. n - 1 are computed place by place, forwards and backwards: nobody draws or
keeps all of one, a rank computes its own items, and follows what it holds back to its home. A
Feistel network, as ciphers are made of, permutes the numbers of an even count of bits; what it
takes beyond n - 1 goes through it again until it is below (cycle walking), which permutes those. A
seed chooses a family of permutations; `which` is the number of one of them, and like n it may
differ from place to place.

Sources: Nguyen et al., Why Globally Re-shuffle? Revisiting Data Shuffling in Large Scale Deep
Learning, IPDPS 2022; Black and Rogaway, Ciphers with Arbitrary Finite Domains, CT-RSA 2002.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError, require_choice

Int64Array = NDArray[np.int64]
IdTable = NDArray[np.int32] | NDArray[np.int64]

NOBODY = -1
"""In tables: no sample in this slot, no such item of this rank."""
PARTITIONS = ("shuffled", "blocks")
_HOMES, _SLOTS, _RANKS = 0, 1, 3  # families of permutations; 2 is that of LocalSampler
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
    _require_partition(samples, ranks, partition)
    # Half the memory where 32 bits hold the ids.
    order: NDArray[Any] = np.empty(samples, np.int32 if samples <= _MOST_32_BIT else np.int64)
    for first in range(0, samples, _AT_ONCE):
        part = order[first : first + _AT_ONCE]
        part[:] = _permute_ids(np.arange(first, first + len(part)), samples, partition, seed)
    # A column for each rank; the last slot is empty on ranks that hold one sample less.
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
    return deal_at(Places.of_rank(rank, samples, ranks), samples, ranks, partition, seed)


@dataclass(frozen=True)
class Places:
    """Slots of ranks.

    Attributes:
        ranks: Of each.
        slots: Of each, in its rank.
    """

    ranks: Int64Array
    slots: Int64Array

    @classmethod
    def of_rank(cls, rank: int, samples: int, ranks: int) -> Places:
        """All slots of one rank."""
        slots = np.arange(int(_count_slots(np.array(rank), samples, ranks)))
        return cls(np.full(len(slots), rank), slots)


def deal_at(
    places: Places, samples: int, ranks: int, partition: str = "shuffled", seed: int = 0
) -> Int64Array:
    """Ids whose home is one of some places: entries of `deal`.

    Raises:
        UsageError: As `deal`.
    """
    _require_partition(samples, ranks, partition)
    # Blocks as `np.array_split` cuts them: the first N mod M ranks hold one more.
    first = places.ranks * (samples // ranks) + np.minimum(places.ranks, samples % ranks)
    return _permute_ids(first + places.slots, samples, partition, seed)


def _require_partition(samples: int, ranks: int, partition: str) -> None:
    if not 1 <= ranks <= samples:
        raise UsageError(f"expected a sample for each of {ranks} ranks, found {samples}: make more")
    require_choice("a partition", partition, PARTITIONS)


def _permute_ids(numbers: Int64Array, samples: int, partition: str, seed: int) -> Int64Array:
    """Ids in some places, those of rank 0 first."""
    return numbers if partition == "blocks" else permute_at(numbers, samples, (seed, _HOMES))


def count_slots(samples: int, ranks: int) -> Int64Array:
    """n_r: samples of each rank, in every epoch."""
    return _count_slots(np.arange(ranks, dtype=np.int64), samples, ranks)


def _count_slots(rank: Int64Array, samples: int, ranks: int) -> Int64Array:
    return samples // ranks + (rank < samples % ranks)


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


@dataclass(frozen=True)
class Draw:
    """The permutations of all exchanges, item by item.

    Attributes:
        samples: N.
        ranks: M.
        fraction: Q, 0 to 1.
        seed: Of the permutations.

    Raises:
        UsageError: Q is not in 0 .. 1.
    """

    samples: int
    ranks: int
    fraction: float
    seed: int = 0

    def __post_init__(self) -> None:
        self.items(np.zeros(1, np.int64))  # raises where the fraction is none

    def sizes(self, ranks: Int64Array) -> Int64Array:
        """n_r of some ranks."""
        return _count_slots(ranks, self.samples, self.ranks)

    def items(self, ranks: Int64Array) -> Int64Array:
        """k_r of some ranks."""
        return count_items(self.sizes(ranks), self.fraction)

    def slots(self, epoch: int, ranks: Int64Array, items: Int64Array) -> Int64Array:
        """Slots that ranks give as some items, and fill again."""
        return permute_at(items, self.sizes(ranks), (self.seed, _SLOTS, epoch), ranks)

    def targets(self, epoch: int, ranks: Int64Array, items: Int64Array) -> Int64Array:
        """To whom ranks give some items; themselves: those stay."""
        # Item i of all ranks is one permutation of ranks: each gives one sample and gets one
        # (slides, "PLS: Design and Implementation").
        return permute_at(ranks, self._having(items), (self.seed, _RANKS, epoch), items)

    def sources(self, epoch: int, ranks: Int64Array, items: Int64Array) -> Int64Array:
        """From whom ranks get some items."""
        return find_places(ranks, self._having(items), (self.seed, _RANKS, epoch), items)

    def before(self, epoch: int, places: Places) -> Places:
        """Where, at the beginning of an epoch, that lay which some places hold behind it."""
        ranks, slots = places.ranks.copy(), places.slots.copy()
        # Slots that the permutation puts below k_r were given away, and filled by a source.
        items = find_places(slots, self.sizes(ranks), (self.seed, _SLOTS, epoch), ranks)
        got = np.flatnonzero(items < self.items(ranks))
        ranks[got] = self.sources(epoch, ranks[got], items[got])
        slots[got] = self.slots(epoch, ranks[got], items[got])
        return Places(ranks, slots)

    def home(self, rank: int, epoch: int) -> Places:
        """Where that was dealt which a rank holds at the beginning of an epoch, by slot."""
        places = Places.of_rank(rank, self.samples, self.ranks)
        for earlier in reversed(range(epoch)):
            places = self.before(earlier, places)
        return places

    def _having(self, items: Int64Array) -> Int64Array:
        """How many ranks have each of some items: all, or the first N mod M, which hold more."""
        # Ranks differ by one item at most, and those that have more come first.
        last = self.items(np.array([self.ranks - 1]))
        return np.where(items < last, self.ranks, self.samples % self.ranks)


def plan_rank_exchange(draw: Draw, rank: int, epoch: int) -> RankExchange:
    """A column of `Ownership.exchange`."""
    most, own = draw.items(np.array([0, rank])).tolist()
    items, ranks = np.arange(own), np.full(own, rank)
    parts = (each(epoch, ranks, items) for each in (draw.slots, draw.targets, draw.sources))
    return RankExchange(most, *(part.astype(np.int32) for part in parts))


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
        # Every item reads the table as it was, so parts can go in any order.
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
        UsageError: Q is not in 0 .. 1, or the homes are others.
    """

    def __init__(self, homes: IdTable, fraction: float, seed: int = 0) -> None:
        self.homes, self.fraction, self.seed = homes, fraction, seed
        self.sizes: Int64Array = (homes != NOBODY).sum(axis=0)
        self._draw = Draw(int(self.sizes.sum()), homes.shape[1], fraction, seed)
        if not np.array_equal(self.sizes, count_slots(self._draw.samples, self.ranks)):
            raise UsageError(
                f"expected homes of {self._draw.samples} samples as deal makes them, found other "
                "sizes: make them with it"
            )
        self.items = count_items(self.sizes, fraction)
        self._epoch, self._held = 0, homes

    @property
    def ranks(self) -> int:
        """M."""
        return self.homes.shape[1]

    def held(self, epoch: int) -> IdTable:
        """(slots, ranks) ids at the beginning of an epoch. Epochs in order cost one step each."""
        # Back from the beginning, as exchanges go forward only.
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
        tables = np.full((3, int(self.items.max()), self.ranks), NOBODY, np.int32)
        rows, draw = max(_AT_ONCE // self.ranks, 1), self._draw
        # In parts, so that the arrays on the way stay small beside the tables.
        for first in range(0, tables.shape[1], rows):
            numbers = np.arange(first, min(first + rows, tables.shape[1]))
            of_rows, rank = np.nonzero(numbers[:, None] < self.items)
            item = numbers[of_rows]
            for table, drawn in zip(tables, (draw.slots, draw.targets, draw.sources), strict=True):
                table[item, rank] = drawn(epoch, rank, item)
        return Exchange(*tables)


def count_items(sizes: Int64Array, fraction: float) -> Int64Array:
    """How many samples ranks of these sizes give away in an epoch."""
    if not 0 <= fraction <= 1:
        raise UsageError(f"expected a fraction in 0..1, found {fraction}: correct it")
    distinct, which = np.unique(sizes, return_inverse=True)  # sizes differ by one at most
    # floor(Q n), undisturbed by the binary rounding of Q (0.29 * 100 is 29).
    items = [math.floor(round(fraction * size, 9)) for size in distinct.tolist()]
    return np.array(items, np.int64)[which]


def home_fraction(ranks: int, fraction: float, epochs: int) -> float:
    """Expected share of samples that are on their home rank after some epochs.

    1/M + (1 - 1/M)(1 - Q)^e: a sample has stayed in each epoch with probability 1 - Q, and is on
    any rank alike once it was given away.
    """
    return 1 / ranks + (1 - 1 / ranks) * (1 - fraction) ** epochs


UInt64Array = NDArray[np.uint64]

_ROUNDS = 8  # Luby and Rackoff need four; more cost little


def permute_at(
    places: Int64Array, size: int | Int64Array, seed: tuple[int, ...], which: int | Int64Array = 0
) -> Int64Array:
    """What permutation `which` of 0 .. size - 1, chosen by the seed, has at some places."""
    return _Network.of(size, seed, which).walk(places, backwards=False)


def find_places(
    numbers: Int64Array, size: int | Int64Array, seed: tuple[int, ...], which: int | Int64Array = 0
) -> Int64Array:
    """Where that permutation has some numbers: the inverse of `permute`."""
    return _Network.of(size, seed, which).walk(numbers, backwards=True)


@dataclass(frozen=True)
class _Network:
    """Permutations of numbers of 2 * `half` bits, for one or for each of several numbers.

    Attributes:
        size: (1 or n) numbers below it are walked to.
        half: (1 or n) half the bits of `size` - 1.
        keys: (rounds, 1 or n).
    """

    size: UInt64Array
    half: UInt64Array
    keys: UInt64Array

    @classmethod
    def of(cls, size: int | Int64Array, seed: tuple[int, ...], which: int | Int64Array) -> _Network:
        """That of `permute`."""
        sizes, tweaks = np.atleast_1d(size), np.atleast_1d(which).astype(np.uint64)
        # A Feistel network of 2 * half bits: a permutation of the next power of four (Luby and
        # Rackoff).
        bits = np.frexp((sizes - 1).astype(np.float64))[1]  # exact below 2^53
        rounds = np.random.default_rng(seed).integers(1 << 63, size=(_ROUNDS, 1), dtype=np.uint64)
        half = np.maximum(1, -(-bits // 2)).astype(np.uint64)
        return cls(sizes.astype(np.uint64), half, _mix_bits(_mix_bits(tweaks) + rounds))

    def walk(self, values: Int64Array, *, backwards: bool) -> Int64Array:
        """Each value through the network until it is below its size."""
        reached = self._apply(values.astype(np.uint64), backwards)
        # Cycle walking: what lands outside 0 .. size - 1 goes through again (Black and Rogaway
        # 2002, "Ciphers with arbitrary finite domains").
        outside = np.flatnonzero(reached >= self.size)
        while len(outside):
            # Of some of the numbers.
            parts = (self.size, self.half, self.keys)
            again = _Network(*(p if p.shape[-1] == 1 else p[..., outside] for p in parts))
            reached[outside] = once_more = again._apply(reached[outside], backwards)
            outside = outside[once_more >= again.size]
        return reached.astype(np.int64)

    def _apply(self, values: UInt64Array, backwards: bool) -> UInt64Array:
        mask = (np.uint64(1) << self.half) - np.uint64(1)
        left, right = values >> self.half, values & mask
        keys: Iterable[UInt64Array] = self.keys
        if backwards:
            left, right, keys = right, left, self.keys[::-1]
        # Backwards, the same rounds in reverse order undo each other.
        for key in keys:
            left, right = right, left ^ (_mix_bits(right + key) & mask)
        if backwards:
            left, right = right, left
        return (left << self.half) | right


def _mix_bits(values: UInt64Array) -> UInt64Array:
    """The finalizer of splitmix64: every bit of a value decides about half of the result's."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
