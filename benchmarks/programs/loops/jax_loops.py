"""Loops of JAX over iterators of several kinds: jax_loops.py TRUTH LOOP."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from truth import EVALUATION, Truth, busy

BATCHES = 12
READ_S, COMPUTE_S = 0.004, 0.006


class Source:
    """Rows for Grain: each takes its time."""

    def __init__(self, rows: int = 2 * BATCHES) -> None:
        self.rows = rows

    def __len__(self) -> int:
        """How many there are."""
        return self.rows

    def __getitem__(self, i: int) -> np.ndarray:
        """Row i."""
        time.sleep(READ_S / 2)
        return np.full(2, i, np.float32)


@jax.jit
def step(weights: Any, batch: Any) -> Any:  # noqa: ANN401
    """One update."""
    return weights - 1e-9 * jax.grad(lambda w: (batch @ w).sum())(weights)


def train(truth: Truth, batches: Any, validation: Any = None) -> None:  # noqa: ANN401
    """Two epochs."""
    weights = np.zeros(2, np.float32)
    for _ in range(2):
        for batch in truth.batches(batches()):
            weights = step(weights, batch).block_until_ready()
            busy(COMPUTE_S)
        for _batch in truth.batches(validation(), EVALUATION) if validation else ():
            busy(COMPUTE_S / 2)


def grain_map(truth: Truth) -> None:
    """Grain's lazy datasets, iterated over as they are."""
    import grain

    data = grain.MapDataset.source(Source()).shuffle(seed=0).batch(2)
    train(truth, lambda: data)


def grain_threads(truth: Truth) -> None:
    """Grain's iterator of threads."""
    import grain

    data = grain.MapDataset.source(Source()).to_iter_dataset().batch(2)
    train(truth, lambda: data)


def grain_workers(truth: Truth) -> None:
    """Grain's DataLoader with a process of its own."""
    import grain

    loader = grain.DataLoader(
        data_source=Source(),
        sampler=grain.samplers.IndexSampler(2 * BATCHES, num_epochs=1, seed=0),
        operations=[grain.transforms.Batch(2)],
        worker_count=1,
    )
    train(truth, lambda: loader)


class Batches:
    """An iterable of the program itself: `--wait __main__:Batches`."""

    def __iter__(self) -> Iterator[np.ndarray]:
        for i in range(BATCHES):
            time.sleep(READ_S)
            yield np.full((2, 2), i, np.float32)


def plain(truth: Truth) -> None:
    """A class with a generator."""
    batches = Batches()
    train(truth, lambda: batches)


def generated(truth: Truth) -> None:
    """A generator function of another module: `--wait own_data:batches`."""
    import own_data

    train(truth, lambda: own_data.batches(BATCHES, READ_S), lambda: own_data.Counted(4, READ_S))


LOOPS: dict[str, Callable[[Truth], None]] = {
    "grain-map": grain_map,
    "grain-threads": grain_threads,
    "grain-workers": grain_workers,
    "plain": plain,
    "generated": generated,
}


if __name__ == "__main__":
    import multiprocessing

    from absl import flags

    multiprocessing.set_start_method("spawn", force=True)
    flags.FLAGS(sys.argv[:1])
    times = Truth()
    LOOPS[sys.argv[2]](times)
    times.save(sys.argv[1])
