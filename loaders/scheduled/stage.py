"""Where samples wait: reads windows of steps ahead, keeps what the plan pins, makes batches.

All bookkeeping is done by whoever walks through `batches`, one thread; only the reads run in
the pool. A sample gets its place when its read is submitted, and is used after the reads of its
window are done; windows are done in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing
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
from ..loader.loader import WEIGHT, Batch
from .batch import Batches, OpenBatch
from .budget import EXTRA_SHARE
from .counts import StageCounts
from .exchange import NodeAccess, require_exchange
from .node import open_places
from .plan import Plan
from .stage_settings import StageSettings
from .steps import RankStep, StepsAhead, Walk
from .straight import Straight

Int64Array = NDArray[np.int64]


@dataclass(frozen=True)
class Window:
    """Steps whose reads are under way, and the samples that the buffer gets from them.

    `slots` are those of each step's samples; -1: it is read into its batch, whatever a later window
    reads. `batches` are those of its steps, where there are such samples.
    """

    steps: list[RankStep]
    slots: list[list[int]]
    reads: ReadGroup
    pinned: list[int]
    batches: list[OpenBatch]


@dataclass(frozen=True)
class Taken:
    """The steps of the next window; `straight`: what they lack is read into their batches."""

    steps: list[RankStep]
    straight: bool


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
        self._together = settings.together(plan.settings.batch * samples.sample_nbytes)
        self._batches = Batches(
            samples, places.rows, pin_memory=settings.pin_memory, together=self._together
        )
        share = len(samples) // plan.settings.ranks
        self._reads = open_reads(samples, gap=settings.gap, threads=settings.threads, share=share)
        self._measured = ReadTotals()
        self._grouped = GroupedReads(settings.threads)
        made = partial(memory.shared.steps.of, rank) if memory and memory.shared else None
        self._steps = StepsAhead(plan, rank, made)
        self._early: set[int] = set()
        self._extras = staged // EXTRA_SHARE
        self._half = max(0, staged - self._extras - plan.settings.padding) // 2
        self._straight = Straight(plan, self._node, self.buffer, self._batches, self._reads)

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
        with closing(self.groups(epoch, start)) as groups:
            for group in groups:
                yield from group

    def groups(self, epoch: int, start: int = 0) -> Generator[list[Batch], None, None]:
        """As `batches`: as many at once as are made together.

        Raises:
            UsageError: No such epoch.
            InputError: The data are not as described.
        """
        walk = Walk(self._steps.of(epoch, start), self._settings.look_ahead)
        reading: deque[Window] = deque()
        try:
            following = self._take(walk)
            while following.steps or reading:
                following = self._submit_what_fits(epoch, walk, following, reading)
                self._finish(reading[0])
                yield from self._made(reading[0], walk)
                reading.popleft()
        finally:
            self._abandon(reading)

    def close(self) -> None:
        """Ends the pool and closes files."""
        self._grouped.close()
        self._reads.close()

    def _take(self, walk: Walk) -> Taken:
        if not self._grouped.quick:
            most = min(self._half, self.staging.room)
            return Taken(walk.take(most, self._to_stage), straight=False)
        straight = self._exchange is None and walk.once and self._reads.flat
        return Taken(walk.take_straight(self._together if straight else 1), straight)

    def _to_stage(self, ids: Int64Array) -> set[int]:
        """Those of `ids` that need a place in staging and have none."""
        return set(self.staging.absent(ids[self._plan.owner[ids] != self._node].tolist()))

    def _submit_what_fits(
        self, epoch: int, walk: Walk, following: Taken, reading: deque[Window]
    ) -> Taken:
        """Submits windows until two are under way; what has to wait, if something has.

        Several steps were only taken together where staging had room for them, or none needs it.
        A step alone needs none: what finds no place is read into its batch. Quick reads are not
        begun ahead.
        """
        most = 2 if self._settings.look_ahead and not self._grouped.quick else 1
        while following.steps and len(reading) < most:
            submit = self._submit_straight if following.straight else self._submit
            reading.append(submit(epoch, following.steps, walk))
            self._count_measured()
            following = self._take(walk)
        return following

    def _submit_straight(self, _epoch: int, steps: list[RankStep], _walk: Walk) -> Window:
        slots = self._slots(steps)
        laid = self._straight.lay(steps, slots)
        early = sum([self._used_early(step.ids.tolist()) for step in steps]) if self._early else 0
        self._counts.hits(sum(map(len, slots)) - laid.missing - early)
        if laid.missing:
            self._counts.planned(loads=laid.loads, reloads=laid.missing - laid.loads)
        if laid.pinned:
            slots = self._slots(steps)
        return Window(steps, slots, self._grouped.begin(laid.tasks), laid.pinned, laid.batches)

    def _submit(self, epoch: int, steps: list[RankStep], walk: Walk) -> Window:
        missing, planned = self._missing(steps)
        if not len(missing):
            return Window(steps, self._slots(steps), self._grouped.begin([]), [], [])
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
        self._early.update(extra.tolist())
        planned += sum(walk.is_load(i) for i in extra.tolist())
        self._counts.planned(loads=planned, reloads=len(ids) + len(extra) - planned)
        return Window(steps, self._slots(steps), reads, pinned, [batch] if batch else [])

    def _count_measured(self) -> None:
        """Counts what the reads measured: their files were opened, maybe again."""
        if self._reads.measured != self._measured:
            self._counts.read(self._reads.measured - self._measured)
            self._measured = self._reads.measured

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
        samples = step.ids.tolist()
        direct = {sample: samples.index(sample) for sample in staged[room:]}
        return self._batches.open(len(samples), direct)

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
            hits += len(ids) - (len(missing) - known) - self._used_early(ids)
        self._counts.hits(hits)
        return np.array(sorted(missing), np.int64), sum(missing.values())

    def _used_early(self, ids: list[int]) -> int:
        """How many of `ids` were read ahead beside what was asked for: no hits, but loads."""
        early = self._early.intersection(ids) if self._early else self._early
        self._early = self._early - early
        return len(early)

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
            if here and walk.is_needed_later(sample) and (not staged or room > 0):
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

    def _made(self, window: Window, walk: Walk) -> Iterator[list[Batch]]:
        """The window's batches, as many at once as go together."""
        for at in range(0, len(window.steps), self._together):
            part = slice(at, at + self._together)
            steps, slots = window.steps[part], window.slots[part]
            opened = window.batches[part] or [self._batches.open(len(each)) for each in slots]
            made = [self._batch(*each, walk) for each in zip(steps, slots, opened, strict=True)]
            self.buffer.check()
            self.staging.check()
            yield made

    def _batch(self, step: RankStep, slots: list[int], made: OpenBatch, walk: Walk) -> Batch:
        """The step's samples stacked; those used for the last time leave staging."""
        self._batches.gather(made, step.ids, slots)
        batch = dict(made.tensors)
        batch["sample"] = torch.from_numpy(step.ids.copy())
        batch[WEIGHT] = torch.from_numpy(np.array(step.weight))
        walk.use()
        for sample in step.ids.tolist() if len(self.staging) else ():
            if not walk.is_to_come(sample):
                self.staging.discard(sample)
        return batch

    def _slots(self, steps: list[RankStep]) -> list[list[int]]:
        """The rows of each step's samples in the places; -1: it has none."""
        ids = [step.ids.tolist() for step in steps]
        slots = [self.buffer.slots(each) for each in ids]
        if len(self.staging):
            slots = [self._staged(*each) for each in zip(ids, slots, strict=True)]
        return slots

    def _staged(self, ids: list[int], slots: list[int]) -> list[int]:
        first, staged = self._staging_slot, self.staging.slots(ids)
        return [s + first if h < 0 <= s else h for h, s in zip(slots, staged, strict=True)]

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
