"""How late the start of each log was taken, by what the log itself holds.

A process that was forked under Darshan counts its times from the fork, and the log's start is
taken later, after memory was cleared: its times as logged are late by a constant of that log.
No operation comes before the log's memory was ready, so the first one bounds it; and none
ends after the log does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from vanidl.formatting.units import range_words
from vanidl.model.trace import ClockReason
from vanidl.readers.records import CounterFile, TracerLog

METHOD = "own records"

_COARSE_NS = 100_000_000
_NONE = 2**62
_OPENED = "_OPEN_START_TIMESTAMP"


@dataclass(frozen=True, slots=True)
class LogClock:
    """What is added to the times of one log, ns; the true offset lies in [low_ns, high_ns]."""

    offset_ns: int
    low_ns: int
    high_ns: int
    evidence: tuple[ClockReason, ...] = ()
    late: bool = False  # its start may be late: other evidence may say more

    @property
    def uncertainty_ns(self) -> int:
        """How far the true offset may lie from the one that is used."""
        return max(self.high_ns - self.offset_ns, self.offset_ns - self.low_ns)


def recorded(log: TracerLog, counted: CounterFile | None) -> LogClock:
    """What one log leaves open; as logged is used, moved no further than that asks for."""
    half = log.start_uncertainty_ns
    if not log.start_late_ns or log.start_resolution_ns >= _COARSE_NS or log.nprocs > 1:
        return LogClock(0, -half, half)
    first = _first_ns(log, counted)
    low = -min(log.start_late_ns, first) - half
    high = half
    last = log.end_ns - log.start_ns - _last_ns(log) + half
    if log.whole and low <= last < high:
        high = last
    bound = "its first operation" if first < log.start_late_ns else "what was ever measured"
    reason = (
        f"a forked process: its times may be late, by no more than {bound}, and as logged none "
        "may end after the process"
    )
    why = ClockReason(METHOD, range_words(low / 1e9, high / 1e9), reason)
    return LogClock(min(0, high), low, high, (why,), late=True)


def _first_ns(log: TracerLog, counted: CounterFile | None) -> int:
    """Start of the first operation or open since the log's time zero, a large number for none."""
    starts = [table.start_ns for table in log.operations]
    opened = [
        (layer.seconds[name] * 1e9).astype(np.int64)
        for layer in (counted.layers if counted else ())
        for name in _of_opens(tuple(layer.seconds))
    ]
    known = np.concatenate([*starts, *opened, [_NONE]])
    return int(known.min(where=known > 0, initial=_NONE))


@lru_cache(64)
def _of_opens(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name.endswith(_OPENED))


def _last_ns(log: TracerLog) -> int:
    return max((int(t.end_ns.max()) for t in log.operations if len(t.end_ns)), default=0)
