"""Going through an epoch: in which order a rank visits its slots, and who makes the four calls."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sized
from itertools import count
from typing import Any, Generic, TypeVar

import numpy as np
from torch.utils.data import DataLoader, Sampler

from ..errors import UsageError
from ..loader.epochs import Position
from ..loader.loader import Spanned
from .dataset import PartialLocalDataset, Slot
from .exchange_plan import Int64Array, count_slots
from .scheduler import Requests, Scheduler

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
    _tell_epoch(batches, epoch)
    requests = Requests(), Requests()
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
        if state.get("step") and self._local_sampler() is None:
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
        start, local = self._position.begin(leaves=True), self._local_sampler()
        if local is not None:
            local.skip(start)
        for batch in exchanging(self._scheduler, self._loader, self._position.epoch, start):
            self._position.step += 1
            yield batch
        self._position.end()

    def _local_sampler(self) -> LocalSampler | None:
        return next(
            (each for each in _find_samplers(self._loader) if isinstance(each, LocalSampler)), None
        )


def _find_samplers(loader: object) -> list[Any]:
    """What a DataLoader visits its data set by: its sampler, or that of its batch sampler."""
    batches = getattr(loader, "batch_sampler", None)
    found = (getattr(loader, "sampler", None), getattr(batches, "sampler", None))
    return [each for each in found if each is not None]


def _tell_epoch(loader: object, epoch: int) -> None:
    for sampler in _find_samplers(loader):
        tell = getattr(sampler, "set_epoch", None)
        if tell is not None:
            tell(epoch)


def _require_all_slots(scheduler: Scheduler, batches: object) -> None:
    """Raises UsageError where a DataLoader has fewer batches than a rank has full ones."""
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
