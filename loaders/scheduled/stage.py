"""Where samples wait: reads windows of steps ahead, keeps what the plan pins, makes batches.

All bookkeeping is done by whoever walks through `batches`, one thread; only the reads run in
the pool. A sample gets its place when its read is submitted, and is used after the reads of its
window are done; windows are done in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from ..data.coalesce import StorageSpeed
from ..data.coalesced import Target, Task, open_reads
from ..data.pread import ReadTotals
from ..data.samples import SampleSet
from ..data.together import GroupedReads, ReadGroup
from ..errors import UsageError
from ..loader.loader import WEIGHT, Batch
from .batch import Batches, OpenBatch
from .budget import EXTRA_SHARE, wanted_staging
from .counts import StageCounts
from .exchange import NodeAccess, require_exchange
from .node import open_places
from .plan import Plan
from .plan_settings import PlanSettings
from .steps import RankStep, StepsAhead, Walk

Int64Array = NDArray[np.int64]


@dataclass(frozen=True)
class StageSettings:
    """How far and how to read ahead.

    Attributes:
        look_ahead: Steps whose reads are merged into one window; while one is used the next is
            read. 0: a step is read when it is asked for.
        gap: Rows read through rather than asking again; None: by the measured speed.
        threads: Reads under way at once.
        staging_nbytes: Most bytes of samples that wait outside buffer and batches; None: as many
            as two windows can use.
        pin_memory: Batches in page-locked memory, where there is a CUDA device.
    """

    look_ahead: int = 8
    gap: int | None = None
    threads: int = 8
    staging_nbytes: int | None = None
    pin_memory: bool = False

    def __post_init__(self) -> None:
        if self.look_ahead < 0 or self.threads < 1 or (self.gap or 0) < 0:
            raise UsageError(
                f"expected look-ahead and gap of at least 0 and a thread or more, found "
                f"{self.look_ahead}, {self.gap}, {self.threads}: correct the options"
            )

    def staging(self, plan: PlanSettings, sample_nbytes: int) -> int:
        """Samples of a rank that may wait outside buffer and batches."""
        if self.staging_nbytes is not None:
            return self.staging_nbytes // max(sample_nbytes, 1)
        return wanted_staging(plan, self.look_ahead)


@dataclass(frozen=True)
class Window:
    """Steps whose reads are under way, and the samples that the buffer gets from them.

    `batch` is that of its only step, where some of it is read straight into the batch.
    """

    steps: list[RankStep]
    reads: ReadGroup
    pinned: list[int]
    batch: OpenBatch | None


class Stage:
    """Buffer and staging of one rank, in one process.

    Attributes:
        buffer: What the plan pins, of this rank or its node.
        staging: What was read ahead for one use.
    """

    def __init__(
        self,
        samples: SampleSet,
        plan: Plan,
        rank: int,
        settings: StageSettings,
        counts: StageCounts,
        node: NodeAccess | None = None,
    ) -> None:
        exchange, memory = (node.exchange, node.memory) if node else (None, None)
        require_exchange(plan.settings, exchange)
        self._plan, self._rank, self._settings = plan, rank, settings
        self._counts, self._exchange = counts, exchange
        staged = settings.staging(plan.settings, samples.sample_nbytes)
        places = open_places(samples, plan, rank, staged, memory)
        self.buffer, self.staging = places.buffer, places.staging
        self._staging_slot, self._node = places.staging_slot, plan.settings.node(rank)
        self._batches = Batches(samples, places.rows, pin_memory=settings.pin_memory)
        share = len(samples) // plan.settings.ranks
        self._reads = open_reads(samples, gap=settings.gap, threads=settings.threads, share=share)
        self._measured = ReadTotals()
        self._grouped = GroupedReads(settings.threads)
        made = partial(memory.shared.steps.of, rank) if memory and memory.shared else None
        self._steps = StepsAhead(plan, rank, made)
        self._early: set[int] = set()
        self._extras = staged // EXTRA_SHARE
        self._half = max(0, staged - self._extras - plan.settings.padding) // 2

    @property
    def speed(self) -> StorageSpeed | None:
        """What was measured at the start; None where nothing was."""
        return self._reads.speed

    def batches(self, epoch: int, start: int = 0) -> Generator[Batch, None, None]:
        """The batches of an epoch from step `start` on; the next window is read meanwhile.

        Raises:
            UsageError: No such epoch.
            InputError: The data are not as described.
        """
        walk = Walk(self._steps.of(epoch, start), self._settings.look_ahead)
        reading: deque[Window] = deque()
        try:
            following = self._take(walk)
            while following or reading:
                following = self._submit_what_fits(epoch, walk, following, reading)
                self._finish(reading[0])
                for step in reading[0].steps:
                    yield self._batch(step, walk, reading[0].batch)
                reading.popleft()
        finally:
            self._abandon(reading)

    def close(self) -> None:
        """Ends the pool and closes files."""
        self._grouped.close()
        self._reads.close()

    def _take(self, walk: Walk) -> list[RankStep]:
        if self._grouped.quick:
            return walk.take_one()
        return walk.take(min(self._half, self.staging.room), self._to_stage)

    def _to_stage(self, ids: Int64Array) -> set[int]:
        """Those of `ids` that need a place in staging and have none."""
        return set(self.staging.absent(ids[self._plan.owner[ids] != self._node].tolist()))

    def _submit_what_fits(
        self, epoch: int, walk: Walk, following: list[RankStep], reading: deque[Window]
    ) -> list[RankStep]:
        """Submits windows until two are under way; the one that has to wait, if one has.

        Several steps were only taken together where staging had room for them. A step alone needs
        none: what finds no place is read into its batch. Quick reads are not begun ahead.
        """
        most = 2 if self._settings.look_ahead and not self._grouped.quick else 1
        while following and len(reading) < most:
            reading.append(self._submit(epoch, following, walk))
            following = self._take(walk)
        return following

    def _submit(self, epoch: int, steps: list[RankStep], walk: Walk) -> Window:
        missing, planned = self._missing(steps)
        if not len(missing):
            return Window(steps, self._grouped.begin([]), [], None)
        self._reads.merging = not self._grouped.quick
        ids, sent = self._divided(missing, walk)
        batch = self._open_direct(missing, steps, walk)
        extra = self._extra(ids, missing, walk)
        every = (*missing.tolist(), *extra.tolist())
        placed = [i for i in every if not (batch and i in batch.direct)]
        pinned = [i for i in placed if self._place(i)]
        target = self._target(batch)
        reads = self._grouped.begin(
            [*self._fetches(epoch, sent, target), *self._reads.tasks(ids, extra, target)]
        )
        if self._reads.measured != self._measured:  # its files were opened, maybe again
            self._counts.read(self._reads.measured - self._measured)
            self._measured = self._reads.measured
        self._early.update(extra.tolist())
        planned += sum(walk.is_load(i) for i in extra.tolist())
        self._counts.planned(loads=planned, reloads=len(ids) + len(extra) - planned)
        return Window(steps, reads, pinned, batch)

    def _divided(self, missing: Int64Array, walk: Walk) -> tuple[Int64Array, dict[int, Int64Array]]:
        """Sorted ids that this rank reads, and those that each other node sends."""
        if self._exchange is None:
            return missing, {}
        own = self._node
        source = np.array([walk.source(i, own) for i in missing.tolist()], np.int64)
        others = np.unique(source[source != own]).tolist()
        return missing[source == own], {each: missing[source == each] for each in others}

    def _fetches(self, epoch: int, sent: dict[int, Int64Array], target: Target) -> list[Task]:
        if self._exchange is None:
            return []
        wanted = partial(self._exchange.fetch, epoch, target=target, read=self._read_alone)
        return [partial(wanted, node, ids) for node, ids in sent.items()]

    def _read_alone(self, ids: Int64Array, target: Target) -> ReadTotals:
        """Reads in this thread what a node that has ended would have sent."""
        tasks = self._reads.tasks(ids, np.empty(0, np.int64), target)
        return sum((task() for task in tasks), ReadTotals())

    def _open_direct(self, ids: Int64Array, steps: list[RankStep], walk: Walk) -> OpenBatch | None:
        """The batch of the only step, where staging has no room for all that it reads.

        What is used again later in the epoch gets a place first. Nothing else does where reads are
        quick: what is read ahead is copied once more.
        """
        room, staged = self.staging.room, ids[self._plan.owner[ids] != self._node].tolist()
        again = [sample for sample in staged if walk.uses(sample) > 1]
        if self._grouped.quick and len(steps) == 1:
            room = min(room, len(again))
        if len(staged) <= room:
            return None
        (step,) = steps
        if again:
            staged.sort(key=lambda sample: walk.uses(sample) < 2)
        return self._batches.open(step.ids.tolist(), staged[room:])

    def _missing(self, steps: list[RankStep]) -> tuple[Int64Array, int]:
        """Sorted ids that have to be read for some steps, and how many of them as planned."""
        missing: dict[int, bool] = {}
        hits = 0
        for step in steps:
            ids, known = step.ids.tolist(), len(missing)
            absent = self.staging.absent(self.buffer.absent(ids))
            loads = set(step.ids[step.load].tolist()) if absent else set[int]()
            for sample in absent:
                # Padding may repeat a sample in the step that loads it.
                missing[sample] = missing.get(sample, False) or sample in loads
            early = self._early.intersection(ids)
            self._early -= early
            hits += len(ids) - (len(missing) - known) - len(early)
        self._counts.hits(hits)
        return np.array(sorted(missing), np.int64), sum(missing.values())

    def _extra(self, ids: Int64Array, missing: Int64Array, walk: Walk) -> Int64Array:
        """Sorted ids that pass by in gaps and are needed later in the epoch, as far as they fit."""
        covered = self._reads.covered(ids)
        if len(covered) == len(ids):
            return np.empty(0, np.int64)
        passing = np.setdiff1d(covered, missing, True)
        left = self.staging.room - len(self._to_stage(missing))
        room = min(self._extras - sum(i in self.staging for i in self._early), left)
        to_stage, chosen = self._to_stage(passing), list[int]()
        for sample in self.staging.absent(self.buffer.absent(passing.tolist())):
            staged, here = sample in to_stage, walk.source(sample, self._node) == self._node
            if here and walk.is_to_come(sample) and (not staged or room > 0):
                chosen.append(sample)
                room -= staged
        return np.array(chosen, np.int64)

    def _place(self, sample: int) -> bool:
        """Gives a sample its place; True where that is in the buffer."""
        pinned = bool(self._plan.owner[sample] == self._node)
        (self.buffer if pinned else self.staging).add(sample)
        return pinned

    def _target(self, batch: OpenBatch | None) -> Target:
        def row(name: str, sample: int) -> NDArray[np.generic]:
            if batch and sample in batch.direct:
                return batch.rows[name][batch.direct[sample], ...]
            return (self.buffer if sample in self.buffer else self.staging).row(name, sample)

        return row

    def _finish(self, window: Window) -> None:
        """Waits for the window's reads; raises what went wrong in them."""
        self._grouped.finish(window.reads)
        self._counts.read(window.reads.totals())
        self.buffer.settle(window.pinned)

    def _batch(self, step: RankStep, walk: Walk, opened: OpenBatch | None) -> Batch:
        """The step's samples stacked; those used for the last time leave staging."""
        ids = step.ids.tolist()
        made = opened or self._batches.open(ids, [])
        self._batches.gather(made, ids, self._slots(ids))
        batch = dict(made.tensors)
        batch["sample"] = torch.from_numpy(step.ids.copy())
        batch[WEIGHT] = torch.from_numpy(np.array(step.weight))
        used_up = walk.use(ids)
        for sample in used_up if len(self.staging) else ():
            self.staging.discard(sample)
        self.buffer.check()
        self.staging.check()
        return batch

    def _slots(self, ids: list[int]) -> Int64Array:
        """The row of each in the places; -1: it has none, but was read into the batch."""
        held = np.array(self.buffer.slots(ids), np.int64)
        if len(self.staging):
            staged = np.array(self.staging.slots(ids), np.int64)
            held = np.where((held < 0) & (staged >= 0), staged + self._staging_slot, held)
        return held

    def _abandon(self, reading: deque[Window]) -> None:
        """Waits for what is under way; what was not read whole has no place any more."""
        for window in reading:
            whole = window.reads.abandon()
            self._counts.read(window.reads.totals())
            if whole:
                self.buffer.settle(window.pinned)
            else:
                for sample in window.pinned:
                    self.buffer.discard(sample)
        self.staging.clear()
        self._early.clear()
