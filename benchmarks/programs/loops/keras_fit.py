"""Keras 3, `fit` with validation or a loop of one's own: keras_fit.py TRUTH BACKEND LOOP.

Keras tells nothing of its waits. They are timed in the iterator that it asks; on TensorFlow, where
a graph asks, by timers in that graph.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

BACKEND, LOOP = sys.argv[2:4]
os.environ["KERAS_BACKEND"] = BACKEND

import keras  # noqa: E402
import numpy as np  # noqa: E402
from truth import EVALUATION, TRAINING, Truth, busy  # noqa: E402

BATCHES = 12
READ_S = 0.008
SOON_NS = 1_000_000_000  # up to so long before its batch the making of an iterator is of its step


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
        begin = self.truth.now()
        if self.name == TRAINING and self.truth.begun:
            self.truth.step(begin)
        time.sleep(READ_S)
        self.truth.waited(self.name, begin)
        return np.full((2, 4), float(i), np.float32), np.zeros((2, 1), np.float32)


class Work(keras.callbacks.Callback):
    """Computes after each batch, and says which is the last."""

    def __init__(self, truth: Truth) -> None:
        super().__init__()
        self.truth, self.role = truth, TRAINING

    def on_test_begin(self, logs: dict | None = None) -> None:  # noqa: ARG002
        """Evaluation begins within training."""
        self.role = EVALUATION

    def on_test_end(self, logs: dict | None = None) -> None:  # noqa: ARG002
        """Training goes on."""
        self.role = TRAINING

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


class Graph:
    """Times of the passes over datasets of tf.data, and of the batches that graphs ask them for.

    Timers go into the graph, around the operation that takes the batch.
    """

    def __init__(self, truth: Truth, work: Work) -> None:
        self.truth, self.work = truth, work
        self._begun = self._made = 0  # when the making of an iterator began, and ended

    def install(self) -> None:
        """From now on."""
        import tensorflow as tf
        from tensorflow.python.data.ops.iterator_ops import OwnedIterator

        make, take = tf.data.Dataset.__iter__, OwnedIterator.get_next

        def __iter__(dataset: Any) -> Any:  # noqa: ANN401
            begin = self.truth.now()
            made = make(dataset)
            self.truth.waited(self.work.role, begin)
            if self.work.role == TRAINING:
                self._begun, self._made = begin, self.truth.now()
            return made

        def get_next(iterator: Any) -> Any:  # noqa: ANN401
            if tf.executing_eagerly():
                return take(iterator)
            begin = tf.numpy_function(self.truth.now, [], tf.int64)
            with tf.control_dependencies([begin]):
                batch = take(iterator)
            with tf.control_dependencies(tf.nest.flatten(batch)):
                tf.numpy_function(self._taken, [begin], [])
            return batch

        tf.data.Dataset.__iter__, OwnedIterator.get_next = __iter__, get_next

    def _taken(self, begin: Any) -> None:  # noqa: ANN401
        if self.work.role == TRAINING:
            belongs = self._begun and begin - self._made <= SOON_NS
            self.truth.step(self._begun if belongs else int(begin))
            self._begun = 0
        self.truth.waited(self.work.role, int(begin))


def model() -> Any:  # noqa: ANN401
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
                begin = truth.now()
                if name == TRAINING and truth.begun:
                    truth.step(begin)
                batch = next(iterator, None)
                if batch is None:
                    truth.end(begin)
                    return
                truth.waited(name, begin)
                yield batch

    return Timed(Rows(Truth(), name, batches), batch_size=None)


def fit(truth: Truth) -> None:
    """Two epochs by Keras itself."""
    work = Work(truth)
    if BACKEND == "tensorflow":
        Graph(truth, work).install()
        data, validation = dataset(BATCHES), dataset(4)
    else:
        make = {"torch": loader, "jax": Rows}[BACKEND]
        data, validation = make(truth, TRAINING, BATCHES), make(truth, EVALUATION, 4)
    model().fit(
        data, epochs=2, verbose=0, shuffle=False, validation_data=validation, callbacks=[work]
    )


def dataset(batches: int) -> Any:  # noqa: ANN401
    """Batches of tf.data, made by a function in Python when they are asked for."""
    import tensorflow as tf

    def made() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for i in range(batches):
            time.sleep(READ_S)
            yield np.full((2, 4), float(i), np.float32), np.zeros((2, 1), np.float32)

    specs = (tf.TensorSpec((2, 4), tf.float32), tf.TensorSpec((2, 1), tf.float32))
    data = tf.data.Dataset.from_generator(made, output_signature=specs)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # else the times overlap
    return data.apply(tf.data.experimental.assert_cardinality(batches)).with_options(options)


def own_loop(truth: Truth) -> None:
    """Two epochs of `train_on_batch` over a dataset of tf.data."""
    made, data, validation = model(), dataset(BATCHES), dataset(4)
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
