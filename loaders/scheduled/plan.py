"""The offline plan: which node holds which sample, and what every rank reads in every step.

Every sample is used once an epoch, so a hit in epoch e + 1 stayed resident across the border
of the epochs, and at most C samples do (C: all buffers together). For any order of epochs and
any eviction, epochs after the first therefore load at least N - C samples. Future knowledge
makes the bound easy to reach: a resident sample that is still to come is always needed
sooner than one that was just used, so nothing resident is ever worth replacing. The plan
pins the first C / K samples that each of K nodes reads in the first epoch and remaps every sample
inside its global batch to a rank of the node that holds it: no sample ever moves between nodes,
unless they exchange (see `vanidl_loaders.scheduled.dealt`).
Ranks that share no memory are nodes of one rank each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from ..data.order import IdArray
from ..data.whole import written_whole
from ..errors import InputError, UsageError
from .dealt import dealt
from .epochs import ORDERS
from .plan_settings import Int64Array, PlanSettings
from .share import costs, shares, within_nodes

FREE = -1
_FORMAT = 1
_AT_ONCE = 1 << 20
"""Samples whose owners are found in one go: their arrays are small beside the plan's."""


@dataclass(frozen=True)
class StepPlan:
    """One step of consecutive ranks.

    The rank `first_rank` + r trains on ids[bounds[r]:bounds[r + 1]], and reads those marked in
    `load`.

    Attributes:
        ids: Of these ranks, held ones first, then by id.
        load: Which of them are read.
        bounds: Where each rank's begin; then the end.
        samples: Of the step over all ranks.
        ranks: R.
        first_rank: Of these.
        source: The node that each comes from, by which it is read where `load` marks it; None:
            that of its rank.
    """

    ids: Int64Array
    load: NDArray[np.bool_]
    bounds: Int64Array
    samples: int
    ranks: int
    first_rank: int = 0
    source: NDArray[np.int32] | None = None

    def of_rank(self, rank: int) -> tuple[Int64Array, NDArray[np.bool_]]:
        """(ids, which of them to read) of one rank; held ones first, then by id."""
        own = rank - self.first_rank
        mine = slice(int(self.bounds[own]), int(self.bounds[own + 1]))
        return self.ids[mine], self.load[mine]

    def source_of_rank(self, rank: int) -> NDArray[np.int32] | None:
        """`source` of the ids of one rank."""
        own = rank - self.first_rank
        return None if self.source is None else self.source[self.bounds[own] : self.bounds[own + 1]]

    @property
    def sizes(self) -> Int64Array:
        """Samples that each of the ranks trains on."""
        return np.diff(self.bounds)

    @property
    def loads(self) -> Int64Array:
        """Samples that are read for each of the ranks."""
        return np.add.reduceat(np.append(self.load, False), self.bounds[:-1]) * (self.sizes > 0)

    def weight(self, rank: int) -> float:
        """n_r * R / B: the factor of a rank's mean loss that makes averaged gradients exact."""
        own = rank - self.first_rank
        return int(self.bounds[own + 1] - self.bounds[own]) * self.ranks / self.samples


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

    def steps(self, epoch: int, nodes: range | None = None) -> Iterator[StepPlan]:
        """The steps of one epoch, equally many on every rank.

        Args:
            epoch: 0, 1, ...
            nodes: Consecutive nodes whose ranks' steps are wanted; None: all. Few cost less.

        Raises:
            UsageError: The plan has no such epoch.
        """
        self._require(epoch)
        nodes = nodes or range(self.settings.nodes)
        sequence = self.settings.shuffle(int(self.order[epoch]))
        size = self.settings.global_batch
        if self.settings.exchange:
            for low in range(0, len(sequence), size):
                yield self._dealt(sequence[low : low + size], low, nodes, first=epoch == 0)
            return
        if self.settings.ranks == 1:
            for ids, load in self.alone(epoch):
                yield StepPlan(ids, load, _bounds([len(ids)]), len(ids), 1)
            return
        again = sequence[self.settings.samples :]
        rank_of: dict[int, int] = {}
        for low in range(0, len(sequence), size):
            fresh = min(size, max(self.settings.samples - low, 0))
            batch, wrapped = np.split(sequence[low : low + size].astype(np.int64), [fresh])
            step = self._first(batch, nodes) if epoch == 0 else self._later(batch, nodes)
            if low == 0:  # holds all that padding uses again: less than an id of each rank
                rank_of = _users(step, again)
            yield _joined(step, wrapped, rank_of)

    def alone(self, epoch: int) -> Iterator[tuple[Int64Array, NDArray[np.bool_]]]:
        """(ids, which of them to read) of each step of an epoch, where there is one rank.

        There is nothing to share out, so all are sorted in one go.

        Raises:
            UsageError: The plan has no such epoch.
        """
        self._require(epoch)
        sequence, size = self.settings.shuffle(int(self.order[epoch])), self.settings.batch
        free = (self.owner[sequence] == FREE) | (epoch == 0)
        order = np.lexsort((sequence, free, np.arange(len(sequence)) // size))
        ids, load = sequence[order].astype(np.int64), free[order]
        for low in range(0, len(ids), size):
            yield ids[low : low + size], load[low : low + size]

    def kept(self, epoch: int) -> Int64Array:
        """Ids that padding uses again at the end of the epoch: kept beside the buffer till then.

        Fewer than there are ranks, over all ranks together.
        """
        sequence = self.settings.shuffle(int(self.order[epoch]))
        return np.unique(sequence[self.settings.samples :])

    def _require(self, epoch: int) -> None:
        if not 0 <= epoch < self.settings.epochs:
            raise UsageError(
                f"expected an epoch of 0 to {self.settings.epochs - 1}, found {epoch}: plan more"
            )

    def save(self, path: Path) -> None:
        """Writes the plan as .npz; `load_plan` reads it."""
        settings = {f"settings_{name}": value for name, value in asdict(self.settings).items()}
        with written_whole(path) as part, part.open("wb") as file:
            np.savez_compressed(
                file, format=_FORMAT, order=self.order, owner=self.owner, **settings
            )

    def _dealt(self, batch: IdArray, low: int, nodes: range, *, first: bool) -> StepPlan:
        each, ranks = self.settings.node_ranks, self.settings.ranks
        step = dealt(self.settings, self.owner, batch, low, first=first)
        mine = slice(nodes.start * each, nodes.stop * each)
        ids, load = step.ids[:, mine].T.reshape(-1), step.load[:, mine].T.reshape(-1)
        source = step.source[:, mine].T.reshape(-1)
        bounds = _bounds([len(step.ids)] * (len(nodes) * each))
        return StepPlan(ids, load, bounds, len(batch), ranks, mine.start, source)

    def _first(self, batch: Int64Array, nodes: range) -> StepPlan:
        """Nothing is held yet: dealt as the baseline deals, one by one; what is left, to nodes."""
        ranks, each = self.settings.ranks, self.settings.node_ranks
        mine = range(nodes.start * each, nodes.stop * each)
        whole = len(batch) // ranks * ranks
        left = [whole + rank % each * self.settings.nodes + rank // each for rank in mine]
        dealt = [
            np.sort(np.append(batch[rank:whole:ranks], batch[last : last + 1]))
            for rank, last in zip(mine, left, strict=True)
        ]
        ids, bounds = np.concatenate(dealt), _bounds([len(ids) for ids in dealt])
        return StepPlan(ids, np.ones(len(ids), bool), bounds, len(batch), ranks, mine.start)

    def _later(self, batch: Int64Array, nodes: range) -> StepPlan:
        settings, owner = self.settings, self.owner[batch]
        free = owner == FREE
        held = np.bincount(owner[~free], minlength=settings.nodes)
        weighed = costs(settings.balance, settings.load_s, settings.compute_s)
        count = shares(held, len(batch) - int(held.sum()), *weighed)
        # Another rank of a node has one more each time.
        each, these = settings.node_ranks, slice(nodes.start, nodes.stop)
        use, read = within_nodes(held[these], count[these], each, turn=int(batch[0]))
        before = int(count[: nodes.start].sum())
        missing = np.sort(batch[free])[before : before + int(read.sum())]
        mine = (owner >= nodes.start) & (owner < nodes.stop)
        everyone = np.arange(nodes.start * each, nodes.stop * each)
        rank = np.concatenate([np.repeat(everyone, use), np.repeat(everyone, read)])
        ids = np.concatenate([batch[mine][np.argsort(owner[mine], kind="stable")], missing])
        load = np.arange(len(ids)) >= len(ids) - len(missing)
        order, bounds = np.lexsort((ids, load, rank)), _bounds((use + read).tolist())
        first = nodes.start * each
        return StepPlan(ids[order], load[order], bounds, len(batch), settings.ranks, first)


def _users(step: StepPlan, again: IdArray) -> dict[int, int]:
    """Rank that trained on each of some ids, as far as they are in the step."""
    rank = step.first_rank + np.repeat(np.arange(len(step.sizes)), step.sizes)
    found = np.isin(step.ids, again) if len(again) else np.zeros(len(step.ids), bool)
    return dict(zip(step.ids[found].tolist(), rank[found].tolist(), strict=True))


def _joined(step: StepPlan, wrapped: Int64Array, rank_of: dict[int, int]) -> StepPlan:
    """The step with the ids that padding uses again, where they were used first: no load."""
    if len(wrapped) == 0:
        return step
    ranks, first = len(step.sizes), step.first_rank
    here = [sample for sample in wrapped.tolist() if sample in rank_of]
    rank = np.concatenate([first + np.repeat(np.arange(ranks), step.sizes),
                           np.array([rank_of[sample] for sample in here], np.int64)])  # fmt: skip
    ids = np.concatenate([step.ids, np.array(here, np.int64)])
    load = np.concatenate([step.load, np.zeros(len(here), bool)])
    order = np.lexsort((ids, load, rank))
    bounds = _bounds(np.bincount(rank - first, minlength=ranks).tolist())
    samples = step.samples + len(wrapped)
    return StepPlan(ids[order], load[order], bounds, samples, step.ranks, first)


def make_plan(settings: PlanSettings) -> Plan:
    """The plan for these settings: the same on every rank, without communication."""
    order = ORDERS[settings.epoch_order](settings)
    owner = np.full(settings.samples, FREE, np.int32)
    # What padding repeats at the end belongs to whoever saw it first.
    first = settings.shuffle(int(order[0]))[: settings.samples]
    capacity = np.array([settings.capacity(node) for node in range(settings.nodes)])
    each, rows = settings.node_ranks, max(_AT_ONCE // settings.ranks, 1)
    for row in range(0, -(-len(first) // settings.ranks), rows):
        ids = first[row * settings.ranks : (row + rows) * settings.ranks]
        turn, rank = np.divmod(np.arange(len(ids)), settings.ranks)
        whole = len(ids) // settings.ranks * settings.ranks
        node, local = rank // each, rank % each
        # What makes no whole turn goes round the nodes: each then reads what its buffer can hold.
        local[whole:], node[whole:] = np.divmod(rank[whole:], settings.nodes)
        place = (row + turn) * each + local
        owner[ids] = np.where(place < capacity[node], node, FREE)
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
        raise InputError(f"{path}: expected a saved plan, found: {error}; plan again") from error
    _require_whole(plan, path)
    return plan


def _require_whole(plan: Plan, path: Path) -> None:
    """Raises InputError where no `make_plan` gives such a plan: ranks would miss samples."""
    settings, owner = plan.settings, plan.owner
    known = owner.shape == (settings.samples,) and owner.dtype == np.int32
    if not known or (owner < FREE).any() or (owner >= settings.nodes).any():
        raise InputError(
            f"{path}: expected for each of {settings.samples} samples a node below "
            f"{settings.nodes} or {FREE}, found others; plan again"
        )
    held = np.bincount(owner[owner != FREE], minlength=settings.nodes)
    if (held > [settings.capacity(node) for node in range(settings.nodes)]).any():
        raise InputError(f"{path}: expected nodes within their buffers, found {held.max()} held")
    if not np.array_equal(np.sort(plan.order), np.arange(settings.epochs)):
        raise InputError(f"{path}: expected each of {settings.epochs} epochs once, found others")


def _bounds(sizes: list[int]) -> Int64Array:
    return np.array([0, *accumulate(sizes)], np.int64)
