"""What a training loop measures of itself: its waits and its steps, by its own clock.

A program calls it in the places where a user would put timers; the recorder knows nothing of it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

NOW = time.time_ns
TRAINING, EVALUATION = "training", "evaluation"

T = TypeVar("T")


class Truth:
    """Times of one process, ns since the epoch."""

    def __init__(self) -> None:
        self.waits: list[tuple[str, int, int]] = []  # what for, begin, end
        self.steps: list[tuple[int, int]] = []
        self.begun = False  # whether training has
        self._open: int | None = None

    def waited(self, name: str, begin: int) -> None:
        """A wait that began then ends now."""
        self.waits.append((name, begin, NOW()))

    def step(self, begin: int) -> None:
        """A step begins then; the one before it, if it goes on, ends then."""
        self.end(begin)
        self._open = begin

    def end(self, at: int | None = None) -> None:
        """The step that goes on ends, now if no time is given."""
        if self._open is not None:
            self.steps.append((self._open, NOW() if at is None else at))
        self._open = None

    def batches(self, loader: Iterable[T], name: str = TRAINING, every: int = 1) -> Iterator[T]:
        """The batches of one pass; in training a step is so many of them."""
        begin = NOW()
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
            begin = NOW()

    def asked(self, iterator: Iterator[T], name: str) -> Iterator[T]:
        """What a framework asks an iterator for; steps are told by other means."""
        while True:
            begin = NOW()
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
        }
        Path(f"{path}-{os.getpid()}").write_text(json.dumps(values))


def busy(seconds: float) -> None:
    """Computes for so long, as far as anybody can tell."""
    time.sleep(seconds)
