"""Exchanging while training: the four calls of the slides, and an iteration that makes them.

    scheduler = Scheduler(dataset, batch_size=b, fraction=Q)
    for epoch in range(epochs):
        scheduler.scheduling(epoch)                       # without a number: the next one
        for batch in loader:
            ...                                           # train
            sends, receives = scheduler.communicate()     # returns at once
            ...                                           # the longer, the better hidden
            scheduler.synchronize(sends, receives)        # waits
        scheduler.clean_local_storage()

`Exchanging` makes the calls itself. In an epoch each rank trains on what it held at its beginning;
what it receives is trained on from the next epoch on. So every sample is used once an epoch.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Sized
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Sampler

from ..errors import UsageError
from ..loader.epochs import Position
from ..loader.loader import Spanned
from ..ranks.messages import Attempt, Transport, gather_values, open_transport
from .dataset import PartialLocalDataset, Slot
from .exchange import ExchangeThread, Limits, Order, Traffic
from .exchange_plan import Draw, Int64Array, count_slots, plan_rank_exchange

DRAWN = "homes and exchanges by place"
"""What follows from the seed how: positions of versions that drew otherwise are refused."""
SLOWER_MOST = 3
"""Times as long as this rank took may another one take to read its share."""


@dataclass(frozen=True)
class Requests:
    """One direction of what `communicate` began: how many samples, and when they are through."""

    samples: int = 0
    future: Future[None] | None = None


class Scheduler:
    """Exchanges a fraction of the local samples in each epoch, a portion each step.

    Making one, and the first `scheduling`, are collective: every rank has to. The latter reads
    this rank's share.

    Args:
        dataset: The local part.
        batch_size: Samples of a rank in a step: the steps of an epoch follow, and with them how
            much is exchanged in each.
        fraction: Q, 0 to 1.
        seed: Of the exchanges; the same on every rank.
        transport: To the other ranks; default: MPI where mpiexec started them, else gloo.
        limits: What may be under way, and for how long.

    Attributes:
        steps: Steps of an epoch, over which the exchange is spread; the same on every rank.
        least_steps: Full batches of the rank that holds least.
        waited_s: Seconds that the caller spent in the four calls.

    Raises:
        UsageError: Ranks have different settings.
    """

    def __init__(
        self,
        dataset: PartialLocalDataset,
        batch_size: int,
        fraction: float,
        *,
        seed: int = 0,
        transport: Transport | None = None,
        limits: Limits | None = None,
    ) -> None:
        if batch_size < 1:
            raise UsageError(f"expected batches of at least 1, found {batch_size}: raise it")
        self._batch = batch_size
        self._draw = Draw(len(dataset.source), dataset.world.ranks, fraction, seed)

        # Every rank makes as many steps as the one that holds most.
        largest = -(-self._draw.samples // self._draw.ranks)
        self.steps = -(-largest // batch_size)
        self.least_steps = self._draw.samples // self._draw.ranks // batch_size
        self.waited_s = 0.0
        self._dataset, self._rank = dataset, dataset.world.rank
        self._limits = limits or Limits()
        self._transport = transport or open_transport(dataset.world)

        # Ranks that would do different things say so, each of them.
        own = (
            dataset.source.identity(),
            self._draw.samples,
            dataset.partition,
            dataset.seed,
            batch_size,
            fraction,
            seed,
        )
        every = gather_values(self._transport, own, self._limits.timeout_s)
        for rank, settings in enumerate(every):
            if settings != own:
                raise UsageError(
                    f"expected the samples and settings {own} on every rank, found {settings} on "
                    f"rank {rank}: start all ranks alike"
                )
        self._exchange: ExchangeThread | None = None
        self._epoch: _Epoch | None = None
        self._next = 0  # the epoch that what is held is of

    @property
    def traffic(self) -> Traffic:
        """What was swapped so far."""
        return Traffic() if self._exchange is None else self._exchange.traffic

    def scheduling(self, epoch: int | None = None, step: int = 0) -> int:
        """Decides what is exchanged during an epoch.

        An epoch that is still open is finished first. Where the rank does not hold what it should
        at the beginning of `epoch` (the first one, a resumed one), it reads that from the source.

        Args:
            epoch: 0, 1, ...; None: the one behind the last.
            step: Steps of it that were done before a resume: their portions go first.

        Returns:
            The epoch.

        Raises:
            InputError: A sample cannot be read.
        """
        if self._epoch is not None:
            self.clean_local_storage()
        epoch = self._next if epoch is None else epoch
        with self._waiting():
            # This rank's share at the beginning of the epoch, as it is here or followed back: read
            # where it is not what is held.
            if epoch == self._next:
                own = self._dataset.held()
            else:
                own = self._dataset.dealt(self._draw.home(self._rank, epoch))
            begin = time.perf_counter()
            with Attempt() as tried:
                if self._exchange is None or not np.array_equal(own, self._dataset.held()):
                    self._dataset.settle(own)
            # Once the exchange runs, a failure here ends this rank, and others notice by its
            # silence; before, all ranks are asked, so that none begins alone.
            if self._exchange is not None and tried.error is not None:
                raise tried.error
            if self._exchange is None:
                # Reading a share takes long: another rank may take longer by `SLOWER_MOST`, and by
                # the limit of an item.
                within_s = SLOWER_MOST * (time.perf_counter() - begin) + self._limits.timeout_s
                tried.agree_within(self._transport, None, within_s)
                self._exchange = ExchangeThread(self._transport, self._dataset.store, self._limits)
            # Who gives what to whom follows from the seed; the messages only say how long samples
            # are.
            exchange = plan_rank_exchange(self._draw, self._rank, epoch)
            items = np.flatnonzero(exchange.targets != self._rank)  # what stays is no order
            slots = exchange.slots[items]
            columns = (items, exchange.targets[items], own[slots], exchange.sources[items])
            orders = [Order(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]
            gets = self._exchange.announce(epoch, orders)
            self._next = epoch
            self._dataset.begin(epoch)
            self._epoch = _Epoch(epoch, exchange.items, orders, slots, gets, step)
        return epoch

    def communicate(self) -> tuple[Requests, Requests]:
        """Begins to exchange the portion of this step; what is sent, and what is received.

        All portions of an epoch are begun by its last step but one.

        Raises:
            UsageError: `scheduling` was not called.
        """
        epoch = self._require_epoch()
        with self._waiting():
            epoch.step += 1
            portion = epoch.portion(max(self.steps - 1, 1))
            return self._begin_portion(portion)

    def synchronize(self, sends: Requests, receives: Requests) -> None:
        """Waits until a portion is sent and received.

        Raises:
            LoadersError: Another rank ended, or is too slow.
        """
        with self._waiting():
            for requests in (sends, receives):
                if requests.future is not None:
                    requests.future.result()

    def clean_local_storage(self) -> None:
        """Ends the exchange of the epoch: received samples take the places of those given away.

        Portions that were not begun, as the epoch was cut short, are exchanged now.

        Raises:
            LoadersError: Another rank ended, or is too slow.
            UsageError: `scheduling` was not called.
        """
        epoch = self._require_epoch()
        epoch.step = self.steps
        self._begin_portion(epoch.portion(1))
        with self._waiting():
            # All portions are through: the new samples take the slots of those that were given
            # away.
            for future in epoch.futures:
                future.result()
            gone, ids = [order.gives for order in epoch.orders], self._dataset.held()
            ids[epoch.slots] = epoch.gets.result()
            self._dataset.switch(ids, gone)
            self._next = epoch.number + 1
        self._epoch = None

    def close(self) -> None:
        """Ends the thread that exchanges. An open epoch stays unfinished.

        The transport stays open: to close it is collective, and a rank may be gone.
        """
        if self._exchange is not None:
            self._exchange.close()

    def _begin_portion(self, portion: list[Order]) -> tuple[Requests, Requests]:
        if not portion or self._exchange is None or self._epoch is None:
            return Requests(), Requests()
        future = self._exchange.submit(portion)
        self._epoch.futures.append(future)
        return Requests(len(portion), future), Requests(len(portion), future)

    def _require_epoch(self) -> _Epoch:
        if self._epoch is None:
            raise UsageError("expected scheduling(epoch) first, found no epoch: call it")
        return self._epoch

    def identity(self) -> dict[str, Any]:
        """What decides the stream of samples of this rank."""
        dataset = self._dataset
        return {
            "source": dataset.source.identity(),
            "samples": self._draw.samples,
            "ranks": self._draw.ranks,
            "rank": self._rank,
            "batch": self._batch,
            "fraction": self._draw.fraction,
            "partition": dataset.partition,
            "seeds": [dataset.seed, self._draw.seed],
            "drawn": DRAWN,
        }

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.waited_s += time.perf_counter() - begin


@dataclass
class _Epoch:
    """The exchange of an epoch as one rank sees it, and how far it is."""

    number: int
    items: int
    orders: list[Order]
    slots: NDArray[np.int32]
    gets: Future[Int64Array]
    step: int
    begun: int = 0
    futures: list[Future[None]] = field(default_factory=list)

    def portion(self, steps: int) -> list[Order]:
        """Orders to begin now, when `steps` steps share them out: the same items on all ranks."""
        # Items are shared out evenly over the steps: portion k ends at item k * items / steps.
        until = self.items * min(self.step, steps) // steps
        first, self.begun = self.begun, max(self.begun, until)
        return [order for order in self.orders if first <= order.item < self.begun]


# Going through an epoch: in which order a rank visits its slots, and who makes the four calls.

T = TypeVar("T")
_TURNS = count()
_ORDER = 2  # stream of random numbers; see vanidl_loaders.pls.exchange_plan


class LocalSampler(Sampler[int]):
    """Slots of a rank in a new order each epoch: as many on every rank.

    Each iteration is of the epoch behind that of the one before, unless `set_epoch` says otherwise.

    Args:
        dataset: The local part.
        batch_size: Samples of a rank in a step.
        seed: Of the order.
        shuffle: False: slots in order.
        drop_last: Full batches only. Else a rank that holds one sample less than others visits
            its first one again.
    """

    def __init__(
        self,
        dataset: PartialLocalDataset,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
    ) -> None:
        self._rank, self._seed, self._shuffle = dataset.world.rank, seed, shuffle
        self._slots, self._epoch, self._start = len(dataset), 0, 0
        self._batch = batch_size
        sizes = count_slots(len(dataset.source), dataset.world.ranks)
        full = int(sizes.min()) // batch_size * batch_size
        self._length = full if drop_last else int(sizes.max())

    def __iter__(self) -> Iterator[int]:
        """Slots of the epoch."""
        order, turn = self.order(self._epoch)[self._start :].tolist(), next(_TURNS)
        slots = [Slot.at(slot, place, turn) for place, slot in enumerate(order, self._start)]
        self._epoch, self._start = self._epoch + 1, 0
        return iter(slots)

    def __len__(self) -> int:
        """Slots that are visited in an epoch."""
        return self._length

    def set_epoch(self, epoch: int) -> None:
        """The next iteration has the order of `epoch`."""
        self._epoch = epoch

    def skip(self, steps: int) -> None:
        """The next iteration leaves the slots of the first steps out."""
        self._start = steps * self._batch

    def order(self, epoch: int) -> Int64Array:
        """Slots of an epoch."""
        order = np.arange(self._slots, dtype=np.int64)
        if self._shuffle:
            random = np.random.default_rng((self._seed, _ORDER, epoch, self._rank))
            order = random.permutation(order)
        return np.resize(order, self._length)


def exchanging(
    scheduler: Scheduler, batches: Iterable[T], epoch: int | None = None, step: int = 0
) -> Generator[T, None, None]:
    """The batches of an epoch, the four calls made around them.

    A portion is begun before a batch is handed out and waited for before the next one is, so
    that it travels while the caller trains. An epoch that is left early is finished by the next.

    Args:
        scheduler: Of this rank.
        batches: Iterated once the rank holds what it should in the epoch; of a DataLoader the
            sampler is told the epoch, if it wants to know.
        epoch: 0, 1, ...; None: the one behind the last.
        step: Steps of it that were done before a resume, not to be among `batches`.

    Raises:
        UsageError: A DataLoader visits a part of what this rank holds only.
    """
    _require_all_slots(scheduler, batches)
    epoch = scheduler.scheduling(epoch, step)
    for sampler in _find_samplers(batches):
        tell = getattr(sampler, "set_epoch", None)
        if tell is not None:
            tell(epoch)
    requests = Requests(), Requests()
    # Portions travel while the caller trains on the batch (slides, "IO & computation overlapping").
    for batch in batches:
        scheduler.synchronize(*requests)
        requests = scheduler.communicate()
        yield batch
    scheduler.synchronize(*requests)
    scheduler.clean_local_storage()


class Exchanging(Generic[T]):
    """A DataLoader of the local part that exchanges samples while it is iterated over.

    Its `__next__` is inside the span that profiles show, with what it waits for other ranks. Each
    iteration is of the epoch behind that of the one before, unless `set_epoch` says otherwise.

    Args:
        scheduler: Of the DataLoader's data set.
        loader: With a `LocalSampler`, or any sampler of as many slots on every rank.

    Attributes:
        waits: Seconds of each `__next__`.

    Raises:
        UsageError: The DataLoader visits a part of what this rank holds only.
    """

    def __init__(self, scheduler: Scheduler, loader: DataLoader[Any]) -> None:
        _require_all_slots(scheduler, loader)
        self._scheduler, self._loader = scheduler, loader
        self._position = Position(scheduler.identity())
        self.waits = list[float]()

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self._loader)

    @property
    def sampler(self) -> Exchanging[T]:
        """Itself: Lightning tells the epoch to the sampler of a loader."""
        return self

    @property
    def dataset(self) -> object:
        """Has none: who skips batches by making a DataLoader of it would exchange nothing."""
        raise AttributeError(
            "expected load_state_dict to go on behind a stop, found something that makes another "
            "DataLoader of this one to skip batches: save state_dict beside the checkpoint, load "
            "it, and tell the Trainer of Hugging Face ignore_data_skip=True"
        )

    def set_epoch(self, epoch: int) -> None:
        """The next iteration goes through `epoch`; the sampler is told, if it wants to know."""
        self._position.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Epoch, batches handed out in it, and what has to be the same to go on."""
        return self._position.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on behind the last batch of `state`.

        Raises:
            UsageError: The state is of other samples, ranks or settings, or inside an epoch whose
                order no `LocalSampler` can give again.
        """
        if state.get("step") and self._find_local_sampler() is None:
            raise UsageError(
                f"expected a LocalSampler to go on in the middle of an epoch, found "
                f"{type(self._loader.sampler).__name__}: use pls.LocalSampler, or go on from the "
                "end of an epoch"
            )
        self._position.load_state_dict(state)

    def __iter__(self) -> Iterator[T]:
        """The batches of the epoch."""
        return Spanned(self._batches(), self.waits, name=type(self).__name__)

    def _batches(self) -> Generator[T, None, None]:
        start, local = self._position.begin(leaves=True), self._find_local_sampler()
        # What was done before a resume is not read again.
        if local is not None:
            local.skip(start)
        for batch in exchanging(self._scheduler, self._loader, self._position.epoch, start):
            self._position.step += 1
            yield batch
        self._position.end()

    def _find_local_sampler(self) -> LocalSampler | None:
        return next(
            (each for each in _find_samplers(self._loader) if isinstance(each, LocalSampler)), None
        )


def _find_samplers(loader: object) -> list[Any]:
    """What a DataLoader visits its data set by: its sampler, or that of its batch sampler."""
    batches = getattr(loader, "batch_sampler", None)
    samplers = (getattr(loader, "sampler", None), getattr(batches, "sampler", None))
    return [each for each in samplers if each is not None]


def _require_all_slots(scheduler: Scheduler, batches: object) -> None:
    """Raises UsageError where a DataLoader has fewer batches than a rank has full ones."""
    # Only a DataLoader says how many batches it has.
    if isinstance(batches, DataLoader) and isinstance(batches.batch_sampler, Sized):
        steps = len(batches.batch_sampler)
        if steps < scheduler.least_steps:
            sampler = batches.batch_sampler
            names = " of ".join(
                type(each).__name__
                for each in (sampler, getattr(sampler, "sampler", None))
                if each is not None
            )
            raise UsageError(
                f"expected a DataLoader with all samples that this rank holds, at least "
                f"{scheduler.least_steps} batches, found {steps} by {names}: something deals what "
                "is this rank's own to ranks once more, as accelerator.prepare(loader) does, and "
                "Lightning without use_distributed_sampler=False; give accelerate the model and "
                "the optimizer only, and Lightning the pls.Exchanging"
            )
