"""How the clocks of profiles and logs agree, in words."""

from __future__ import annotations

from vanidl.analyses.profiled_steps import ClockEvidence, LogClock, Steps
from vanidl.formatting.units import count, offset, plural, range_words, seconds

_NONE = "none: durations without start times, so no overlap is claimed"
_ALONE = "the profile's own: there is no log that it has to agree with"
_NOT_ALIGNED = (
    "not aligned: how it and that of the logs differ is not known, so no overlap is claimed"
)


def clock_pairs(steps: Steps) -> list[tuple[str, str]]:
    """The least certain clock and its evidence, and how many others there are."""
    rows = [("clock", clock_words(steps.clock) + _others(steps))]
    rows += [("", str(reason)) for reason in steps.clock.evidence if not alone(steps.clock)]
    return rows + [("clocks of logs", words) for words in log_words(steps)]


def log_words(steps: Steps) -> list[str]:
    """How late the logs of forked processes were taken to be, in one sentence; none: nothing."""
    if not steps.log_clocks:
        return []
    least = max(steps.log_clocks, key=lambda clock: clock.uncertainty_s)
    offsets = [clock.offset_s for clock in steps.log_clocks]
    return [
        f"{plural(len(offsets), 'log')} of forked processes, moved by "
        f"{range_words(min(offsets), max(offsets))}, each by its own; the least certain to "
        f"± {seconds(least.uncertainty_s)} ({range_words(least.low_s, least.high_s)})"
    ]


def clock_words(clock: ClockEvidence) -> str:
    """Method, offset and interval of one clock."""
    if clock.offset_s is None:
        return _NONE if clock.method == "none" else _NOT_ALIGNED
    if alone(clock):
        return _ALONE
    words = f"{clock.method}, offset {offset(clock.offset_s)}, ± {seconds(clock.uncertainty_s)}"
    if clock.low_s is None or clock.high_s is None:
        return words
    return f"{words} ({interval_words(clock)})"


def alone(clock: ClockEvidence) -> bool:
    """Whether nothing was recorded beside the profile that its clock could differ from."""
    measured = (clock.offset_s, clock.low_s, clock.high_s)
    return measured == (0.0, 0.0, 0.0) and not any(reason.offsets for reason in clock.evidence)


def interval_words(clock: ClockEvidence | LogClock) -> str:
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
