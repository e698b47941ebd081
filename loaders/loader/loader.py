"""What every loader is told, offers and counts, and how long its batches are waited for."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ..errors import UsageError
from ..ranks.world import World
from .stalls import READ_TIMEOUT_S

if TYPE_CHECKING:
    from torch import Tensor

    from ..data.samples import SampleSet

WEIGHT = "weight"
"""Optional entry of a batch: n_r * ranks / global batch, where ranks get unequal shares."""

Batch = dict[str, "Tensor"]
"""One rank's batch: `sample` (n,) int64 ids, every field stacked (n, *shape), maybe `weight`."""

T = TypeVar("T")

_ON_DEMAND = "KINETO_USE_DAEMON" in os.environ
"""A profile may be begun from outside, which PyTorch's Python does not see."""


@dataclass(frozen=True)
class Settings:
    """What all loaders are told.

    Attributes:
        world: Which rank of how many.
        batch: Samples of a rank in a step; the global batch is ranks times that.
        epochs: How many are planned (a plan needs to know).
        seed: Of the order; the same on all ranks.
        shuffle: A new order each epoch.
        drop_last: Drop the incomplete global batch at the end instead of padding.
        workers: Processes (or threads) that read ahead; 0 reads in the training process.
        pin_memory: Batches in page-locked memory.
        memory_nbytes: Most bytes of samples that this rank keeps, beside the batches in the making;
            None: as each loader has it.
        read_timeout_s: Longest wait for storage that does not answer, before it is asked again.
    """

    world: World = field(default_factory=World)
    batch: int = 16
    epochs: int = 1
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False
    workers: int = 0
    pin_memory: bool = False
    memory_nbytes: int | None = None
    read_timeout_s: float = READ_TIMEOUT_S

    def __post_init__(self) -> None:
        if self.batch < 1 or self.epochs < 1 or self.workers < 0 or (self.memory_nbytes or 0) < 0:
            raise UsageError(
                f"expected batch and epochs of at least 1, workers and memory of at least 0, found "
                f"{self.batch}, {self.epochs}, {self.workers}, {self.memory_nbytes}: correct the "
                "options"
            )
        if not self.read_timeout_s > 0:
            raise UsageError(
                f"expected a read timeout above 0 s, found {self.read_timeout_s:g}: correct it"
            )

    def steps(self, samples: SampleSet) -> int:
        """Batches of every rank in one epoch: the same on all ranks."""
        if self.drop_last:
            return len(samples) // (self.world.ranks * self.batch)
        of_rank = -(-len(samples) // self.world.ranks)
        return -(-of_rank // self.batch)

    def identity(self, samples: SampleSet) -> dict[str, Any]:
        """What decides the stream of ids of a rank; see `Position`."""
        return {
            "samples": len(samples),
            "ranks": self.world.ranks,
            "rank": self.world.rank,
            "batch": self.batch,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
        }


class Loader(Protocol):
    """Batches of one rank, epoch after epoch."""

    def __iter__(self) -> Iterator[Batch]:
        """The batches of the epoch, `__next__` inside the profiler's span."""

    def __len__(self) -> int:
        """Steps of a full epoch: the same on every rank."""

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch that the next iteration goes through, from its start."""

    def stats(self) -> Stats:
        """What was done since the loader was made."""

    def state_dict(self) -> dict[str, Any]:
        """Where the iteration is: what `load_state_dict` needs to go on with the next batch."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration starts behind the last batch handed out in `state`."""

    def close(self) -> None:
        """Ends workers and closes files."""


class Waited(Generic[T]):
    """An iterator whose `__next__` is timed: each step's wait is appended to `waits`, seconds."""

    def __init__(self, inner: Iterator[T], waits: list[float]) -> None:
        self._inner, self._waits = inner, waits
        self.since: float | None = None
        """When the wait that goes on began."""

    def __iter__(self) -> Iterator[T]:
        """Itself."""
        return self

    def __next__(self) -> T:
        """The next item. The call that ends the iteration is no step and is not counted."""
        self.since = start = time.perf_counter()
        try:
            item = next(self._inner)
        finally:
            # A watch in another thread sees by this that the wait is over.
            self.since = None
        self._waits.append(time.perf_counter() - start)
        return item


class Spanned(Waited[T]):
    """`Waited`, inside the span that a profile shows for PyTorch's own DataLoader.

    Without the span a profile shows no input wait, and the loader would win every comparison by
    saying nothing. PyTorch's DataLoader marks its own `__next__`: use `Waited` there.
    """

    def __init__(self, inner: Iterator[T], waits: list[float], *, name: str) -> None:
        from torch.autograd import profiler

        super().__init__(inner, waits)
        self._span, self._profiler = name_span(name), profiler

    def __next__(self) -> T:
        """The next item, inside the span."""
        # Where nobody records, a span takes as much processor time as a tenth of the batch.
        if not (_ON_DEMAND or getattr(self._profiler, "_is_profiler_enabled", True)):
            return super().__next__()
        with self._profiler.record_function(self._span):
            return super().__next__()


def name_span(name: str) -> str:
    """Name of the span around `__next__` of the loader class `name`."""
    return f"enumerate(DataLoader)#{name}.__next__"


# What a loader did, counted where it happened: `Counts` is a small table in shared memory, one row
# a worker process, so that reads in DataLoader workers are counted by those who read. `Stats` is
# what a loader shows of it.

_LOADS, _HITS, _NBYTES, _REQUESTS = range(4)


@dataclass(frozen=True)
class Stats:
    """What one rank's loader did since it was made.

    Attributes:
        loads: Samples read from storage (read ahead included).
        hits: Samples served from a buffer without a read.
        nbytes: Bytes that the reads returned. HDF5's and images' own metadata are not in it.
        requests: Read calls, one per contiguous run. A file system may split them.
        exposed_wait_s: Seconds that the training process spent in `__next__`, one entry a step.
    """

    loads: int = 0
    hits: int = 0
    nbytes: int = 0
    requests: int = 0
    exposed_wait_s: tuple[float, ...] = ()

    @property
    def steps(self) -> int:
        """Batches handed out."""
        return len(self.exposed_wait_s)


class Counts:
    """Counters that worker processes share with the process that made them."""

    _row = memoryview(b"")

    def __init__(self, workers: int = 0) -> None:
        import torch

        self._table = torch.zeros((workers + 1, 4), dtype=torch.int64).share_memory_()
        self._process = -1

    def add(self, *, loads: int = 0, hits: int = 0, nbytes: int = 0, requests: int = 0) -> None:
        """Adds to this process's own row: no lock is needed between processes."""
        row = self._row if self._process == os.getpid() else self._own_row()
        row[_LOADS] += loads
        row[_HITS] += hits
        row[_NBYTES] += nbytes
        row[_REQUESTS] += requests

    def stats(self, exposed_wait_s: list[float]) -> Stats:
        """The sums over all processes, with the waits of the training process."""
        loads, hits, nbytes, requests = self._table.sum(0).tolist()
        return Stats(loads, hits, nbytes, requests, tuple(exposed_wait_s))

    def _own_row(self) -> memoryview:
        from torch.utils.data import get_worker_info

        worker = get_worker_info()
        self._row = self._table.numpy()[0 if worker is None else worker.id + 1].data
        self._process = os.getpid()
        return self._row

    def __getstate__(self) -> dict[str, Any]:
        return {"_table": self._table, "_process": -1}  # a view cannot be pickled
