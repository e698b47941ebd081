"""What a loop measures of itself, by timers where a user would put them.

A program names its parts; what it measured goes to the file that LOOP_TIMES names once it ends. The
recorder knows nothing of it. Beside each time stands how long its thread had been kept waiting for
a processor until then, by the kernel's own count: a process that is stopped between two clocks is
late in one of them.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

VARIABLE = "LOOP_TIMES"
DELAYS = "/proc/thread-self/schedstat"
EPOCHS, BATCHES, VALIDATIONS = 3, 12, 4
READ_S, COMPUTE_S, SAVE_S = 0.004, 0.006, 0.03
COUNTS = ("steps", "epochs", "saves", "loads", "skipped", "inference")
SPANS = ("wait", "evaluation", "second", "step", "validation", "save", "load", "skipped")
WAIT, EVALUATION, SECOND = SPANS[:3]

T = TypeVar("T")


class Timers:
    """Counts and times of one thread of a process, in nanoseconds since the epoch.

    `wait` is for batches that are trained on or, where nothing is, inferred from; `evaluation` for
    those of validation; `second` for those of another loader beside the first.
    """

    def __init__(self, loop: str = "") -> None:
        self.loop = loop
        self.counts = dict.fromkeys(COUNTS, 0)
        self.spans: dict[str, list[tuple[int, int]]] = {name: [] for name in SPANS}
        self.readings: list[tuple[int, int]] = []  # time, and delay until then
        self.is_step_due = False  # the next batch is the first of a step
        self._thread = threading.get_native_id()
        try:
            self._delays = os.open(DELAYS, os.O_RDONLY)  # of the thread that makes this
        except OSError:
            self._delays = -1
        self._open: int | None = None
        atexit.register(self.write)

    def now(self) -> int:
        """What the clock says where something begins: that the delay is read lies before it."""
        delay, at = self._delay(), time.time_ns()
        self.readings.append((at, delay))
        return at

    def _end(self) -> int:
        """What it says where something ends: that the delay is read lies behind it."""
        at = time.time_ns()
        self.readings.append((at, self._delay()))
        return at

    def _delay(self) -> int:
        """How long this thread was ready to run and did not; 0 where the kernel does not count."""
        return int(os.pread(self._delays, 99, 0).split()[1]) if self._delays >= 0 else 0

    def add(self, name: str, begin: int) -> None:
        """A span that began then ends now."""
        self.spans[name].append((begin, self._end()))

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        """The block is such a span."""
        begin = self.now()
        try:
            yield
        finally:
            self.add(name, begin)

    @contextmanager
    def saving(self) -> Iterator[None]:
        """A checkpoint."""
        self.counts["saves"] += 1
        with self.time("save"):
            yield

    @contextmanager
    def loading(self) -> Iterator[None]:
        """A checkpoint is read."""
        self.counts["loads"] += 1
        with self.time("load"):
            yield

    def step(self) -> None:
        """One more step of training, wherever it begins and ends."""
        self.counts["steps"] += 1

    def begin_step(self, at: int) -> None:
        """A step begins then, where its first batch is asked for; the one before it ends then."""
        self.end_step(at)
        self._open = at

    def end_step(self, at: int | None = None) -> None:
        """The step that goes on ends, now if no time is given."""
        if self._open is not None:
            self.spans["step"].append((self._open, self._end() if at is None else at))
        self._open = None

    def batches(
        self, loader: Iterable[T] | Callable[[], Iterable[T]], name: str = WAIT, every: int = 0
    ) -> Iterator[T]:
        """One pass over a loader, or what makes one, its end included.

        A step is so many batches, if it says that.
        """
        begin = self.now()
        iterator = iter(loader() if callable(loader) else loader)
        count = 0
        while True:
            try:
                batch = next(iterator)
            except Exception as error:
                self.add(name, begin)
                if name == WAIT:
                    self.end_step(begin)
                if isinstance(error, StopIteration):
                    return
                raise
            self.add(name, begin)
            if self.is_step_due or (every and count % every == 0):
                self.begin_step(begin)
                self.is_step_due = False
            count += 1
            yield batch
            begin = self.now()

    def asked(self, iterator: Iterator[T], name: str = WAIT) -> Iterator[T]:
        """What an iterator gives."""
        while True:
            begin = self.now()
            try:
                batch = next(iterator)
            except StopIteration:
                self.add(name, begin)
                return
            self.add(name, begin)
            yield batch

    def write(self) -> None:
        """One file a thread that measures; it may be written before the end, and once more then."""
        path = os.environ.get(VARIABLE)
        if not path:
            return
        self.end_step()
        values = {
            "pid": os.getpid(),
            "thread": self._thread,
            "rank": int(os.environ.get("RANK", "0")),
            "loop": self.loop,
            "counts": self.counts,
            "spans": self.spans,
            "readings": self.readings,
        }
        Path(f"{path}-{os.getpid()}-{self._thread}").write_text(json.dumps(values))


def compute(seconds: float = COMPUTE_S) -> None:
    """Computes for so long, as far as anybody can tell."""
    time.sleep(seconds)


def tell(*losses: object) -> None:
    """Prints what was learned, to the last digit: that recording changes nothing of it is seen."""
    words = ("loss", *(float(loss).hex() for loss in losses))  # type: ignore[arg-type]
    sys.stdout.write(" ".join(words) + "\n")  # whole: ranks may share what they print to
    sys.stdout.flush()
