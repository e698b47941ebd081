"""Does exchanging a part of the samples bring back the accuracy of global shuffling?

    python -m benchmarks.loaders.pls_accuracy [--workers 16 64] [--seeds 5] [--epochs 20]

Workers are simulated in one process: synchronous SGD over all of them, batch normalisation with
each worker's own batch, as in data-parallel training. The data are synthetic: ten classes, each
of three clouds in 32 dimensions. Partitions are sorted by class (`blocks`), the worst case.
    global   every worker draws from all samples (what DistributedSampler does)
    local    every worker keeps its own (Q = 0)
    0.1 ...  partial local shuffling with that Q, who holds what from `vanidl_loaders.pls.Ownership`
Test accuracy after the last epoch. It is the direction that is claimed, of this small problem:
partial 0.3 above local in every seed, and at least four fifths of the way from local to global.
"""

from __future__ import annotations

import argparse
import statistics
import sys

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from vanidl_loaders.data.order import draw_epoch_order
from vanidl_loaders.pls import Ownership, deal

CLASSES, CLOUDS, FEATURES, HIDDEN = 10, 3, 32, 64
TRAINING, TESTING, BATCH, RATE, SPREAD = 5120, 4000, 8, 0.1, 1.6
POLICIES: dict[str, float | None] = {
    "global": None,
    "local": 0.0,
    "partial 0.1": 0.1,
    "partial 0.3": 0.3,
    "partial 0.9": 0.9,
}
MOMENTUM, TINY = 0.1, 1e-5
CLOSED = 0.8


def main() -> None:
    """Trains, prints the table; exit status 1 where the direction is another one."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    right = [show(w, options.seeds, options.epochs) for w in options.workers]
    sys.exit(int(not all(right)))


def show(workers: int, seeds: int, epochs: int) -> bool:
    """Prints one number of workers; True where the direction is as claimed."""
    found = {
        name: [accuracy(fraction, workers, epochs, seed) for seed in range(seeds)]
        for name, fraction in POLICIES.items()
    }
    print(f"{workers} workers, {TRAINING // workers} samples each, {seeds} seeds")
    for name, values in found.items():
        spread = statistics.stdev(values) if seeds > 1 else 0.0
        print(f"  {name:<12} {statistics.mean(values):7.2%}  sd {spread:.2%}")
    local, partial, whole = (statistics.mean(found[n]) for n in ("local", "partial 0.3", "global"))
    pairs = zip(found["local"], found["partial 0.3"], strict=True)
    higher = sum(low < high for low, high in pairs)
    closed = (partial - local) / (whole - local)
    print(f"  partial 0.3 above local in {higher} of {seeds} seeds; {closed:.0%} of the way\n")
    return higher == seeds and closed >= CLOSED


def accuracy(
    fraction: float | None, workers: int, epochs: int, seed: int, partition: str = "blocks"
) -> float:
    """Test accuracy of one training; `fraction` None is global shuffling."""
    torch.set_num_threads(1)  # such small matrices are not worth more
    x, y = clouds(TRAINING, seed)
    order = torch.from_numpy(np.argsort(y.numpy(), kind="stable"))
    x, y = x[order], y[order]
    model = Model(seed)
    homes = deal(TRAINING, workers, partition=partition)
    owner = None if fraction is None else Ownership(homes, fraction, seed)
    for epoch in range(epochs):
        for ids in batches(owner, workers, epoch, seed):
            model.step(x[ids], y[ids])
    test_x, test_y = clouds(TESTING, seed, first=TRAINING)
    return float((model.predict(test_x) == test_y).float().mean())


def clouds(samples: int, seed: int, first: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Points and their classes; the same centres for training and test."""
    centres = np.random.default_rng(seed).normal(size=(CLASSES, CLOUDS, FEATURES))
    random = np.random.default_rng((seed, first))
    y = np.arange(samples) % CLASSES
    x = centres[y, random.integers(CLOUDS, size=samples)]
    x = x + random.normal(scale=SPREAD, size=x.shape)
    return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y)


def batches(
    owner: Ownership | None, workers: int, epoch: int, seed: int
) -> list[NDArray[np.int64]]:
    """Ids of each step of an epoch: (workers, batch)."""
    if owner is None:
        table = draw_epoch_order(TRAINING, seed=seed, epoch=epoch).reshape(-1, workers)
    else:
        random = np.random.default_rng((seed, 2, epoch))
        table = random.permuted(owner.held(epoch), axis=0)
    return [table[i : i + BATCH].T for i in range(0, len(table) - BATCH + 1, BATCH)]


class Model:
    """A hidden layer with batch normalisation, each worker's batch by its own statistics."""

    def __init__(self, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.parts = [
            torch.randn(FEATURES, HIDDEN, generator=draw) / FEATURES**0.5,
            torch.ones(HIDDEN),
            torch.zeros(HIDDEN),
            torch.randn(HIDDEN, CLASSES, generator=draw) / HIDDEN**0.5,
            torch.zeros(CLASSES),
        ]
        for part in self.parts:
            part.requires_grad_()
        self.optimizer = torch.optim.SGD(self.parts, lr=RATE, momentum=0.9)
        self.mean, self.variance = torch.zeros(HIDDEN), torch.ones(HIDDEN)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """One step on (workers, batch) samples; running statistics are the workers' mean."""
        before = x @ self.parts[0]
        mean, variance = before.mean(1, keepdim=True), before.var(1, unbiased=False, keepdim=True)
        self.mean += MOMENTUM * (mean.detach().mean((0, 1)) - self.mean)
        self.variance += MOMENTUM * (variance.detach().mean((0, 1)) - self.variance)
        logits = self._after((before - mean) / (variance + TINY).sqrt())
        loss = cross_entropy(logits.flatten(0, 1), y.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        """Classes, by the running statistics."""
        with torch.no_grad():
            before = (x @ self.parts[0] - self.mean) / (self.variance + TINY).sqrt()
            return self._after(before).argmax(1)

    def _after(self, normal: torch.Tensor) -> torch.Tensor:
        return torch.relu(normal * self.parts[1] + self.parts[2]) @ self.parts[3] + self.parts[4]


if __name__ == "__main__":
    main()
