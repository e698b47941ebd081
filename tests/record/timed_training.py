"""A training that times its own waits and steps, for the recorder to be held against.

usage: timed_training.py TRUTH WORKERS METHOD EPOCHS END: END is "return", "raise" or "kill".
Two batches make a step, of two optimizers; a validation follows each epoch.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import light_torch  # noqa: F401 - before torch
import torch
from torch.utils.data import DataLoader, Dataset

NAMES = ("training", "evaluation")
NOW = time.time_ns


class Rows(Dataset):
    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, i: int) -> torch.Tensor:
        time.sleep(0.001)
        return torch.full((2,), float(i))


class Timed:
    """The loop over a loader, with a time before and after everything it is asked for."""

    def __init__(self) -> None:
        self.waits: list[tuple[str, int, int]] = []
        self.steps: list[tuple[int, int]] = []  # before the first call, and after it

    def batches(self, loader: DataLoader, name: str) -> Iterator[tuple[int, torch.Tensor]]:
        begin = NOW()
        batches = iter(loader)
        while True:
            batch = next(batches, None)
            self.waits.append((name, begin, NOW()))
            if batch is None:
                return
            yield begin, batch
            begin = NOW()

    def step(self, begin: int) -> None:
        """One whose first wait began then, and ended just now."""
        self.steps.append((begin, self.waits[-1][2]))

    def write(self, path: Path) -> None:
        path.write_text(json.dumps({"pid": os.getpid(), "waits": self.waits, "steps": self.steps}))

    def epoch(self, training: DataLoader, evaluation: DataLoader) -> None:
        model = torch.nn.Linear(2, 1)
        optimizers = [torch.optim.SGD(model.parameters(), lr=1e-9) for _ in range(2)]
        for k, (begin, batch) in enumerate(self.batches(training, NAMES[0])):
            if k % 2 == 0:
                self.step(begin)
            model(batch).sum().backward()
            if k % 2 == 1:
                for optimizer in optimizers:
                    optimizer.step()
        for _, batch in self.batches(evaluation, NAMES[1]):
            model(batch)


def main(truth: Path, workers: int, method: str, epochs: int, end: str) -> None:
    how = {"num_workers": workers, "multiprocessing_context": method} if workers else {}
    training = DataLoader(Rows(32), batch_size=4, **how)
    evaluation = DataLoader(Rows(8), batch_size=4)
    timed = Timed()
    for _ in range(epochs):
        timed.epoch(training, evaluation)
    timed.write(truth.with_name(f"waits-{os.environ.get('RANK', '0')}"))
    if end == "raise":
        raise RuntimeError("as asked")
    if end == "kill":
        time.sleep(1.1)
        list(training)  # the first event after a second writes what was gathered
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5])
