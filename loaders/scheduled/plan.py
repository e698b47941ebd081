"""The offline plan: which node holds which sample, and what every rank reads in every step.

Every sample is used once an epoch, so a hit in epoch e + 1 stayed resident across the border
of the epochs, and at most C samples do (C: all buffers together). For any order of epochs and
any eviction, epochs after the first therefore load at least N - C samples. Future knowledge
makes the bound easy to reach: a resident sample that is still to come is always needed
sooner than one that was just used, so nothing resident is ever worth replacing. The plan
pins the first C / K samples that each of K nodes reads in the first epoch and remaps every sample
inside its global batch to a rank of the node that holds it: no sample ever moves between nodes.
Ranks that share no memory are nodes of one rank each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from ..data.whole import written_whole
from ..errors import InputError, UsageError
from .epochs import ORDERS
from .plan_settings import Int64Array, PlanSettings
from .share import costs, shares, within_nodes

FREE = -1
_FORMAT = 1


@dataclass(frozen=True)
class StepPlan:
    """One step. Rank r trains on ids[bounds[r]:bounds[r + 1]] and reads those marked in `load`."""

    ids: Int64Array
    load: NDArray[np.bool_]
    bounds: Int64Array

    def of_rank(self, rank: int) -> tuple[Int64Array, NDArray[np.bool_]]:
        """(ids, which of them to read) of one rank; held ones first, then by id."""
        mine = slice(int(self.bounds[rank]), int(self.bounds[rank + 1]))
        return self.ids[mine], self.load[mine]

    @property
    def sizes(self) -> Int64Array:
        """Samples that each rank trains on."""
        return np.diff(self.bounds)

    @property
    def loads(self) -> Int64Array:
        """Samples that each rank reads."""
        return np.add.reduceat(np.append(self.load, False), self.bounds[:-1]) * (self.sizes > 0)

    def weight(self, rank: int) -> float:
        """n_r * R / B: the factor of a rank's mean loss that makes averaged gradients exact."""
        return float(self.sizes[rank]) * len(self.sizes) / len(self.ids)


@dataclass(frozen=True)
class Plan:
    """A plan is data: `order[k]` is the shuffle that epoch k uses, node `owner[i]` holds sample i.

    `owner` is FREE for samples that no buffer holds.
    """

    settings: PlanSettings
    order: Int64Array
    owner: NDArray[np.int32]

    @property
    def pinned(self) -> int:
        """Samples that stay in the buffers from the first epoch on."""
        return int(np.count_nonzero(self.owner != FREE))

    def steps(self, epoch: int) -> Iterator[StepPlan]:
        """The steps of one epoch, equally many on every rank.

        Raises:
            UsageError: The plan has no such epoch.
        """
        if not 0 <= epoch < self.settings.epochs:
            raise UsageError(
                f"expected an epoch of 0 to {self.settings.epochs - 1}, found {epoch}: plan more"
            )
        sequence = self.settings.shuffle(int(self.order[epoch]))
        size = self.settings.global_batch
        again: dict[int, int] = {}
        for low in range(0, len(sequence), size):
            fresh = min(size, max(self.settings.samples - low, 0))
            batch, wrapped = np.split(sequence[low : low + size], [fresh])
            step = self._first(batch) if epoch == 0 else self._later(batch)
            again = again or self._first_users(step, sequence)
            yield _joined(step, wrapped, again)

    def kept(self, epoch: int) -> Int64Array:
        """Ids that padding uses again at the end of the epoch: kept beside the buffer till then.

        Fewer than there are ranks, over all ranks together.
        """
        sequence = self.settings.shuffle(int(self.order[epoch]))
        return np.unique(sequence[self.settings.samples :])

    def save(self, path: Path) -> None:
        """Writes the plan as .npz; `load_plan` reads it."""
        settings = {f"settings_{name}": value for name, value in asdict(self.settings).items()}
        with written_whole(path) as part, part.open("wb") as file:
            np.savez_compressed(
                file, format=_FORMAT, order=self.order, owner=self.owner, **settings
            )

    def _first_users(self, step: StepPlan, sequence: Int64Array) -> dict[int, int]:
        """Rank that trained on each id that padding uses again, found in the first step."""
        again = sequence[self.settings.samples :]
        rank = np.repeat(np.arange(self.settings.ranks), step.sizes)
        found = np.isin(step.ids, again)
        return dict(zip(step.ids[found].tolist(), rank[found].tolist(), strict=True))

    def _first(self, batch: Int64Array) -> StepPlan:
        """Nothing is held yet: dealt as the baseline deals, one by one."""
        ranks = self.settings.ranks
        dealt = np.concatenate([np.sort(batch[rank::ranks]) for rank in range(ranks)])
        sizes = [len(batch[rank::ranks]) for rank in range(ranks)]
        return StepPlan(dealt, np.ones(len(batch), bool), _bounds(sizes))

    def _later(self, batch: Int64Array) -> StepPlan:
        settings, owner = self.settings, self.owner[batch]
        free = owner == FREE
        missing = np.sort(batch[free])
        held = np.bincount(owner[~free], minlength=settings.nodes)
        weighed = costs(settings.balance, settings.load_s, settings.compute_s)
        count = shares(held, len(missing), *weighed)
        # Another rank of a node has one more each time.
        use, read = within_nodes(held, count, settings.node_ranks, turn=int(batch[0]))
        everyone = np.arange(settings.ranks)
        rank = np.concatenate([np.repeat(everyone, use), np.repeat(everyone, read)])
        ids = np.concatenate([batch[~free][np.argsort(owner[~free], kind="stable")], missing])
        load = np.arange(len(ids)) >= len(ids) - len(missing)
        order = np.lexsort((ids, load, rank))
        return StepPlan(ids[order], load[order], _bounds((use + read).tolist()))


def _joined(step: StepPlan, wrapped: Int64Array, rank_of: dict[int, int]) -> StepPlan:
    """The step with the ids that padding uses again, where they were used first: no load."""
    if len(wrapped) == 0:
        return step
    ranks = len(step.bounds) - 1
    rank = np.concatenate([np.repeat(np.arange(ranks), step.sizes),
                           [rank_of[i] for i in wrapped.tolist()]])  # fmt: skip
    ids = np.concatenate([step.ids, wrapped])
    load = np.concatenate([step.load, np.zeros(len(wrapped), bool)])
    order = np.lexsort((ids, load, rank))
    return StepPlan(ids[order], load[order], _bounds(np.bincount(rank, minlength=ranks).tolist()))


def make_plan(settings: PlanSettings) -> Plan:
    """The plan for these settings: the same on every rank, without communication."""
    order = ORDERS[settings.epoch_order](settings)
    owner = np.full(settings.samples, FREE, np.int32)
    first = settings.shuffle(int(order[0]))
    of_nodes = first.reshape(-1, settings.nodes, settings.node_ranks)
    for node in range(settings.nodes):
        # A padded sequence repeats ids at its end: whoever saw one first keeps it.
        mine = of_nodes[:, node].reshape(-1)
        mine = mine[owner[mine] == FREE]
        _, index = np.unique(mine, return_index=True)
        owner[mine[np.sort(index)][: settings.capacity(node)]] = node
    owner.flags.writeable = False
    return Plan(settings, order, owner)


def load_plan(path: Path) -> Plan:
    """A plan that `Plan.save` wrote.

    Raises:
        InputError: The file is not there or is no plan of this format.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
            if int(data["format"]) != _FORMAT:
                raise InputError(
                    f"{path}: expected a plan of format {_FORMAT}, found {int(data['format'])}"
                )
            names = [n for n in data.files if n.startswith("settings_")]
            settings = {n.removeprefix("settings_"): data[n].item() for n in names}
            plan = Plan(PlanSettings(**settings), data["order"], data["owner"])
    except (OSError, EOFError, KeyError, ValueError, TypeError, BadZipFile) as error:
        raise InputError(f"{path}: expected a saved plan, found: {error}; plan anew") from error
    _require_whole(plan, path)
    return plan


def _require_whole(plan: Plan, path: Path) -> None:
    """Raises InputError where no `make_plan` gives such a plan: ranks would miss samples."""
    settings, owner = plan.settings, plan.owner
    known = owner.shape == (settings.samples,) and owner.dtype == np.int32
    if not known or (owner < FREE).any() or (owner >= settings.nodes).any():
        raise InputError(
            f"{path}: expected for each of {settings.samples} samples a node below "
            f"{settings.nodes} or {FREE}, found others; plan anew"
        )
    held = np.bincount(owner[owner != FREE], minlength=settings.nodes)
    if (held > [settings.capacity(node) for node in range(settings.nodes)]).any():
        raise InputError(f"{path}: expected nodes within their buffers, found {held.max()} held")
    if not np.array_equal(np.sort(plan.order), np.arange(settings.epochs)):
        raise InputError(f"{path}: expected each of {settings.epochs} epochs once, found others")


def _bounds(sizes: list[int]) -> Int64Array:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
