"""A training loop whose compute and input take what they are told: known_cost.py X_MS Y_MS.

A step computes for X ms of wall time; a batch takes Y ms to load, asleep as if it waited for
storage. In the training process a step takes X + Y then, with N workers about max(X, Y / N).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import fmean

import torch
from torch.utils.data import DataLoader, Dataset

BATCH = 4
WARM_UP = 20


class Slow(Dataset[torch.Tensor]):
    """Samples that take their time."""

    def __init__(self, batches: int, sample_s: float) -> None:
        self.samples, self.sample_s = batches * BATCH, sample_s

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        """One sample."""
        time.sleep(self.sample_s)
        return torch.full((1024,), float(index))


def compute(seconds: float, how: str) -> None:
    """Takes so long, asleep as if a device were at it, or busy."""
    until = time.perf_counter() + seconds
    if how == "sleep":
        time.sleep(seconds)
    while time.perf_counter() < until:
        pass


def train(options: argparse.Namespace) -> dict[str, float]:
    """Trains; the mean times of computing and of whole steps after the first WARM_UP batches."""
    data = Slow(options.batches, options.input_ms / BATCH / 1e3)
    loader = DataLoader(data, batch_size=BATCH, num_workers=options.workers)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    weight.grad = torch.zeros(1)
    computed, stepped = [], []
    for _ in range(options.epochs):
        last = time.perf_counter()
        for batch in loader:
            begin = time.perf_counter()
            batch.mul_(2)  # as people normalise: in place
            compute(options.compute_ms / 1e3, options.how)
            optimizer.step()
            end = time.perf_counter()
            computed.append(end - begin)
            stepped.append(end - last)
            last = end
    kept = slice(WARM_UP, None)
    return {"compute_s": fmean(computed[kept]), "step_s": fmean(stepped[kept])}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("compute_ms", type=float)
    parser.add_argument("input_ms", type=float)
    parser.add_argument("--how", choices=("sleep", "busy"), default="sleep")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--truth", type=Path, help="file for the times that it took itself")
    return parser.parse_args()


if __name__ == "__main__":
    torch.set_num_threads(1)
    chosen = _options()
    times = train(chosen)
    if chosen.truth is not None:
        chosen.truth.write_text(json.dumps(times))
