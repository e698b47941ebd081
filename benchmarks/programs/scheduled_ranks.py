"""One rank of benchmarks/loaders/scheduled.py: goes through all epochs with one loader."""

from __future__ import annotations

import json
import sys
import time
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import evict
from vanidl_loaders.data.samples import SampleSet, open_samples

if TYPE_CHECKING:
    from vanidl_loaders.baseline import SampleDataset
    from vanidl_loaders.data.readers import Arrays
    from vanidl_loaders.loader.loader import Settings

RANKS, BATCH, EPOCHS, FRACTION = 2, 16, 3, 0.85


def held(samples: int) -> int:
    """C."""
    return round(FRACTION * samples)


def run_rank(kind: str, options: dict[str, Any], data: str, cache: str) -> None:
    """Goes through all epochs in step with the other ranks; prints JSON."""
    import torch

    torch.set_num_threads(1)
    from torch import distributed

    from vanidl_loaders.loader.loader import Settings
    from vanidl_loaders.ranks.messages import process_group
    from vanidl_loaders.ranks.world import World

    samples, world = open_samples(data), World.detect()
    with process_group(world):
        loader = KINDS[kind](samples, Settings(world, BATCH, EPOCHS), options, Path(cache))
        seconds, loads = [], []
        for epoch in range(EPOCHS):
            if world.rank == 0:
                evict(samples.path(0))
            distributed.barrier()
            begin, together = time.perf_counter(), torch.zeros(1)
            for _ in loader.epoch(epoch):
                distributed.all_reduce(together)
            seconds.append(time.perf_counter() - begin)
            loads.append(loader.loads())
        loader.close()
    sys.stdout.write(json.dumps({"seconds": seconds, "loads": loads}) + "\n")


class Scheduled:
    """This package's loader."""

    def __init__(
        self, samples: SampleSet, settings: Settings, options: dict[str, Any], _: Path
    ) -> None:
        from vanidl_loaders.loader.registry import open_loader

        chosen = options | {"buffer": held(len(samples))}
        self._loader = open_loader("scheduled", samples, settings, chosen)

    def epoch(self, epoch: int) -> Iterator[Any]:
        """Batches."""
        self._loader.set_epoch(epoch)
        return iter(self._loader)

    def loads(self) -> int | None:
        """Samples that this rank read so far."""
        return self._loader.stats().loads

    def close(self) -> None:
        """Ends threads or workers."""
        self._loader.close()


class Torch:
    """DataLoader and DistributedSampler; workers live on from epoch to epoch."""

    def __init__(
        self, samples: SampleSet, settings: Settings, options: dict[str, Any], _: Path
    ) -> None:
        from torch.utils.data import DataLoader

        from vanidl_loaders.baseline import StartingSampler
        from vanidl_loaders.loader.batches import collate
        from vanidl_loaders.loader.loader import Counts

        workers = options["workers"]
        self._counts = Counts(workers)
        dataset = self.dataset(samples, options)
        world = settings.world
        self._sampler = StartingSampler(dataset, world.ranks, world.rank, seed=settings.seed)
        self._loader = DataLoader(
            dataset,
            settings.batch,
            sampler=self._sampler,
            num_workers=workers,
            persistent_workers=workers > 0,
            collate_fn=collate,
        )

    def dataset(self, samples: SampleSet, _: dict[str, Any]) -> SampleDataset | Buffered:
        """What the DataLoader reads."""
        from vanidl_loaders.baseline import SampleDataset

        return SampleDataset(samples, self._counts)

    def epoch(self, epoch: int) -> Iterator[Any]:
        """Batches."""
        self._sampler.set_epoch(epoch)
        return iter(self._loader)

    def loads(self) -> int | None:
        """Samples that this rank read so far."""
        return self._counts.stats([]).loads

    def close(self) -> None:
        """Ends threads or workers."""
        del self._loader


class Recency(Torch):
    """The same with a buffer in one worker, from which the oldest or least recent leaves."""

    def __init__(
        self, samples: SampleSet, settings: Settings, options: dict[str, Any], at: Path
    ) -> None:
        super().__init__(samples, settings, options | {"workers": 1}, at)

    def dataset(self, samples: SampleSet, options: dict[str, Any]) -> SampleDataset | Buffered:
        """The same behind a buffer."""
        inner = super().dataset(samples, options)
        return Buffered(inner, held(len(samples)) // RANKS, renew=options["renew"])


class Buffered:
    """A data set behind a buffer."""

    def __init__(self, inner: SampleDataset | Buffered, capacity: int, *, renew: bool) -> None:
        self._inner, self._capacity, self._renew = inner, capacity, renew
        self._held: OrderedDict[int, Arrays] = OrderedDict()

    def __len__(self) -> int:
        return len(self._inner)

    def __getitem__(self, sample: int) -> Arrays:
        """From the buffer, or read and kept."""
        arrays = self._held[sample] if sample in self._held else self._inner[sample]
        if sample not in self._held or self._renew:
            self._held[sample] = arrays
            self._held.move_to_end(sample)
        if len(self._held) > self._capacity:
            self._held.popitem(last=False)
        return arrays


class Streaming:
    """MosaicML Streaming: shards copied from the slow folder into a cache of the buffer's size."""

    def __init__(
        self, samples: SampleSet, settings: Settings, options: dict[str, Any], cache: Path
    ) -> None:
        from streaming import StreamingDataset
        from torch.utils.data import DataLoader

        self._dataset = StreamingDataset(
            remote=str(samples.folder / "mds"),
            local=str(cache),
            shuffle=True,
            shuffle_seed=settings.seed,
            batch_size=settings.batch,
            cache_limit=int(held(len(samples)) * samples.sample_nbytes),
        )
        self._loader = DataLoader(
            self._dataset,
            settings.batch,
            num_workers=options["workers"],
            persistent_workers=True,
        )

    def epoch(self, _: int) -> Iterator[Any]:
        """Batches."""
        return iter(self._loader)

    def loads(self) -> int | None:
        """Samples that this rank read so far."""
        return None  # it does not tell

    def close(self) -> None:
        """Ends threads or workers."""
        del self._loader


KINDS: dict[str, Any] = {
    "dataloader": Torch,
    "recency": Recency,
    "scheduled": Scheduled,
    "streaming": Streaming,
}


if __name__ == "__main__":
    run_rank(*json.loads(sys.argv[1]))
