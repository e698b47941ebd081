"""Trains with workers whose Darshan logs start late, and writes when each read truly was.

    python late_workers.py DATA OUT

The heap is filled, and freed after the first epoch: a worker that is forked then gets its memory
from pages that it shares with its parent, which have to be copied while Darshan clears them.
OUT gets the profile and, per process, `PID.json`: starts and ends of its reads, or of the waits
of the training process, by `time.time_ns`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from multiprocessing.util import Finalize
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler
from torch.utils.data import DataLoader, Dataset

EPOCHS, SAMPLES, BATCH, WORKERS = 3, 80, 4, 2
FILES, FILE_BYTES, READ_BYTES = 16, 1 << 23, 1 << 22
COMPUTE_S, DECODE_S = 0.03, 0.004
DATA, OUT = (Path(a).absolute() for a in sys.argv[1:3])
SPANS: list[tuple[int, int]] = []


def busy_until(end_s: float) -> None:
    """Computes until then."""
    while time.perf_counter() < end_s:
        torch.mm(_SQUARE, _SQUARE)


_SQUARE = torch.rand(700, 700)


class Samples(Dataset[torch.Tensor]):
    """Reads of 4 MiB, one a sample; opens the files in the process that reads."""

    files: tuple[int, ...] = ()

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, i: int) -> torch.Tensor:
        if not self.files:
            self.files = tuple(os.open(DATA / f"{k}.bin", os.O_RDONLY) for k in range(FILES))
        before = time.time_ns()
        data = os.pread(self.files[i % FILES], READ_BYTES, i * READ_BYTES % FILE_BYTES)
        SPANS.append((before, time.time_ns()))
        end = time.perf_counter() + DECODE_S
        while time.perf_counter() < end:
            pass
        return torch.frombuffer(bytearray(data[:4000]), dtype=torch.uint8).float()


def write_spans() -> None:
    """What this process timed, in a file of its own."""
    (OUT / f"{os.getpid()}.json").write_text(json.dumps(SPANS))


def in_worker(_: int) -> None:
    """Tells a worker to write its reads when it ends."""
    SPANS.clear()
    Finalize(None, write_spans, exitpriority=10)


def main() -> None:
    """Three epochs; each makes its workers again."""
    torch.set_num_threads(1)
    DATA.mkdir(parents=True, exist_ok=True)
    for k in range(FILES):
        (DATA / f"{k}.bin").write_bytes(os.urandom(FILE_BYTES))
    heap = [bytes(2000) for _ in range(40_000)]
    loader = DataLoader(Samples(), BATCH, num_workers=WORKERS, worker_init_fn=in_worker)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=0, active=10**6),
        on_trace_ready=tensorboard_trace_handler(str(OUT), use_gzip=True),
    ) as seen:
        for epoch in range(EPOCHS):
            if epoch == 1:
                del heap[:-1]
            batches = iter(loader)
            before = time.time_ns()
            while next(batches, None) is not None:
                SPANS.append((before, time.time_ns()))
                busy_until(time.perf_counter() + COMPUTE_S)
                seen.step()
                before = time.time_ns()
    write_spans()


if __name__ == "__main__":
    main()
