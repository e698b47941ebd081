"""The loader `streaming`: MosaicML Streaming on MDS shards.

Its shuffle is deterministic, and it resumes in the middle of an epoch. The package is imported when
the loader is opened: it takes seconds, and its options need none of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..data.samples import SampleSet
from ..errors import UsageError
from ..loader.batches import collate
from ..loader.loader import Batch, Counts, Loader, Settings, Stats, Waited
from ..loader.registry import declare_streaming
from .shards import require_shards

NAME = "streaming"
HELP = "MosaicML Streaming on MDS shards (convert --to mds)"
add_arguments = declare_streaming
READS = 2
"""Read calls a sample: its bounds in the shard, then its bytes (MDSReader.get_sample_data)."""


def open_loader(samples: SampleSet, settings: Settings, options: argparse.Namespace) -> Loader:
    """The loader.

    Raises:
        UsageError: Several ranks that torchrun did not start: Streaming asks its environment.
        InputError: The samples were not converted.
        ModuleNotFoundError: The package is not installed.
    """
    if settings.world.ranks > 1 and settings.world.source != "torch.distributed":
        raise UsageError("expected ranks started by torchrun, found others: Streaming needs it")
    return StreamingLoader(samples, settings, shuffle_algorithm=options.streaming_shuffle)


class CountedCollate:
    """Stacks the samples of a batch, and counts them, in the process that has read them."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def __call__(self, samples: list[dict[str, Any]]) -> Batch:
        """The batch; ids come as numbers."""
        arrays = [{name: np.asarray(value) for name, value in each.items()} for each in samples]
        nbytes = sum(a.nbytes for each in arrays for name, a in each.items() if name != "sample")
        self._counts.add(loads=len(arrays), nbytes=nbytes, requests=READS * len(arrays))
        return collate(arrays)


class StreamingLoader:
    """Batches of MosaicML's StreamingDataLoader."""

    def __init__(
        self, samples: SampleSet, settings: Settings, *, shuffle_algorithm: str = "py1e"
    ) -> None:
        from streaming import StreamingDataLoader, StreamingDataset

        self._counts, self._waits = Counts(settings.workers), list[float]()
        self._stream = StreamingDataset(
            local=str(require_shards(samples, "mds")),
            shuffle=settings.shuffle,
            shuffle_algo=shuffle_algorithm,
            shuffle_seed=settings.seed,
            batch_size=settings.batch,
        )
        self._loader = StreamingDataLoader(
            self._stream,
            batch_size=settings.batch,
            num_workers=settings.workers,
            drop_last=settings.drop_last,
            pin_memory=settings.pin_memory,
            collate_fn=CountedCollate(self._counts),
        )
        self._epoch, self._resumed = 0, False

    def __iter__(self) -> Iterator[Batch]:
        """The batches of the epoch. The DataLoader marks its own `__next__`."""
        return Waited(iter(self._loader), self._waits)

    def __len__(self) -> int:
        """Steps of an epoch: Streaming repeats samples until all ranks have as many."""
        return len(self._loader)

    def set_epoch(self, epoch: int) -> None:
        """Streaming counts epochs itself; a jump is told to it."""
        if not (self._resumed and epoch == self._epoch):
            self._stream.next_epoch = epoch
        self._epoch, self._resumed = epoch, False

    def stats(self) -> Stats:
        """Reads of all workers, and the waits of this process."""
        return self._counts.stats(self._waits)

    def state_dict(self) -> dict[str, Any]:
        """Streaming's own state, and the epoch."""
        return {"epoch": self._epoch, "streaming": self._loader.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on behind the last batch of `state`."""
        self._epoch, self._resumed = int(state["epoch"]), True
        self._loader.load_state_dict(state["streaming"])

    def close(self) -> None:
        """Nothing stays open: workers end with their iterator."""
