"""Loops of TensorFlow whose compute and input take what they are told: X_MS Y_MS.

A step computes for X ms of wall time, asleep; a batch takes Y ms to load. TensorFlow reads ahead,
so a step takes about max(X, Y). `--how eager` is a loop over a dataset, `keras` is `Model.fit`,
where the compute is within the function that Keras traces; `pydataset` and `arrays` are `fit` on a
PyDataset, and on arrays of which each batch is sliced by TensorFlow (no Y ms), `predict` and
`evaluate` are called alone on a PyDataset, of which each call makes new data. With `--free` batches
lie in TensorFlow's memory from the start.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import tensorflow as tf  # type: ignore[import-not-found]

BATCH, FEATURES = 4, 1024
HOW = ("eager", "keras", "pydataset", "arrays", "predict", "evaluate")


class Program:
    """The training, when the compute of each step began, and the seconds that it took."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.begun: list[float] = []
        self.computed: list[float] = []

    def data(self) -> tf.data.Dataset:
        """Batches that take their time, in a dataset that knows how many they are, or not."""
        options = self.options

        def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            for k in range(options.batches):
                time.sleep(options.input_ms / 1e3)
                yield np.full((BATCH, FEATURES), k, "f4"), np.full((BATCH, 1), k, "f4")

        if options.free:
            batch = tf.zeros((BATCH, FEATURES)), tf.zeros((BATCH, 1))
            return tf.data.Dataset.from_tensors(batch).cache().repeat(options.batches)
        spec = tf.TensorSpec((None, FEATURES)), tf.TensorSpec((None, 1))
        data = tf.data.Dataset.from_generator(batches, output_signature=spec)
        if options.unknown:
            return data
        return data.apply(tf.data.experimental.assert_cardinality(options.batches))

    def compute(self) -> None:
        """Takes so long, as if a device were at it."""
        self.begun.append(time.perf_counter())
        time.sleep(self.options.compute_ms / 1e3)
        self.computed.append(time.perf_counter() - self.begun[-1])

    def eager(self) -> None:
        """A loop over the dataset."""
        data = self.data()
        for _ in range(self.options.epochs):
            for _batch in data:
                self.compute()

    def keras(self) -> None:
        """`fit` on the dataset."""
        self.model().fit(self.data(), epochs=self.options.epochs, verbose=0)

    def pydataset(self) -> None:
        """`fit` on data of which Keras knows the length, and TensorFlow does not."""
        data = self.data() if self.options.free else self.own_data()
        self.model().fit(data, epochs=self.options.epochs, verbose=0)

    def predict(self) -> None:
        """One pass each, over data that are made anew for it."""
        model = self.model()
        for _ in range(self.options.epochs):
            data = self.data() if self.options.free else self.own_data()
            model.predict(data, verbose=0)

    def evaluate(self) -> None:
        """The same with losses."""
        model = self.model()
        for _ in range(self.options.epochs):
            data = self.data() if self.options.free else self.own_data()
            model.evaluate(data, verbose=0)

    def arrays(self) -> None:
        """`fit` on arrays."""
        rows = BATCH * self.options.batches
        x, y = np.zeros((rows, FEATURES), "f4"), np.zeros((rows, 1), "f4")
        data = (self.data(),) if self.options.free else (x, y)
        size = None if self.options.free else BATCH
        self.model().fit(*data, batch_size=size, epochs=self.options.epochs, verbose=0)

    def own_data(self) -> object:
        """Batches that take their time, in a PyDataset."""
        import keras  # type: ignore[import-not-found]

        options = self.options

        class Batches(keras.utils.PyDataset):  # type: ignore[misc]
            def __len__(self) -> int:
                return int(options.batches)

            def __getitem__(self, k: int) -> tuple[np.ndarray, np.ndarray]:
                time.sleep(options.input_ms / 1e3)
                return np.full((BATCH, FEATURES), k, "f4"), np.full((BATCH, 1), k, "f4")

        return Batches()

    def model(self) -> Any:  # noqa: ANN401
        """One that takes so long."""
        import keras  # type: ignore[import-not-found]

        program = self

        class Slow(keras.layers.Layer):  # type: ignore[misc]
            def call(self, values: tf.Tensor) -> tf.Tensor:
                tf.py_function(program.compute, [], [])
                return values

        model = keras.Sequential([keras.Input((FEATURES,)), Slow(), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model


def main() -> None:
    """Trains, and writes the mean times of computing and of steps in their last half."""
    parser = argparse.ArgumentParser()
    parser.add_argument("compute_ms", type=float)
    parser.add_argument("input_ms", type=float)
    parser.add_argument("--how", choices=HOW, default=HOW[0])
    parser.add_argument("--free", action="store_true")
    parser.add_argument("--unknown", action="store_true")
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--truth", type=Path, required=True)
    program = Program(parser.parse_args())
    getattr(program, program.options.how)()
    half = slice(len(program.computed) // 2, None)
    found = {
        "compute_s": fmean(program.computed[half]),
        "step_s": float(np.diff(program.begun[half]).mean()),
    }
    program.options.truth.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
