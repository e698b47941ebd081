"""A training on the CPU that runs some steps per line of its input: DATA WORKERS [--both-ways].

For benchmarks that let two of these take turns. It reads samples with pread in forked DataLoader
workers, in one pass over all steps, and prints the process numbers of itself and of the workers
before the first line, and a line after the steps of each.

With --both-ways a line AROUND has the batches that its steps ask for read by libc's own pread, and
any other by the one that the program is linked to, which a preloaded tracer has put its own in
front of: what the same processes pay in both kinds of turns differs by that alone.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.utils.data import DataLoader, RandomSampler, Sampler

from benchmarks.programs.small_training import NBYTES, SAMPLES, SIDE, Samples, network

STEPS = 10
BATCH = 32
MOST = 100_000  # steps of the one pass
AROUND = "around"


class BothWays(Samples):
    """Sample i + SAMPLES is sample i, read around whatever is preloaded."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._preads = [ctypes.CDLL(name).pread64 for name in (None, "libc.so.6")]
        through, around = (ctypes.cast(f, ctypes.c_void_p).value for f in self._preads)
        if through == around:
            raise SystemExit("--both-ways: expected a preloaded tracer, found libc's pread alone")
        for pread in self._preads:
            pread.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64]
            pread.restype = ctypes.c_ssize_t

    def __getitem__(self, i: int) -> torch.Tensor:
        if self.descriptor is None:
            self.descriptor = os.open(self.path, os.O_RDONLY)
        around, place = divmod(i, SAMPLES)
        raw = bytearray(NBYTES)
        memory = (ctypes.c_char * NBYTES).from_buffer(raw)
        if self._preads[around](self.descriptor, memory, NBYTES, place * NBYTES) != NBYTES:
            raise OSError(f"{self.path}: sample {place} could not be read")
        return torch.frombuffer(raw, dtype=torch.float32).reshape(1, SIDE, SIDE)


class Order(Sampler[int]):
    """Samples at random; with `around`, those of the second way."""

    def __init__(self, samples: Samples) -> None:
        self._random = RandomSampler(samples, replacement=True, num_samples=MOST * BATCH)
        self.around = False

    def __iter__(self) -> Iterator[int]:
        for i in self._random:
            yield i + SAMPLES * self.around


def steps(batches: Iterator[torch.Tensor]) -> Iterator[None]:
    """Trains, one step at a time."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = network()
    optimizer = torch.optim.Adam(net.parameters())
    for batch in batches:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(net(batch), batch).backward()
        optimizer.step()
        yield


def main() -> None:
    """Steps until the input ends."""
    samples = (BothWays if "--both-ways" in sys.argv else Samples)(Path(sys.argv[1]))
    order = Order(samples)
    loader = DataLoader(samples, batch_size=BATCH, sampler=order, num_workers=int(sys.argv[2]))
    batches = iter(loader)
    workers = getattr(batches, "_workers", ())
    print(os.getpid(), *(worker.pid for worker in workers), flush=True)
    training = steps(batches)
    for line in sys.stdin:
        order.around = line.strip() == AROUND
        for _ in range(STEPS):
            next(training)
        print(flush=True)


if __name__ == "__main__":
    main()
