"""A small training job on the CPU, of several benchmarks: python small_training.py DATA [WORKERS].

Reads samples with pread in forked DataLoader workers (WORKERS, 2 by default), trains a small
network on one thread.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

SAMPLES = 1024
SIDE = 64
NBYTES = SIDE * SIDE * 4
EPOCHS = 2


class Samples(Dataset[torch.Tensor]):
    """Square float32 images, one after another in one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor: int | None = None

    def __len__(self) -> int:
        """How many samples there are."""
        return SAMPLES

    def __getitem__(self, i: int) -> torch.Tensor:
        """Sample i, shape (1, SIDE, SIDE)."""
        if self.descriptor is None:
            self.descriptor = os.open(self.path, os.O_RDONLY)
        raw = bytearray(os.pread(self.descriptor, NBYTES, i * NBYTES))
        return torch.frombuffer(raw, dtype=torch.float32).reshape(1, SIDE, SIDE)


def network() -> torch.nn.Module:
    """An autoencoder of such images."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 5, padding=2, stride=2), torch.nn.ReLU(),
        torch.nn.Conv2d(16, 16, 3, padding=1), torch.nn.ReLU(),
        torch.nn.Upsample(scale_factor=2), torch.nn.Conv2d(16, 1, 3, padding=1),
    )  # fmt: skip


def train(path: Path, workers: int = 2) -> None:
    """EPOCHS epochs of an autoencoder."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = network()
    optimizer = torch.optim.Adam(net.parameters())
    loader = DataLoader(Samples(path), batch_size=32, shuffle=True, num_workers=workers)
    for _ in range(EPOCHS):
        for batch in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(net(batch), batch).backward()
            optimizer.step()


if __name__ == "__main__":
    train(Path(sys.argv[1]), *map(int, sys.argv[2:]))
