"""The plan for those who keep their DataLoader: a data set and the batch sampler that leads it.

Samples of this package, whose reads are planned too:

    plan = make_plan(PlanSettings(samples=len(samples), ranks=ranks, batch=batch, ...))
    sampler = ScheduledBatchSampler(plan, rank)
    dataset = ScheduledDataset(samples, plan, rank)
    loader = BufferedLoader(dataset, batch_sampler=sampler, collate_fn=collate)

Any other map-style data set, whose pinned items are asked for once:

    settings = PlanSettings(len(dataset), ranks=2, batch=16, epochs=10, buffer=50_000)
    loader = buffered_loader(dataset, settings, transform=augment)
    for epoch in range(10):
        for batch, weight in loader:              # dicts get an entry `weight` instead
            (loss(model(batch)) * weight).backward()

The buffer lives in the process that reads: `num_workers` is 0, or 1 with
`persistent_workers=True`. A worker that ends with its epoch takes its buffer along, and all of
it is read again (counted as reloads). Several workers are refused: each would hold a part of the
buffer, and the plan deals with ranks only.

Any DataLoader takes the same two, and torchdata's StatefulDataLoader. But the sampler of PyTorch's
own only knows what was drawn from it, which a worker does ahead: for a state to go on from, take
`BufferedLoader` or the StatefulDataLoader.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import count
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate, get_worker_info

from ..data.pool import ReadThreads
from ..data.readers import open_reader
from ..data.samples import SampleSet
from ..errors import UsageError
from ..loader.epochs import Position
from ..loader.loader import WEIGHT, Batch, Counts, Stats
from ..ranks.world import World
from .buffer import StageCounts
from .exchange import require_exchange
from .plan import Plan, PlanSettings, make_plan
from .stage import Stage, StageSettings
from .steps import rank_steps

T = TypeVar("T")
_TURNS = count()


class StepIds(list[int]):
    """The ids of one step of a rank, which step it is, and the factor of its loss.

    `turn` is another number for each iteration of a sampler.
    """

    def __init__(
        self,
        ids: Sequence[int] = (),
        epoch: int = -1,
        step: int = -1,
        weight: float = 1.0,
        turn: int = -1,
    ) -> None:
        super().__init__(ids)
        self.epoch, self.step, self.weight, self.turn = epoch, step, weight, turn


class StepOrder:
    """Sees to it that steps come as the plan has them: what is between may deal them out again."""

    def __init__(self) -> None:
        self._turn, self._step = -1, -1

    def require_next(self, ids: list[int]) -> StepIds:
        """The ids that a DataLoader asks for, as those of a step of the plan.

        The first steps of an iteration may be left out: that is how some loops go on after a stop.

        Raises:
            UsageError: They are not from a ScheduledBatchSampler, or not of the next step.
        """
        if not isinstance(ids, StepIds):
            raise UsageError(
                "expected a batch of a ScheduledBatchSampler, found other ids: "
                "give DataLoader(batch_sampler=ScheduledBatchSampler(plan, rank))"
            )
        # Within an iteration no step may be left out: the loss of a rank that misses some is
        # another.
        if ids.turn == self._turn and ids.step != self._step + 1:
            raise UsageError(
                f"expected step {self._step + 1} of the plan behind step {self._step}, found step "
                f"{ids.step}: something deals the batches of this rank to ranks once more, as "
                "accelerator.prepare(loader) does; give it the model and the optimizer only, or "
                "make the loader with buffered_loader, which it leaves as it is"
            )
        self._turn, self._step = ids.turn, ids.step
        return ids


def require_one_process() -> None:
    """Raises UsageError in one of several workers: each would hold a part of the buffer."""
    worker = get_worker_info()
    if worker is not None and worker.num_workers > 1:
        raise UsageError(
            f"expected num_workers of 0 or 1, found {worker.num_workers}: "
            "the buffer lives in one process"
        )


class ScheduledBatchSampler(Sampler[list[int]]):
    """Lists of ids of one rank, of unequal length, as many on every rank.

    An iteration behind a whole one goes through the next epoch of the plan, unless `set_epoch`
    says otherwise. Lightning tells the epoch to the `sampler` of a batch sampler: that is this one.

    Raises:
        UsageError: The plan has no such rank.
    """

    def __init__(self, plan: Plan, rank: int) -> None:
        if not 0 <= rank < plan.settings.ranks:
            raise UsageError(f"expected a rank below {plan.settings.ranks}, found {rank}")
        self._plan, self._rank = plan, rank
        self._position = Position(asdict(plan.settings) | {"rank": rank}, len(self))
        self._told = False  # a loader says which batches it handed out

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of the epoch, behind a loaded state from where that was."""
        start, epoch, turn = self._position.begin(), self._position.epoch, next(_TURNS)
        steps = rank_steps(self._plan, self._rank, epoch=epoch, start=start)
        for number, step in enumerate(steps, start):
            if not self._told:
                # Without a loader that says what it handed out, what was drawn has to do.
                self._position.step = number + 1
            yield StepIds(step.ids.tolist(), epoch, number, step.weight, turn)
        if not self._told:
            self._position.end()

    def handed_out(self, begin: Callable[[], Iterator[T]]) -> Generator[T, None, None]:
        """The batches of a loader of this sampler: its state is behind the last one taken here.

        Args:
            begin: Gives them; a worker may draw from the sampler ahead.
        """
        self._told = True
        for batch in begin():
            self._position.step += 1
            yield batch
        self._position.end()

    @property
    def sampler(self) -> ScheduledBatchSampler:
        """Itself."""
        return self

    def __len__(self) -> int:
        """Steps of an epoch."""
        return -(-self._plan.settings.uses // self._plan.settings.global_batch)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration goes through `epoch` of the plan."""
        self._position.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Epoch, batches handed out, and the plan's settings.

        Handed out by this sampler; by the loader, where that is a `BufferedLoader`.
        """
        return self._position.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on behind the last batch of `state`.

        Raises:
            UsageError: The state is of another plan or rank.
        """
        self._position.load_state_dict(state)


class BufferedLoader(DataLoader[Any]):
    """A DataLoader of a plan: its state is exact with a worker too, and it can be told the epoch.

    `batch_sampler` is a `ScheduledBatchSampler`. accelerate leaves it as it is, on the CPU: its
    batches are this rank's own already, and `prepare` would deal them to the ranks once more.
    """

    _is_accelerate_prepared = True

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        """The batches of the epoch, behind a loaded state from where that was."""
        return self._sampler.handed_out(super().__iter__)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration goes through `epoch` of the plan."""
        self._sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Epoch, batches handed out, and the plan's settings."""
        return self._sampler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on behind the last batch of `state`.

        Raises:
            UsageError: The state is of another plan or rank.
        """
        self._sampler.load_state_dict(state)

    @property
    def _sampler(self) -> ScheduledBatchSampler:
        assert isinstance(self.batch_sampler, ScheduledBatchSampler)
        return self.batch_sampler


class ScheduledDataset(Dataset[Batch]):
    """Samples by id; batches of the plan through `__getitems__`, from the buffer or read ahead.

    Args:
        samples: What to load.
        plan: As the sampler's.
        rank: As the sampler's.
        stage: How to read ahead.
    """

    def __init__(
        self, samples: SampleSet, plan: Plan, rank: int, stage: StageSettings | None = None
    ) -> None:
        self._samples, self._plan, self._rank = samples, plan, rank
        self._settings = stage or StageSettings()
        self._counts = StageCounts(Counts(1), Counts(1))
        self._stage: Stage | None = None
        self._stream: Generator[Batch, None, None] | None = None
        self._next, self._process = (-1, -1), os.getpid()
        self._order = StepOrder()

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._samples)

    def __getitem__(self, sample: int) -> Batch:
        """One sample, read directly: neither buffered nor counted, without `weight`."""
        direct = open_reader(self._samples)
        try:
            arrays = direct.read(sample)
        finally:
            direct.close()
        return default_collate([arrays | {"sample": sample}])

    def __getitems__(self, ids: list[int]) -> list[Batch]:
        """The samples of one step of the plan, each with `sample` and `weight`.

        Raises:
            UsageError: The ids are not from a ScheduledBatchSampler, or not of the next step, or
                there are several workers.
        """
        ids = self._order.require_next(ids)
        batch = next(self._find_stream(ids.epoch, ids.step))
        assert batch["sample"].tolist() == ids, "the sampler follows another plan"
        weight = batch.pop(WEIGHT)
        rows = range(len(ids))
        return [{name: v[i] for name, v in batch.items()} | {WEIGHT: weight} for i in rows]

    def stats(self) -> Stats:
        """Reads and hits of all processes; waits are the DataLoader's to tell."""
        return self._counts.of_plan.stats([])

    def reloads(self) -> int:
        """Reads of samples that the plan holds already."""
        return self._counts.beside_plan.stats([]).loads

    def close(self) -> None:
        """Closes files and gives the buffer of this process up."""
        if self._stream is not None:
            self._stream.close()
        if self._stage is not None:
            self._stage.close()
        self._stream, self._stage = None, None

    def _find_stream(self, epoch: int, step: int) -> Generator[Batch, None, None]:
        """The stream of batches, begun again unless the step asked for is its next."""
        if self._process != os.getpid():  # forked: threads and files stayed behind
            self._stream, self._stage, self._process = None, None, os.getpid()
        # A step out of turn begins a new stream there; the buffer stays as it is.
        if self._stream is None or self._next != (epoch, step):
            if self._stream is not None:
                self._stream.close()
            if self._stage is None:
                require_one_process()
                counts, settings = self._counts, self._settings
                self._stage = Stage(self._samples, self._plan, self._rank, settings, counts)
            self._stream = self._stage.batches(epoch, step)
        self._next = (epoch, step + 1)
        return self._stream

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_stage": None, "_stream": None, "_next": (-1, -1)}


def collate(samples: list[Batch]) -> Batch:
    """The samples of `__getitems__` stacked field by field; `weight` once."""
    weight = samples[0][WEIGHT]
    batch: Batch = default_collate([{k: v for k, v in s.items() if k != WEIGHT} for s in samples])
    return batch | {WEIGHT: weight}


# Any map-style data set. Items are what it returns: tensors, tuples, dicts, pictures, of any size.
# Those that the plan pins stay in memory as they are, so a transform that draws at random is given
# here and not to the data set; it gets the kept item itself and must not change it in place.

Item = Any
"""What a data set returns for an id: whatever its maker likes."""


class StepItems(list[Item]):
    """The items of one step of a rank, and `weight`, the factor of the loss."""

    def __init__(self, items: Sequence[Item], weight: float) -> None:
        super().__init__(items)
        self.weight = weight


class BufferedItems(Dataset[Item]):
    """Items of a data set by id; those that the plan pins are asked for once.

    The buffer lives in the process that reads: `num_workers` is 0, or 1 with
    `persistent_workers=True`, which reads ahead.

    Args:
        base: A map-style data set.
        plan: Made for as many samples, without memory that ranks share.
        rank: As the sampler's.
        transform: Of each item, after the buffer: called again in every epoch.
        threads: Items asked for at once; 1: one by one, as nobody knows whether `base` allows more.

    Raises:
        UsageError: The plan is of another number of samples, or of shared memory.
    """

    def __init__(
        self,
        base: Item,
        plan: Plan,
        rank: int,
        *,
        transform: Callable[[Item], Item] | None = None,
        threads: int = 1,
    ) -> None:
        # A plan of nodes needs a buffer that ranks share, which this class has not.
        require_exchange(plan.settings, None)
        if len(base) != plan.settings.samples or plan.settings.node_ranks != 1:
            raise UsageError(
                f"expected a plan of {len(base)} samples and a buffer per rank, found one of "
                f"{plan.settings.samples} and {plan.settings.node_ranks} ranks a buffer: plan again"
            )
        self._base, self._plan, self._rank = base, plan, rank
        self._transform, self._threads = transform, threads
        self._held: dict[int, Item] = {}
        self._last: list[Item] = []
        self._counts, self._process = Counts(1), os.getpid()
        self._order = StepOrder()

    def __len__(self) -> int:
        """Number of items."""
        return len(self._base)

    def __getitem__(self, sample: int) -> Item:
        """One item, asked for again: neither buffered nor counted."""
        return self._presented(self._base[sample])

    def __getitems__(self, ids: list[int]) -> StepItems:
        """The items of one step of the plan.

        Raises:
            UsageError: The ids are not from a ScheduledBatchSampler, or not of the next step, or
                there are several workers.
        """
        ids = self._order.require_next(ids)
        require_one_process()
        if self._process != os.getpid():  # forked: what the parent keeps is not kept twice
            self._held, self._process = {}, os.getpid()
        # Ask for what is not kept, each item once.
        missing = [sample for sample in dict.fromkeys(ids) if sample not in self._held]
        found = dict(zip(missing, self._read(missing), strict=True))
        self._counts.add(loads=len(missing), hits=len(ids) - len(missing), requests=len(missing))
        items = [self._held[i] if i in self._held else found[i] for i in ids]
        self._last = items[-1:] or self._last
        owner = self._plan.owner
        # The plan pins the first use of what this rank owns for the whole run, and evicts nothing.
        self._held |= {i: item for i, item in found.items() if owner[i] == self._rank}
        assert len(self._held) <= self._plan.settings.capacity(self._rank)
        shown = [self._presented(item) for item in items or self._stand_in()]
        return StepItems(shown, ids.weight)

    def stats(self) -> Stats:
        """Items asked for, and served from memory. Waits are the DataLoader's to tell."""
        return self._counts.stats([])

    def _stand_in(self) -> list[Item]:
        """An item of weight 0 where this rank has none in a step: nothing cannot be collated."""
        return self._last or [self._base[0]]

    def _presented(self, item: Item) -> Item:
        return item if self._transform is None else self._transform(item)

    def _read(self, ids: list[int]) -> list[Item]:
        # Where the data set takes many at once, it knows best how; else threads ask for each.
        if hasattr(self._base, "__getitems__") and ids:
            items: list[Item] = self._base.__getitems__(ids)
            return items
        if self._threads == 1 or len(ids) < 2:
            return [self._base[sample] for sample in ids]
        with ReadThreads(min(self._threads, len(ids))) as threads:
            return threads.map(self._base.__getitem__, ids)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_held": {}, "_last": []}


class WeightedCollate:
    """Batches of a collate function, with the weight of the step.

    A batch that is a dict gets an entry `weight`; any other becomes (batch, weight).
    """

    def __init__(self, collate: Callable[[list[Item]], Item] = default_collate) -> None:
        self._collate = collate

    def __call__(self, items: list[Item]) -> Item:
        """The batch of the items of a step."""
        assert isinstance(items, StepItems), "expected the items of a BufferedItems"
        batch = self._collate(list(items))
        weight = torch.tensor(items.weight, dtype=torch.float64)
        return batch | {WEIGHT: weight} if isinstance(batch, dict) else (batch, weight)


def buffered_loader(
    dataset: Item,
    settings: PlanSettings,
    *,
    rank: int | None = None,
    transform: Callable[[Item], Item] | None = None,
    collate_fn: Callable[[list[Item]], Item] = default_collate,
    options: Mapping[str, Any] | None = None,
) -> BufferedLoader:
    """A DataLoader of any map-style data set that asks for each pinned item once.

    Global batches hold what a DistributedSampler's do; gradients of losses scaled by `weight` and
    averaged over ranks are equal to the DataLoader's, to rounding. It goes on with the next epoch
    by itself, and has set_epoch, state_dict and load_state_dict.

    Args:
        dataset: Map-style: `__len__` and `__getitem__`.
        settings: Samples, ranks, batch of a rank, epochs, and how many items are kept together.
        rank: Of this process; None: as the launcher says.
        transform: Of each item, after the buffer.
        collate_fn: Of the items of a rank's step.
        options: Of the DataLoader: pin_memory; num_workers of 0 or 1.

    Raises:
        UsageError: The settings make no sense.
    """
    plan, rank = make_plan(settings), World.detect().rank if rank is None else rank
    chosen = dict(options or {})
    # A worker that ends with its epoch would take the buffer along.
    if chosen.get("num_workers"):
        chosen.setdefault("persistent_workers", True)
    return BufferedLoader(
        BufferedItems(dataset, plan, rank, transform=transform),
        batch_sampler=ScheduledBatchSampler(plan, rank),
        collate_fn=WeightedCollate(collate_fn),
        **chosen,
    )
