"""The baseline: PyTorch's DataLoader with a DistributedSampler, as people use it.

Each worker process opens the HDF5 files itself, on its first read, and lives as long as the
loader. `SampleDataset` is the map-style data set of the other loaders too.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Generator, Iterator

import numpy as np
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from .data.readers import Arrays, open_reader
from .data.samples import SampleSet
from .errors import InputError
from .loader.batches import collate
from .loader.epochs import EpochLoader
from .loader.loader import Batch, Counts, Loader, Settings
from .loader.registry import declare_baseline
from .loader.stalls import StalledError

NAME = "baseline"
HELP = "PyTorch's DataLoader with a DistributedSampler"
add_arguments = declare_baseline


def open_loader(samples: SampleSet, settings: Settings, options: argparse.Namespace) -> Loader:
    """The baseline loader."""
    return BaselineLoader(samples, settings, prefetch_factor=options.prefetch_factor)


class SampleDataset(Dataset[Arrays]):
    """Samples by id, each a dict of arrays and `sample`, its id; counted in `counts`."""

    def __init__(self, samples: SampleSet, counts: Counts) -> None:
        self._samples, self._counts, self._reader = samples, counts, open_reader(samples)

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._samples)

    def __getitem__(self, sample: int) -> Arrays:
        """The arrays of one sample."""
        arrays = self._reader.read(sample)
        self._counts.add(
            loads=1,
            nbytes=self._reader.nbytes(),
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


class BaselineLoader(EpochLoader):
    """Batches in the DistributedSampler's order through torch.utils.data.DataLoader."""

    marks_next = False  # the DataLoader does

    def __init__(self, samples: SampleSet, settings: Settings, *, prefetch_factor: int = 2) -> None:
        if not len(samples):
            raise InputError("expected at least one sample, found none: make the data again")
        counts, steps = Counts(settings.workers), settings.steps(samples)
        super().__init__(settings, counts, steps, settings.identity(samples))
        self._dataset = SampleDataset(samples, self._counts)
        self._sampler = StartingSampler(
            self._dataset,
            num_replicas=settings.world.ranks,
            rank=settings.world.rank,
            shuffle=settings.shuffle,
            seed=settings.seed,
            drop_last=settings.drop_last,
        )
        self._prefetch_factor = prefetch_factor
        self._loader = self._data_loader()

    def _batches(self, epoch: int, start: int) -> Generator[Batch, None, None]:
        self._sampler.set_epoch(epoch)
        self._sampler.start = start * self._settings.batch
        return self._within_timeout(iter(self._loader))  # workers start here

    def _within_timeout(self, batches: Iterator[Batch]) -> Generator[Batch, None, None]:
        try:
            yield from batches
        except RuntimeError as error:
            # The DataLoader says only in words that a worker was silent.
            if "timed out after" not in str(error):
                raise
            raise StalledError(
                f"expected a batch of the workers within {self._settings.read_timeout_s:g} s, "
                "found none: see to the storage and start again"
            ) from error

    def close(self) -> None:
        """Closes the files of this process, and ends the workers."""
        super().close()
        self._loader = self._data_loader()  # workers end with the DataLoader that has them
        self._dataset.close()

    def _data_loader(self) -> DataLoader[Arrays]:
        workers, prefetch_factor = self._settings.workers, self._prefetch_factor
        return DataLoader(
            self._dataset,
            batch_size=self._settings.batch,
            sampler=self._sampler,
            num_workers=workers,
            drop_last=self._settings.drop_last,
            pin_memory=self._settings.pin_memory,
            prefetch_factor=prefetch_factor if workers else None,
            timeout=self._settings.read_timeout_s if workers else 0,
            persistent_workers=workers > 0,  # each opens its files once, not once an epoch
            collate_fn=collate,
            worker_init_fn=_ignore_interrupts,
        )


def _ignore_interrupts(_worker: int) -> None:
    """A terminal's interrupt reaches workers, too, but the trainer ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
