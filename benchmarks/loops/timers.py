"""What a loop measures of itself, by timers where a user would put them.

A program names its parts; the sums go to the file that LOOP_TIMES names once it ends. The recorder
knows nothing of it.
"""

from __future__ import annotations

import atexit
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

VARIABLE = "LOOP_TIMES"
EPOCHS, BATCHES, VALIDATIONS = 3, 12, 4
READ_S, COMPUTE_S, SAVE_S = 0.004, 0.006, 0.03

T = TypeVar("T")


class Timers:
    """Counts and sums of one process; times in nanoseconds."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(("steps", "epochs", "saves", "skipped", "inference"), 0)
        self.sums_ns = dict.fromkeys(("wait", "validation", "save", "skipped", "compile"), 0)
        atexit.register(self.write)

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Adds what the block takes to a sum."""
        begin = time.perf_counter_ns()
        try:
            yield
        finally:
            self.sums_ns[name] += time.perf_counter_ns() - begin

    @contextmanager
    def saving(self) -> Iterator[None]:
        """A checkpoint."""
        self.counts["saves"] += 1
        with self.time("save"):
            yield

    def step(self) -> None:
        """One more step of training."""
        self.counts["steps"] += 1

    def batches(self, loader: Iterable[T], name: str = "wait") -> Iterator[T]:
        """One pass over a loader, its end included."""
        with self.time(name):
            iterator = iter(loader)
        yield from self.asked(iterator, name)

    def asked(self, iterator: Iterator[T], name: str = "wait") -> Iterator[T]:
        """What an iterator gives."""
        while True:
            begin = time.perf_counter_ns()
            try:
                batch = next(iterator)
            except StopIteration:
                self.sums_ns[name] += time.perf_counter_ns() - begin
                return
            self.sums_ns[name] += time.perf_counter_ns() - begin
            yield batch

    def write(self) -> None:
        """One file a process: its path with the process id behind."""
        path = os.environ.get(VARIABLE)
        if path:
            values = {"pid": os.getpid(), "counts": self.counts, "sums_ns": self.sums_ns}
            Path(f"{path}-{os.getpid()}").write_text(json.dumps(values))


def compute(seconds: float = COMPUTE_S) -> None:
    """Computes for so long, as far as anybody can tell."""
    time.sleep(seconds)
