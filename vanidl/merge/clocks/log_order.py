"""How late each worker's log is, by the order of its reads and the waits of its trainer.

Every log has an offset of its own: each worker process was delayed by itself. On the clock of
the profile, what a worker read for a batch ends before the wait that takes the batch does; what
it was asked for in a wait is read after that wait began; and it was forked after the last wait
of the epoch before. Where several mappings of batches to waits fit, each log keeps what any of
them leaves open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vanidl.analyses.dataloader_batches import epoch_ends
from vanidl.formatting.units import count, range_words
from vanidl.merge.clocks.align import Clock
from vanidl.merge.clocks.inputs import AlignmentInputs, Int64Array, TracedProcess
from vanidl.merge.clocks.log_clock import LogClock
from vanidl.merge.clocks.worker_order import FEWEST_WAITS, METHOD, NEVER, Calls, orders
from vanidl.model.trace import ClockReason, SpanKind

_MOST_CELLS = 5_000_000  # shifts times waits of one mapping


@dataclass(frozen=True, slots=True)
class _Waits:
    """Waits of the trainer on the clock of the logs, ns, known to -`early` and +`late`."""

    start: Int64Array
    end: Int64Array
    stops: Int64Array  # rows that are known to have found the end of an epoch
    early: int
    late: int


@dataclass(frozen=True, slots=True)
class _Logs:
    """What the logs themselves leave open: one entry per worker, in order of its number."""

    number: Int64Array
    start: Int64Array
    low: Int64Array
    high: Int64Array

    @staticmethod
    def of(workers: Sequence[TracedProcess]) -> _Logs:
        rows = sorted((w.number, w.log.start_ns, w.clock.low_ns, w.clock.high_ns) for w in workers)
        return _Logs(*np.array(rows, np.int64).reshape(-1, 4).T)


@dataclass(frozen=True, slots=True)
class _Left:
    """What one mapping leaves open of each log's offset, and the best of it; -NEVER: unknown."""

    low: Int64Array
    high: Int64Array
    best: Int64Array


def find(inputs: AlignmentInputs, clock: Clock) -> Mapping[int, LogClock]:
    """The clock of each worker whose start may be late, by its number; those that are known."""
    late = {w.number: w.clock for w in inputs.workers if w.clock.late}
    start, end = inputs.kind(SpanKind.INPUT_WAIT)
    if not late or not clock.aligned or len(start) < FEWEST_WAITS:
        return {}
    waits = _Waits(
        start + clock.offset_ns,
        end + clock.offset_ns,
        epoch_ends(start, *inputs.kind(SpanKind.STEP)),
        clock.offset_ns - clock.low_ns,
        clock.high_ns - clock.offset_ns,
    )
    logs = _Logs.of(inputs.workers)
    for every in orders(inputs.workers, len(start), waits.stops):
        found = [left for calls in every for left in _fitting(calls, waits, logs)]
        if found:
            return {n: c for n, c in _together(found, logs, late).items() if n in late}
    return {}


def _together(
    found: Sequence[_Left], logs: _Logs, late: Mapping[int, LogClock]
) -> dict[int, LogClock]:
    low = np.min([left.low for left in found], axis=0).tolist()
    high = np.max([left.high for left in found], axis=0).tolist()
    rows = zip(logs.number.tolist(), low, high, found[0].best.tolist(), strict=True)
    return {
        number: _narrowed(late[number], (low, high), best, len(found))
        for number, low, high, best in rows
        if number in late
    }


def _narrowed(before: LogClock, limits: tuple[int, int], best: int, mappings: int) -> LogClock:
    low, high = limits
    if limits == (before.low_ns, before.high_ns) and best == -NEVER:
        return before
    several = "" if mappings == 1 else f" ({count(mappings)} ways to deal the batches fit)"
    reason = (
        "what it read for a batch ends before the batch is taken, what it was asked for is read "
        f"after that, and it was forked after the epoch before{several}"
    )
    why = ClockReason(METHOD, range_words(low / 1e9, high / 1e9), reason)
    offset = min(max(best if best > -NEVER else before.offset_ns, low), high)
    return LogClock(offset, low, high, (*before.evidence, why), late=True)


def _fitting(calls: Calls, waits: _Waits, logs: _Logs) -> Iterator[_Left]:
    """What every number of calls before the profile leaves open, for those that fit."""
    shifts = len(calls.worker) - len(waits.start) + 1
    if shifts * len(waits.start) > _MOST_CELLS:
        return
    for shift in range(max(shifts, 0)):
        mine = slice(shift, shift + len(waits.start))
        if (calls.worker[mine][waits.stops] >= 0).any():
            continue
        left = _bounds(calls, mine, waits, logs)
        if not (left.low <= left.high).all():
            continue
        yield left if calls.ahead else _by_default(calls, mine, waits, logs, left)


def _by_default(calls: Calls, mine: slice, waits: _Waits, logs: _Logs, left: _Left) -> _Left:
    """The same where nothing tells how far workers read ahead: PyTorch's default, if it fits.

    Workers that are further ahead contradict it by the steps between; where those are shorter
    than what is open of a log, that would not show, and only the best guess is from it.
    """
    default = _bounds(replace(calls, asked=calls.asked_by_default), mine, waits, logs)
    if not (default.low <= default.high).all():
        return left
    worker = calls.worker[mine]
    at_once = len(np.unique(worker[(calls.epoch[mine] == calls.epoch[mine][0]) & (worker >= 0)]))
    between = at_once * float(np.median(np.diff(waits.start)))
    shows = between > logs.high - logs.low
    return _Left(np.where(shows, default.low, left.low), left.high, default.best)


def _bounds(calls: Calls, mine: slice, waits: _Waits, logs: _Logs) -> _Left:
    """What is left of each log's interval where calls `mine` are those of the waits."""
    low = np.maximum(logs.low, _forked(calls, mine, waits, logs))
    high, best = logs.high.copy(), np.full(len(low), -NEVER)
    worker, asked = calls.worker[mine], calls.asked[mine]
    rows = worker >= 0
    at = np.searchsorted(logs.number, worker[rows])
    np.minimum.at(high, at, (waits.end - calls.ends[mine])[rows] + waits.late)
    rows &= asked < NEVER
    at = np.searchsorted(logs.number, worker[rows])
    np.maximum.at(low, at, (waits.start - asked)[rows] - waits.early)
    # It is asked for within the wait, mostly at its end, and an idle worker begins at once.
    np.maximum.at(best, at, ((waits.start + waits.end) // 2 - asked)[rows])
    return _Left(low, high, np.minimum(best, 0))


def _forked(calls: Calls, mine: slice, waits: _Waits, logs: _Logs) -> Int64Array:
    """Offsets at which each log's time zero is after the last wait of the epoch before."""
    over = np.full(int(calls.epoch[-1]) + 2, -NEVER)
    np.maximum.at(over, calls.epoch[mine] + 1, waits.end - waits.early)
    after = np.full(len(logs.number), -NEVER)
    real = calls.worker >= 0
    at = np.searchsorted(logs.number, calls.worker[real])
    np.maximum.at(after, at, over[calls.epoch[real]])
    return np.where(after > -NEVER, after - logs.start, -NEVER)
