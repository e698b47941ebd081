"""Where a rank's samples wait, in memory that is taken once and never grows: buffer and staging.

`Buffer` holds the samples of one rank, `NodeBuffer` those that ranks of a node share. A sample of
the latter has one place for the whole run. Whoever first needs a sample whose place is not filled
reads it there and marks it: no rank waits for another, and a rank that ends takes nothing along.
Two ranks that read one at the same time write the same bytes.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.pread import ReadTotals
from ..data.samples import SampleSet
from ..errors import UsageError
from ..loader.loader import Counts
from .node import NodePlan, places
from .plan import Plan, PlanSettings

Memory = dict[str, NDArray[Any]]
"""Of each field, an array of (samples, *shape)."""
ALIGNED = 4096  # a page: fields begin on one of their own


def require_memory(nbytes: int) -> None:
    """Raises UsageError where this host can never hold as much: it would end in mid-epoch."""
    held = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if nbytes > held:
        raise UsageError(
            f"expected buffers within the memory of this host, {held} bytes, found {nbytes} for "
            "a rank or node: lower --memory, --buffer, --buffer-fraction or --staging-bytes"
        )


def new_memory(samples: SampleSet, capacity: int) -> Memory:
    """Memory for so many samples.

    Raises:
        UsageError: This host has less.
    """
    require_memory(capacity * samples.sample_nbytes)
    return {each.name: np.empty((capacity, *each.shape), each.dtype) for each in samples.fields}


class Buffer:
    """At most `capacity` samples by id, each field's in one array of shape (capacity, *shape).

    The system hands out the pages of that memory when they are first written, so a buffer that
    stays empty costs nothing.

    Args:
        samples: What they are.
        capacity: Samples that fit.
        memory: For them; None: new.

    Attributes:
        capacity: Samples that fit.
        peak: Most samples held at once so far.
    """

    def __init__(self, samples: SampleSet, capacity: int, memory: Memory | None = None) -> None:
        self.capacity, self.peak = capacity, 0
        self._sample_nbytes = samples.sample_nbytes
        self._rows = memory or new_memory(samples, capacity)
        self._slots: dict[int, int] = {}
        self._free = list(range(capacity - 1, -1, -1))

    def __len__(self) -> int:
        """Samples held."""
        return len(self._slots)

    def __contains__(self, sample: int) -> bool:
        """True for an id that has a place here, filled or about to be."""
        return sample in self._slots

    @property
    def room(self) -> int:
        """Samples that still fit."""
        return len(self._free)

    @property
    def nbytes(self) -> int:
        """Bytes of the samples that fit."""
        return self.capacity * self._sample_nbytes

    def add(self, sample: int) -> None:
        """Gives a sample a place; `row` is where its arrays go. Room is the caller's business."""
        assert self._free, f"expected at most {self.capacity} samples, found one more"
        assert sample not in self._slots
        self._slots[sample] = self._free.pop()
        self.peak = max(self.peak, len(self._slots))
        self.check()

    def settle(self, samples: Iterable[int]) -> None:
        """They were read whole: nobody else has to know."""

    def discard(self, sample: int) -> None:
        """Takes the sample's place away, if it has one."""
        if sample in self._slots:
            self._free.append(self._slots.pop(sample))

    def clear(self) -> None:
        """Takes all places away."""
        for sample in list(self._slots):
            self.discard(sample)

    def row(self, name: str, sample: int) -> NDArray[Any]:
        """The array of one field of a sample, a view: written when read, valid till discarded."""
        view: NDArray[Any] = self._rows[name][self._slots[sample], ...]
        return view

    def absent(self, samples: Iterable[int]) -> list[int]:
        """Those that have no place here."""
        held = self._slots
        return [sample for sample in samples if sample not in held]

    def slots(self, samples: list[int]) -> list[int]:
        """The row of each; -1: it has no place here."""
        return list(map(self._slots.get, samples, repeat(-1)))

    def check(self) -> None:
        """Asserts the bound: called after every change and at every step."""
        assert len(self._slots) <= self.capacity
        assert len(self._slots) + len(self._free) == self.capacity


@dataclass(frozen=True)
class NodeSize:
    """What a node's memory holds.

    Attributes:
        held: Places of the buffer.
        staged: Places of each rank's staging.
        ranks: That share it.
    """

    held: int
    staged: int
    ranks: int

    @classmethod
    def of(cls, settings: PlanSettings, staged: int) -> NodeSize:
        """The size for a plan: the same on every node."""
        return cls(min(settings.capacity(0), settings.samples), staged, settings.node_ranks)

    @property
    def places(self) -> int:
        """Of buffer and all stagings."""
        return self.held + self.ranks * self.staged

    def nbytes(self, samples: SampleSet) -> int:
        """Bytes of samples and marks."""
        fields = sum(_align(self.places * each.nbytes) for each in samples.fields)
        return _align(max(self.held, 1)) + fields


class NodeMemory:
    """Memory of a node: marks of places that are filled, then an array for each field.

    Args:
        samples: What is kept.
        size: Of it.
        memory: At least `size.nbytes(samples)` zeroed bytes; None: of this process alone.
        shared: The plan that the node's ranks share; None: each has its own.

    Raises:
        UsageError: This host has less.
    """

    def __init__(
        self,
        samples: SampleSet,
        size: NodeSize,
        memory: mmap.mmap | None = None,
        shared: NodePlan | None = None,
    ) -> None:
        nbytes = size.nbytes(samples)
        require_memory(nbytes)
        # Marks first, then field by field, each aligned.
        self.size, self.shared, content = size, shared, memory or mmap.mmap(-1, nbytes)
        self.filled = np.frombuffer(content, np.uint8, size.held)
        self.rows: Memory = {}
        at = _align(max(size.held, 1))
        for each in samples.fields:
            shape = (size.places, *each.shape)
            flat = np.frombuffer(content, each.dtype, math.prod(shape), at)
            self.rows[each.name] = flat.reshape(shape)
            at += _align(size.places * each.nbytes)


class NodeBuffer:
    """The samples that a plan has a node hold, each with a place of its own.

    Args:
        memory: Of the node.
        place: Of every sample its place; -1: the node does not hold it.

    Attributes:
        capacity: Samples that fit.
    """

    def __init__(self, memory: NodeMemory, place: NDArray[np.int32]) -> None:
        self.capacity, self._memory = memory.size.held, memory
        self._place, self._filled = place.data, memory.filled.data
        self._under_way: set[int] = set()

    @property
    def peak(self) -> int:
        """Samples held: none ever leaves."""
        return int(np.count_nonzero(self._memory.filled))

    def __contains__(self, sample: int) -> bool:
        """True for a sample that some rank has read, or this one is about to."""
        # Filled by any rank, or being filled by this one: no other rank's reads are waited for.
        place = self._place[sample]
        return place >= 0 and (self._filled[place] != 0 or sample in self._under_way)

    def add(self, sample: int) -> None:
        """This rank reads the sample."""
        self._under_way.add(sample)

    def settle(self, samples: Iterable[int]) -> None:
        """This rank has read them whole: from now on every rank of the node uses them."""
        # Marked only now: all bytes are there, and no rank reads them any more.
        for sample in samples:
            self._filled[self._place[sample]] = 1
            self._under_way.discard(sample)

    def discard(self, sample: int) -> None:
        """This rank has not read the sample whole."""
        self._under_way.discard(sample)

    def row(self, name: str, sample: int) -> NDArray[Any]:
        """The array of one field of a sample, a view."""
        view: NDArray[Any] = self._memory.rows[name][self._place[sample], ...]
        return view

    def absent(self, samples: Iterable[int]) -> list[int]:
        """Those that no rank has read, nor this one is about to."""
        return [sample for sample in samples if sample not in self]

    def slots(self, samples: list[int]) -> list[int]:
        """The row of each; -1: it is not held."""
        return [self._place[sample] if sample in self else -1 for sample in samples]

    def check(self) -> None:
        """Asserts the bound: called at every step."""
        assert len(self._memory.filled) == self.capacity


@dataclass(frozen=True)
class Places:
    """Where the samples of a rank wait.

    Attributes:
        rows: Memory of all places: one array per field, so that one call gathers a batch.
        buffer: What the plan pins, of this rank or its node.
        staging: What was read ahead for one use.
        staging_slot: The row of `rows` at which staging begins.
    """

    rows: Memory
    buffer: Buffer | NodeBuffer
    staging: Buffer
    staging_slot: int


def open_places(
    samples: SampleSet, plan: Plan, rank: int, staged: int, node: NodeMemory | None
) -> Places:
    """The places of a rank, in the memory of its node where the plan has ranks share one.

    Raises:
        UsageError: They do, and there is no such memory.
    """
    # Of its own: the buffer first, staging behind it, in one array for each field.
    size = NodeSize.of(plan.settings, staged)
    if plan.settings.node_ranks == 1 and node is None:
        held = min(plan.settings.capacity(rank), len(samples))
        rows, first = new_memory(samples, held + staged), held
        buffer: Buffer | NodeBuffer
        buffer = Buffer(samples, held, {name: each[:held] for name, each in rows.items()})
    # Shared, and not there: the plan and the loader were made for different ranks.
    elif node is None or node.size != size:
        raise UsageError(
            f"expected memory that {size.ranks} ranks share, found none of that size: "
            "plan with node_ranks 1, or open the loader where the ranks are connected"
        )
    else:
        # Shared: all ranks see the node's buffer, and each has its part of the staging behind it.
        rows, first = node.rows, size.held + rank % size.ranks * staged
        place = node.shared.place if node.shared else places(plan, plan.settings.node(rank))
        buffer = NodeBuffer(node, place)
    staging = {name: each[first : first + staged] for name, each in rows.items()}
    return Places(rows, buffer, Buffer(samples, staged, staging), first)


def _align(nbytes: int) -> int:
    return -(-nbytes // ALIGNED) * ALIGNED


@dataclass(frozen=True)
class StageCounts:
    """Counters of a stage, shared with the process that shows them.

    Attributes:
        of_plan: Loads, hits, bytes and requests.
        beside_plan: Its loads are the reloads: reads of samples that the plan holds already.
    """

    of_plan: Counts
    beside_plan: Counts

    def planned(self, *, loads: int, reloads: int) -> None:
        """Counts samples whose reads were submitted."""
        self.of_plan.add(loads=loads)
        if reloads:
            self.beside_plan.add(loads=reloads)

    def hits(self, hits: int) -> None:
        """Counts uses that needed no read."""
        self.of_plan.add(hits=hits)

    def read(self, done: ReadTotals) -> None:
        """Counts a read that is done."""
        if done.requests:
            self.of_plan.add(nbytes=done.nbytes, requests=done.requests)
