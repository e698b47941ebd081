"""A training with an input problem: it reads a whole volume from disk for every crop that it uses.

python examples/train.py data                        8 volumes of 32 MiB, in the folder `volumes`
vanidl record -o RUN -- python examples/train.py     64 steps
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SHAPE, CROP = (128, 256, 256), 32
FOLDER = Path("volumes")


class Crops(Dataset[torch.Tensor]):
    """Small crops of large volumes."""

    def __init__(self) -> None:
        self.paths = sorted(FOLDER.glob("*.raw"))
        self.volume = torch.empty(SHAPE)

    def __len__(self) -> int:
        """Sixteen crops of each volume."""
        return 16 * len(self.paths)

    def __getitem__(self, i: int) -> torch.Tensor:
        """Crop i: 128 KiB of the 32 MiB that are read for it."""
        with self.paths[i // 16].open("rb", buffering=0) as file:
            file.readinto(self.volume.numpy())
        x, y = 64 * (i % 4), 64 * (i // 4 % 4)
        return self.volume[None, :CROP, x : x + CROP, y : y + CROP].clone()


def make_volumes() -> None:
    """The data, of noise."""
    FOLDER.mkdir(exist_ok=True)
    for k in range(8):
        noise = np.random.default_rng(k).random(SHAPE, np.float32)
        (FOLDER / f"{k}.raw").write_bytes(noise.tobytes())


def main() -> None:
    """Four epochs."""
    net = torch.nn.Sequential(
        torch.nn.Conv3d(1, 4, 4, stride=4),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(2048, 1),
    )
    batches = DataLoader(Crops(), batch_size=8, shuffle=True)
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    for _ in range(4):
        for batch in batches:
            net(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    make_volumes() if sys.argv[1:] == ["data"] else main()
