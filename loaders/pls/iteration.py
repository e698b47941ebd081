"""Going through an epoch: in which order a rank visits its slots, and who makes the four calls."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Any, Generic, TypeVar

import numpy as np
from torch.utils.data import DataLoader, Sampler

from ..loader.loader import Spanned
from .dataset import PartialLocalDataset
from .ownership import Int64Array, sizes_of
from .scheduler import Requests, Scheduler

T = TypeVar("T")
_ORDER = 2  # stream of random numbers; see vanidl_loaders.pls.ownership


class LocalSampler(Sampler[int]):
    """Slots of a rank in a new order each epoch: as many on every rank.

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
        self._slots, self._epoch = len(dataset), 0
        sizes = sizes_of(len(dataset.source), dataset.world.ranks)
        full = int(sizes.min()) // batch_size * batch_size
        self._length = full if drop_last else int(sizes.max())

    def __iter__(self) -> Iterator[int]:
        """Slots of the epoch."""
        return iter(self.order(self._epoch).tolist())

    def __len__(self) -> int:
        """Slots that are visited in an epoch."""
        return self._length

    def set_epoch(self, epoch: int) -> None:
        """The next iteration has the order of `epoch`."""
        self._epoch = epoch

    def order(self, epoch: int) -> Int64Array:
        """Slots of an epoch."""
        order = np.arange(self._slots, dtype=np.int64)
        if self._shuffle:
            random = np.random.default_rng((self._seed, _ORDER, epoch, self._rank))
            order = random.permutation(order)
        return np.resize(order, self._length)


def exchanging(
    scheduler: Scheduler, batches: Iterable[T], epoch: int, step: int = 0
) -> Generator[T, None, None]:
    """The batches of an epoch, the four calls made around them.

    A portion is begun before a batch is handed out and waited for before the next one is, so
    that it travels while the caller trains. An epoch that is left early is finished by the next.

    Args:
        scheduler: Of this rank.
        batches: Iterated once the rank holds what it should in the epoch.
        epoch: 0, 1, ...
        step: Steps of it that were done before a resume.
    """
    scheduler.scheduling(epoch, step)
    requests = Requests(), Requests()
    for batch in batches:
        scheduler.synchronize(*requests)
        requests = scheduler.communicate()
        yield batch
    scheduler.synchronize(*requests)
    scheduler.clean_local_storage()


class Exchanging(Generic[T]):
    """A DataLoader of the local part that exchanges samples while it is iterated over.

    Its `__next__` is inside the span that profiles show, with what it waits for other ranks.

    Args:
        scheduler: Of the DataLoader's data set.
        loader: With a `LocalSampler`, or any sampler of as many slots on every rank.

    Attributes:
        waits: Seconds of each `__next__`.
    """

    def __init__(self, scheduler: Scheduler, loader: DataLoader[Any]) -> None:
        self._scheduler, self._loader, self._epoch = scheduler, loader, 0
        self.waits = list[float]()

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self._loader)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration goes through `epoch`; the sampler is told, if it wants to know."""
        self._epoch = epoch
        tell = getattr(self._loader.sampler, "set_epoch", None)
        if tell is not None:
            tell(epoch)

    def __iter__(self) -> Iterator[T]:
        """The batches of the epoch."""
        stream = exchanging(self._scheduler, self._loader, self._epoch)
        return Spanned(stream, self.waits, name=type(self).__name__)
