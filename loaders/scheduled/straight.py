"""Steps whose reads are quick: what no place holds is read straight into the batches.

Several steps are looked at together, and their reads are laid out as addresses: where storage is
no bottleneck, what is done once a sample or once a batch is what a batch costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ..data.coalesced import RowReads, SampleReads, Task
from .batch import Batches, OpenBatch
from .buffer import Buffer
from .node import NodeBuffer
from .plan import Plan
from .steps import RankStep

Int64Array = NDArray[np.int64]


@dataclass(frozen=True)
class StraightReads:
    """What several steps read.

    Attributes:
        batches: One a step: what is neither held nor pinned is read into it.
        tasks: The reads.
        pinned: Samples that are read into the buffer.
        missing: Samples read.
        loads: Of these, those that the plan has read.
    """

    batches: list[OpenBatch]
    tasks: list[Task]
    pinned: list[int]
    missing: int
    loads: int


class Straight:
    """Lays out the reads of steps no two of which use the same sample.

    Args:
        plan: Whose steps they are.
        node: That holds `buffer`.
        buffer: What the plan pins.
        batches: Makes them.
        reads: Where `flat`.
    """

    def __init__(
        self,
        plan: Plan,
        node: int,
        buffer: Buffer | NodeBuffer,
        batches: Batches,
        reads: RowReads | SampleReads,
    ) -> None:
        self._plan, self._node, self._buffer = plan, node, buffer
        self._batches, self._reads = batches, reads

    def lay(self, steps: list[RankStep], slots: list[list[int]]) -> StraightReads:
        """The reads of steps whose samples have these slots; -1: none."""
        assert isinstance(self._reads, RowReads)
        opened = [self._batches.open(len(each)) for each in slots]
        missing = np.flatnonzero(np.array(list(chain.from_iterable(slots))) < 0)
        if not len(missing):
            return StraightReads(opened, [], [], 0, 0)
        ids = np.concatenate([step.ids for step in steps])[missing]
        load = np.concatenate([step.load for step in steps])[missing]
        addresses = self._batches.addresses(opened, missing)
        pinned = np.flatnonzero(self._plan.owner[ids] == self._node)
        places = self._pinned(ids[pinned])
        for name in addresses:
            addresses[name][pinned] = places[name]
        tasks = self._reads.straight(ids, addresses)
        return StraightReads(opened, tasks, ids[pinned].tolist(), len(ids), int(load.sum()))

    def _pinned(self, ids: Int64Array) -> dict[str, Int64Array]:
        """Gives samples places in the buffer; the addresses of those."""
        samples = ids.tolist()
        for sample in samples:
            self._buffer.add(sample)
        return self._batches.place_addresses(np.array(self._buffer.slots(samples), np.int64))
