"""The loader `webdataset`: tar shards read one after another, shuffled by shard and in a buffer.

The package is imported when the loader is opened: its options need none of it.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Generator, Iterator
from itertools import islice
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, IterableDataset

from ..data.readers import Arrays
from ..data.samples import SampleSet
from ..loader.batches import collate
from ..loader.epochs import EpochLoader
from ..loader.loader import Batch, Counts, Loader, Settings
from ..loader.registry import declare_webdataset
from ..ranks.world import World
from .shards import name_tar_member, require_shards

NAME = "webdataset"
HELP = "WebDataset on tar shards (convert --to tar)"
add_arguments = declare_webdataset


def open_loader(samples: SampleSet, settings: Settings, options: argparse.Namespace) -> Loader:
    """The loader.

    Raises:
        InputError: The samples were not converted.
        ModuleNotFoundError: The package is not installed.
    """
    import webdataset  # noqa: F401 - a package that is missing is said before shards that are

    return WebDatasetLoader(samples, settings, buffer=options.webdataset_buffer)


class TarSamples(IterableDataset[Arrays]):
    """An endless stream of one rank's samples; `epoch` seeds the shuffle."""

    def __init__(self, samples: SampleSet, settings: Settings, *, buffer: int) -> None:
        self._samples, self._settings, self._buffer = samples, settings, buffer
        self._shards = sorted(map(str, require_shards(samples, "tar").glob("*.tar")))
        self.counts = Counts(settings.workers)
        self.epoch = 0

    def __iter__(self) -> Iterator[Arrays]:
        """Samples without end: a rank may get more shards than another, and must not stop first."""
        import webdataset

        # Ranks draw alike from one seed; `_Split` gives each its own shards.
        seed = self._settings.seed + self.epoch
        stream = webdataset.WebDataset(
            self._shards,
            shardshuffle=len(self._shards) if self._settings.shuffle else False,
            seed=seed,
            nodesplitter=_Split(self._settings.world),
            empty_check=False,
        )
        if self._settings.shuffle:
            stream = stream.shuffle(self._buffer, seed=seed)
        return map(self._read_arrays, iter(stream.repeat()))

    def _read_arrays(self, entry: dict[str, Any]) -> Arrays:
        arrays = {
            field.name: np.load(io.BytesIO(entry[name_tar_member(field.name)]))
            for field in self._samples.fields
        }

        # The library does not tell how it reads the archive: each array counts as a request.
        nbytes = sum(array.nbytes for array in arrays.values())
        self.counts.add(loads=1, nbytes=nbytes, requests=len(arrays))
        return arrays | {"sample": np.asarray(int(entry["__key__"]), dtype=np.int64)}


class _Split:
    """Every ranks-th shard; all shards where there are fewer than ranks."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __call__(self, shards: Iterator[Any]) -> Iterator[Any]:
        every = list(shards)
        world = self._world
        yield from every[world.rank :: world.ranks] if len(every) >= world.ranks else every


class WebDatasetLoader(EpochLoader):
    """As many batches as the baseline's, from a rank's shards read round and round."""

    marks_next = False  # the DataLoader does

    def __init__(self, samples: SampleSet, settings: Settings, *, buffer: int = 1000) -> None:
        self._shards = TarSamples(samples, settings, buffer=buffer)
        steps, identity = settings.steps(samples), settings.identity(samples)
        super().__init__(settings, self._shards.counts, steps, identity)
        self._loader = DataLoader(
            self._shards,
            batch_size=settings.batch,
            num_workers=settings.workers,
            pin_memory=settings.pin_memory,
            collate_fn=collate,
        )

    def _batches(self, epoch: int, start: int) -> Generator[Batch, None, None]:
        self._shards.epoch = epoch
        batches = iter(self._loader)
        for _ in range(start):
            next(batches)  # a stream cannot jump: what was seen is read again
        return (batch for batch in islice(batches, len(self) - start))
