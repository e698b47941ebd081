"""How each profile's clock was put on that of the logs, and on what evidence."""

from __future__ import annotations

from vanidl.analyses.steps import ClockEvidence, LogClock
from vanidl.figures.downsample import n_of_m
from vanidl.figures.figure import Column, Figure, Table
from vanidl.formatting.names import elided
from vanidl.run import Run
from vanidl.sections.section import Section
from vanidl.wording.clock import alone, clock_words, interval_words, log_words

LIMIT = 100
_CAPTION = (
    "An offset is added to a profile's times to lay its steps over the I/O. The true one lies in "
    "the interval that all evidence leaves open, and what rests on both clocks is as uncertain. "
    "Evidence that contradicts itself is a warning. "
)
_FORKED = (
    "Logs of forked processes have offsets of their own: Darshan takes their start late, by an "
    "amount that it does not record. "
)

_ALONE = "Only profiles were recorded: there is no log that their clocks have to agree with."


def figure(run: Run) -> Figure:
    """Method, offset, interval and evidence of the clock of every profile."""
    title = "Clocks of profiles and logs"
    steps = run.steps
    if steps is None or not steps.clocks:
        reason = (
            "The steps have durations and no times: no clock had to be put on that of the logs."
        )
        known = steps is not None
        return Figure("clocks", "Coverage", title, "", empty_reason=reason, applies=known)
    if all(alone(clock) for clock in steps.clocks) and not steps.log_clocks:
        return Figure("clocks", "Coverage", title, _ALONE)
    shown = sorted(steps.clocks, key=_certainty)[:LIMIT]
    logs = sorted(steps.log_clocks, key=lambda clock: -clock.uncertainty_s)[:LIMIT]
    words = f"The least certain: {'; '.join([clock_words(steps.clock), *log_words(steps)])}."
    rows = tuple(row for clock in shown for row in _rows(clock))
    rows += tuple(row for clock in logs for row in _rows(clock))
    every = len(steps.clocks) + len(steps.log_clocks)
    table = Table(_COLUMNS, rows, n_of_m(len(shown) + len(logs), every, "clocks"))
    caption = _CAPTION + (_FORKED if steps.log_clocks else "") + words
    return Figure("clocks", "Coverage", title, caption, table=table)


_COLUMNS = (Column("profile or log of"), Column("evidence"), Column("offset in"), Column("why"))


def _certainty(clock: ClockEvidence) -> tuple[bool, float]:
    """What is not aligned first, then the least certain."""
    return clock.uncertainty_s is not None, -(clock.uncertainty_s or 0.0)


def _rows(clock: ClockEvidence | LogClock) -> list[tuple[str, ...]]:
    """What all evidence together leaves open, then each kind of it."""
    label, file = elided(clock.label, limit=80), elided(clock.path.rsplit("/", 1)[-1], limit=80)
    together = "not aligned" if clock.offset_s is None else "all together"
    rows: list[tuple[str, ...]] = [(label, together, interval_words(clock), file)]
    rows += [
        (label, reason.method, reason.offsets, elided(reason.reason, limit=500))
        for reason in clock.evidence
    ]
    return rows


SECTION = Section("clocks", (figure,), traced=False)
