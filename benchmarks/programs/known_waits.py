"""A training that times every call of its own on files: known_waits.py DATA TRUTH [options].

Each sample is opened, read and decoded, by workers, in the training process, or by a thread of it
that reads ahead; the training thread writes a log too. Every process leaves a file of what it did,
by `time.time_ns`, in TRUTH: its calls, its fetches, its waits. Storage may be anything that DATA
lies on; decoding and computing sleep, so that few cores make little difference.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

NOW = time.time_ns
BATCH = 2
AHEAD = 2


@dataclass
class Timed:
    """What one process did; times in ns."""

    truth: Path
    calls: list[tuple[str, int, int, int]] = field(default_factory=list)  # kind, thread, times
    fetches: list[tuple[int, int, int, int]] = field(default_factory=list)  # epoch, batch, times
    waits: list[tuple[int, int, int, int]] = field(default_factory=list)  # the same; batch -1: end
    born: list[int] = field(default_factory=list)  # of the iterator of each epoch

    def call(self, kind: str, function: Any, *arguments: Any) -> Any:  # noqa: ANN401
        """What a call on a file gives; its time is kept."""
        begin = NOW()
        found = function(*arguments)
        self.calls.append((kind, threading.get_native_id(), begin, NOW()))
        return found

    def write(self) -> None:
        """Leaves all of it."""
        lists = {name: getattr(self, name) for name in ("calls", "fetches", "waits", "born")}
        (self.truth / f"{os.getpid()}.json").write_text(json.dumps(lists))

    def clear(self) -> None:
        """Forgets what the parent of this process did."""
        for each in (self.calls, self.fetches, self.waits, self.born):
            each.clear()


class Samples(Dataset[torch.Tensor]):
    """Files of a folder, one a sample."""

    def __init__(self, options: argparse.Namespace, timed: Timed) -> None:
        self.options, self.timed = options, timed
        self.epoch, self.begin = 0, 0

    def __len__(self) -> int:
        return int(self.options.batches) * BATCH

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % BATCH == 0:
            self.begin = NOW()
        options, call = self.options, self.timed.call
        path = options.data / f"{index % options.files}.bin"
        for _ in range(options.stats):
            call("metadata", os.stat, path)
        descriptor = call("metadata", os.open, path, os.O_RDONLY)
        nbytes = options.kb * 1024
        for k in range(options.reads):
            call("read", os.pread, descriptor, nbytes, k * nbytes)
        call("metadata", os.close, descriptor)
        # Some take longer than others, as samples do.
        time.sleep(options.decode_ms * (0.5 + index * 7 % 10 / 9) / BATCH / 1e3)
        return torch.tensor([float(index)])

    def collate(self, samples: list[torch.Tensor]) -> torch.Tensor:
        """A batch, which is the end of its fetch."""
        batch = torch.stack(samples)
        number = int(samples[0].item()) // BATCH
        self.timed.fetches.append((self.epoch, number, self.begin, NOW()))
        return batch


class Ahead:
    """Batches that a thread of the training process reads ahead: `--wait __main__:Ahead`."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples
        self.ready: queue.Queue[torch.Tensor | None] = queue.Queue(AHEAD)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for k in range(len(self.samples) // BATCH):
            rows = [self.samples[k * BATCH + i] for i in range(BATCH)]
            self.ready.put(self.samples.collate(rows))
        self.ready.put(None)

    def __iter__(self) -> Iterator[torch.Tensor]:
        return self

    def __next__(self) -> torch.Tensor:
        batch = self.ready.get()
        if batch is None:
            raise StopIteration
        return batch


def main() -> None:
    """Trains."""
    options = _options()
    options.truth.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    timed = Timed(options.truth)
    samples = Samples(options, timed)

    def begin_worker(_: int) -> None:
        timed.clear()
        Finalize(None, timed.write, exitpriority=10)

    how: dict[str, Any] = {}
    if options.workers:
        how = {"num_workers": options.workers, "prefetch_factor": options.prefetch}
        how |= {"multiprocessing_context": "fork", "worker_init_fn": begin_worker}
        how |= {"in_order": False} if options.any_order else {}
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    log = os.open(options.truth / "train.log", os.O_WRONLY | os.O_CREAT)
    for epoch in range(options.epochs):
        samples.epoch = epoch
        timed.born.append(NOW())
        begin = NOW()
        loader = Ahead(samples) if options.read_ahead else DataLoader(
            samples, BATCH, collate_fn=samples.collate, **how
        )  # fmt: skip
        batches = iter(loader)
        while True:
            batch = next(batches, None)
            number = -1 if batch is None else int(batch[0].item()) // BATCH
            timed.waits.append((epoch, number, begin, NOW()))
            if batch is None:
                break
            model(batch).sum().backward()
            time.sleep(options.compute_ms / 1e3)
            optimizer.step()
            if options.log_kb:
                timed.call("write", os.write, log, bytes(options.log_kb * 1024))
            if options.sync:
                timed.call("sync", os.fsync, log)
            begin = NOW()
    os.close(log)
    timed.write()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("truth", type=Path)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--any-order", action="store_true")
    parser.add_argument("--read-ahead", action="store_true", help="by a thread, without workers")
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--reads", type=int, default=2, help="of a sample")
    parser.add_argument("--kb", type=int, default=64, help="of a read")
    parser.add_argument("--stats", type=int, default=0, help="of a sample")
    parser.add_argument("--decode-ms", type=float, default=10.0, help="of a batch")
    parser.add_argument("--compute-ms", type=float, default=15.0)
    parser.add_argument("--log-kb", type=int, default=0, help="written in each step")
    parser.add_argument("--sync", action="store_true", help="what was written, in each step")
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
