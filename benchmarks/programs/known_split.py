"""I/O that is hidden or exposed by construction: known_split.py FOLDER TRUTH process|thread.

Each batch is read while training waits for it; while it computes, a child reads something else, as
workers do, or a thread of the training process, as loaders do that prefetch; then training itself
reads something, as checkpoints are written. Reads are of pipes: they last as long as their writers
make them. Who reads times it, and notes how long the kernel kept it from running meanwhile: by no
more than that can another clock differ.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STEPS = 40
EXPOSED_S, HIDDEN_S, COMPUTE_S, OTHER_S = 0.008, 0.012, 0.016, 0.006
NBYTES = 4096
DELAYS = Path("/proc/thread-self/schedstat")  # its second number: ns in the run queue

Spans = list[tuple[int, int]]


def delayed_ns() -> int:
    """How long this thread was ready to run and did not, so far; 0 where no kernel counts it."""
    return int(DELAYS.read_text().split()[1]) if DELAYS.exists() else 0


class Slow:
    """A file each read of which takes as long as asked."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.seconds, self.asked = 0.0, threading.Semaphore(0)
        self.spans: Spans = []
        self.delayed_ns = 0
        threading.Thread(target=self._write, args=(path,), daemon=True).start()
        self.descriptor = os.open(path, os.O_RDONLY)

    def _write(self, path: Path) -> None:
        descriptor = os.open(path, os.O_WRONLY)
        while True:
            self.asked.acquire()
            time.sleep(self.seconds)
            os.write(descriptor, bytes(NBYTES))

    @property
    def read_s(self) -> tuple[float, float]:
        """How long all reads took, and how long who reads was ready to run and did not."""
        return sum(end - begin for begin, end in self.spans) / 1e9, self.delayed_ns / 1e9

    def read(self, seconds: float) -> None:
        """One read."""
        self.seconds = seconds
        before = delayed_ns()
        self.asked.release()
        begin = time.time_ns()
        os.read(self.descriptor, NBYTES)
        self.spans.append((begin, time.time_ns()))
        self.delayed_ns += delayed_ns() - before


class Batches:
    """What training waits for: `--wait __main__:Batches`."""

    def __init__(self, data: Slow) -> None:
        self.data = data

    def __iter__(self) -> Iterator[int]:
        for k in range(STEPS):
            self.data.read(EXPOSED_S)
            yield k


def read_ahead(folder: Path, orders: Any) -> None:  # noqa: ANN401
    """The child, or thread: a read for every order, then how long all took."""
    data = Slow(folder / "hidden.bin")
    while orders.recv():
        data.read(HIDDEN_S)
        orders.send(True)
    orders.send(data.read_s)


def main(folder: Path, truth: Path, helper: str) -> None:
    """The loop."""
    orders, theirs = multiprocessing.Pipe()
    make = {"process": multiprocessing.get_context("fork").Process, "thread": threading.Thread}
    child = make[helper](target=read_ahead, args=(folder, theirs))
    child.start()
    exposed, other = Slow(folder / "exposed.bin"), Slow(folder / "other.bin")
    for _ in Batches(exposed):
        orders.send(True)
        time.sleep(COMPUTE_S)
        orders.recv()
        other.read(OTHER_S)
    orders.send(False)
    parts = {"in_wait_s": exposed.read_s, "hidden_s": orders.recv(), "other_s": other.read_s}
    truth.write_text(json.dumps(parts))
    child.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
