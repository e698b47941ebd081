"""The offline plan: which node holds which sample, and what every rank reads in every step.

Every sample is used once an epoch, so a hit in epoch e + 1 stayed resident across the border
of the epochs, and at most C samples do (C: all buffers together). For any order of epochs and
any eviction, epochs after the first therefore load at least N - C samples. Future knowledge
makes the bound easy to reach: a resident sample that is still to come is always needed
sooner than one that was just used, so nothing resident is ever worth replacing. The plan
pins the first C / K samples that each of K nodes reads in the first epoch and remaps every sample
inside its global batch to a rank of the node that holds it: no sample ever moves between nodes.
What no buffer holds is shared out among ranks so that the slowest has least to do
(`share_misses`). Ranks that share no memory are nodes of one rank each.

Where nodes exchange, every rank trains on what DistributedSampler gives it (`deal_batch`). A sample
that a buffer holds comes from there, whichever node it is on; one that no buffer holds is read by
one node. With balance "load" nodes read equally many in each step, within one: those with more to
read leave some to others, which read them and send them on.

`measure_costs` walks through a plan and counts what it reads, beside the bound that no plan beats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from ..data.coalesce import find_runs
from ..data.order import IdArray, compact_ids, pad_order
from ..data.pread import written_whole
from ..errors import InputError, UsageError, counted

Int64Array = NDArray[np.int64]
BALANCES = ("load", "batch", "time")
EPOCH_ORDERS = ("shuffle", "greedy", "pso")
"""How the order of epochs is chosen, see `vanidl_loaders.scheduled.plan`."""

FREE = -1  # of a sample that no buffer holds
_FORMAT = 1  # of a saved plan
_AT_ONCE = 1 << 20
"""Samples whose owners are found in one go: their arrays are small beside the plan's."""


@dataclass(frozen=True)
class PlanSettings:
    """What a plan is made from; equal settings give equal plans on every rank.

    Attributes:
        samples: N, of the dataset.
        ranks: R.
        batch: Samples of a rank in a step of the baseline; the global batch is ranks * batch.
        epochs: E.
        buffer: C, samples that all ranks hold together; node k holds C // K of them or one more.
        seed: Of the shuffles, as in the baseline.
        drop_last: Drop the incomplete global batch instead of padding, as in the baseline.
        shuffled: False: ids in order, every epoch.
        balance: "load", "batch" or "time".
        epoch_order: "shuffle" (as drawn), "greedy" or "pso": see `ORDERS`.
        load_s: Seconds of reading a sample, for balance "time".
        compute_s: Seconds of training on a sample, for balance "time".
        node_ranks: Consecutive ranks that share a node's buffer; 1: each rank has its own, and K,
            the number of nodes, is R here and below.
        exchange: Nodes send samples to each other: every rank trains on DistributedSampler's
            batches, whichever node holds them.
    """

    samples: int
    ranks: int = 1
    batch: int = 16
    epochs: int = 1
    buffer: int = 0
    seed: int = 0
    drop_last: bool = False
    shuffled: bool = True
    balance: str = "load"
    epoch_order: str = "shuffle"
    load_s: float = 1.0
    compute_s: float = 1.0
    node_ranks: int = 1
    exchange: bool = False

    def __post_init__(self) -> None:
        # Each number alone, then how they fit together.
        least = {"samples": 1, "ranks": 1, "batch": 1, "epochs": 1, "buffer": 0, "node_ranks": 1}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise UsageError(
                    f"expected {name} of at least {bound}, found {getattr(self, name)}: "
                    "correct the options"
                )
        # A word of each list.
        if self.balance not in BALANCES:
            raise UsageError(
                f"expected a balance among {', '.join(BALANCES)}, found {self.balance}"
            )
        # Padding repeats fewer samples than there are, and every node has as many ranks.
        if self.samples < self.ranks:
            raise UsageError(
                f"expected at least one sample per rank, found "
                f"{counted(self.samples, 'sample')} for {counted(self.ranks, 'rank')}: use fewer "
                "ranks"
            )
        if self.ranks % self.node_ranks:
            raise UsageError(
                f"expected as many ranks on every node, found "
                f"{counted(self.ranks, 'rank')} and "
                f"{self.node_ranks} of a node: let each rank have its own buffer"
            )
        if self.epoch_order not in EPOCH_ORDERS:
            raise UsageError(
                f"expected an epoch order among {', '.join(EPOCH_ORDERS)}, found {self.epoch_order}"
            )

    @property
    def weights(self) -> tuple[float, float]:
        """(seconds of a load, seconds of training on a sample) that the balance weighs by.

        "load" levels what ranks read, "batch" the sizes of their batches, "time" both by their
        measured seconds per sample.
        """
        seconds = {"load": (1.0, 0.0), "batch": (0.0, 1.0), "time": (self.load_s, self.compute_s)}
        return seconds[self.balance]

    @property
    def global_batch(self) -> int:
        """Samples of a step over all ranks."""
        return self.ranks * self.batch

    @property
    def padding(self) -> int:
        """Uses of an epoch beyond one of each sample: fewer than there are ranks."""
        return 0 if self.drop_last else -self.samples % self.ranks

    @property
    def nodes(self) -> int:
        """K, buffers."""
        return self.ranks // self.node_ranks

    def node(self, rank: int) -> int:
        """Whose buffer a rank has."""
        return rank // self.node_ranks

    def capacity(self, node: int) -> int:
        """Samples that one buffer holds."""
        return self.buffer // self.nodes + (node < self.buffer % self.nodes)

    @property
    def uses(self) -> int:
        """Ids of an epoch over all ranks: the length of `shuffle`."""
        if self.drop_last:
            return self.samples // self.global_batch * self.global_batch
        return self.samples + self.padding

    def shuffle(self, number: int) -> IdArray:
        """The baseline's global sequence of ids in its epoch `number`, padded or cut."""
        order = compact_ids(self.samples, seed=self.seed, epoch=number, shuffle=self.shuffled)
        return pad_order(order, ranks=self.ranks, batch=self.batch, drop_last=self.drop_last)


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
        uses = slice(int(self.bounds[own]), int(self.bounds[own + 1]))
        return self.ids[uses], self.load[uses]

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
        self._require_epoch(epoch)
        nodes = nodes or range(self.settings.nodes)
        sequence = self.settings.shuffle(int(self.order[epoch]))
        size = self.settings.global_batch
        # Nodes that exchange train on DistributedSampler's batches: left is who reads what.
        if self.settings.exchange:
            for low in range(0, len(sequence), size):
                yield self._plan_exchange(sequence[low : low + size], low, nodes, first=epoch == 0)
            return
        # One rank has nothing to share out.
        if self.settings.ranks == 1:
            for ids, load in self.alone(epoch):
                yield StepPlan(ids, load, _find_bounds([len(ids)]), len(ids), 1)
            return
        # Else a sample goes to a rank of the node that holds it. What padding repeats at the end of
        # the epoch goes to whoever had it in the first step, and kept it.
        again = sequence[self.settings.samples :]
        rank_of: dict[int, int] = {}
        for low in range(0, len(sequence), size):
            fresh = min(size, max(self.settings.samples - low, 0))
            batch, wrapped = np.split(sequence[low : low + size].astype(np.int64), [fresh])
            step = self._plan_first(batch, nodes) if epoch == 0 else self._plan_later(batch, nodes)
            if low == 0:  # holds all that padding uses again: less than an id of each rank
                # Rank that trained on each of some ids, as far as they are in the step.
                rank = step.first_rank + np.repeat(np.arange(len(step.sizes)), step.sizes)
                used = np.isin(step.ids, again) if len(again) else np.zeros(len(step.ids), bool)
                rank_of = dict(zip(step.ids[used].tolist(), rank[used].tolist(), strict=True))
            yield _append_wrapped(step, wrapped, rank_of)

    def alone(self, epoch: int) -> Iterator[tuple[Int64Array, NDArray[np.bool_]]]:
        """(ids, which of them to read) of each step of an epoch, where there is one rank.

        There is nothing to share out, so all are sorted in one go.

        Raises:
            UsageError: The plan has no such epoch.
        """
        self._require_epoch(epoch)
        sequence, size = self.settings.shuffle(int(self.order[epoch])), self.settings.batch
        free = (self.owner[sequence] == FREE) | (epoch == 0)
        # By step, within it held ones first, then by id: by the last key first.
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

    def _require_epoch(self, epoch: int) -> None:
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

    def _plan_exchange(self, batch: IdArray, low: int, nodes: range, *, first: bool) -> StepPlan:
        each, ranks = self.settings.node_ranks, self.settings.ranks
        step = deal_batch(self.settings, self.owner, batch, low, first=first)
        # A column is a rank's batch: those of these nodes, one behind the other.
        own_ranks = slice(nodes.start * each, nodes.stop * each)
        ids, load = step.ids[:, own_ranks].T.reshape(-1), step.load[:, own_ranks].T.reshape(-1)
        source = step.source[:, own_ranks].T.reshape(-1)
        bounds = _find_bounds([len(step.ids)] * (len(nodes) * each))
        return StepPlan(ids, load, bounds, len(batch), ranks, own_ranks.start, source)

    def _plan_first(self, batch: Int64Array, nodes: range) -> StepPlan:
        """Nothing is held yet: dealt as the baseline deals, one by one; what is left, to nodes."""
        ranks, each = self.settings.ranks, self.settings.node_ranks
        own_ranks = range(nodes.start * each, nodes.stop * each)
        whole = len(batch) // ranks * ranks
        # What makes no whole turn of the ranks goes round the nodes, as `make_plan` has it.
        left = [whole + rank % each * self.settings.nodes + rank // each for rank in own_ranks]
        dealt = [
            np.sort(np.append(batch[rank:whole:ranks], batch[last : last + 1]))
            for rank, last in zip(own_ranks, left, strict=True)
        ]
        ids, bounds = np.concatenate(dealt), _find_bounds([len(ids) for ids in dealt])
        return StepPlan(ids, np.ones(len(ids), bool), bounds, len(batch), ranks, own_ranks.start)

    def _plan_later(self, batch: Int64Array, nodes: range) -> StepPlan:
        # How many each node uses: those that it holds, and a share of those that nobody does.
        settings, owner = self.settings, self.owner[batch]
        free = owner == FREE
        held = np.bincount(owner[~free], minlength=settings.nodes)
        count = share_misses(held, len(batch) - int(held.sum()), *settings.weights)
        # And each rank of a node. Another one has one more each time.
        each, these = settings.node_ranks, slice(nodes.start, nodes.stop)
        use, read = divide_within_nodes(held[these], count[these], each, turn=int(batch[0]))
        # Which samples these are: missing ones in order of their ids, so that the reads of a rank
        # can be merged; nodes before these have taken theirs.
        before = int(count[: nodes.start].sum())
        missing = np.sort(batch[free])[before : before + int(read.sum())]
        here = (owner >= nodes.start) & (owner < nodes.stop)
        everyone = np.arange(nodes.start * each, nodes.stop * each)
        rank = np.concatenate([np.repeat(everyone, use), np.repeat(everyone, read)])
        ids = np.concatenate([batch[here][np.argsort(owner[here], kind="stable")], missing])
        load = np.arange(len(ids)) >= len(ids) - len(missing)
        order, bounds = np.lexsort((ids, load, rank)), _find_bounds((use + read).tolist())
        first = nodes.start * each
        return StepPlan(ids[order], load[order], bounds, len(batch), settings.ranks, first)


def _append_wrapped(step: StepPlan, wrapped: Int64Array, rank_of: dict[int, int]) -> StepPlan:
    """The step with the ids that padding uses again, where they were used first: no load."""
    if len(wrapped) == 0:
        return step
    ranks, first = len(step.sizes), step.first_rank
    # Of these ranks; the ids of others are in their own steps.
    here = [sample for sample in wrapped.tolist() if sample in rank_of]
    rank = np.concatenate([first + np.repeat(np.arange(ranks), step.sizes),
                           np.array([rank_of[sample] for sample in here], np.int64)])  # fmt: skip
    ids = np.concatenate([step.ids, np.array(here, np.int64)])
    load = np.concatenate([step.load, np.zeros(len(here), bool)])
    order = np.lexsort((ids, load, rank))
    bounds = _find_bounds(np.bincount(rank - first, minlength=ranks).tolist())
    samples = step.samples + len(wrapped)
    return StepPlan(ids[order], load[order], bounds, samples, step.ranks, first)


def make_plan(settings: PlanSettings) -> Plan:
    """The plan for these settings: the same on every rank, without communication."""
    order = ORDERS[settings.epoch_order](settings)
    owner = np.full(settings.samples, FREE, np.int32)
    # What padding repeats at the end belongs to whoever saw it first.
    first = settings.shuffle(int(order[0]))[: settings.samples]
    capacity = np.array([settings.capacity(node) for node in range(settings.nodes)])
    # Walk the first epoch as it is dealt, some steps at once: the first C / K samples that a node
    # reads stay in its buffer.
    each, rows = settings.node_ranks, max(_AT_ONCE // settings.ranks, 1)
    for row in range(0, -(-len(first) // settings.ranks), rows):
        ids = first[row * settings.ranks : (row + rows) * settings.ranks]
        turn, rank = np.divmod(np.arange(len(ids)), settings.ranks)
        whole = len(ids) // settings.ranks * settings.ranks
        node, local = rank // each, rank % each
        # What makes no whole turn goes round the nodes: each then reads what its buffer can hold.
        local[whole:], node[whole:] = np.divmod(rank[whole:], settings.nodes)
        place = (row + turn) * each + local  # which sample it is of those that its node reads
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
            # Settings lie beside the arrays, so that a plan says itself what it is for.
            names = [n for n in data.files if n.startswith("settings_")]
            values = {n.removeprefix("settings_"): data[n].item() for n in names}
            plan = Plan(PlanSettings(**values), data["order"], data["owner"])
    except (OSError, EOFError, KeyError, ValueError, TypeError, BadZipFile) as error:
        raise InputError(f"{path}: expected a saved plan, found: {error}; plan again") from error

    # A node for each sample, within the buffers, and every epoch once, as `make_plan` has it: else
    # ranks would overrun memory or miss samples.
    settings, owner = plan.settings, plan.owner
    of_samples = owner.shape == (settings.samples,) and owner.dtype == np.int32
    if not of_samples or (owner < FREE).any() or (owner >= settings.nodes).any():
        raise InputError(
            f"{path}: expected for each of {settings.samples} samples a node below "
            f"{settings.nodes} or {FREE}, found others; plan again"
        )
    held = np.bincount(owner[owner != FREE], minlength=settings.nodes)
    if (held > [settings.capacity(node) for node in range(settings.nodes)]).any():
        raise InputError(f"{path}: expected nodes within their buffers, found {held.max()} held")
    if not np.array_equal(np.sort(plan.order), np.arange(settings.epochs)):
        raise InputError(f"{path}: expected each of {settings.epochs} epochs once, found others")
    return plan


def _find_bounds(sizes: list[int]) -> Int64Array:
    return np.array([0, *accumulate(sizes)], np.int64)


@dataclass(frozen=True)
class DealtBatch:
    """A global batch: column r of each array is the batch of rank r, in DistributedSampler's order.

    Attributes:
        ids: Samples.
        load: Which of them are read from storage.
        source: The node that reads each, or whose buffer holds it.
    """

    ids: Int64Array
    load: NDArray[np.bool_]
    source: NDArray[np.int32]


def deal_batch(
    settings: PlanSettings, owner: NDArray[np.int32], batch: IdArray, low: int, *, first: bool
) -> DealtBatch:
    """The global batch of the ids at place `low` of an epoch's sequence.

    Args:
        settings: Of the plan.
        owner: The node that holds each sample; negative: none.
        batch: Ids, as many for each rank.
        low: Place of the first of them in the epoch, beyond `settings.samples` for padding.
        first: In the first epoch everything is read, by the node that is to hold it.
    """
    ids = batch.astype(np.int64)
    place = np.arange(low, low + len(ids))
    rank = place % settings.ranks
    source = (rank // settings.node_ranks).astype(np.int32)  # of whoever uses it
    held = owner[ids]
    load = held < 0
    # Who reads what no buffer holds: in the first epoch whoever is to keep it, later its user, or,
    # to level the reads of a step, another node that sends it on.
    if first:
        # As `make_plan` has it: what makes no whole turn of the ranks goes round the nodes.
        turns = settings.samples // settings.ranks * settings.ranks
        source = np.where(place >= turns, rank % settings.nodes, source).astype(np.int32)
        load |= place < settings.samples  # but what padding repeats is held by then
    elif settings.balance == "load":
        source[load] = _level_reads(source[load], settings.nodes, low // settings.global_batch)
    source = np.where(load, source, held)
    across = (-1, settings.ranks)
    return DealtBatch(ids.reshape(across), load.reshape(across), source.reshape(across))


def _level_reads(user: NDArray[np.int32], nodes: int, turn: int) -> NDArray[np.int32]:
    """Who reads each of some samples, so that nodes read equally many and few change hands.

    Args:
        user: The node that uses each.
        nodes: How many there are.
        turn: Where nodes use equally many, another one reads one more each time.
    """
    # How many each node is to read: equally many, one more by those that use most.
    count = np.bincount(user, minlength=nodes)
    share = np.full(nodes, len(user) // nodes)
    most = np.lexsort(((np.arange(nodes) + turn) % nodes, -count))
    share[most[: len(user) % nodes]] += 1
    # What a node uses beyond its share goes to those that use less than theirs.
    order = np.argsort(user, kind="stable")
    begin = np.cumsum(count) - count
    beyond = np.arange(len(user)) - begin[user[order]] >= share[user[order]]
    reader = user.copy()
    reader[order[beyond]] = np.repeat(np.arange(nodes), share - np.minimum(count, share))
    return reader


def share_misses(held: Int64Array, misses: int, load_s: float, compute_s: float) -> Int64Array:
    """How many of `misses` each rank reads, so that the largest cost over ranks is smallest.

    Rank r holds held[r] samples of the step already. Its cost is load_s * n + compute_s *
    (held[r] + n) where n is its share. Filled like water: every next miss goes to the rank
    whose cost is then lowest, to the one that holds least where costs are equal, to the
    lowest rank where that is equal as well. Whole misses below the level go at once, at most
    one per rank is left.
    """
    slope = load_s + compute_s
    base = compute_s * held.astype(np.float64)
    count = np.zeros(len(held), np.int64)
    if misses == 0:
        return count
    # All whole misses below the level at once; what is left, at most one a rank, by cost.
    if slope > 0:
        # How high `misses` stand where they are a liquid, a unit of it as high as `slope`. No whole
        # misses below it are too many: all that cost no more are taken one by one, too.
        lowest = np.sort(base)
        levels = (np.cumsum(lowest) + slope * misses) / np.arange(1, len(base) + 1)
        # The liquid stands over the k lowest, where it does not reach the next.
        reached = np.append(levels[:-1] <= lowest[1:], True)
        level = float(levels[np.argmax(reached)])
        below = (level - base) / slope
        count = np.maximum(np.floor(below), 0).astype(np.int64)
    left = misses - int(count.sum())
    while left > 0:
        order = np.lexsort((np.arange(len(held)), held + count, base + slope * (count + 1)))
        count[order[:left]] += 1
        left = misses - int(count.sum())
    return count


def divide_within_nodes(
    held: Int64Array, loads: Int64Array, ranks: int, turn: int
) -> tuple[Int64Array, Int64Array]:
    """(held samples, loads) of each rank, from those of each node of `ranks` ranks.

    A node's batch is dealt as DistributedSampler deals a global one: sizes differ by one at most,
    the first ranks have the larger. Loads differ by one at most, too; which ranks have one more
    goes with `turn`, where the batch divides evenly.
    """
    if ranks == 1:
        return held, loads
    # Sizes of batches, the first ranks one more; loads, from rank `first` on one more. The rest of
    # a batch are held samples.
    local = np.arange(ranks)
    total, rest = np.divmod((held + loads)[:, None], ranks)
    size = total + (local < rest)
    first = np.where(rest == 0, turn % ranks, 0)
    read, more = np.divmod(loads[:, None], ranks)
    of_rank = read + ((local - first) % ranks < more)
    return (size - of_rank).reshape(-1), of_rank.reshape(-1)


@dataclass(frozen=True)
class PlanReport:
    """Counts of a plan, over all ranks.

    `bound` is N - C: no epoch order and no eviction loads less in an epoch after the first
    (with `drop_last`, less by what the cut epochs leave out; where nodes exchange, more by what
    padding repeats and no buffer holds). `max_imbalance` is the largest difference of loads
    between two ranks (where they exchange, nodes) in a step, `requests_per_epoch` the reads of the
    epochs after the first where every step asks for its own, `max_batch` the largest batch of
    a rank over the baseline's. `batch_spread` is the mean over steps of the largest rank's batch
    over the mean rank's, in epochs after the first: 1 where batches are equal, else so many times
    longer does a step compute.
    """

    loads_first_epoch: int
    loads_per_epoch: float
    bound: int
    max_imbalance: int
    requests_per_epoch: float
    max_batch: float
    batch_spread: float | None  # None: no epoch after the first
    times_fewer: float | None  # loads of the DataLoader / loads of the plan, None where it loads 0


def measure_costs(plan: Plan, *, most_gap: int = 0) -> PlanReport:
    """Walks through every epoch of the plan."""
    rows = [_walk_epoch(plan, epoch, most_gap) for epoch in range(plan.settings.epochs)]
    # Means are over the epochs after the first, which reads everything.
    loads, requests, imbalance, largest, used, spread = np.array(rows).T
    later = slice(1, None) if len(rows) > 1 else slice(0, 0)
    per_epoch = float(loads[later].mean()) if len(rows) > 1 else 0.0
    return PlanReport(
        int(loads[0]),
        per_epoch,
        plan.settings.samples - min(plan.settings.buffer, plan.settings.samples),
        int(imbalance.max()),
        float(requests[later].mean()) if len(rows) > 1 else 0.0,
        float(largest.max()) / plan.settings.batch,
        float(spread[later].mean()) if len(rows) > 1 else None,
        float(used[later].mean()) / per_epoch if per_epoch else None,
    )


def _walk_epoch(plan: Plan, epoch: int, most_gap: int) -> tuple[float, ...]:
    """(loads, requests, largest difference of loads, largest batch, samples used, batch spread)."""
    loads = requests = imbalance = largest = used = steps = 0
    spread = 0.0
    for step in plan.steps(epoch):
        of_rank = step.loads
        if step.source is not None:  # nodes read for each other: theirs are compared
            of_rank = np.bincount(step.source[step.load], minlength=plan.settings.nodes)
        # What the step reads, how unevenly, and how unequal its batches are.
        loads += int(of_rank.sum())
        imbalance = max(imbalance, int(of_rank.max() - of_rank.min()))
        largest = max(largest, int(step.sizes.max()))
        used, steps = used + len(step.ids), steps + 1
        spread += float(step.sizes.max() / step.sizes.mean())
        # A request is a run of neighbouring ids that one rank reads in this step.
        for rank in range(plan.settings.ranks):
            ids, load = step.of_rank(rank)
            requests += len(find_runs(np.unique(ids[load]), most_gap)[0])
    return loads, requests, imbalance, largest, used, spread / max(steps, 1)


# In which order the drawn shuffles are used as epochs: an open-path travelling salesman.
#
# Cost of going from shuffle u to v (SOLAR's model of a FIFO buffer): samples among the first C of
# v that are not among the last C of u. Under the plan's own policy the order is worth nothing:
# every order loads N - C an epoch (see the head of this module). It is here for small N, for
# FIFO buffers and to reproduce the paper.

PARTICLES = 100
ITERATIONS = 1000
_TO_OWN_BEST, _TO_ALL_BEST = 0.9, 1.0


def keep_drawn_order(settings: PlanSettings) -> Int64Array:
    """The order in which they were drawn, as the baseline uses them."""
    return np.arange(settings.epochs, dtype=np.int64)


def order_greedily(settings: PlanSettings) -> Int64Array:
    """Nearest neighbour from every start, the best improved by moving runs (or-opt)."""
    cost = compute_transition_costs(settings)
    starts = [_follow_nearest(cost, start) for start in range(len(cost))]
    return _improve_by_moves(
        cost, min(starts, key=lambda path: (sum_path_cost(cost, path), path[0]))
    )


def order_by_swarm(settings: PlanSettings) -> Int64Array:
    """Particle swarm over permutations, as in the paper: velocities are lists of swaps."""
    cost = compute_transition_costs(settings)
    rng = np.random.default_rng(settings.seed)
    # The best order of each particle; of all; and where each is.
    own = [rng.permutation(len(cost)) for _ in range(min(PARTICLES, max(len(cost), 2)))]
    paths = [path.copy() for path in own]
    best = min(own, key=lambda path: sum_path_cost(cost, path)).copy()
    for _ in range(ITERATIONS if len(cost) > 2 else 0):
        for i, path in enumerate(paths):
            _move_towards(path, own[i], _TO_OWN_BEST, rng)
            _move_towards(path, best, _TO_ALL_BEST, rng)
            if sum_path_cost(cost, path) < sum_path_cost(cost, own[i]):
                own[i] = path.copy()
        best = min([best, *own], key=lambda path: sum_path_cost(cost, path)).copy()
        if all((path == best).all() for path in paths):  # nobody moves any more
            break
    return best.astype(np.int64)


ORDERS: dict[str, Callable[[PlanSettings], Int64Array]] = {
    "shuffle": keep_drawn_order,
    "greedy": order_greedily,
    "pso": order_by_swarm,
}


def compute_transition_costs(settings: PlanSettings) -> Int64Array:
    """cost[u, v]: samples among the first C of shuffle v that are not among the last C of u."""
    epochs, buffer = settings.epochs, min(settings.buffer, settings.samples)
    cost = np.zeros((epochs, epochs), np.int64)
    # SOLAR's model of a FIFO buffer: the last C of an epoch are what the next one finds.
    firsts = [settings.shuffle(e)[:buffer] for e in range(epochs)]
    for u in range(epochs):
        resident = np.zeros(settings.samples, bool)
        resident[settings.shuffle(u)[::-1][:buffer]] = True
        cost[u] = [buffer - np.count_nonzero(resident[first]) for first in firsts]
    np.fill_diagonal(cost, 0)
    return cost


def sum_path_cost(cost: Int64Array, path: Int64Array) -> int:
    """Sum of the costs along an open path."""
    return int(cost[path[:-1], path[1:]].sum())


def _follow_nearest(cost: Int64Array, start: int) -> Int64Array:
    path, left = [start], np.ones(len(cost), bool)
    left[start] = False
    while left.any():
        # Always the nearest that is left.
        candidates = np.flatnonzero(left)
        path.append(int(candidates[np.argmin(cost[path[-1], candidates])]))
        left[path[-1]] = False
    return np.array(path, np.int64)


def _improve_by_moves(cost: Int64Array, path: Int64Array) -> Int64Array:
    """Moves runs of up to three epochs while that shortens the path."""
    current, improved = path, True
    while improved:
        improved = False
        for length in (1, 2, 3):
            # Each run goes to its best place, if that makes the path shorter.
            for start in range(len(path) - length + 1):
                run = current[start : start + length]
                rest = np.delete(current, slice(start, start + length))
                moves = [np.insert(rest, place, run) for place in range(len(rest) + 1)]
                moved = min(moves, key=lambda candidate: sum_path_cost(cost, candidate))
                if sum_path_cost(cost, moved) < sum_path_cost(cost, current):
                    current, improved = moved, True
    return current


def _move_towards(
    path: Int64Array, target: Int64Array, probability: float, rng: np.random.Generator
) -> None:
    """Each swap that leads towards the target is taken with a probability."""
    # Where each epoch stands in the path: a swap brings the one that the target has at i.
    place = np.argsort(path)
    for i in range(len(path)):
        if path[i] != target[i] and rng.random() < probability:
            j = int(place[target[i]])
            path[i], path[j] = path[j], path[i]
            place[path[i]], place[path[j]] = i, j
