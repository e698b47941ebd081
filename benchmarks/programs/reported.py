"""Small trainings after public reports, each as it was and, with `--off`, as it was mended.

    python reported.py NAME [--off]

What was accepted as the fix stands beside each, with where it was reported. As in `planted.py`,
whose steps these have, each prints one JSON line by its own timers. The codes of actions that are
the fix or its equal were written down in `benchmarks/causes.py` before the first recording.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parent))
from planted import Made, run_programs, train


def csv_rewritten(on: bool, data: str) -> int:
    """Each step writes all rows of metrics to a file anew (Lightning issue 17725).

    Accepted: rows are appended (pull request 18567).
    """
    rows = list[dict[str, float]]()
    path = Path(f"{data}/metrics.csv")
    names = [f"metric_{k}" for k in range(10)]

    def note(done: int, state: Any) -> None:
        loss = float(state[2].detach())
        rows.append({name: loss + k for k, name in enumerate(names)})
        with path.open("w" if on or done == 1 else "a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names)
            if on or done == 1:
                writer.writeheader()
            writer.writerows(rows if on else rows[-1:])

    return train(DataLoader(Made(2400), batch_size=4), after=note)


def cropped_late(on: bool, data: str) -> int:
    """Workers normalize and hand over whole tiles, of which the loop takes a corner.

    (olmoearth_pretrain pull request 150, its second part.) Accepted: samples are cropped where they
    are loaded, before they are normalized.
    """
    tiles = np.random.default_rng(0).integers(0, 4000, (16, 12, 256, 256), np.uint16)
    corner = slice(0, 48)

    class Tiles(Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 480

        def __getitem__(self, i: int) -> torch.Tensor:
            tile = tiles[i % len(tiles)]
            if not on:
                tile = tile[:, corner, corner]
            rows = (tile.astype(np.float32) - 2000.0) / 900.0
            return torch.from_numpy(rows)

    class Cropped:
        def __iter__(self) -> Any:
            for batch in DataLoader(Tiles(), batch_size=8, num_workers=2):
                yield batch[:, :, corner, corner].contiguous()

    return train(Cropped(), work=64)


def workers_each_epoch(on: bool, data: str) -> int:
    """Epochs and validations are short, and start their workers anew (icefall pull request 1215).

    Accepted: persistent_workers=True in both loaders.
    """
    loader = DataLoader(Made(40), batch_size=4, num_workers=2, persistent_workers=not on)
    held = DataLoader(Made(16), batch_size=4, num_workers=2, persistent_workers=not on)

    def evaluate(done: int, state: Any) -> None:
        if done % 10 == 0:
            net = state[0].eval()
            with torch.no_grad():
                for rows in held:
                    net(rows[:, :512])
            net.train()

    return train(loader, epochs=20, after=evaluate)


CAUSES = (csv_rewritten, cropped_late, workers_each_epoch)
HEALTHY = ()


def make(data: Path) -> None:
    """Nothing but the folder: these programs read no files."""
    data.mkdir(parents=True, exist_ok=True)
    (data / "made").touch()


if __name__ == "__main__":
    run_programs(CAUSES, make, 0.0)
