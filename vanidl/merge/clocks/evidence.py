"""What one kind of evidence says about an offset."""

from __future__ import annotations

from dataclasses import dataclass

from vanidl.model import intervals
from vanidl.model.intervals import Intervals


@dataclass(frozen=True, slots=True)
class Evidence:
    """Offsets that one kind of evidence leaves open, and why.

    `offsets` are disjoint intervals in ns; several: it cannot tell them apart. `best_ns` is
    the offset to use where it stays open, None: the middle of what stays open.
    """

    method: str
    offsets: Intervals
    reason: str
    best_ns: int | None = None


def meeting(offsets: Intervals, within: Intervals) -> Intervals:
    """Those of the intervals, whole, that have anything in common with `within`."""
    kept = intervals.covered_within(within, offsets.start, offsets.end) > 0
    return Intervals(offsets.start[kept], offsets.end[kept])
