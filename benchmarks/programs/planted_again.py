"""The same causes as in `planted.py` in other programs: other sizes, libraries and calls.

    python planted_again.py NAME [--off] --data DATA

They were written after the rules and were not looked at while rules were changed: what is said of
them holds for programs that the rules have not seen.
"""

from __future__ import annotations

import bz2
import http.client
import json
import logging
import os
import pickle
import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parent))
import planted
from planted import Made, in_native, train

WIDTH = planted.WIDTH
PACKED = bz2.compress(np.random.default_rng(2).integers(0, 5, 120_000, np.uint8).tobytes(), 1)
TEXT = json.dumps([{"x": k, "y": [k, k + 1, k + 2]} for k in range(900)])


class Arrays(Dataset):  # type: ignore[type-arg]
    """A NumPy file a sample, looked up among its folder's where `listed`."""

    def __init__(self, folder: str, count: int, listed: bool = False) -> None:
        self.folder, self.count, self.listed = folder, count, listed

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> torch.Tensor:
        if self.listed:
            names = sorted(entry.name for entry in os.scandir(self.folder) if entry.stat().st_size)
            names = [name for name in names if name.endswith(".npy")][:2]
        return torch.from_numpy(np.load(f"{self.folder}/{i % 60}.npy")[: 4 * WIDTH])


def slow_storage(on: bool, data: str) -> int:
    """NumPy files on a slow file system, two a batch, in the training process."""
    return train(DataLoader(Arrays(f"{data}/arrays", 160), batch_size=2), work=64)


def slow_metadata(on: bool, data: str) -> int:
    """The folder is listed, and each of its files looked at, for every sample."""
    return train(DataLoader(Arrays(f"{data}/few", 120, listed=on), batch_size=2), work=64)


def python_transform(on: bool, data: str) -> int:
    """Text is parsed and summed in Python for each sample, in the training process."""

    def parse(_: int) -> None:
        for _ in range(3):
            sum(row["x"] + sum(row["y"]) for row in json.loads(TEXT))

    return train(DataLoader(Made(300, parse if on else None), batch_size=3), work=48)


def native_decode(on: bool, data: str) -> int:
    """Samples are unpacked by bzip2, in one worker."""

    def unpack(_: int) -> None:
        bz2.decompress(PACKED)

    return train(DataLoader(Made(300, unpack if on else None), batch_size=3, num_workers=1))


def delivery(on: bool, data: str) -> int:
    """Three workers hand over dictionaries with arrays of double precision, 48 MiB a batch."""

    class Wide(Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 240

        def __getitem__(self, i: int) -> dict[str, Any]:
            rows = {"x": torch.zeros(4 * WIDTH)}
            if on:
                rows["rest"] = torch.zeros(1 << 20, dtype=torch.float64)
            return rows

    class Only:
        def __iter__(self) -> Any:
            for batch in DataLoader(Wide(), batch_size=6, num_workers=3):
                yield batch["x"]

    return train(Only(), work=32)


def checkpoint(on: bool, data: str) -> int:
    """Every twenty steps NumPy arrays of 120 MB are saved while the loop stands."""
    state = {f"layer{k}": np.random.default_rng(k).random(3_000_000) for k in range(5)}

    def save(done: int, _: Any) -> None:
        if on and done % 20 == 0:
            np.savez(f"{data}/out/checkpoint-{done}.npz", **state)

    return train(DataLoader(Made(240), batch_size=3), work=64, after=save)


def fsync(on: bool, data: str) -> int:
    """Each step is committed to a database file."""
    rows = sqlite3.connect(f"{data}/out/steps.db", isolation_level=None)
    rows.execute("PRAGMA journal_mode=DELETE" if on else "PRAGMA synchronous=OFF")
    rows.execute("CREATE TABLE IF NOT EXISTS steps (done INTEGER)")

    def note(done: int, _: Any) -> None:
        rows.execute("INSERT INTO steps VALUES (?)", (done,))

    return train(DataLoader(Made(200), batch_size=2), work=48, after=note)


def log_each_step(on: bool, data: str) -> int:
    """Each step formats weights of the first layer through a logger."""
    logger = logging.getLogger("steps")
    logger.addHandler(logging.FileHandler(f"{data}/out/steps.log"))

    def note(done: int, state: Any) -> None:
        if on:
            for row in state[0][0].weight[:30].tolist():
                logger.warning("step %d: %s", done, " ".join(f"{value:.5f}" for value in row))

    return train(DataLoader(Made(240), batch_size=3), work=48, after=note)


def augment_in_loop(on: bool, data: str) -> int:
    """Rows are shuffled and scaled one by one before the model sees them."""

    def augment(_: int, batch: Any) -> None:
        if on:
            for _ in range(4):
                for k, row in enumerate(batch.reshape(-1, 8)):
                    row.mul_(1.0 + k * 1e-6)

    return train(DataLoader(Made(240), batch_size=3), work=48, before=augment)


def tracking_service(on: bool, data: str) -> int:
    """Each step posts a row over a connection that is kept, and reads the answer."""
    session = http.client.HTTPConnection("127.0.0.1", int(os.environ["SERVICE_PORT"]))

    def report(done: int, _: Any) -> None:
        if on:
            session.request("GET", f"/rows/{done}")
            session.getresponse().read()

    return train(DataLoader(Made(300), batch_size=3), work=48, after=report)


def background_save(on: bool, data: str) -> int:
    """A thread pickles a large structure of Python objects every ten steps."""
    rows = [{"name": str(k), "values": [k, k / 2, k / 3]} for k in range(50_000)]

    def save() -> None:
        Path(f"{data}/out/state.json").write_text(json.dumps(rows), encoding="utf-8")
        pickle.dumps(rows)

    def start(done: int, _: Any) -> None:
        if on and done % 10 == 0:
            threading.Thread(target=save).start()

    return train(DataLoader(Made(300), batch_size=3), work=64, after=start)


def workers_anew(on: bool, data: str) -> int:
    """Three workers are spawned for each of a few epochs."""
    context = "spawn" if on else "fork"
    loader = DataLoader(
        Made(60), batch_size=4, num_workers=2, persistent_workers=not on,
        multiprocessing_context=context,
    )  # fmt: skip
    return train(loader, epochs=4, work=48)


def validation(on: bool, data: str) -> int:
    """All held data are unpacked and evaluated every twenty-five steps."""
    held = DataLoader(Made(90, planted.each(in_native)), batch_size=3)

    def evaluate(done: int, state: Any) -> None:
        if on and done % 25 == 0:
            net = state[0].eval()
            with torch.inference_mode():
                for rows in held:
                    net(rows[:, :WIDTH])
            net.train()

    return train(DataLoader(Made(300), batch_size=3), work=48, after=evaluate)


def sleeping_service(on: bool, data: str) -> int:
    """A rate limit holds every sample in two workers."""

    def limited(_: int) -> None:
        time.sleep(0.015)

    set_ = Made(300, limited if on else None)
    return train(DataLoader(set_, batch_size=3, num_workers=2), work=48)


# --- Healthy ------------------------------------------------------------------------------------


def arrays_ahead(on: bool, data: str) -> int:
    """Two workers read local NumPy files; steps are long."""
    return train(DataLoader(Arrays(f"{data}/arrays", 120), batch_size=2, num_workers=2), work=256)


def rare_logs(on: bool, data: str) -> int:
    """A logger writes a line every twenty-five steps."""
    logger = logging.getLogger("rare")
    logger.addHandler(logging.FileHandler(f"{data}/out/rare.log"))

    def note(done: int, _: Any) -> None:
        if done % 25 == 0:
            logger.warning("step %d", done)

    return train(DataLoader(Made(300), batch_size=3), work=128, after=note)


def kept_workers(on: bool, data: str) -> int:
    """Workers stay over five epochs of long steps."""
    loader = DataLoader(Made(80), batch_size=4, num_workers=2, persistent_workers=True)
    return train(loader, epochs=5, work=256)


def small_batches(on: bool, data: str) -> int:
    """Tensors in memory and a wide network."""
    return train(DataLoader(Made(100, shape=4 * WIDTH), batch_size=1), work=256)


CAUSES = (
    slow_storage, slow_metadata, python_transform, native_decode, delivery, checkpoint, fsync,
    log_each_step, augment_in_loop, tracking_service, background_save, workers_anew, validation,
    sleeping_service,
)  # fmt: skip
HEALTHY = (arrays_ahead, rare_logs, kept_workers, small_batches)


def make(data: Path) -> None:
    """The files that they read."""
    random = np.random.default_rng(1)
    for folder, count in (("arrays", 60), ("few", 60)):
        (data / folder).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            np.save(data / folder / f"{i}.npy", random.random(24_000).astype(np.float32))
    (data / "out").mkdir(exist_ok=True)


if __name__ == "__main__":
    planted.run_programs((*CAUSES, *HEALTHY), make, 0.015)
