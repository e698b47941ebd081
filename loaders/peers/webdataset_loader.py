"""WebDataset: tar shards read one after another, shuffled by shard and in a buffer."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import webdataset
from torch.utils.data import DataLoader, IterableDataset

from ..baseline import collate
from ..data.readers import Arrays
from ..data.samples import SampleSet
from ..loader.loader import Batch, Settings, Waited
from ..loader.position import Position
from ..loader.stats import Counts, Stats
from ..ranks.world import World
from .shards import ready, tar_name


class TarSamples(IterableDataset[Arrays]):
    """An endless stream of one rank's samples; `epoch` seeds the shuffle."""

    def __init__(self, samples: SampleSet, settings: Settings, *, buffer: int) -> None:
        self._samples, self._settings, self._buffer = samples, settings, buffer
        self._shards = sorted(map(str, ready(samples, "tar").glob("*.tar")))
        self.counts = Counts(settings.workers)
        self.epoch = 0

    def __iter__(self) -> Iterator[Arrays]:
        """Samples without end: a rank may get more shards than another, and must not stop first."""
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
        return map(self._arrays, iter(stream.repeat()))

    def _arrays(self, entry: dict[str, Any]) -> Arrays:
        arrays = {
            field.name: np.load(io.BytesIO(entry[tar_name(field.name)]))
            for field in self._samples.fields
        }
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


class WebDatasetLoader:
    """As many batches as the baseline's, from a rank's shards read round and round."""

    def __init__(self, samples: SampleSet, settings: Settings, *, buffer: int = 1000) -> None:
        self._samples, self._settings = samples, settings
        self._stream = TarSamples(samples, settings, buffer=buffer)
        self._waits = list[float]()
        self._position = Position(settings.identity(samples))
        self._loader = DataLoader(
            self._stream,
            batch_size=settings.batch,
            num_workers=settings.workers,
            pin_memory=settings.pin_memory,
            collate_fn=collate,
        )

    def __iter__(self) -> Iterator[Batch]:
        """The batches of the epoch. The DataLoader marks its own `__next__`."""
        self._stream.epoch = self._position.epoch
        batches = iter(self._loader)
        for _ in range(self._position.begin()):
            next(batches)  # a stream cannot jump: what was seen is read again
        for batch in Waited(islice(batches, len(self) - self._position.step), self._waits):
            self._position.step += 1
            yield batch

    def __len__(self) -> int:
        """Steps of an epoch, all of full batches."""
        return self._settings.steps(self._samples)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration goes through `epoch`."""
        self._position.set_epoch(epoch)

    def stats(self) -> Stats:
        """Reads of all workers, and the waits of this process."""
        return self._stream.counts.stats(self._waits)

    def state_dict(self) -> dict[str, Any]:
        """Epoch and step."""
        return self._position.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on behind the last batch of `state`, after reading what comes before it again.

        Raises:
            UsageError: The state is of another seed, batch, number of ranks or samples.
        """
        self._position.load_state_dict(state)

    def close(self) -> None:
        """Nothing stays open: workers end with their iterator."""
