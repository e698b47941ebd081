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
from ..data.coalesced import Target, open_reads
from ..data.pread import ReadTotals
from ..data.samples import SampleSet
from ..data.together import GroupedReads, ReadGroup
from ..errors import UsageError
from ..loader.loader import WEIGHT, Batch
from ..loader.stats import Counts
from .batch import Batches, OpenBatch
from .budget import EXTRA_SHARE, wanted_staging
from .node import NodeMemory, open_places
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
        self.beside_plan.add(loads=reloads)

    def hits(self, hits: int) -> None:
        """Counts uses that needed no read."""
        self.of_plan.add(hits=hits)

    def read(self, done: ReadTotals) -> None:
        """Counts a read that is done."""
        self.of_plan.add(nbytes=done.nbytes, requests=done.requests)


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
        node: NodeMemory | None = None,
    ) -> None:
        self._plan, self._rank, self._settings = plan, rank, settings
        self._counts = counts
        staged = settings.staging(plan.settings, samples.sample_nbytes)
        places = open_places(samples, plan, rank, staged, node)
        self.buffer, self.staging = places.buffer, places.staging
        self._staging_slot, self._node = places.staging_slot, plan.settings.node(rank)
        self._batches = Batches(samples, places.rows, pin_memory=settings.pin_memory)
        share = len(samples) // plan.settings.ranks
        self._reads = open_reads(samples, gap=settings.gap, threads=settings.threads, share=share)
        self._measured = ReadTotals()
        self._grouped = GroupedReads(settings.threads)
        made = partial(node.shared.steps.of, rank) if node and node.shared else None
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
                following = self._submit_what_fits(walk, following, reading)
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
        return walk.take(min(self._half, self.staging.room), self._to_stage)

    def _to_stage(self, ids: Int64Array) -> set[int]:
        """Those of `ids` that need a place in staging and have none."""
        return set(self.staging.absent(ids[self._plan.owner[ids] != self._node].tolist()))

    def _submit_what_fits(
        self, walk: Walk, following: list[RankStep], reading: deque[Window]
    ) -> list[RankStep]:
        """Submits windows until two are under way; the one that has to wait, if one has.

        Several steps were only taken together where staging had room for them. A step alone needs
        none: what finds no place is read into its batch.
        """
        most = 2 if self._settings.look_ahead else 1
        while following and len(reading) < most:
            reading.append(self._submit(following, walk))
            following = self._take(walk)
        return following

    def _submit(self, steps: list[RankStep], walk: Walk) -> Window:
        ids, planned = self._missing(steps)
        batch = self._open_direct(ids, steps, walk)
        extra = self._extra(ids, walk)
        placed = [i for i in (*ids.tolist(), *extra.tolist()) if not (batch and i in batch.direct)]
        pinned = [i for i in placed if self._place(i)]
        reads = self._grouped.begin(self._reads.tasks(ids, extra, self._target(batch)))
        if self._reads.measured != self._measured:  # its files were opened, maybe again
            self._counts.read(self._reads.measured - self._measured)
            self._measured = self._reads.measured
        self._early.update(extra.tolist())
        planned += sum(walk.is_load(i) for i in extra.tolist())
        self._counts.planned(loads=planned, reloads=len(ids) + len(extra) - planned)
        return Window(steps, reads, pinned, batch)

    def _open_direct(self, ids: Int64Array, steps: list[RankStep], walk: Walk) -> OpenBatch | None:
        """The batch of the only step, where staging has no room for all that it reads.

        What is used again later in the epoch gets a place first.
        """
        staged = sorted(self._to_stage(ids))
        if len(staged) <= self.staging.room:
            return None
        (step,) = steps
        staged.sort(key=lambda sample: walk.uses(sample) < 2)
        return self._batches.open(step.ids.tolist(), staged[self.staging.room :])

    def _missing(self, steps: list[RankStep]) -> tuple[Int64Array, int]:
        """Sorted ids that have to be read for some steps, and how many of them as planned."""
        missing: dict[int, bool] = {}
        hits = 0
        for step in steps:
            ids, known = step.ids.tolist(), len(missing)
            loads = set(step.ids[step.load].tolist())
            for sample in self.staging.absent(self.buffer.absent(ids)):
                # Padding may repeat a sample in the step that loads it.
                missing[sample] = missing.get(sample, False) or sample in loads
            early = self._early.intersection(ids)
            self._early -= early
            hits += len(ids) - (len(missing) - known) - len(early)
        self._counts.hits(hits)
        return np.array(sorted(missing), np.int64), sum(missing.values())

    def _extra(self, ids: Int64Array, walk: Walk) -> Int64Array:
        """Sorted ids that pass by in gaps and are needed later in the epoch, as far as they fit."""
        covered = self._reads.covered(ids)
        if len(covered) == len(ids):
            return np.empty(0, np.int64)
        passing = np.setdiff1d(covered, ids, True)
        left = self.staging.room - len(self._to_stage(ids))
        room = min(self._extras - sum(i in self.staging for i in self._early), left)
        to_stage, chosen = self._to_stage(passing), list[int]()
        for sample in self.staging.absent(self.buffer.absent(passing.tolist())):
            staged = sample in to_stage
            if walk.is_to_come(sample) and (not staged or room > 0):
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
        batch[WEIGHT] = torch.tensor(step.weight, dtype=torch.float64)
        for sample in walk.use(ids):
            self.staging.discard(sample)
        self.buffer.check()
        self.staging.check()
        return batch

    def _slots(self, ids: list[int]) -> Int64Array:
        """The row of each in the places; -1: it has none, but was read into the batch."""
        held, staged = (np.array(each.slots(ids), np.int64) for each in (self.buffer, self.staging))
        return np.where(held < 0, np.where(staged < 0, -1, staged + self._staging_slot), held)

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
