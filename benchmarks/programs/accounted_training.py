"""Trainings of which the account of time was once wrong, with their own timers.

    python accounted_training.py NAME DATA [--without read|decode]

DATA is a folder of files. What each rank measured of itself, in seconds, goes to RANK.json in the
folder that TRUTH names.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

torch.set_num_threads(1)
FILES, NBYTES = 160, 1 << 14
LONG_S, STEP_S = 0.25, 0.4  # of a stage of `two_stages`, and its step
QUEUE = Path("/proc/thread-self/schedstat")  # its second number: ns in the run queue
TIMES: Counter[str] = Counter()
WAITS: list[tuple[float, float]] = []  # from when to when each batch was waited for
DONE: Counter[str] = Counter()


@contextmanager
def timed(name: str) -> Iterator[None]:
    """Adds the wall time of a block to TIMES."""
    begin = time.perf_counter()
    yield
    TIMES[name] += time.perf_counter() - begin


def compute_for(seconds: float) -> None:
    """Keeps one core busy for so long."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def queued_s() -> float:
    """How long this thread has been ready to run and did not."""
    return int(QUEUE.read_text().split()[1]) / 1e9


class Files(Dataset[torch.Tensor]):
    """A sample a file, opened and read anew, and decoded for some time."""

    def __init__(self, folder: str, count: int, decode_s: float = 0.0) -> None:
        self.paths = [f"{folder}/{i}.bin" for i in range(count)]
        self.decode_s = decode_s

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        descriptor = os.open(self.paths[index], os.O_RDONLY)
        raw = os.read(descriptor, NBYTES)
        os.close(descriptor)
        compute_for(self.decode_s)
        return torch.tensor([float(raw[0])])


class TwoStages(Dataset[torch.Tensor]):
    """Reads for as long as it decodes; either can be left out.

    A sample is what the stages took: each its end, and of reading and decoding how long the thread
    was at it, and how long in the run queue.
    """

    def __init__(self, folder: str, without: str) -> None:
        self.folder, self.without = folder, without

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> torch.Tensor:
        edges = [(time.perf_counter(), queued_s())]
        if self.without != "read":  # of a mount that takes LONG_S for it
            descriptor = os.open(f"{self.folder}/{index}.bin", os.O_RDONLY)
            os.read(descriptor, NBYTES)
            os.close(descriptor)
        edges.append((time.perf_counter(), queued_s()))
        if self.without != "decode":
            compute_for(LONG_S)
        edges.append((time.perf_counter(), queued_s()))
        took = [b - a for one, next in pairwise(edges) for a, b in zip(one, next, strict=True)]
        return torch.tensor([edges[-1][0], *took], dtype=torch.float64)


class Looked(Dataset[torch.Tensor]):
    """A sample a file, which is looked for eight times before it is read, and decoded for 5 ms."""

    def __init__(self, folder: str, count: int) -> None:
        self.paths = [f"{folder}/{i}.bin" for i in range(count)]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        queued, begin = queued_s(), time.perf_counter()
        for _ in range(8):
            os.stat(self.paths[index])  # noqa: PTH116 - the call itself
        descriptor = os.open(self.paths[index], os.O_RDONLY)
        raw = os.read(descriptor, NBYTES)
        os.close(descriptor)
        TIMES["storage"] += time.perf_counter() - begin - (queued_s() - queued)
        compute_for(0.005)
        return torch.tensor([float(raw[0])])


class SlowToStop(IterableDataset[torch.Tensor]):
    """Shards of workers, each of which takes its time after its last sample."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        for i in range(20):
            time.sleep(0.002)
            yield torch.tensor([float(i)])
        info = get_worker_info()
        time.sleep(0.4 + 0.1 * (info.id if info else 0))


def train(
    loader: Any,  # noqa: ANN401
    epochs: int = 1,
    step: Callable[[], None] | None = None,
    after: Callable[[nn.Module], None] | None = None,
    keep: Callable[[torch.Tensor], None] | None = None,
) -> None:
    """Trains a small network; something may come `after` each epoch, and `keep` its batches."""
    model = nn.Linear(1, 1)
    if dist.is_initialized():
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    begin = time.perf_counter()
    for _ in range(epochs):
        queued, waited = queued_s(), time.perf_counter()
        batches = iter(loader)
        while True:
            batch = next(batches, None)
            now = time.perf_counter()
            if batch is None:
                TIMES["epoch_end"] += now - waited
                break
            TIMES["wait"] += now - waited
            TIMES["wait_queued"] += queued_s() - queued
            WAITS.append((waited, now))
            rows = batch[0] if isinstance(batch, list) else batch
            loss = model(rows.reshape(-1, 1).float()).sum()
            if keep is not None:
                keep(rows)
            if step is not None:
                step()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            DONE["steps"] += 1
            queued, waited = queued_s(), time.perf_counter()
        DONE["epochs"] += 1
        if after is not None:
            after(model)
    TIMES["loop"] += time.perf_counter() - begin


def validate(loader: Any) -> Callable[[nn.Module], None]:  # noqa: ANN401
    """Goes over a loader without gradients."""

    def run(model: nn.Module) -> None:
        model.eval()
        with timed("validation"), torch.no_grad():
            batches = iter(loader)
            while True:
                with timed("validation_wait"):
                    batch = next(batches, None)
                if batch is None:
                    break
                model(batch)
        model.train()

    return run


# --- The trainings ------------------------------------------------------------------------------


def two_stages(data: str, without: str) -> None:
    """One worker reads 250 ms, then decodes 250 ms for steps of 400."""
    loader = DataLoader(TwoStages(data, without), num_workers=1, prefetch_factor=1)
    batches: list[torch.Tensor] = []
    train(loader, step=lambda: time.sleep(STEP_S), keep=batches.append)
    # Each wait, up to the end of its fetch, in the proportions of all that its worker did.
    for (begin, end), batch in zip(WAITS, batches, strict=True):
        fetched, read, read_queued, decode, decode_queued = batch[0].tolist()
        per_s = max(min(fetched, end) - begin, 0.0) / max(read + decode, 1e-9)
        TIMES["storage"] += per_s * (read - read_queued)
        TIMES["input_cpu"] += per_s * (decode - decode_queued)
        TIMES["too_few_cores"] += per_s * (read_queued + decode_queued)


def validation(data: str, without: str) -> None:  # noqa: ARG001
    """Two epochs over slow files, each with a validation over others."""
    others = DataLoader(Files(data, 40), 4)
    train(DataLoader(Files(data, 80), 4), 2, lambda: compute_for(0.005), validate(others))


def validation_on_same(data: str, without: str) -> None:  # noqa: ARG001
    """Two epochs over all files, each with a validation over a part of the same."""
    same = DataLoader(Files(data, FILES // 2), 4)
    train(DataLoader(Files(data, FILES), 4), 2, lambda: compute_for(0.005), validate(same))


def read_twice(data: str, without: str) -> None:  # noqa: ARG001
    """Every file is read in both epochs."""
    train(DataLoader(Files(data, FILES), 4), 2, lambda: compute_for(0.005))


def metadata_heavy(data: str, without: str) -> None:  # noqa: ARG001
    """Metadata calls take longer than anything else, and some tracers miss those of `stat`."""
    train(DataLoader(Looked(data, FILES // 2)), step=lambda: compute_for(0.005))
    TIMES["input_cpu"] = TIMES["wait"] - TIMES["wait_queued"] - TIMES["storage"]


def slow_rank(data: str, without: str) -> None:  # noqa: ARG001
    """The second rank decodes 230 ms a batch, the first 2.7 ms; both end steps together."""
    dist.init_process_group("gloo")
    decode_s = 0.230 if dist.get_rank() == 1 else 0.0027
    train(DataLoader(Files(data, 20, decode_s)))
    dist.destroy_process_group()


def slow_stop(data: str, without: str) -> None:  # noqa: ARG001
    """Workers that take their time to stop at the end of each epoch."""
    train(DataLoader(SlowToStop(), 4, num_workers=2), 3, lambda: compute_for(0.01))


def in_memory(data: str, without: str) -> None:  # noqa: ARG001
    """Tensors in memory, without workers."""
    train(DataLoader(TensorDataset(torch.rand(40_000, 1)), 10), step=lambda: compute_for(2e-4))


TRAININGS = {
    each.__name__: each
    for each in (two_stages, validation, validation_on_same, read_twice, metadata_heavy,
                 slow_rank, slow_stop, in_memory)
}  # fmt: skip


def main() -> None:
    """Trains once."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", choices=TRAININGS)
    parser.add_argument("data")
    parser.add_argument("--without", default="", choices=("", "read", "decode"))
    options = parser.parse_args()
    TRAININGS[options.name](options.data, options.without)
    rank = int(os.environ.get("RANK", "0"))
    line = json.dumps({"rank": rank, **DONE, **{f"{k}_s": v for k, v in TIMES.items()}})
    (Path(os.environ["TRUTH"]) / f"{rank}.json").write_text(line)


if __name__ == "__main__":
    main()
