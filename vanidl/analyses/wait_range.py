"""How much I/O can have been in input waits, by what is open of the clocks of profile and logs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vanidl.model import intervals
from vanidl.model.intervals import Intervals, intersect
from vanidl.model.trace import Process, Profile, SpanKind, Trace


@dataclass(frozen=True, slots=True)
class WaitRange:
    """Bounds of the I/O of one rank in its input waits; with one worker they are exact."""

    at_least_s: float
    at_most_s: float


def of_rank(trace: Trace, position: int, observed: Intervals, starving: Intervals) -> WaitRange:
    """What is in waits whatever the offsets are, and what may be.

    An operation lay up to `earlier` before and `later` after where it was laid. So it was in a
    wait for sure where all of that is, and may have been where any of that is.

    Args:
        trace: the run.
        position: of the rank in Trace.ranks.
        observed: its I/O in the profiled window.
        starving: its input waits.
    """
    earlier, later = _open_ns(trace, position)
    sure = _grown(starving, -earlier, -later)
    possible = _grown(starving, later, earlier)
    at_most = min(intersect(observed, possible).length, starving.length)
    return WaitRange(intersect(observed, sure).length / 1e9, at_most / 1e9)


def _open_ns(trace: Trace, position: int) -> tuple[int, int]:
    """How far any operation of a rank can lie before and after its place, ns."""
    trainer = trace.ranks[position]
    logs = [p for p in trace.processes if p.trainer == trainer and p.clock_evidence]
    with_steps = set(np.unique(trace.spans.source[trace.spans.kind == SpanKind.STEP]).tolist())
    profiles = [p for i, p in enumerate(trace.profiles) if p.process == trainer and i in with_steps]
    own = [_sides(p) for p in profiles]
    workers = [_sides(p) for p in logs]
    # Adding to a log's times moves its operations later, adding to a profile's the waits.
    return (
        max((low for low, _ in workers), default=0) + max((high for _, high in own), default=0),
        max((high for _, high in workers), default=0) + max((low for low, _ in own), default=0),
    )


def _sides(clock: Process | Profile) -> tuple[int, int]:
    """How far the true offset may lie below and above the one that is used."""
    used = clock.clock_offset_ns
    return max(used - clock.clock_low_ns, 0), max(clock.clock_high_ns - used, 0)


def _grown(spans: Intervals, before: int, after: int) -> Intervals:
    """Each span longer by so much at its start and its end, or shorter; none where none is left."""
    start, end = spans.start - before, spans.end + after
    kept = start < end
    return intervals.union(start[kept], end[kept])
