"""How late each worker's log is, by the recorded fetches of its batches.

What a worker reads for a batch lies between begin and end of the fetch of that batch, which was
recorded on the clock of the profile. So the offset of its log is one by which none of its reads
of samples reaches into a pause between two fetches. Of those that are left the lowest is used:
a fetch mostly begins by reading.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vanidl.analyses.dataloader_batches import equal_reads
from vanidl.formatting.units import range_words
from vanidl.merge.clocks.align import Clock
from vanidl.merge.clocks.inputs import AlignmentInputs, Int64Array, TracedProcess, interval
from vanidl.merge.clocks.log_clock import LogClock
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.trace import READ, ClockReason
from vanidl.readers.records import FetchTable

METHOD = "reads within fetches"

_SLACK_NS = 20_000  # between a time that Python took and one that the tracer took
_REASON = "what it read for a batch lies in the recorded fetch of that batch"
_FAR = 2**62


def find(inputs: AlignmentInputs, clock: Clock) -> Mapping[int, LogClock]:
    """The clock of each worker whose start may be late, by its number; those that are known."""
    table = inputs.profile.fetches
    if table is None or not clock.aligned:
        return {}
    found = {}
    for worker in inputs.workers:
        if worker.clock.late:
            narrowed = _narrowed(worker, _fetches_of(table, worker, clock.offset_ns))
            if narrowed is not None:
                found[worker.number] = narrowed
    return found


def _fetches_of(table: FetchTable, worker: TracedProcess, offset_ns: int) -> Intervals:
    """When one worker fetched, on the clock of the logs."""
    members = [m for m, (pid, _) in enumerate(table.by) if m and pid == worker.log.pid]
    mine = np.isin(table.member, members)
    begin, end = table.begin[mine] + offset_ns, table.end[mine] + offset_ns
    return intervals.union(begin - _SLACK_NS, end + _SLACK_NS)


def _narrowed(worker: TracedProcess, fetches: Intervals) -> LogClock | None:
    """The clock of one log; None where fetches say nothing, or contradict its reads."""
    reads, before = worker.operations(READ), worker.clock
    if not len(reads) or not len(fetches.start):
        return None
    reads = equal_reads(reads)
    left = _offsets(reads.start, reads.end, fetches, interval(before.low_ns, before.high_ns))
    if not len(left.start):
        return None
    low, high = int(left.start[0]), int(left.end[-1]) - 1
    nearest = np.maximum(left.start - before.offset_ns, before.offset_ns - left.end + 1)
    chosen = int(nearest.argmin())
    offset = min(int(left.start[chosen]) + _SLACK_NS, int(left.end[chosen]) - 1)
    why = ClockReason(METHOD, range_words(low / 1e9, high / 1e9), _REASON)
    return LogClock(offset, low, high, (*before.evidence, why), late=True)


def _offsets(
    start: Int64Array, end: Int64Array, fetches: Intervals, within: Intervals
) -> Intervals:
    """Offsets at which no read reaches into a pause between fetches."""
    low, high = int(within.start[0]), int(within.end[-1])
    pause_start = np.append(-_FAR, fetches.end)
    pause_end = np.append(fetches.start, _FAR)
    first = np.searchsorted(pause_end, start + low, side="right")
    last = np.searchsorted(pause_start, end + high, side="left")
    count = np.maximum(last - first, 0)
    read = np.repeat(np.arange(len(start)), count)
    pause = np.repeat(first - (np.cumsum(count) - count), count) + np.arange(len(read))
    reaching = intervals.union(pause_start[pause] - end[read], pause_end[pause] - start[read])
    return intervals.subtract(within, reaching)
