"""Small trainings outside of the planted causes, each with its own loop, as scripts are written.

    python others.py make --data DATA
    python others.py NAME [--off] --data DATA

They are what `benchmarks.advice` follows beside those of `planted.py`; each prints one JSON line by
its own timers. `--off` takes away what costs most.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parent))
from planted import run_programs

COUNT, SIDE = 320, 128


class Pictures(Dataset[torch.Tensor]):
    """Pictures of which each row is the difference to the one above, packed."""

    def __init__(self, folder: str, count: int, *, packed: bool = True) -> None:
        self.folder, self.count, self.packed = folder, count, packed

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> torch.Tensor:
        if self.packed:
            raw = zlib.decompress(Path(f"{self.folder}/pictures/{i}.packed").read_bytes())
            rows = np.frombuffer(raw, np.uint8).reshape(8 * SIDE, 3 * SIDE)
            rows = np.cumsum(rows, axis=0, dtype=np.uint8)
            return torch.from_numpy(rows[:SIDE].astype(np.float32) / 255)
        return torch.from_numpy(np.load(f"{self.folder}/pictures/{i}.npy"))


def model(width: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A small network over rows, and its optimizer."""
    net = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
                        nn.Linear(256, 8))  # fmt: skip
    return net, torch.optim.Adam(net.parameters(), 1e-4)


def learn(net: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    """One step."""
    loss = net(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def packed_pictures(on: bool, data: str) -> int:
    """Packed pictures are taken apart in the training process."""
    net, optimizer = model(3 * SIDE)
    loader = DataLoader(Pictures(data, COUNT, packed=on), batch_size=4, shuffle=True)
    done = 0
    for batch in loader:
        learn(net, optimizer, batch)
        done += 1
    return done


def read_each_epoch(on: bool, data: str) -> int:
    """Two workers read the same files anew in each of five epochs."""
    net, optimizer = model(3 * SIDE)
    pictures = Pictures(data, 80, packed=False)
    loader = DataLoader(pictures, batch_size=4, num_workers=2, persistent_workers=True)
    held = list(loader) if not on else loader
    done = 0
    for _ in range(5):
        for batch in held:
            learn(net, optimizer, batch)
            done += 1
    return done


def file_of_rows(on: bool, data: str) -> int:
    """A worker opens an HDF5 file for each row."""
    import h5py

    class Rows(Dataset[torch.Tensor]):
        held = None

        def __len__(self) -> int:
            return 600

        def __getitem__(self, i: int) -> torch.Tensor:
            if not on and self.held is not None:
                return torch.from_numpy(self.held[f"g{i % 60}/x"][i % 32])
            file = h5py.File(f"{data}/rows.h5", "r")
            if not on:
                self.held = file
            return torch.from_numpy(file[f"g{i % 60}/x"][i % 32])

    net, optimizer = model(512)
    done = 0
    for batch in DataLoader(Rows(), batch_size=4, num_workers=1):
        learn(net, optimizer, batch.repeat(16, 1))
        done += 1
    return done


def short_epochs(on: bool, data: str) -> int:
    """Twelve short epochs over a mapped file start three workers each."""
    tokens = np.load(f"{data}/tokens.npy", mmap_mode="r")

    class Windows(Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 64

        def __getitem__(self, i: int) -> torch.Tensor:
            at = i * 9973 % (len(tokens) - 512)
            return torch.from_numpy(tokens[at : at + 512].astype(np.float32) / 50_000)

    net, optimizer = model(512)
    loader = DataLoader(Windows(), batch_size=8, num_workers=3, persistent_workers=not on)
    done = 0
    for _ in range(12):
        for batch in loader:
            learn(net, optimizer, batch.repeat(16, 1))
            done += 1
    return done


JITTERS = ["noise"]
"""Empty: batches stay as they are."""


def jitter(batch: torch.Tensor) -> torch.Tensor:
    """Noise, a flip and a smoothing of each picture of a batch."""
    moved = []
    for picture in batch if JITTERS else ():
        noisy = picture.double() + 0.05 * torch.randn(picture.shape, dtype=torch.float64)
        flipped = noisy.flip(0) if float(noisy.mean()) > 0.5 else noisy
        smooth = sum(flipped.roll(k, 0) + flipped.roll(k, 1) for k in range(-4, 5)) / 18
        moved.append(smooth.float())
    return torch.stack(moved) if moved else batch


def noisy_batches(on: bool, data: str) -> int:
    """Each batch is augmented in the training loop."""
    if not on:
        JITTERS.clear()
    net, optimizer = model(3 * SIDE)
    loader = DataLoader(Pictures(data, COUNT, packed=False), batch_size=4, shuffle=True)
    done = 0
    for batch in loader:
        batch = jitter(batch)
        learn(net, optimizer, batch)
        done += 1
    return done


CAUSES = (packed_pictures, read_each_epoch, file_of_rows, short_epochs, noisy_batches)
HEALTHY = ()


def make(data: Path) -> None:
    """The files that they read."""
    import h5py

    random = np.random.default_rng(4)
    (data / "pictures").mkdir(parents=True, exist_ok=True)
    for i in range(COUNT):
        rows = random.integers(0, 9, (8 * SIDE, 3 * SIDE), np.uint8)
        (data / f"pictures/{i}.packed").write_bytes(zlib.compress(rows.tobytes(), 6))
        np.save(data / f"pictures/{i}.npy", random.random((SIDE, 3 * SIDE), np.float32))
    with h5py.File(data / "rows.h5", "w") as file:
        for k in range(60):
            file.create_dataset(f"g{k}/x", data=random.random((32, 512), np.float32))
    np.save(data / "tokens.npy", random.integers(0, 50_000, 2_000_000, np.uint16))


if __name__ == "__main__":
    run_programs(CAUSES, make, 0.0)
