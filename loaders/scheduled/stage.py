"""Where samples wait: reads windows of steps ahead, keeps what the plan pins, makes batches.

All bookkeeping is done by whoever walks through `Stage.batches`, one thread; only the reads run in
the pool. A sample gets its place when its read is submitted, and is used after the reads of its
window are done; windows are done in order. A sample that finds no place in buffer or staging is
read straight into the batch that needs it.

Where reads are quick, all that no place holds is. Several steps are then looked at together, and
their reads are addresses: where storage is no bottleneck, what is done once a sample or once a
batch is what a batch costs. In plain loops, as few samples are missing: the copies between two
windows leave no code of NumPy in the processor's caches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np
import torch
from numpy.typing import NDArray

from ..data.coalesce import RowReads, StorageSpeed, Target, Task, open_reads
from ..data.pool import GroupedReads, ReadGroup
from ..data.pread import ReadTotals
from ..data.samples import SampleSet
from ..errors import UsageError
from ..loader.batches import KEPT_MOST, BatchMemory
from ..loader.loader import WEIGHT, Batch
from .buffer import Memory, StageCounts, open_places
from .exchange import NodeAccess, require_exchange
from .plan import Plan, PlanSettings
from .steps import RankStep, StepsAhead, Walk

Int64Array = NDArray[np.int64]
Addresses = list[int]
"""Of a sample's fields in memory, in order."""
NOTHING: Mapping[int, int] = MappingProxyType({})


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
        # Memory: the buffer, this rank's own or its node's, and staging.
        staged = settings.staging(plan.settings, samples.sample_nbytes)
        places = open_places(samples, plan, rank, staged, memory)
        self.buffer, self.staging = places.buffer, places.staging
        self._staging_slot, self._node = places.staging_slot, plan.settings.node(rank)
        # Batches that are made at once.
        self._together = settings.together(plan.settings.batch * samples.sample_nbytes)
        self._batches = Batches(
            samples, places.rows, pin_memory=settings.pin_memory, together=self._together
        )
        # Reads, whose gap is measured in the rank's share of an epoch.
        share = len(samples) // plan.settings.ranks
        self._reads = open_reads(samples, gap=settings.gap, threads=settings.threads, share=share)
        self._measured = ReadTotals()
        self._grouped = GroupedReads(settings.threads)
        # Steps ahead; of a node they are made once for all its ranks.
        made = partial(memory.shared.steps.of, rank) if memory and memory.shared else None
        self._steps = StepsAhead(plan, rank, made)
        # One in `EXTRA_SHARE` places is for rows that a gap brings early; the rest holds two
        # windows: one that is used and one that is read.
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
            # The next window is submitted before this one is used: it is read meanwhile.
            while following.steps or reading:
                following = self._submit_what_fits(epoch, walk, following, reading)
                # What went wrong in the reads is raised here.
                self._grouped.finish(reading[0].reads)
                self._counts.read(reading[0].reads.totals())
                self.buffer.settle(reading[0].pinned)
                yield from self._make_batches(reading[0], walk)
                reading.popleft()
        finally:
            # Waits for what is under way; what was not read whole has no place any more.
            for window in reading:
                whole = window.reads.abandon()
                self._counts.read(window.reads.totals())
                # Only what was read whole may stay in the buffer, which others may share.
                if whole:
                    self.buffer.settle(window.pinned)
                else:
                    for sample in window.pinned:
                        self.buffer.discard(sample)
            self.staging.clear()
            self._early.clear()

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
            # Counts what the reads measured: their files were opened, maybe again.
            if self._reads.measured != self._measured:
                self._counts.read(self._reads.measured - self._measured)
                self._measured = self._reads.measured
            following = self._take(walk)
        return following

    def _submit_straight(self, _epoch: int, steps: list[RankStep], _walk: Walk) -> Window:
        """Begins the reads of steps no two of which use the same sample, into their batches."""
        assert isinstance(self._reads, RowReads)
        slots = self._find_slots(steps)
        opened = [self._batches.open(len(each)) for each in slots]

        # What no place holds goes to its row of the batch, or to the buffer where the plan pins it.
        targets, pinned, loads = list[tuple[int, Addresses]](), list[int](), 0
        for step, rows, batch in zip(steps, slots, opened, strict=True):
            if -1 not in rows:
                continue
            ids, load = step.ids.tolist(), step.load.tolist()
            for row in [row for row, slot in enumerate(rows) if slot < 0]:
                loads += load[row]
                if self._plan.owner[ids[row]] == self._node:
                    pinned.append(ids[row])
                else:
                    targets.append((ids[row], self._batches.addresses(batch, row)))
        # What the plan pins is read to its place for good, from where batches take it.
        for sample in pinned:
            self.buffer.add(sample)
            (slot,) = self.buffer.slots([sample])
            targets.append((sample, self._batches.place_addresses(slot)))
        reads = self._grouped.begin(self._reads.straight(targets) if targets else [])

        # What was held is a hit, unless it came early.
        early = (
            sum([self._count_used_early(step.ids.tolist()) for step in steps]) if self._early else 0
        )
        self._counts.hits(sum(map(len, slots)) - len(targets) - early)
        if targets:
            self._counts.planned(loads=loads, reloads=len(targets) - loads)
        if pinned:
            slots = self._find_slots(steps)
        return Window(steps, slots, reads, pinned, opened)

    def _submit(self, epoch: int, steps: list[RankStep], walk: Walk) -> Window:
        # What has to be read, by this rank or by the nodes that send it.
        missing, planned = self._find_missing(steps)
        if not len(missing):
            return Window(steps, self._find_slots(steps), self._grouped.begin([]), [], [])
        self._reads.merging = not self._grouped.quick
        ids, sent = missing, dict[int, Int64Array]()
        if self._exchange is not None:
            source = np.array([walk.source(i, self._node) for i in missing.tolist()], np.int64)
            ids = missing[source == self._node]
            others = np.unique(source[source != self._node]).tolist()
            sent = {node: missing[source == node] for node in others}

        # Each sample gets its place, or is read into the batch.
        batch = self._open_direct(missing, steps, walk)
        extra = self._choose_extra(ids, missing, walk)
        every = (*missing.tolist(), *extra.tolist())
        placed = [i for i in every if not (batch and i in batch.direct)]
        pinned = [i for i in placed if self._place(i)]

        # The reads begin; what they bring early is counted when it is used.
        target = self._choose_target(batch)
        fetches: list[Task] = []
        if self._exchange is not None:
            fetch = partial(self._exchange.fetch, epoch, target=target, read=self._read_alone)
            fetches = [partial(fetch, node, wanted) for node, wanted in sent.items()]
        reads = self._grouped.begin([*fetches, *self._reads.tasks(ids, extra, target)])
        self._early.update(extra.tolist())
        planned += sum(walk.is_load(i) for i in extra.tolist())
        self._counts.planned(loads=planned, reloads=len(ids) + len(extra) - planned)
        return Window(steps, self._find_slots(steps), reads, pinned, [batch] if batch else [])

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
        # What is used again comes first: it must not lose its place to what is used once.
        if again:
            staged.sort(key=lambda sample: walk.uses(sample) < 2)
        samples = step.ids.tolist()
        direct = {sample: samples.index(sample) for sample in staged[room:]}
        return self._batches.open(len(samples), direct)

    def _find_missing(self, steps: list[RankStep]) -> tuple[Int64Array, int]:
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
            hits += len(ids) - (len(missing) - known) - self._count_used_early(ids)
        self._counts.hits(hits)
        return np.array(sorted(missing), np.int64), sum(missing.values())

    def _count_used_early(self, ids: list[int]) -> int:
        """How many of `ids` were read ahead beside what was asked for: no hits, but loads."""
        early = self._early.intersection(ids) if self._early else self._early
        self._early = self._early - early
        return len(early)

    def _choose_extra(self, ids: Int64Array, missing: Int64Array, walk: Walk) -> Int64Array:
        """Sorted ids that pass by in gaps and are needed later in the epoch, as far as they fit."""
        # What is read anyway, as gaps between wanted rows are read through.
        covered = self._reads.covered(ids)
        if len(covered) == len(ids):
            return np.empty(0, np.int64)
        passing = np.setdiff1d(covered, missing, True)
        # Kept is what this node reads itself and needs later in the epoch, while there is room.
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

    def _choose_target(self, batch: OpenBatch | None) -> Target:
        def row(name: str, sample: int) -> NDArray[np.generic]:
            if batch and sample in batch.direct:
                return batch.rows[name][batch.direct[sample], ...]
            return (self.buffer if sample in self.buffer else self.staging).row(name, sample)

        return row

    def _make_batches(self, window: Window, walk: Walk) -> Iterator[list[Batch]]:
        """The window's batches, as many at once as go together."""
        for at in range(0, len(window.steps), self._together):
            part = slice(at, at + self._together)
            steps, slots = window.steps[part], window.slots[part]
            opened = window.batches[part] or [self._batches.open(len(each)) for each in slots]
            made = [
                self._make_batch(*each, walk) for each in zip(steps, slots, opened, strict=True)
            ]
            # The bounds of buffer and staging hold at every step.
            self.buffer.check()
            self.staging.check()
            yield made

    def _make_batch(self, step: RankStep, slots: list[int], made: OpenBatch, walk: Walk) -> Batch:
        """The step's samples stacked; those used for the last time leave staging."""
        self._batches.gather(made, step.ids, slots)
        batch = dict(made.tensors)
        batch["sample"] = torch.from_numpy(step.ids.copy())
        batch[WEIGHT] = torch.from_numpy(np.array(step.weight))
        walk.use()
        # Staging holds what is still to come; its last use makes room.
        for sample in step.ids.tolist() if len(self.staging) else ():
            if not walk.is_to_come(sample):
                self.staging.discard(sample)
        return batch

    def _find_slots(self, steps: list[RankStep]) -> list[list[int]]:
        """The rows of each step's samples in the places; -1: it has none."""
        ids = [step.ids.tolist() for step in steps]
        slots = [self.buffer.slots(each) for each in ids]
        if len(self.staging):
            slots = [self._add_staged(*each) for each in zip(ids, slots, strict=True)]
        return slots

    def _add_staged(self, ids: list[int], slots: list[int]) -> list[int]:
        first, staged = self._staging_slot, self.staging.slots(ids)
        return [s + first if h < 0 <= s else h for h, s in zip(slots, staged, strict=True)]


@dataclass(frozen=True)
class OpenBatch:
    """Memory for the samples of one step.

    Attributes:
        tensors: Of each field, what is handed out.
        rows: The same memory as arrays.
        direct: The samples that are read straight into it, and the row of each.
    """

    tensors: dict[str, torch.Tensor]
    rows: Memory
    direct: Mapping[int, int]


class Batches:
    """Makes batches of samples that lie in `places`.

    Args:
        samples: What they are.
        places: Where samples wait; a slot is a row of it.
        pin_memory: Batches in page-locked memory, where there is a CUDA device.
        together: As many are made, wait and are used at once.
    """

    def __init__(
        self, samples: SampleSet, places: Memory, *, pin_memory: bool, together: int
    ) -> None:
        self._places = places
        self._nbytes = {each.name: each.nbytes for each in samples.fields}
        kept = KEPT_MOST + 3 * (together - 1)
        self._memory = {
            each.name: BatchMemory(each.shape, each.dtype, pin_memory=pin_memory, kept=kept)
            for each in samples.fields
        }

    def open(self, count: int, direct: Mapping[int, int] = NOTHING) -> OpenBatch:
        """Memory for so many samples, of which `direct` will be read into their rows of it."""
        tensors, rows = {}, {}
        for name, memory in self._memory.items():
            tensors[name], rows[name] = memory.open(count)
        return OpenBatch(tensors, rows, direct)

    def gather(self, batch: OpenBatch, ids: Int64Array, slots: list[int]) -> None:
        """Copies to each row what lies in its slot; -1: the row was read, or repeats one that was.

        One call for neighbouring rows, which lets go of the interpreter lock.
        """
        for first, last in _find_stretches(slots):
            held = np.array(slots[first:last])
            for name, rows in batch.rows.items():
                # "clip" (no slot is outside) writes straight to `out`.
                self._places[name].take(held, 0, rows[first:last], "clip")
        if not batch.direct:
            return
        for row, sample in enumerate(ids.tolist()):
            source = batch.direct.get(sample, row)
            if source != row:
                for rows in batch.rows.values():
                    rows[row] = rows[source]

    def addresses(self, batch: OpenBatch, row: int) -> Addresses:
        """Where a row of a batch lies."""
        nbytes = self._nbytes
        return [each.data_ptr() + row * nbytes[name] for name, each in batch.tensors.items()]

    def place_addresses(self, slot: int) -> Addresses:
        """Where a place lies."""
        nbytes = self._nbytes
        return [each.ctypes.data + slot * nbytes[name] for name, each in self._places.items()]


def _find_stretches(slots: list[int]) -> list[tuple[int, int]]:
    """[first, last) of neighbouring rows that have a slot."""
    held = slots.index(-1) if -1 in slots else len(slots)
    if held == len(slots) or max(slots[held:]) < 0:  # a plan has what is read behind what is held
        return [(0, held)] if held else []
    has = np.concatenate([[False], np.array(slots) >= 0, [False]])
    border = np.flatnonzero(has[1:] != has[:-1]).tolist()
    return list(zip(border[::2], border[1::2], strict=True))


# How far and how to read ahead, the memory for it, and counters of what was read.
#
# One budget of memory is divided into buffer and staging. Each place of staging is one that the
# buffer lacks, and costs a read per epoch. What finds no place is read straight into its batch, so
# staging is only worth what looking further ahead than the next two steps hides: it gets what the
# look-ahead can use, at most one in `STAGED_SHARE` of what is read anyway, and nothing where that
# would not hold what a step reads.

TOGETHER_NBYTES, MOST_TOGETHER = 12 << 20, 8
"""Batches that are made and handed over at once: to wake a thread for a batch of 3 MiB costs as
much processor time as a third of its copies (measured in a virtual machine)."""
EXTRA_SHARE = 5
"""One in so many places of staging is for rows that a gap brought early."""
STAGED_SHARE = 20
"""Staging adds at most one read to so many that an epoch has anyway."""


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

    def together(self, batch_nbytes: int) -> int:
        """Batches that are made and handed over at once."""
        fit = TOGETHER_NBYTES // max(batch_nbytes, 1)
        return max(1, min(fit, MOST_TOGETHER)) if self.look_ahead else 1

    def staging(self, plan: PlanSettings, sample_nbytes: int) -> int:
        """Samples of a rank that may wait outside buffer and batches."""
        if self.staging_nbytes is not None:
            return self.staging_nbytes // max(sample_nbytes, 1)
        return size_staging(plan, self.look_ahead)


def size_staging(settings: PlanSettings, look_ahead: int) -> int:
    """Places of a rank's staging that hold two windows of the samples that no buffer has."""
    of_step = _count_reads_of_step(settings)
    if not of_step:
        return settings.padding
    two_windows = 2 * max(look_ahead, 1) * (of_step + 1)
    return two_windows * EXTRA_SHARE // (EXTRA_SHARE - 1) + settings.padding


def divide_budget(settings: PlanSettings, places: int, look_ahead: int) -> tuple[PlanSettings, int]:
    """The plan's settings with a buffer, and each rank's staging, in so many places of all ranks.

    With N samples and M places an epoch after the first reads at most (1 + 1 / `STAGED_SHARE`) *
    (N - M) samples, where no policy reads fewer than N - M.
    """
    ranks, free = settings.ranks, max(settings.samples - places, 0)
    full = replace(settings, buffer=min(places, settings.samples))
    wanted = size_staging(full, look_ahead)
    staged = min(wanted, free // (STAGED_SHARE * ranks), places // ranks)
    # Staging that does not hold the reads of one step is of no use: all is buffer.
    if staged < _count_reads_of_step(full):
        return full, 0
    return replace(settings, buffer=min(places - staged * ranks, settings.samples)), staged


def _count_reads_of_step(settings: PlanSettings) -> int:
    """Samples that a rank reads, or is sent, in a step on average, rounded up."""
    at_hand = settings.buffer // settings.nodes if settings.exchange else settings.buffer
    free = max(settings.samples - at_hand, 0)
    return -(-settings.batch * free // settings.samples)
