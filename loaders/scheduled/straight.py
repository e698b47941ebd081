"""Steps whose reads are quick: what no place holds is read straight into the batches.

Several steps are looked at together, and their reads are addresses: where storage is no bottleneck,
what is done once a sample or once a batch is what a batch costs. In plain loops, as few samples are
missing: the copies between two windows leave no code of NumPy in the processor's caches.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..data.coalesced import RowReads, SampleReads, Task
from .batch import Addresses, Batches, OpenBatch
from .buffer import Buffer
from .node import NodeBuffer
from .plan import Plan
from .steps import RankStep


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
        self._owner, self._node, self._buffer = plan.owner, node, buffer
        self._batches, self._reads = batches, reads

    def lay(self, steps: list[RankStep], slots: list[list[int]]) -> StraightReads:
        """The reads of steps whose samples have these slots; -1: none."""
        assert isinstance(self._reads, RowReads)
        opened = [self._batches.open(len(each)) for each in slots]
        wanted, pinned, loads = list[tuple[int, Addresses]](), list[int](), 0
        for step, rows, batch in zip(steps, slots, opened, strict=True):
            if -1 not in rows:
                continue
            ids, load = step.ids.tolist(), step.load.tolist()
            for row in [row for row, slot in enumerate(rows) if slot < 0]:
                loads += load[row]
                if self._owner[ids[row]] == self._node:
                    pinned.append(ids[row])
                else:
                    wanted.append((ids[row], self._batches.addresses(batch, row)))
        wanted += [(sample, self._pinned(sample)) for sample in pinned]
        tasks = self._reads.straight(wanted) if wanted else []
        return StraightReads(opened, tasks, pinned, len(wanted), loads)

    def _pinned(self, sample: int) -> Addresses:
        """Gives a sample a place in the buffer."""
        self._buffer.add(sample)
        (slot,) = self._buffer.slots([sample])
        return self._batches.place_addresses(slot)
