"""Loaders that read ahead in threads of the training process, without a worker process.

Each hands over batches inside the profiler's span, as the loaders of `vanidl_loaders` do.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
from torch.profiler import record_function

from vanidl_loaders.baseline import SampleDataset
from vanidl_loaders.data.samples import SampleSet
from vanidl_loaders.loader.loader import Counts, Settings

PACKAGES = {"thread": "", "grain": "grain", "tf.data": "tensorflow"}
"""Name of each loader -> the package that it needs."""

AHEAD = 2
Batches = Iterator[Any]


def is_installed(name: str) -> bool:
    """Whether the package of a loader is there."""
    return not PACKAGES[name] or find_spec(PACKAGES[name]) is not None


class ThreadLoader:
    """Batches of one process in a new order each epoch, read by threads."""

    def __init__(self, name: str, samples: SampleSet, settings: Settings) -> None:
        self._name, self._settings = name, settings
        self._dataset = SampleDataset(samples, Counts())
        self._steps, self._epoch = settings.steps(samples), 0

    def __len__(self) -> int:
        """Steps of an epoch."""
        return self._steps

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of the next iteration."""
        self._epoch = epoch

    def __iter__(self) -> Batches:
        """The batches of the epoch, the wait for each inside a span."""
        made = _MAKERS[self._name](self._load, self._steps)
        for _ in range(self._steps):
            with record_function(f"enumerate(DataLoader)#{self._name}.__next__"):
                batch = next(made)
            yield batch

    def _load(self, step: int) -> int:
        order = np.random.default_rng(self._epoch).permutation(len(self._dataset))
        size = self._settings.batch
        for sample in order[step * size : (step + 1) * size].tolist():
            self._dataset[sample]
        return step

    def close(self) -> None:
        """Closes the files."""
        self._dataset.close()


def _thread(load: Callable[[int], int], steps: int) -> Batches:
    """A thread that keeps two batches ready."""
    ready: queue.Queue[int] = queue.Queue(AHEAD)

    def read() -> None:
        for step in range(steps):
            ready.put(load(step))

    threading.Thread(target=read, daemon=True).start()
    return (ready.get() for _ in range(steps))


def _grain(load: Callable[[int], int], steps: int) -> Batches:
    """Grain's own reading threads."""
    import grain.python as grain

    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=AHEAD)
    return iter(grain.MapDataset.range(steps).map(load).to_iter_dataset(options))


def _tf_data(load: Callable[[int], int], steps: int) -> Batches:
    """tf.data's prefetching thread."""
    import tensorflow as tf

    made = tf.data.Dataset.range(steps).map(lambda i: tf.numpy_function(load, [i], tf.int64))
    return iter(made.prefetch(AHEAD))


_MAKERS = {"thread": _thread, "grain": _grain, "tf.data": _tf_data}
