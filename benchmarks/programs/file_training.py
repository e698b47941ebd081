"""A training over files of samples, the real run of dlio_export: python file_training.py DATA OUT.

One sample or more in each NPZ or HDF5 file, forked DataLoader workers, a device that is waited
for, a checkpoint at the end of each epoch.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

import h5py
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SAVED = 1 << 20


class Samples(Dataset[torch.Tensor]):
    """Sample i lies in file i // per_file."""

    def __init__(self, folder: Path, per_file: int) -> None:
        self.paths = sorted(p for p in folder.iterdir() if p.suffix in (".npz", ".h5"))
        self.per_file = per_file

    def __len__(self) -> int:
        """How many samples there are."""
        return len(self.paths) * self.per_file

    def __getitem__(self, i: int) -> torch.Tensor:
        """One sample; its file is opened for it."""
        path, place = self.paths[i // self.per_file], i % self.per_file
        if path.suffix == ".npz":
            with np.load(path) as file:
                return torch.from_numpy(file["image"][..., place])
        with h5py.File(path) as file:
            return torch.from_numpy(file["image"][place])


def make(
    folder: Path, suffix: str, *, files: int, per_file: int, nbytes: int, layout: str | None = None
) -> None:
    """Files of random bytes; HDF5 in a layout, None: h5py's usual one."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(0)
    for i in range(files):
        path = folder / f"part-{i:04}{suffix}"
        if suffix == ".npz":
            image = draw.integers(0, 256, (nbytes, per_file), np.uint8)
            np.savez(path, image=image, label=np.zeros(per_file, np.int64))
            continue
        with h5py.File(path, "w", libver=layout) as file:
            file["image"] = draw.integers(0, 256, (per_file, nbytes), np.uint8)
            file["label"] = np.zeros(per_file, np.int64)


def main() -> None:
    """Goes through all epochs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--per-file", type=int, default=1)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--compute", type=float, default=0.05, metavar="SECONDS")
    options = parser.parse_args()
    torch.set_num_threads(1)
    draw = random.Random(0)
    loader = DataLoader(
        Samples(options.data, options.per_file), options.batch, shuffle=True,
        num_workers=options.workers,
    )  # fmt: skip
    for epoch in range(options.epochs):
        for _ in loader:
            time.sleep(options.compute * draw.uniform(0.9, 1.1))
        # torch.save writes past what DFTracer sees.
        (options.out / f"checkpoint-{epoch}.ckpt").write_bytes(bytes(SAVED))


if __name__ == "__main__":
    main()
