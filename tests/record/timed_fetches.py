"""A training whose dataset and collating time themselves, for recorded fetches to be held against.

usage: timed_fetches.py TRUTH WORKERS METHOD PERSISTENT DATA: PERSISTENT is "yes" or "no". Each
sample is read from DATA, unless that is "-", and then decoded, which takes a sleep. Every process
appends a line of JSON to a file of its own for every batch that it collates; each rank writes its
waits and steps beside it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import light_torch  # noqa: F401 - before torch
import torch
from fetch_sizes import BATCH, EPOCHS, HELD_OUT, ROWS, SAMPLE_BYTES, SAMPLES_STORED
from timed_training import Timed
from torch.utils.data import DataLoader, Dataset

NOW = time.time_ns
DECODE_S, COLLATE_S = 0.002, 0.003


class Rows(Dataset):
    """Rows from `first` on, that tell what each took."""

    def __init__(self, truth: Path, first: int, rows: int, data: str) -> None:
        self.truth, self.first, self.rows, self.data = truth, first, rows, data

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, i: int) -> tuple[int, int, int, int]:
        begin = NOW()
        if self.data != "-":
            descriptor = os.open(self.data, os.O_RDONLY)
            os.pread(descriptor, SAMPLE_BYTES, i % SAMPLES_STORED * SAMPLE_BYTES)
            os.close(descriptor)
        read = NOW()
        time.sleep(DECODE_S)
        return self.first + i, begin, read, NOW()

    def collate(self, samples: list[tuple[int, int, int, int]]) -> torch.Tensor:
        begin = NOW()
        time.sleep(COLLATE_S)
        batch = torch.tensor([row for row, *_ in samples], dtype=torch.float32)
        rank = int(os.environ.get("RANK", "0"))
        line = json.dumps({"rank": rank, "samples": samples, "collate": [begin, NOW()]})
        with self.truth.with_name(f"{self.truth.name}-{os.getpid()}").open("a") as file:
            file.write(f"{line}\n")
        return batch


def main(truth: Path, workers: int, method: str, persistent: bool, data: str) -> None:
    training = Rows(truth, 0, ROWS, data)
    held_out = Rows(truth, ROWS, HELD_OUT, data)
    how: dict = {}
    if workers:
        how = {"num_workers": workers, "multiprocessing_context": method}
        how["persistent_workers"] = persistent
    loaders = [DataLoader(r, BATCH, collate_fn=r.collate, **how) for r in (training, held_out)]
    model = torch.nn.Linear(BATCH, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    timed = Timed()
    for _ in range(EPOCHS):
        for begin, batch in timed.batches(loaders[0], "training"):
            timed.step(begin)
            model(batch).sum().backward()
            optimizer.step()
        for _, batch in timed.batches(loaders[1], "evaluation"):
            model(batch)
    timed.write(truth.with_name(f"waits-{os.environ.get('RANK', '0')}"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4] == "yes", sys.argv[5])
