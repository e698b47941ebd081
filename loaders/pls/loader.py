"""Partial local shuffling as a loader of the registry.

A batch holds samples of this rank's local part; global batches are not the DataLoader's. The
first `__next__` reads this rank's share from storage; afterwards samples come from where they are
kept, and only what is exchanged moves.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator
from contextlib import closing
from dataclasses import asdict, dataclass, field

from ..data.samples import SampleSet
from ..errors import UsageError, counted
from ..loader.batches import collate, pin_batch
from ..loader.epochs import EpochLoader
from ..loader.loader import Batch, Loader, Settings, Stats
from ..loader.prefetch import Background
from ..loader.registry import declare_pls
from ..ranks.messages import open_transport
from .dataset import PartialLocalDataset
from .exchange import Limits
from .scheduler import DRAWN, LocalSampler, Scheduler, exchanging

NAME = "pls"
HELP = "partial local shuffling: each rank keeps its share, a fraction is exchanged each epoch"
add_arguments = declare_pls
FRACTION = 0.3  # as accurate as global shuffling in the slides
READY = 2
"""Batches that wait for the training process, with `workers`."""


def open_loader(samples: SampleSet, settings: Settings, options: argparse.Namespace) -> Loader:
    """The loader that the options describe. Nothing is read, and no rank waited for, yet.

    Raises:
        UsageError: The options make no sense, there are fewer samples than ranks, or memory does
            not hold what a rank keeps.
        InputError: The local folder holds other samples.
    """
    # A rank keeps its share, and what comes before it takes the place of what goes: at most
    # (1 + Q) N / M samples.
    if options.local_folder is None:
        own = -(-len(samples) // settings.world.ranks)
        coming = int(options.exchange_fraction * own)
        most, limit = (own + coming) * samples.sample_nbytes, settings.memory_nbytes
        if limit is not None and most > limit:
            raise UsageError(
                f"expected --memory of at least {most} bytes, found {limit}: a rank keeps "
                f"{counted(own, 'sample')} and {coming} in exchange; raise it, or keep them on "
                "the node with --local-folder"
            )
    dataset = PartialLocalDataset(
        samples,
        world=settings.world,
        folder=options.local_folder,
        partition=options.partition,
        seed=settings.seed,
        read_timeout_s=settings.read_timeout_s,
    )
    exchange = ExchangeSettings(
        fraction=options.exchange_fraction,
        backend=options.exchange_backend,
        limits=Limits(options.exchange_bytes, options.exchange_timeout_s),
    )
    return PartialLocalLoader(dataset, settings, exchange)


@dataclass(frozen=True)
class ExchangeSettings:
    """How to exchange.

    Attributes:
        fraction: Q, 0 to 1.
        backend: One of `BACKENDS`.
        limits: What may be under way, and for how long.
    """

    fraction: float = FRACTION
    backend: str = "auto"
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class PartialLocalStats(Stats):
    """`Stats` of this loader. `loads` were read from storage, `hits` served from the local part.

    Attributes:
        swapped: Samples sent to other ranks, and as many received.
        sent_nbytes: Bytes of their messages.
        received_nbytes: Bytes of the messages that came.
        exchange_wait_s: Seconds that training waited for the exchange, settling included.
        peak_samples: Most samples kept at once.
        peak_nbytes: Bytes of most.
        peak_in_flight_nbytes: Most bytes under way at once, both directions.
    """

    swapped: int = 0
    sent_nbytes: int = 0
    received_nbytes: int = 0
    exchange_wait_s: float = 0.0
    peak_samples: int = 0
    peak_nbytes: int = 0
    peak_in_flight_nbytes: int = 0


class PartialLocalLoader(EpochLoader):
    """Batches of one rank's local part.

    Args:
        dataset: The local part of samples that are arrays by name.
        settings: As for every loader; with `workers`, a thread makes batches ahead.
        exchange: How to exchange.
    """

    advances = leaves = True  # what is exchanged is for one epoch after another

    def __init__(
        self, dataset: PartialLocalDataset, settings: Settings, exchange: ExchangeSettings
    ) -> None:
        self._sampler = LocalSampler(
            dataset,
            settings.batch,
            seed=settings.seed,
            shuffle=settings.shuffle,
            drop_last=settings.drop_last,
        )
        steps = -(-len(self._sampler) // settings.batch)
        # What decides the stream of ids of a rank.
        identity = {
            "source": dataset.source.identity(),
            "ranks": settings.world.ranks,
            "rank": settings.world.rank,
            "batch": settings.batch,
            "seed": settings.seed,
            "shuffle": settings.shuffle,
            "drop_last": settings.drop_last,
            "fraction": exchange.fraction,
            "partition": dataset.partition,
            "drawn": DRAWN,
        }
        super().__init__(settings, dataset.counts, steps, identity)
        self.dataset, self._exchange = dataset, exchange
        self._scheduler: Scheduler | None = None
        self._hits = 0

    def stats(self) -> PartialLocalStats:
        """What was read, kept, exchanged and waited for."""
        store, scheduler = self.dataset.store, self._scheduler
        done = asdict(super().stats()) | {"hits": self._hits}
        if scheduler is None:
            return PartialLocalStats(**done)
        return PartialLocalStats(
            **done,
            **asdict(scheduler.traffic),
            exchange_wait_s=scheduler.waited_s,
            peak_samples=store.peak_samples,
            peak_nbytes=store.peak_nbytes,
        )

    def close(self) -> None:
        """Ends threads. What is in a local folder stays there."""
        super().close()
        if self._scheduler is not None:
            self._scheduler.close()

    def _batches(self, epoch: int, start: int) -> Generator[Batch, None, None]:
        # The scheduler is made with the first batch, when ranks can speak to each other.
        if self._scheduler is None:
            transport = open_transport(self._settings.world, self._exchange.backend)
            self._scheduler = Scheduler(
                self.dataset,
                self._settings.batch,
                self._exchange.fraction,
                seed=self._settings.seed,
                transport=transport,
                limits=self._exchange.limits,
            )
            self._scheduler.steps = len(self)
        batches = self._read_ahead if self._settings.workers else self._read
        yield from exchanging(self._scheduler, batches(epoch, start), epoch, start)

    def _read_ahead(self, epoch: int, start: int) -> Generator[Batch, None, None]:
        with closing(Background(self._read(epoch, start), READY)) as reading:
            yield from reading

    def _read(self, epoch: int, start: int) -> Generator[Batch, None, None]:
        order, batch = self._sampler.order(epoch).tolist(), self._settings.batch
        for begin in range(start * batch, len(order), batch):
            slots = order[begin : begin + batch]
            # What is local costs no load.
            self._hits += len(slots)
            stacked = collate([self.dataset[slot] for slot in slots])
            yield pin_batch(stacked) if self._settings.pin_memory else stacked
