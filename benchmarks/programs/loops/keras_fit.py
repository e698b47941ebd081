"""Keras 3, `fit` with validation or a loop of one's own: keras_fit.py TRUTH BACKEND LOOP.

Keras tells nothing of its waits. They are timed in the iterator that it asks, or, where that is of
tf.data, in the function that makes the batches: what TensorFlow itself takes is not in these times.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

BACKEND, LOOP = sys.argv[2:4]
os.environ["KERAS_BACKEND"] = BACKEND

import keras  # noqa: E402
import numpy as np  # noqa: E402
from truth import EVALUATION, NOW, TRAINING, Truth, busy  # noqa: E402

BATCHES = 12
READ_S = 0.008


class Rows(keras.utils.PyDataset):
    """Batches that take their time, in the thread that asks for one."""

    def __init__(self, truth: Truth, name: str, batches: int) -> None:
        super().__init__()
        self.truth, self.name, self.batches = truth, name, batches

    def __len__(self) -> int:
        """How many there are."""
        return self.batches

    def __getitem__(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Batch i."""
        begin = NOW()
        if self.name == TRAINING and self.truth.begun:
            self.truth.step(begin)
        time.sleep(READ_S)
        self.truth.waited(self.name, begin)
        return np.full((2, 4), float(i), np.float32), np.zeros((2, 1), np.float32)


class Work(keras.callbacks.Callback):
    """Computes after each batch, and says which is the last."""

    def __init__(self, truth: Truth) -> None:
        super().__init__()
        self.truth = truth

    def on_train_begin(self, logs: dict | None = None) -> None:  # noqa: ARG002
        """Keras has taken a batch before, to see what shape it has."""
        self.truth.begun = True

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:  # noqa: ARG002
        """As long as a larger model would."""
        busy(0.006)
        if batch == BATCHES - 1:
            self.truth.end()

    def on_test_batch_end(self, batch: int, logs: dict | None = None) -> None:  # noqa: ARG002
        """Less."""
        busy(0.003)


def model() -> keras.Model:
    """One layer."""
    made = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    made.compile(optimizer="sgd", loss="mse")
    return made


def loader(truth: Truth, name: str, batches: int) -> Any:  # noqa: ANN401
    """A DataLoader of PyTorch that times what it is asked for."""
    from torch.utils.data import DataLoader

    class Timed(DataLoader):
        def __iter__(self) -> Any:  # noqa: ANN401
            iterator = super().__iter__()
            while True:
                begin = NOW()
                if name == TRAINING and truth.begun:
                    truth.step(begin)
                batch = next(iterator, None)
                if batch is None:
                    truth.end(begin)
                    return
                truth.waited(name, begin)
                yield batch

    return Timed(Rows(Truth(), name, batches), batch_size=None)


MAKERS = {"torch": loader, "jax": Rows}


def fit(truth: Truth) -> None:
    """Two epochs by Keras itself."""
    make = MAKERS.get(BACKEND, dataset)
    model().fit(
        make(truth, TRAINING, BATCHES), epochs=2, verbose=0, shuffle=False,
        validation_data=make(truth, EVALUATION, 4), callbacks=[Work(truth)],
    )  # fmt: skip


def dataset(truth: Truth, name: str, batches: int) -> Any:  # noqa: ANN401
    """Batches of tf.data, made by a function in Python when they are asked for."""
    import tensorflow as tf

    rows = Rows(truth, name, batches)
    specs = (tf.TensorSpec((2, 4), tf.float32), tf.TensorSpec((2, 1), tf.float32))
    data = tf.data.Dataset.from_generator(
        lambda: (rows[i] for i in range(batches)), output_signature=specs
    )
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # else the times overlap
    return data.apply(tf.data.experimental.assert_cardinality(batches)).with_options(options)


def own_loop(truth: Truth) -> None:
    """Two epochs of `train_on_batch` over a dataset of tf.data."""
    made, inner = model(), Truth()
    data, validation = dataset(inner, TRAINING, BATCHES), dataset(inner, EVALUATION, 4)
    for _ in range(2):
        for x, y in truth.batches(data):
            made.train_on_batch(x, y)
            busy(0.006)
        for x, y in truth.batches(validation, EVALUATION):
            made.test_on_batch(x, y)


if __name__ == "__main__":
    times = Truth()
    {"fit": fit, "own": own_loop}[LOOP](times)
    times.save(sys.argv[1])
