"""A training on the CPU that runs some steps per line of its input: DATA WORKERS.

For benchmarks that let two of these take turns. It reads samples with pread in forked DataLoader
workers, in one pass over all steps, and prints the process numbers of itself and of the workers
before the first line, and a line after the steps of each.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.utils.data import DataLoader, RandomSampler

from benchmarks.programs.small_training import Samples, network

STEPS = 10
BATCH = 32
MOST = 100_000  # steps of the one pass


def steps(batches: Iterator[torch.Tensor]) -> Iterator[None]:
    """Trains, one step at a time."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = network()
    optimizer = torch.optim.Adam(net.parameters())
    for batch in batches:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(net(batch), batch).backward()
        optimizer.step()
        yield


def main() -> None:
    """Steps until the input ends."""
    samples = Samples(Path(sys.argv[1]))
    order = RandomSampler(samples, replacement=True, num_samples=MOST * BATCH)
    loader = DataLoader(samples, batch_size=BATCH, sampler=order, num_workers=int(sys.argv[2]))
    batches = iter(loader)
    workers = getattr(batches, "_workers", ())
    print(os.getpid(), *(worker.pid for worker in workers), flush=True)
    training = steps(batches)
    for _ in sys.stdin:
        for _ in range(STEPS):
            next(training)
        print(flush=True)


if __name__ == "__main__":
    main()
