"""What `benchmarks/programs/known_waits.py` timed of itself: the truth of its windows, by loops.

Everything is worked out from the program's own timers, one call after another, by the definitions
of the account alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

PARTS = ("read", "write", "metadata", "sync")
EDGE_NS = 1_000_000  # by which a wait as the program saw it and as it was recorded may differ
Span = tuple[int, int]


@dataclass(frozen=True)
class Known:
    """Storage in one window: at least and at most, in all and by part, ns."""

    low: dict[str, float]
    high: dict[str, float]
    calls: int


@dataclass(frozen=True)
class _Process:
    calls: list[tuple[str, int, int, int]]
    fetches: list[tuple[int, int, int, int]]
    waits: list[tuple[int, int, int, int]]
    born: list[int]


class Truth:
    """The truth of one run: its waits in order of time, and what lies between them."""

    def __init__(self, folder: Path, workers: int, prefetch: int, *, read_ahead: bool) -> None:
        found = [_Process(**json.loads(path.read_text())) for path in folder.glob("*.json")]
        (self.trainer,) = [one for one in found if one.waits]
        self.others = [one for one in found if not one.waits]
        self.ahead = workers * prefetch
        # A thread that reads ahead is a worker: what it did is no call of the training thread.
        self.readers: set[int] = set()
        if self.trainer.fetches and self.trainer.waits and not workers and read_ahead:
            self.readers = {thread for kind, thread, _, _ in self.trainer.calls if kind == "read"}
            self.others = [_Process(self._of_reader(), self.trainer.fetches, [], [])]
        self.waits = [self._wait(i) for i in range(len(self.trainer.waits))]

    def of(self, start_ns: int, end_ns: int) -> Known:
        """A window of the training thread: its own calls, and what its waits were for."""
        known = self._own(start_ns, end_ns)
        if not self.others:
            return known
        low, high, calls = dict(known.low), dict(known.high), known.calls
        for times, wait in zip(self.trainer.waits, self.waits, strict=True):
            begin, end = times[2:]
            shared = _shared((begin, end), (start_ns, end_ns))
            if not shared:
                continue
            whole = wait is not None and shared >= end - begin - EDGE_NS
            for part in PARTS:
                low[part] += wait.low[part] if whole and wait is not None else 0.0
                high[part] += wait.high[part] if whole and wait is not None else shared
            calls += wait.calls if whole and wait is not None else 0
        return Known(low, high, calls)

    def asked_ns(self, start_ns: int) -> int:
        """Since when calls count for a window: its start, or when its batch was asked for."""
        ended = [end for _, _, _, end in self.trainer.waits if end <= start_ns]
        if not self.others or not ended:
            return start_ns
        return ended[max(len(ended) - max(self.ahead, 1) - 1, 0)]

    def _own(self, start_ns: int, end_ns: int) -> Known:
        spent = dict.fromkeys(PARTS, 0.0)
        calls = 0
        for kind, thread, begin, end in self.trainer.calls:
            if thread in self.readers:
                continue
            shared = _shared((begin, end), (start_ns, end_ns))
            spent[kind] += shared
            calls += shared > 0
        return Known(spent, spent, calls)

    def _wait(self, place: int) -> Known | None:
        """One wait; None where its batch is of no known worker, or asked at no known time."""
        epoch, batch, begin, end = self.trainer.waits[place]
        if not self.others:
            return self._own(begin, end)
        if batch < 0:
            return None
        for worker in self.others:
            for of_epoch, number, fetch_begin, fetch_end in worker.fetches:
                if (of_epoch, number) == (epoch, batch):
                    return self._late(worker, place, (fetch_begin, fetch_end))
        raise AssertionError((epoch, batch))

    def _of_reader(self) -> list[tuple[str, int, int, int]]:
        return [call for call in self.trainer.calls if call[1] in self.readers]

    def _late(self, worker: _Process, place: int, fetch: Span) -> Known | None:
        epoch, _, begin, end = self.trainer.waits[place]
        taken = [w for w in self.trainer.waits if w[0] == epoch]
        nth = taken.index(self.trainer.waits[place])
        if nth < max(self.ahead, 1):  # its worker was being started: from here nobody knows when
            return None
        asked = min(taken[nth - max(self.ahead, 1)][3], begin)
        ready = min(max(fetch[1], begin), end)
        until = max(fetch[1], asked)
        did = sum(_shared((b, e), (asked, until)) for _, _, b, e in worker.fetches)
        busy = sum(_shared((b, e), (ready, end)) for _, _, b, e in worker.fetches)
        low, high, calls = {}, {}, 0
        for part in PARTS:
            spans = [(b, e) for kind, _, b, e in worker.calls if kind == part]
            spent = sum(_shared(one, (asked, until)) for one in spans)
            calls += len([one for one in spans if _shared(one, (asked, until))])
            low[part] = (ready - begin) * spent / did if did else 0.0
            after = sum(_shared(one, (ready, end)) for one in spans)
            high[part] = low[part] + min(after, busy)
        return Known(low, high, calls)


def _shared(a: Span, b: Span) -> int:
    return max(min(a[1], b[1]) - max(a[0], b[0]), 0)
