"""CosmoFlow trained from samples as int16 TFRecords, the same through gzip, or containers.

python benchmarks/programs/decoder_training.py WAY FOLDER BATCH EPOCHS

WAY: `base` and `gzip` read TFRecords and make float16 log(1 + x) of them, channels first, in a
DataLoader's worker, as the reference implementation does; `decoded` decodes containers there. All
give the same bits, to the same model.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from vanidl_loaders.decoders import decode_batch, open_sample
from vanidl_loaders.decoders.convert import read_sample
from vanidl_loaders.workloads import cosmoflow

SUFFIXES = {"base": ".tfrecord", "gzip": ".tfrecord.gz", "decoded": ".vdl"}


class Universes(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """(Logarithms of the counts, parameters) of each file with the suffix of a way."""

    def __init__(self, way: str, folder: Path) -> None:
        self.way = way
        self.paths = sorted(folder.glob(f"*{SUFFIXES[way]}"))

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.paths)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """One sample."""
        path = self.paths[number]
        if self.way == "decoded":
            sample = decode_batch([open_sample(path.read_bytes())], device="cpu", threads=1)
            return sample["counts"][0], sample["parameters"][0]
        arrays = read_sample(path)
        logs = np.log1p(arrays["counts"].astype(np.float32)).astype(np.float16)
        return torch.from_numpy(logs), torch.from_numpy(arrays["parameters"].copy())


def train(way: str, folder: Path, batch: int, epochs: int) -> None:
    """Trains the workload's model."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    samples = cosmoflow.describe(folder, samples=1, seed=0, size=8)  # the model has no size
    model = cosmoflow.model(samples)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    universes = Universes(way, folder)
    universes[0]  # has decoders compiled here, not in the worker, in whichever step that were
    loader = DataLoader(universes, batch, shuffle=True, num_workers=1, persistent_workers=True)
    for _ in range(epochs):
        for counts, parameters in loader:
            optimizer.zero_grad()
            batched = {"counts": counts, "parameters": parameters}
            cosmoflow.loss(model, batched).backward()
            optimizer.step()


if __name__ == "__main__":
    train(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
