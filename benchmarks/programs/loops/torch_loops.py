"""Loops of PyTorch as people write them, each with its own timers: torch_loops.py TRUTH LOOP..."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
from truth import EVALUATION, Truth, busy

BATCHES = 12
READ_S, COMPUTE_S = 0.004, 0.006


class Rows(Dataset[torch.Tensor]):
    """A row takes its time."""

    def __init__(self, rows: int = 2 * BATCHES) -> None:
        self.rows = rows

    def __len__(self) -> int:
        """How many there are."""
        return self.rows

    def __getitem__(self, i: int) -> torch.Tensor:
        """Row i."""
        time.sleep(READ_S / 2)
        return torch.full((2,), float(i))


class Stream(IterableDataset[torch.Tensor]):
    """Rows one after another."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = get_worker_info()
        first, every = (worker.id, worker.num_workers) if worker else (0, 1)
        for i in range(first, 2 * BATCHES, every):
            time.sleep(READ_S / 2)
            yield torch.full((2,), float(i))


def loader(data: Any = None, **options: Any) -> DataLoader[torch.Tensor]:  # noqa: ANN401
    """A loader of batches of two."""
    return DataLoader(Rows() if data is None else data, batch_size=2, **options)


class Model:
    """A model with one optimizer or more."""

    def __init__(self, optimizers: int = 1) -> None:
        self.net = torch.nn.Linear(2, 1)
        self.optimizers = [torch.optim.SGD(self.net.parameters(), 1e-9) for _ in range(optimizers)]

    def backward(self, batch: torch.Tensor) -> None:
        """Gradients of a batch."""
        busy(COMPUTE_S)
        self.net(batch).sum().backward()

    def step(self) -> None:
        """Every optimizer's."""
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()


def plain(truth: Truth, epochs: int = 2, optimizers: int = 1, **options: Any) -> None:  # noqa: ANN401
    """Each batch is a step; the loader is made once."""
    model, batches = Model(optimizers), loader(**options)
    for _ in range(epochs):
        for batch in truth.batches(batches):
            model.backward(batch)
            model.step()


def validated(truth: Truth) -> None:
    """Two loaders, one of them for validation after each epoch, created again each time."""
    model, batches = Model(), loader(num_workers=2)
    for _ in range(2):
        for batch in truth.batches(batches):
            model.backward(batch)
            model.step()
        for batch in truth.batches(loader(Rows(8)), EVALUATION):
            model.net(batch)
            busy(COMPUTE_S / 2)


def accumulated(truth: Truth) -> None:
    """Five batches a step; what is left of an epoch is a step, too."""
    model, batches = Model(), loader()
    for _ in range(2):
        for k, batch in enumerate(truth.batches(batches, every=5)):
            model.backward(batch)
            if k % 5 == 4 or k == BATCHES - 1:
                model.step()


def scaled(truth: Truth) -> None:
    """Mixed precision: GradScaler skips the step of every batch that has no finite gradient."""
    model, batches = Model(), loader()
    scaler = torch.amp.GradScaler("cpu")
    for k, batch in enumerate(truth.batches(batches)):
        busy(COMPUTE_S)
        loss = model.net(batch).sum() * (float("inf") if k % 4 == 0 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(model.optimizers[0])
        scaler.update()
        model.optimizers[0].zero_grad()


def inference(truth: Truth) -> None:
    """No optimizer."""
    net = torch.nn.Linear(2, 1)
    with torch.inference_mode():
        for batch in truth.batches(loader(num_workers=2)):
            net(batch)
            busy(COMPUTE_S)


def broken_off(truth: Truth) -> None:
    """Each pass is left after five batches."""
    model, batches = Model(), loader()
    for _ in range(3):
        for k, batch in enumerate(truth.batches(batches)):
            model.backward(batch)
            model.step()
            if k == 4:
                break
        truth.end()


def failing(truth: Truth) -> None:
    """A batch cannot be read: the loop goes on without it, and ends."""

    class Broken(Rows):
        def __getitem__(self, i: int) -> torch.Tensor:
            if i == 2 * BATCHES - 1:
                raise ValueError("as asked")
            return super().__getitem__(i)

    model = Model()
    try:
        for batch in truth.batches(loader(Broken())):
            model.backward(batch)
            model.step()
    except ValueError:
        truth.end()


def pairs(truth: Truth) -> None:
    """Two loaders side by side give one step."""
    model, other = Model(), loader()
    rest: Iterator[torch.Tensor] | None = None
    for batch in truth.batches(loader()):
        rest = truth.batches(other, "second") if rest is None else rest
        model.backward(batch + next(rest))
        model.step()


def stateful(truth: Truth) -> None:
    """Torchdata's loader, saved and loaded in the middle of an epoch."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    model = Model()
    batches = StatefulDataLoader(Rows(), batch_size=2, num_workers=2)
    for _ in range(2):
        for k, batch in enumerate(truth.batches(batches)):
            model.backward(batch)
            model.step()
            if k == 4:
                batches.state_dict()


def shards(truth: Truth) -> None:
    """WebDataset through its own loader: a shard for each worker."""
    import io
    import tarfile
    import tempfile

    import numpy as np
    import webdataset

    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/{worker}.tar" for worker in range(2)]
        for path in paths:
            with tarfile.open(path, "w") as tar:
                for k in range(BATCHES):
                    content = io.BytesIO()
                    np.save(content, np.full(2, k, np.float32))
                    info = tarfile.TarInfo(f"{k:04}.npy")
                    info.size = content.tell()
                    content.seek(0)
                    tar.addfile(info, content)
        data = webdataset.WebDataset(paths, shardshuffle=False).decode().to_tuple("npy")
        batches = webdataset.WebLoader(data.batched(2), batch_size=None, num_workers=2)
        model = Model()
        for _ in range(2):
            for (batch,) in truth.batches(batches):
                model.backward(torch.as_tensor(batch))
                model.step()


def profiled(truth: Truth) -> None:
    """PyTorch's own profiler looks at eight steps in the middle: TRUTH.profile.pt.trace.json."""
    model, batches = Model(), loader(num_workers=2)
    window = torch.profiler.schedule(wait=2, warmup=2, active=8, repeat=1)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=window,
        on_trace_ready=lambda p: p.export_chrome_trace(f"{sys.argv[1]}.profile.pt.trace.json"),
    ) as profiler:
        for batch in truth.batches(batches):
            model.backward(batch)
            model.step()
            profiler.step()


LOOPS: dict[str, Callable[[Truth], None]] = {
    "no-workers": plain,
    "two-workers": lambda truth: plain(truth, num_workers=2),
    "spawned": lambda truth: plain(truth, 1, num_workers=2, multiprocessing_context="spawn"),
    "forkserver": lambda truth: plain(
        truth, 1, num_workers=2, multiprocessing_context="forkserver"
    ),
    "persistent": lambda truth: plain(truth, num_workers=2, persistent_workers=True),
    "iterable": lambda truth: plain(truth, data=Stream()),
    "iterable-workers": lambda truth: plain(truth, data=Stream(), num_workers=2),
    "two-optimizers": lambda truth: plain(truth, optimizers=2),
    "validation": validated,
    "accumulation": accumulated,
    "grad-scaler": scaled,
    "inference": inference,
    "break": broken_off,
    "exception": failing,
    "side-by-side": pairs,
    "profiled": profiled,
    "stateful": stateful,
    "webdataset": shards,
}


def main(path: str, name: str) -> None:
    """Runs one of the loops."""
    torch.set_num_threads(1)
    truth = Truth()
    LOOPS[name](truth)
    truth.save(path, name)


def each(path: str, names: list[str]) -> None:
    """Runs loops one after another, each in a forked process: PyTorch is imported once."""
    Model().step()  # imports more
    gc.freeze()  # of what it made, which no fork looks through at its end
    for name in names:
        child = os.fork()
        if not child:
            main(path, name)
            return
        os.waitpid(child, 0)


if __name__ == "__main__":
    each(sys.argv[1], sys.argv[2:]) if len(sys.argv) > 3 else main(sys.argv[1], sys.argv[2])
