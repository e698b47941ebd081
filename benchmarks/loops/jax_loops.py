"""Loops of JAX: jax_loops.py LOOP."""

from __future__ import annotations

import copy
import functools
import inspect
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import loop_data
import numpy as np
from timers import (
    BATCHES,
    COMPUTE_S,
    EPOCHS,
    EVALUATION,
    READ_S,
    VALIDATIONS,
    Timers,
    compute,
    tell,
)


def loss(weights: Any, batch: Any) -> Any:  # noqa: ANN401
    """Of a batch."""
    return (batch @ weights["w"] + weights["b"]).sum()


@jax.jit
def step(weights: Any, batch: Any) -> Any:  # noqa: ANN401
    """One update."""
    gradients = jax.grad(loss)(weights, batch)
    return jax.tree.map(lambda w, g: w - 1e-3 * g, weights, gradients)


@jax.jit
def evaluate(weights: Any, batch: Any) -> Any:  # noqa: ANN401
    """The loss."""
    return loss(weights, batch)


gradients_of = jax.jit(jax.grad(loss))


@jax.jit
def update(weights: Any, gradients: Any) -> Any:  # noqa: ANN401
    """An update apart."""
    return jax.tree.map(lambda w, g: w - 1e-3 * g, weights, gradients)


def two_steps(weights: Any, batch: Any) -> Any:  # noqa: ANN401
    """Gradients and update in two functions."""
    return update(weights, gradients_of(weights, batch))


def tell_of_functions() -> None:
    """What a program can ask a compiled function for is as it is without the recorder."""
    for function in (step, evaluate, update):
        print(function.__name__, function.__qualname__, function.__module__, function.__doc__)
        print(type(function).__name__, inspect.signature(function), inspect.isfunction(function))
        print(isinstance(function, type(step)), sorted(vars(function)), dir(function) == dir(step))
        print(functools.wraps(function)(lambda: None).__module__, function.__wrapped__.__name__)
        print(copy.copy(function) is function)
        print(len({function, function}), function == function, function._cache_size())
    weights = {"w": jnp.ones(2), "b": jnp.ones(())}
    print(jax.make_jaxpr(step)(weights, np.ones((2, 2), np.float32)))
    print(jax.vmap(evaluate, (None, 0))(weights, np.ones((3, 2, 2), np.float32)))
    print(step.lower(weights, np.ones((2, 2), np.float32)).as_text())


class Batches:
    """An iterable of the program itself: `--wait __main__:Batches`."""

    def __init__(self, batches: int = BATCHES) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[np.ndarray]:
        for i in range(self.batches):
            time.sleep(READ_S)
            yield np.full((2, 2), i, np.float32)


def train(
    timers: Timers,
    make: Callable[[], Any],
    validation: Callable[[], Any],
    step: Callable[[Any, Any], Any] = step,
) -> None:
    """Three epochs, validation after each."""
    weights = {"w": jnp.zeros(2), "b": jnp.zeros(())}
    losses = []
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for batch in timers.batches(make, every=1):
            weights = step(weights, batch)
            jax.block_until_ready(weights)
            compute()
            timers.step()
        with timers.time("validation"):
            for batch in timers.batches(validation, EVALUATION):
                losses.append(evaluate(weights, batch).block_until_ready())
                compute(COMPUTE_S / 2)
    tell(*losses)
    tell_of_functions()


def kept(timers: Timers) -> None:
    """The loaders are made once."""
    batches, validation = Batches(), Batches(VALIDATIONS)
    train(timers, lambda: batches, lambda: validation)


def anew(timers: Timers) -> None:
    """New ones for each pass."""
    train(timers, Batches, lambda: Batches(VALIDATIONS))


def apart(timers: Timers) -> None:
    """New ones for each pass; gradients and update are two functions."""
    train(timers, Batches, lambda: Batches(VALIDATIONS), two_steps)


def generator(timers: Timers) -> None:
    """A generator function serves validation, too: `--wait loop_data:batches`."""
    train(timers, lambda: loop_data.batches(BATCHES), lambda: loop_data.batches(VALIDATIONS))


def own_generator(timers: Timers) -> None:
    """The same of the program's own file: `--wait __main__:generated`."""
    train(timers, lambda: generated(BATCHES), lambda: generated(VALIDATIONS))


def generated(count: int) -> Iterator[np.ndarray]:
    """As many batches."""
    yield from loop_data.batches(count)


def torch_anew(timers: Timers) -> None:
    """A DataLoader of PyTorch, made anew for each epoch."""
    from torch.utils.data import DataLoader

    def loader(rows: int) -> Any:  # noqa: ANN401
        return DataLoader(loop_data.Rows(rows), batch_size=2, collate_fn=np.stack)

    train(timers, lambda: loader(2 * BATCHES), lambda: loader(2 * VALIDATIONS))


def grain(timers: Timers) -> None:
    """Grain's lazy datasets."""
    import grain as library

    data = library.MapDataset.source(loop_data.Rows()).shuffle(seed=0).batch(2)
    validation = library.MapDataset.source(loop_data.Rows(2 * VALIDATIONS)).batch(2)
    train(timers, lambda: data, lambda: validation)


def grain_threads(timers: Timers) -> None:
    """Grain's iterator of threads."""
    import grain as library

    def dataset(rows: int) -> Any:  # noqa: ANN401
        return library.MapDataset.source(loop_data.Rows(rows)).to_iter_dataset().batch(2)

    data, validation = dataset(2 * BATCHES), dataset(2 * VALIDATIONS)
    train(timers, lambda: data, lambda: validation)


def grain_workers(timers: Timers) -> None:
    """Grain's DataLoader with a process of its own."""
    import grain as library

    def loader(rows: int) -> Any:  # noqa: ANN401
        return library.DataLoader(
            data_source=loop_data.Rows(rows),
            sampler=library.samplers.IndexSampler(rows, num_epochs=1, seed=0),
            operations=[library.transforms.Batch(2)],
            worker_count=1,
        )

    data = loader(2 * BATCHES)
    train(timers, lambda: data, list)


LOOPS: dict[str, Callable[[Timers], None]] = {
    "kept": kept,
    "anew": anew,
    "apart": apart,
    "generator": generator,
    "own-generator": own_generator,
    "torch-anew": torch_anew,
    "grain": grain,
    "grain-threads": grain_threads,
    "grain-workers": grain_workers,
}


if __name__ == "__main__":
    if sys.argv[1] == "grain-workers":
        import multiprocessing

        from absl import flags

        multiprocessing.set_start_method("spawn", force=True)
        flags.FLAGS(sys.argv[:1])
    LOOPS[sys.argv[1]](Timers(sys.argv[1]))
