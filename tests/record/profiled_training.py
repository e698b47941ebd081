"""A training for `--profile`; with "own" it runs a profiler of its own for some steps.

usage: profiled_training.py OWN BATCHES
"""

from __future__ import annotations

import atexit
import gc
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, i: int) -> torch.Tensor:
        time.sleep(0.001)
        return torch.full((2,), float(i))


def main(own: bool, batches: int) -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    schedule = torch.profiler.schedule(wait=batches - 2, warmup=1, active=1)
    profiler = torch.profiler.profile(schedule=schedule) if own else None
    if profiler is not None:
        profiler.start()
    for batch in DataLoader(Rows(2 * batches), batch_size=2):
        model(batch).sum().backward()
        optimizer.step()
        time.sleep(0.002)
        if profiler is not None:
            profiler.step()
    if profiler is not None:
        profiler.stop()


if __name__ == "__main__":
    atexit.register(gc.freeze)  # what imports made is not looked through at exit
    main(sys.argv[1] == "own", int(sys.argv[2]))
