"""How the clocks of profiles and logs agree, in words."""

from __future__ import annotations

from vanidl.analyses.steps import ClockEvidence, Steps
from vanidl.formatting.units import count, range_words, seconds

_NONE = "none: durations without start times, so no overlap is claimed"
_NOT_ALIGNED = (
    "not aligned: how it and that of the logs differ is not known, so no overlap is claimed"
)


def clock_pairs(steps: Steps) -> list[tuple[str, str]]:
    """The least certain clock and its evidence, and how many others there are."""
    rows = [("clock", clock_words(steps.clock) + _others(steps))]
    return rows + [("", str(reason)) for reason in steps.clock.evidence]


def clock_words(clock: ClockEvidence) -> str:
    """Method, offset and interval of one clock."""
    if clock.offset_s is None:
        return _NONE if clock.method == "none" else _NOT_ALIGNED
    words = f"{clock.method}, offset {clock.offset_s:g} s, +- {seconds(clock.uncertainty_s)}"
    if clock.low_s is None or clock.high_s is None:
        return words
    return f"{words} ({interval_words(clock)})"


def interval_words(clock: ClockEvidence) -> str:
    """The interval that the offset lies in, "not known" where there is none."""
    if clock.low_s is None or clock.high_s is None:
        return "not known"
    return range_words(clock.low_s, clock.high_s)


def _others(steps: Steps) -> str:
    if len(steps.clocks) < 2:
        return ""
    lost = sum(c.offset_s is None for c in steps.clocks)
    unsure = f", {count(lost)} of them not aligned" if lost else ""
    return f"; the least certain of {count(len(steps.clocks))}{unsure}"
