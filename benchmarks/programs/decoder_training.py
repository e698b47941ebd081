"""CosmoFlow or DeepCAM trained from samples as the papers' baselines have them, or from containers.

python benchmarks/programs/decoder_training.py WORKLOAD WAY FOLDER BATCH EPOCHS SIZE

WAY: `base` reads CosmoFlow's int16 from TFRecords, of which it makes float16 log(1 + x), and
DeepCAM's float32 from HDF5; `gzip` reads TFRecords through gzip; `decoded` decodes containers. All
in a DataLoader's worker, for the same model.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from vanidl_loaders.decoders import decode_batch, open_sample
from vanidl_loaders.decoders.convert import read_sample
from vanidl_loaders.workloads.registry import find_workload

SUFFIXES = {
    "cosmoflow": {"base": ".tfrecord", "gzip": ".tfrecord.gz", "decoded": ".vdl"},
    "deepcam": {"base": ".h5", "decoded": ".vdl"},
}
"""Workload -> way -> how its files end."""


class Samples(Dataset[dict[str, torch.Tensor]]):
    """The arrays of each file with the suffix of a way."""

    def __init__(self, folder: Path, suffix: str) -> None:
        self.paths = sorted(folder.glob(f"*{suffix}"))

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.paths)

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        """One sample."""
        path = self.paths[number]
        if path.suffix == ".vdl":
            sample = decode_batch([open_sample(path.read_bytes())], device="cpu", threads=1)
            return {name: array[0] for name, array in sample.items()}
        arrays = dict(read_sample(path))
        if "counts" in arrays:
            arrays["counts"] = np.log1p(arrays["counts"].astype(np.float32)).astype(np.float16)
        return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def train(workload: str, way: str, folder: Path, batch: int, epochs: int, size: int) -> None:
    """Trains the workload's model."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    module = find_workload(workload)
    model = module.model(module.describe(folder, samples=1, seed=0, size=size))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    samples = Samples(folder, SUFFIXES[workload][way])
    samples[0]  # has decoders compiled here, not in the worker, in whichever step that were
    loader = DataLoader(samples, batch, shuffle=True, num_workers=1, persistent_workers=True)
    for _ in range(epochs):
        for arrays in loader:
            optimizer.zero_grad()
            module.loss(model, arrays).backward()
            optimizer.step()


if __name__ == "__main__":
    _, workload, way, folder, batch, epochs, size = sys.argv
    train(workload, way, Path(folder), int(batch), int(epochs), int(size))
