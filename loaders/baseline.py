"""The twin of every loader: PyTorch's DataLoader with a DistributedSampler, as people use it.

Each worker process opens the HDF5 files itself, on its first read. `SampleDataset` is the
map-style data set of the other loaders too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from torch.utils.data import DataLoader, Dataset, default_collate
from torch.utils.data.distributed import DistributedSampler

from .data.readers import Arrays, reader
from .data.samples import SampleSet
from .errors import InputError
from .loader.loader import Batch, Loader, Settings, Waited
from .loader.position import Position
from .loader.stats import Counts, Stats

NAME = "baseline"
HELP = "PyTorch's DataLoader with a DistributedSampler"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the DataLoader."""
    add = parser.add_argument
    add("--prefetch-factor", type=int, default=2, help="batches read ahead by each worker")


def open_loader(samples: SampleSet, settings: Settings, options: argparse.Namespace) -> Loader:
    """The baseline loader."""
    return BaselineLoader(samples, settings, prefetch_factor=options.prefetch_factor)


class SampleDataset(Dataset[Arrays]):
    """Samples by id, each a dict of arrays and `sample`, its id; counted in `counts`."""

    def __init__(self, samples: SampleSet, counts: Counts) -> None:
        self._samples, self._counts, self._reader = samples, counts, reader(samples)

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._samples)

    def __getitem__(self, sample: int) -> Arrays:
        """The arrays of one sample."""
        arrays = self._reader.read(sample)
        self._counts.add(
            loads=1,
            nbytes=sum(array.nbytes for array in arrays.values()),
            requests=self._reader.requests(),
        )
        return arrays | {"sample": np.asarray(sample, dtype=np.int64)}

    def close(self) -> None:
        """Closes the files of this process."""
        self._reader.close()


class StartingSampler(DistributedSampler[int]):
    """A DistributedSampler that can skip the first `start` ids of its next iteration."""

    start = 0

    def __iter__(self) -> Iterator[int]:
        """The ids of this rank in this epoch from `start` on; then `start` is 0 again."""
        start, self.start = self.start, 0
        return iter(list(super().__iter__())[start:])


class BaselineLoader:
    """Batches in the DistributedSampler's order through torch.utils.data.DataLoader."""

    def __init__(self, samples: SampleSet, settings: Settings, *, prefetch_factor: int = 2) -> None:
        if not len(samples):
            raise InputError("expected at least one sample, found none: make the data anew")
        self._settings, self._samples = settings, samples
        self._counts, self._waits = Counts(settings.workers), list[float]()
        self._dataset = SampleDataset(samples, self._counts)
        self._sampler = _sampler(self._dataset, settings)
        self._position = Position(settings.identity(samples))
        self._loader = self._data_loader(prefetch_factor)

    def __iter__(self) -> Iterator[Batch]:
        """The batches of the epoch. The DataLoader marks its own `__next__` for the profiler."""
        self._sampler.set_epoch(self._position.epoch)
        self._sampler.start = self._position.begin() * self._settings.batch
        for batch in Waited(iter(self._loader), self._waits):
            self._position.step += 1
            yield batch

    def __len__(self) -> int:
        """Steps of an epoch."""
        return self._settings.steps(self._samples)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration goes through `epoch`."""
        self._position.set_epoch(epoch)

    def stats(self) -> Stats:
        """Reads of all workers, and the waits of this process."""
        return self._counts.stats(self._waits)

    def state_dict(self) -> dict[str, Any]:
        """Epoch, step, and what has to be the same to go on."""
        return self._position.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on behind the last batch of `state`.

        Raises:
            UsageError: The state is of another seed, batch, number of ranks or samples.
        """
        self._position.load_state_dict(state)

    def close(self) -> None:
        """Closes the files of this process; workers end with their iterator."""
        self._dataset.close()

    def _data_loader(self, prefetch_factor: int) -> DataLoader[Arrays]:
        workers = self._settings.workers
        return DataLoader(
            self._dataset,
            batch_size=self._settings.batch,
            sampler=self._sampler,
            num_workers=workers,
            drop_last=self._settings.drop_last,
            pin_memory=self._settings.pin_memory,
            prefetch_factor=prefetch_factor if workers else None,
            collate_fn=collate,
        )


def collate(samples: list[Arrays]) -> Batch:
    """Samples stacked field by field."""
    return cast(Batch, default_collate(samples))


def _sampler(dataset: SampleDataset, settings: Settings) -> StartingSampler:
    return StartingSampler(
        dataset,
        num_replicas=settings.world.ranks,
        rank=settings.world.rank,
        shuffle=settings.shuffle,
        seed=settings.seed,
        drop_last=settings.drop_last,
    )
