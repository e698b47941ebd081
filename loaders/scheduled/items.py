"""Scheduled buffering of any map-style data set, in the user's own DataLoader.

    settings = PlanSettings(len(dataset), ranks=2, batch=16, epochs=10, buffer=50_000)
    loader = buffered_loader(dataset, settings, transform=augment)
    for epoch in range(10):
        for batch, weight in loader:              # dicts get an entry `weight` instead
            (loss(model(batch)) * weight).backward()

Items are what the data set returns: tensors, tuples, dicts, pictures, of any size. Those that the
plan pins stay in memory as they are, so a transform that draws at random is given here and not to
the data set; it gets the kept item itself and must not change it in place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset, default_collate

from ..data.pool import ReadThreads
from ..errors import UsageError
from ..loader.loader import WEIGHT
from ..loader.stats import Counts, Stats
from ..ranks.world import World
from .dataset import BufferedLoader, ScheduledBatchSampler, StepOrder, require_one_process
from .exchange import require_exchange
from .plan import Plan, PlanSettings, make_plan

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
        self._begin_here()
        missing = [sample for sample in dict.fromkeys(ids) if sample not in self._held]
        found = dict(zip(missing, self._read(missing), strict=True))
        self._counts.add(loads=len(missing), hits=len(ids) - len(missing), requests=len(missing))
        items = [self._held[i] if i in self._held else found[i] for i in ids]
        self._last = items[-1:] or self._last
        owner = self._plan.owner
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
        if hasattr(self._base, "__getitems__") and ids:
            items: list[Item] = self._base.__getitems__(ids)
            return items
        if self._threads == 1 or len(ids) < 2:
            return [self._base[sample] for sample in ids]
        with ReadThreads(min(self._threads, len(ids))) as threads:
            return threads.map(self._base.__getitem__, ids)

    def _begin_here(self) -> None:
        require_one_process()
        if self._process != os.getpid():  # forked: what the parent keeps is not kept twice
            self._held, self._process = {}, os.getpid()

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
    if chosen.get("num_workers"):
        chosen.setdefault("persistent_workers", True)
    return BufferedLoader(
        BufferedItems(dataset, plan, rank, transform=transform),
        batch_sampler=ScheduledBatchSampler(plan, rank),
        collate_fn=WeightedCollate(collate_fn),
        **chosen,
    )
