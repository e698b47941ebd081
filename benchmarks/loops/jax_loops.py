"""Loops of JAX: jax_loops.py LOOP."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import loop_data
import numpy as np
from timers import BATCHES, COMPUTE_S, EPOCHS, READ_S, VALIDATIONS, Timers, compute


def loss(weights: Any, batch: Any) -> Any:  # noqa: ANN401
    """Of a batch."""
    return (batch @ weights["w"] + weights["b"]).sum()


@jax.jit
def step(weights: Any, batch: Any) -> Any:  # noqa: ANN401
    """One update."""
    gradients = jax.grad(loss)(weights, batch)
    return jax.tree.map(lambda w, g: w - 1e-9 * g, weights, gradients)


@jax.jit
def evaluate(weights: Any, batch: Any) -> Any:  # noqa: ANN401
    """The loss."""
    return loss(weights, batch)


gradients_of = jax.jit(jax.grad(loss))


@jax.jit
def update(weights: Any, gradients: Any) -> Any:  # noqa: ANN401
    """An update apart."""
    return jax.tree.map(lambda w, g: w - 1e-9 * g, weights, gradients)


def two_steps(weights: Any, batch: Any) -> Any:  # noqa: ANN401
    """Gradients and update in two functions."""
    return update(weights, gradients_of(weights, batch))


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
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for batch in timers.batches(make()):
            weights = step(weights, batch)
            jax.block_until_ready(weights)
            compute()
            timers.step()
        with timers.time("validation"):
            for batch in validation():
                evaluate(weights, batch).block_until_ready()
                compute(COMPUTE_S / 2)


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

    data = library.MapDataset.source(loop_data.Rows()).batch(2)
    validation = library.MapDataset.source(loop_data.Rows(2 * VALIDATIONS)).batch(2)
    train(timers, lambda: data, lambda: validation)


LOOPS: dict[str, Callable[[Timers], None]] = {
    "kept": kept,
    "anew": anew,
    "apart": apart,
    "generator": generator,
    "own-generator": own_generator,
    "torch-anew": torch_anew,
    "grain": grain,
}


if __name__ == "__main__":
    LOOPS[sys.argv[1]](Timers())
