"""How late the start of each log was taken, by what the log itself holds, and logs laid by that.

A process that was forked under Darshan counts its times from the fork, and the log's start is
taken later, after memory was cleared: its times as logged are late by a constant of that log.
No operation comes before the log's memory was ready, so the first one bounds it; and none
ends after the log does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.formatting.units import range_words
from vanidl.merge.processes import ProcessTable
from vanidl.model.trace import ClockReason, Process
from vanidl.parallel.threads import batches
from vanidl.readers.records import CounterFile, TracerLog
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]

OWN_RECORDS = "own records"

_COARSE_NS = 100_000_000
_NONE = 2**62
_TOGETHER_ROWS = 1 << 18
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


def clock_processes(
    logs: Sequence[TracerLog], processes: ProcessTable, counters: Mapping[str, CounterFile]
) -> dict[int, LogClock]:
    """What its own log leaves open of each process, by its row."""
    clocks = read_log_clocks(logs, counters)
    return {row: clocks[i] for (i, _), row in processes.iterate_own_logs(logs)}


def read_log_clocks(
    logs: Sequence[TracerLog], counters: Mapping[str, CounterFile]
) -> list[LogClock]:
    """What each log leaves open; as logged is used, moved no further than that asks for.

    Args:
        logs: what was read.
        counters: path of a log to what Darshan summed up in it.
    """
    bounds = _find_bounds_ns([log for log in logs if _may_be_late(log)], counters)
    return [
        _bound_late_log(log, *next(bounds))
        if _may_be_late(log)
        else LogClock(0, -log.start_uncertainty_ns, log.start_uncertainty_ns)
        for log in logs
    ]


def _may_be_late(log: TracerLog) -> bool:
    exact = log.start_resolution_ns < _COARSE_NS
    return bool(log.start_late_ns) and exact and log.nprocs <= 1


def _bound_late_log(log: TracerLog, first_ns: int, last_ns: int) -> LogClock:
    """What a log leaves open whose first operation began, and whose last one ended then."""
    half = log.start_uncertainty_ns
    low = -min(log.start_late_ns, first_ns) - half
    high = half
    last = log.end_ns - log.start_ns - last_ns + half
    if log.whole and low <= last < high:
        high = last
    bound = "its first operation" if first_ns < log.start_late_ns else "what was ever measured"
    reason = (
        f"a forked process: its times may be late, by no more than {bound}, and as logged none "
        "may end after the process"
    )
    why = ClockReason(OWN_RECORDS, range_words(low / 1e9, high / 1e9), reason)
    return LogClock(min(0, high), low, high, (why,), late=True)


def _find_bounds_ns(
    logs: Sequence[TracerLog], counters: Mapping[str, CounterFile]
) -> Iterator[tuple[int, int]]:
    """(start of the first operation or open, end of the last operation) since each log's zero.

    A large number and 0 for none. Small logs are looked at together: there may be thousands.
    """
    for some in batches(logs, _row_count, _TOGETHER_ROWS):
        started = [[table.start_ns for table in log.operations] for log in some]
        opened = [list(_pick_opens_s(counters.get(log.path))) for log in some]
        ended = [[table.end_ns for table in log.operations] for log in some]
        # Opens are counted where they are not traced, and come before the first operation.
        first = np.minimum(
            _reduce_each(started, _mask_unmeasured, np.minimum, _NONE),
            _reduce_each(
                opened, lambda s: _mask_unmeasured((s * 1e9).astype(np.int64)), np.minimum, _NONE
            ),
        )
        last = _reduce_each(ended, np.asarray, np.maximum, 0)
        yield from zip(first.tolist(), last.tolist(), strict=True)


def _row_count(log: TracerLog) -> int:
    return sum(len(table.op) for table in log.operations)


def _pick_opens_s(counted: CounterFile | None) -> Iterator[NDArray[np.float64]]:
    for layer in counted.layers if counted else ():
        for name in _names_of_opens(tuple(layer.seconds)):
            yield layer.seconds[name]


@lru_cache(64)
def _names_of_opens(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name.endswith(_OPENED))


def _mask_unmeasured(since_ns: Int64Array) -> Int64Array:
    """Times that were measured as they are, others as a large number."""
    return np.where(since_ns > 0, since_ns, _NONE)


def _reduce_each(
    columns: Sequence[Sequence[NDArray[Any]]],
    prepared: Callable[[NDArray[Any]], Int64Array],
    reduction: np.ufunc,
    nothing: int,
) -> Int64Array:
    """The reduction over all columns of each log, of prepared values; `nothing` without any."""
    lengths = np.array([sum(map(len, each)) for each in columns], np.intp)
    found = np.full(len(columns), nothing, np.int64)
    held = np.flatnonzero(lengths)
    if len(held):
        values = prepared(np.concatenate(list(chain.from_iterable(columns))))
        found[held] = reduction.reduceat(values, (np.cumsum(lengths) - lengths)[held])
    return found


def lay_on_one_clock(
    logs: Sequence[TracerLog], processes: ProcessTable, clocks: Mapping[int, LogClock]
) -> tuple[list[TracerLog], tuple[Process, ...]]:
    """Logs and processes with the starts that their clocks give; ends were exact as logged."""
    # What lies beside the logs is on the system's clock already.
    offsets = {
        i: clocks[n].offset_ns
        for (i, _), n in processes.of_log.items()
        if n in clocks and not logs[i].beside
    }
    moved = [
        replace(log, start_ns=log.start_ns + offsets[i]) if offsets.get(i) else log
        for i, log in enumerate(logs)
    ]

    # Where each process is placed by its log, and how sure that is.
    rows = list(processes.rows)
    for number, clock in clocks.items():
        start = rows[number].start_ns
        rows[number] = rows[number].changed(
            start_ns=None if start is None else start + clock.offset_ns,
            clock_offset_ns=clock.offset_ns,
            clock_uncertainty_ns=clock.uncertainty_ns,
            clock_low_ns=clock.low_ns,
            clock_high_ns=clock.high_ns,
            clock_evidence=clock.evidence,
        )
    return moved, tuple(rows)
