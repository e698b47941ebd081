"""What a training loop measures of itself: its waits and its steps, by its own clock.

A program calls it in the places where a user would put timers; the recorder knows nothing of it.
Beside each time stands how long its thread had been kept waiting for a processor until then, by the
kernel's own count: a process that is stopped between two clocks is late in one of them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

DELAYS = "/proc/thread-self/schedstat"
TRAINING, EVALUATION = "training", "evaluation"

T = TypeVar("T")


class Truth:
    """Times of one process, ns since the epoch."""

    def __init__(self) -> None:
        self.readings: list[tuple[int, int, int]] = []  # time, delay until before it, and after it
        try:
            self._delays = os.open(DELAYS, os.O_RDONLY)  # of the thread that makes this
        except OSError:
            self._delays = -1
        self.waits: list[tuple[str, int, int]] = []  # what for, begin, end
        self.steps: list[tuple[int, int]] = []
        self.begun = False  # whether training has
        self._open: int | None = None

    def now(self) -> int:
        """What the clock says."""
        before, at = self._delay(), time.time_ns()
        self.readings.append((at, before, self._delay()))
        return at

    def _delay(self) -> int:
        """How long this thread was ready to run and did not; 0 where the kernel does not count."""
        return int(os.pread(self._delays, 99, 0).split()[1]) if self._delays >= 0 else 0

    def waited(self, name: str, begin: int) -> None:
        """A wait that began then ends now."""
        self.waits.append((name, begin, self.now()))

    def step(self, begin: int) -> None:
        """A step begins then; the one before it, if it goes on, ends then."""
        self.end(begin)
        self._open = begin

    def end(self, at: int | None = None) -> None:
        """The step that goes on ends, now if no time is given."""
        if self._open is not None:
            self.steps.append((self._open, self.now() if at is None else at))
        self._open = None

    def batches(self, loader: Iterable[T], name: str = TRAINING, every: int = 1) -> Iterator[T]:
        """The batches of one pass; in training a step is so many of them."""
        begin = self.now()
        iterator = iter(loader)
        count = 0
        while True:
            try:
                batch = next(iterator)
            except Exception as error:
                self.waited(name, begin)
                self.end(begin)
                if isinstance(error, StopIteration):
                    return
                raise
            self.waited(name, begin)
            if name == TRAINING and count % every == 0:
                self.step(begin)
            count += 1
            yield batch
            begin = self.now()

    def asked(self, iterator: Iterator[T], name: str) -> Iterator[T]:
        """What a framework asks an iterator for; steps are told by other means."""
        while True:
            begin = self.now()
            try:
                batch = next(iterator)
            except StopIteration:
                self.waited(name, begin)
                return
            self.waited(name, begin)
            yield batch

    def save(self, path: str, loop: str = "") -> None:
        """One file a process: PATH-PID."""
        self.end()
        values: dict[str, Any] = {
            "pid": os.getpid(),
            "rank": int(os.environ.get("RANK", "0")),
            "loop": loop,
            "waits": self.waits,
            "steps": self.steps,
            "readings": self.readings,
        }
        Path(f"{path}-{os.getpid()}").write_text(json.dumps(values))


def busy(seconds: float) -> None:
    """Computes for so long, as far as anybody can tell."""
    time.sleep(seconds)
