"""The buffer that ranks of a node share, and where a rank's samples wait: buffer and staging.

A sample of the buffer has one place for the whole run. Whoever first needs a sample whose place is
not filled reads it there and marks it: no rank waits for another, and a rank that ends takes
nothing along. Two ranks that read one at the same time write the same bytes.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.samples import SampleSet
from ..errors import UsageError
from .buffer import Buffer, Memory, new_memory, require_memory
from .plan import Plan
from .plan_settings import PlanSettings
from .shared_plan import NodePlan, places

ALIGNED = 4096


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
        fields = sum(_aligned(self.places * each.nbytes) for each in samples.fields)
        return _aligned(max(self.held, 1)) + fields


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
        self.size, self.shared, content = size, shared, memory or mmap.mmap(-1, nbytes)
        self.filled = np.frombuffer(content, np.uint8, size.held)
        self.rows: Memory = {}
        at = _aligned(max(size.held, 1))
        for each in samples.fields:
            shape = (size.places, *each.shape)
            flat = np.frombuffer(content, each.dtype, math.prod(shape), at)
            self.rows[each.name] = flat.reshape(shape)
            at += _aligned(size.places * each.nbytes)


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
        place = self._place[sample]
        return place >= 0 and (self._filled[place] != 0 or sample in self._under_way)

    def add(self, sample: int) -> None:
        """This rank reads the sample."""
        self._under_way.add(sample)

    def settle(self, samples: Iterable[int]) -> None:
        """This rank has read them whole: from now on every rank of the node uses them."""
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
    size = NodeSize.of(plan.settings, staged)
    if plan.settings.node_ranks == 1 and node is None:
        held = min(plan.settings.capacity(rank), len(samples))
        rows = new_memory(samples, held + staged)
        buffer = Buffer(samples, held, {n: each[:held] for n, each in rows.items()})
        return _places(samples, rows, buffer, held, staged)
    if node is None or node.size != size:
        raise UsageError(
            f"expected memory that {size.ranks} ranks share, found none of that size: "
            "plan with node_ranks 1, or open the loader where the ranks are connected"
        )
    place = node.shared.place if node.shared else places(plan, plan.settings.node(rank))
    first = size.held + rank % size.ranks * staged
    return _places(samples, node.rows, NodeBuffer(node, place), first, staged)


def _places(
    samples: SampleSet, rows: Memory, buffer: Buffer | NodeBuffer, first: int, staged: int
) -> Places:
    memory = {name: each[first : first + staged] for name, each in rows.items()}
    return Places(rows, buffer, Buffer(samples, staged, memory), first)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNED) * ALIGNED
