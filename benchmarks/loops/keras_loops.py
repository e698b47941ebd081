"""Keras 3 by each backend, and a loop of TensorFlow by hand: keras_loops.py BACKEND [own]."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

BACKEND = sys.argv[1]
os.environ["KERAS_BACKEND"] = BACKEND

import keras  # noqa: E402
import numpy as np  # noqa: E402
from timers import (  # noqa: E402
    BATCHES,
    COMPUTE_S,
    EPOCHS,
    EVALUATION,
    READ_S,
    SAVE_S,
    VALIDATIONS,
    WAIT,
    Timers,
    compute,
    tell,
)  # fmt: skip


class Rows(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches that take their time, in the thread that asks for one."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.batches = batches

    def __len__(self) -> int:
        """How many there are."""
        return self.batches

    def __getitem__(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Batch i."""
        time.sleep(READ_S)
        return np.full((2, 4), float(i), np.float32), np.zeros((2, 1), np.float32)


class Watch(keras.callbacks.Callback):  # type: ignore[misc]
    """Counts, and computes after each batch."""

    def __init__(self, timers: Timers) -> None:
        super().__init__()
        self.timers = timers

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:  # noqa: ARG002
        """Another one; Keras has taken a batch before, to see what shape it has."""
        self.timers.counts["epochs"] += 1
        asked_for[:] = [WAIT]

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:  # noqa: ARG002
        """A step."""
        compute()
        self.timers.step()

    def on_test_batch_end(self, batch: int, logs: dict | None = None) -> None:  # noqa: ARG002
        """Less."""
        compute(COMPUTE_S / 2)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:  # noqa: ARG002
        """A checkpoint."""
        with tempfile.TemporaryDirectory() as folder, self.timers.saving():
            self.model.save(f"{folder}/{epoch}.keras")


class Timed(keras.Sequential):  # type: ignore[misc]
    """Validates as Keras does, the taking down of what read the data included."""

    timers: Timers

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """One validation."""
        before, asked_for[:] = asked_for[0], [EVALUATION]
        with self.timers.time("validation"):
            result = super().evaluate(*args, **kwargs)
        asked_for[:] = [before]
        return result


class Slow(keras.layers.Dense):  # type: ignore[misc]
    """Takes its time to be saved."""

    def save_own_variables(self, store: Any) -> None:  # noqa: ANN401
        """To a store."""
        time.sleep(SAVE_S)
        super().save_own_variables(store)


asked_for = [EVALUATION]
"""What batches are for at the moment."""


def time_batches(timers: Timers) -> None:
    """Has Keras' iterators timed; in TensorFlow a compiled function asks them."""
    if BACKEND == "jax":
        from keras.src.backend.jax.trainer import JAXEpochIterator as Asking
    elif BACKEND == "torch":
        from keras.src.backend.torch.trainer import TorchEpochIterator as Asking
    else:
        return
    original = Asking._get_iterator

    def _get_iterator(iterator: Any) -> Iterator[Any]:  # noqa: ANN401
        return timers.batches(lambda: original(iterator), asked_for[0])

    Asking._get_iterator = _get_iterator


def fit(timers: Timers) -> None:
    """By Keras itself."""
    keras.utils.set_random_seed(0)
    time_batches(timers)
    model = Timed([keras.layers.Input((4,)), Slow(1)])
    model.timers = timers
    model.compile(optimizer="sgd", loss="mse")
    if BACKEND == "torch":
        from torch.utils.data import DataLoader

        data: Any = DataLoader(Rows(BATCHES), batch_size=None)
        validation: Any = DataLoader(Rows(VALIDATIONS), batch_size=None)
    else:
        data, validation = Rows(BATCHES), Rows(VALIDATIONS)
    history = model.fit(
        data, epochs=EPOCHS, verbose=0, shuffle=False, validation_data=validation,
        callbacks=[Watch(timers)],
    )  # fmt: skip
    tell(*(loss for losses in history.history.values() for loss in losses))


def own(timers: Timers) -> None:
    """TensorFlow by hand, over tf.data."""
    import tensorflow as tf

    def dataset(batches: int) -> Any:  # noqa: ANN401
        def made() -> Iterator[np.ndarray]:
            for i in range(batches):
                time.sleep(READ_S)
                yield np.full((2, 4), float(i), np.float32)

        return tf.data.Dataset.from_generator(
            made, output_signature=tf.TensorSpec((2, 4), tf.float32)
        )

    weights = tf.Variable(tf.zeros((4, 1)))

    @tf.function  # type: ignore[untyped-decorator]
    def step(batch: Any) -> Any:  # noqa: ANN401
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(batch @ weights)
        weights.assign_sub(1e-3 * tape.gradient(loss, weights))
        return loss

    losses = []
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for batch in timers.batches(dataset(BATCHES), every=1):
            losses.append(step(batch))
            compute()
            timers.step()
        validation = dataset(VALIDATIONS)
        with timers.time("validation"):
            for batch in timers.batches(validation, EVALUATION):
                losses.append(tf.reduce_sum(batch @ weights))
                compute(COMPUTE_S / 2)
    tell(*losses)


if __name__ == "__main__":
    (own if sys.argv[2:] == ["own"] else fit)(Timers())
