"""How late each worker's log is.

Every log has an offset of its own: each worker process was delayed by itself. Two things narrow
what its own records leave open (`log_clock`), both on the clock of a profile of its trainer:

- The order of its reads and of the trainer's waits. What a worker read for a batch ends before the
  wait that takes the batch does; what it was asked for in a wait is read after that wait began; and
  it was forked after the last wait of the epoch before. Where several mappings of batches to waits
  fit, each log keeps what any of them leaves open.
- The recorded fetches of its batches. What it reads for a batch lies between begin and end of the
  fetch of that batch. So the offset of its log is one by which none of its reads of samples reaches
  into a pause between two fetches. Of those that are left the lowest is used: a fetch mostly begins
  by reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from vanidl.analyses.dataloader_batches import find_epoch_ends, select_equal_reads
from vanidl.formatting.units import count, plural, range_words, seconds
from vanidl.merge.clocks.align import Clock
from vanidl.merge.clocks.evidence import AlignmentInputs, Int64Array, TracedProcess, make_interval
from vanidl.merge.clocks.log_clock import LogClock
from vanidl.merge.clocks.worker_order import FEWEST_WAITS, NEVER, WORKER_ORDER, Calls, deal_batches
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.trace import READ, ClockReason, SpanKind
from vanidl.model.warnings import Notice
from vanidl.schema.dataclass import dataclass

WITHIN_FETCHES = "reads within fetches"

_SLACK_NS = 20_000  # between a time that Python took and one that the tracer took
_REASON = "what it read for a batch lies in the recorded fetch of that batch"
_FAR = 2**62
_MOST_CELLS = 5_000_000  # shifts times waits of one mapping


def choose_log_clocks(
    traced: Mapping[int, TracedProcess], aligned: Iterable[tuple[AlignmentInputs, Clock]]
) -> dict[int, LogClock]:
    """The clock of the log of every traced process: its own records, then each profile's.

    A profile tells by the order of its waits, and by fetches where they were recorded. Of a
    process with several profiles the narrowest is used.
    """
    known = {number: process.clock for number, process in traced.items()}
    for inputs, clock in aligned:
        of_order, of_fetches = (
            find_by_order(inputs, clock),
            find_by_fetches(inputs, clock),
        )
        for number, found in (*of_order.items(), *of_fetches.items()):
            if found.high_ns - found.low_ns < known[number].high_ns - known[number].low_ns:
                known[number] = found
    return known


def warn_of_coarse_logs(
    aligned: Iterable[tuple[AlignmentInputs, Clock]], clocks: Mapping[int, LogClock]
) -> Iterator[Notice]:
    """A warning where I/O of workers may be laid over a neighbouring step of their trainer."""
    for inputs, clock in aligned:
        start, end = inputs.kind(SpanKind.STEP)
        usual = float(np.median(end - start)) if len(start) else 0.0
        widths = [clocks[w.number].high_ns - clocks[w.number].low_ns for w in inputs.workers]
        wide = [width for width in widths if width > usual]
        if clock.aligned and usual and wide:
            yield Notice(
                "clock_coarse",
                f"{inputs.profile.path}: the times in {plural(len(wide), 'log')} of "
                f"{plural(len(widths), 'worker')} are known to lie within "
                f"{seconds(max(wide) / 1e9)} and a step takes {seconds(usual / 1e9)}: what of "
                "their I/O fell into which step, and what was hidden, may be that of a "
                "neighbouring step. Darshan takes the start of a forked process late by an amount "
                "that it does not record: a smaller MODMEM makes it less, DFTracer has none of it.",
            )


# By the order of reads and waits.


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


def find_by_order(inputs: AlignmentInputs, clock: Clock) -> Mapping[int, LogClock]:
    """The clock of each worker whose start may be late, by its number; those that are known."""
    late = {w.number: w.clock for w in inputs.workers if w.clock.late}
    start, end = inputs.kind(SpanKind.INPUT_WAIT)
    if not late or not clock.aligned or len(start) < FEWEST_WAITS:
        return {}
    waits = _Waits(
        start + clock.offset_ns,
        end + clock.offset_ns,
        find_epoch_ends(start, *inputs.kind(SpanKind.STEP)),
        clock.offset_ns - clock.low_ns,
        clock.high_ns - clock.offset_ns,
    )
    logs = _Logs.of(inputs.workers)
    # The first way of dealing batches to workers under which some shift of the logs fits.
    for every in deal_batches(inputs.workers, len(start), waits.stops):
        found = [left for calls in every for left in _try_shifts(calls, waits, logs)]
        if found:
            return {n: c for n, c in _join_bounds(found, logs, late).items() if n in late}
    return {}


def _join_bounds(
    found: Sequence[_Left], logs: _Logs, late: Mapping[int, LogClock]
) -> dict[int, LogClock]:
    low = np.min([left.low for left in found], axis=0).tolist()
    high = np.max([left.high for left in found], axis=0).tolist()
    rows = zip(logs.number.tolist(), low, high, found[0].best.tolist(), strict=True)
    return {
        number: _narrow_by_order(late[number], (low, high), best, len(found))
        for number, low, high, best in rows
        if number in late
    }


def _narrow_by_order(
    before: LogClock, limits: tuple[int, int], best: int, mappings: int
) -> LogClock:
    low, high = limits
    if limits == (before.low_ns, before.high_ns) and best == -NEVER:
        return before
    several = "" if mappings == 1 else f" ({count(mappings)} ways to deal the batches fit)"
    reason = (
        "what it read for a batch ends before the batch is taken, what it was asked for is read "
        f"after that, and it was forked after the epoch before{several}"
    )
    why = ClockReason(WORKER_ORDER, range_words(low / 1e9, high / 1e9), reason)
    offset = min(max(best if best > -NEVER else before.offset_ns, low), high)
    return LogClock(offset, low, high, (*before.evidence, why), late=True)


def _try_shifts(calls: Calls, waits: _Waits, logs: _Logs) -> Iterator[_Left]:
    """What every number of calls before the profile leaves open, for those that fit."""
    shifts = len(calls.worker) - len(waits.start) + 1
    if shifts * len(waits.start) > _MOST_CELLS:
        return
    for shift in range(max(shifts, 0)):
        mine = slice(shift, shift + len(waits.start))
        # A wait that found the end of an epoch cannot have taken a batch.
        if (calls.worker[mine][waits.stops] >= 0).any():
            continue
        left = _bound_offsets(calls, mine, waits, logs)
        if not (left.low <= left.high).all():
            continue
        yield left if calls.ahead else _bound_by_default(calls, mine, waits, logs, left)


def _bound_by_default(calls: Calls, mine: slice, waits: _Waits, logs: _Logs, left: _Left) -> _Left:
    """The same where nothing tells how far workers read ahead: PyTorch's default, if it fits.

    Workers that are further ahead contradict it by the steps between; where those are shorter
    than what is open of a log, that would not show, and only the best guess is from it.
    """
    default = _bound_offsets(replace(calls, asked=calls.asked_by_default), mine, waits, logs)
    if not (default.low <= default.high).all():
        return left
    # The usual time from one batch of a worker to its next.
    worker = calls.worker[mine]
    at_once = len(np.unique(worker[(calls.epoch[mine] == calls.epoch[mine][0]) & (worker >= 0)]))
    between = at_once * float(np.median(np.diff(waits.start)))
    shows = between > logs.high - logs.low
    return _Left(np.where(shows, default.low, left.low), left.high, default.best)


def _bound_offsets(calls: Calls, mine: slice, waits: _Waits, logs: _Logs) -> _Left:
    """What is left of each log's interval where calls `mine` are those of the waits."""
    low = np.maximum(logs.low, _bound_by_fork(calls, mine, waits, logs))
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


def _bound_by_fork(calls: Calls, mine: slice, waits: _Waits, logs: _Logs) -> Int64Array:
    """Offsets at which each log's time zero is after the last wait of the epoch before."""
    # The end of the last wait of each epoch, under the number of the next one.
    over = np.full(int(calls.epoch[-1]) + 2, -NEVER)
    np.maximum.at(over, calls.epoch[mine] + 1, waits.end - waits.early)
    after = np.full(len(logs.number), -NEVER)
    real = calls.worker >= 0
    at = np.searchsorted(logs.number, calls.worker[real])
    np.maximum.at(after, at, over[calls.epoch[real]])
    return np.where(after > -NEVER, after - logs.start, -NEVER)


# By the recorded fetches.


def find_by_fetches(inputs: AlignmentInputs, clock: Clock) -> Mapping[int, LogClock]:
    """The clock of each worker whose start may be late, by its number; those that are known."""
    table = inputs.profile.fetches
    if table is None or not clock.aligned:
        return {}
    found = {}
    for worker in inputs.workers:
        if worker.clock.late:
            # When one worker fetched, on the clock of the logs.
            members = [m for m, (pid, _) in enumerate(table.by) if m and pid == worker.log.pid]
            mine = np.isin(table.member, members)
            begin, end = table.begin[mine] + clock.offset_ns, table.end[mine] + clock.offset_ns
            fetches = intervals.union(begin - _SLACK_NS, end + _SLACK_NS)
            narrowed = _narrow_by_fetches(worker, fetches)
            if narrowed is not None:
                found[worker.number] = narrowed
    return found


def _narrow_by_fetches(worker: TracedProcess, fetches: Intervals) -> LogClock | None:
    """The clock of one log; None where fetches say nothing, or contradict its reads."""
    reads, before = worker.operations(READ), worker.clock
    if not len(reads) or not len(fetches.start):
        return None
    reads = select_equal_reads(reads)
    left = _find_offsets(
        reads.start, reads.end, fetches, make_interval(before.low_ns, before.high_ns)
    )
    if not len(left.start):
        return None
    low, high = int(left.start[0]), int(left.end[-1]) - 1
    # The interval nearest to the clock as logged, and in it a little behind its begin.
    nearest = np.maximum(left.start - before.offset_ns, before.offset_ns - left.end + 1)
    chosen = int(nearest.argmin())
    offset = min(int(left.start[chosen]) + _SLACK_NS, int(left.end[chosen]) - 1)
    why = ClockReason(WITHIN_FETCHES, range_words(low / 1e9, high / 1e9), _REASON)
    return LogClock(offset, low, high, (*before.evidence, why), late=True)


def _find_offsets(
    start: Int64Array, end: Int64Array, fetches: Intervals, within: Intervals
) -> Intervals:
    """Offsets at which no read reaches into a pause between fetches."""
    low, high = int(within.start[0]), int(within.end[-1])
    # Pauses are what lies before, between and after the fetches.
    pause_start = np.append(-_FAR, fetches.end)
    pause_end = np.append(fetches.start, _FAR)
    # For each read the pauses that it can reach into at any offset.
    first = np.searchsorted(pause_end, start + low, side="right")
    last = np.searchsorted(pause_start, end + high, side="left")
    count = np.maximum(last - first, 0)
    read = np.repeat(np.arange(len(start)), count)
    pause = np.repeat(first - (np.cumsum(count) - count), count) + np.arange(len(read))
    # Offsets at which a read overlaps a pause, to be taken away.
    reaching = intervals.union(pause_start[pause] - end[read], pause_end[pause] - start[read])
    return intervals.subtract(within, reaching)
