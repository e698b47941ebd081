"""What changed since the week before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, timedelta

import numpy as np
from numpy.typing import NDArray

from vanidl.figures.figure import Column, Figure, Table
from vanidl.formatting.names import elided
from vanidl.formatting.units import Amount, Cell
from vanidl.survey.days import SECTION
from vanidl.survey.fleet import NO_DAY, Fleet, labelled
from vanidl.survey.groups import GROUPS
from vanidl.survey.hours import HoursOf, hours_of, with_input

DAYS = 7
MOST_CHANGES = 5  # of users, of commands, of file systems and of findings

_Lines = list[tuple[str, str, float | None, float | None, str]]
"""What, whose, in the last week, in the one before, unit."""


def changes_figure(jobs: Fleet) -> Figure:
    """The last seven days that jobs started on beside the seven before."""
    title = "The last week and the one before"
    days = jobs.days()
    last = int(days.max(initial=NO_DAY))
    now, before = (jobs.only(_in_week(days, last - DAYS * weeks)) for weeks in (0, 1))
    if not len(before):
        reason = "No job started in the week before the last one."
        return Figure("changes", SECTION, title, "", empty_reason=reason)
    hours = hours_of(jobs.only(_in_week(days, last) | _in_week(days, last - DAYS)))
    lines = _totals(now, before, hours) + _movers(now, before, hours) + _findings(now, before)
    table = Table(
        (Column("what"), Column("of"), Column("last week"), Column("week before"),
         Column("change")),
        tuple((what, elided(whose, limit=60), Amount(a, unit), Amount(b, unit), _change(a, b))
              for what, whose, a, b, unit in lines),
    )  # fmt: skip
    day = date.fromordinal(last)
    caption = (
        f"Jobs that started from {day - timedelta(DAYS - 1)} to {day} (UTC) and in the seven "
        f"days before; of users, commands, file systems and findings the {MOST_CHANGES} that "
        "changed most."
    )
    return Figure("changes", SECTION, title, caption, table=table)


def _in_week(days: NDArray[np.int64], last: int) -> NDArray[np.bool_]:
    """Whether a day is known and one of the week that ends with the last one."""
    found: NDArray[np.bool_] = (days != NO_DAY) & (days > last - DAYS) & (days <= last)
    return found


def _totals(now: Fleet, before: Fleet, hours: HoursOf) -> _Lines:
    values: tuple[tuple[str, Callable[[Fleet], float | None], str], ...] = (
        ("jobs", len, "count"),
        ("jobs not read", lambda jobs: int(jobs.known("problem").sum()), "count"),
        (f"run time ({hours.noun} h)", lambda jobs: sum(hours.all(jobs).tolist()), "number"),
        (f"input ({hours.noun} h)",
         lambda jobs: sum(hours.input(with_input(jobs)).tolist()), "number"),
        ("median share of I/O", _median_share, "share"),
        ("read", lambda jobs: sum(jobs.values("storage_bytes_read")), "bytes"),
    )  # fmt: skip
    return [(name, "all jobs", of(now), of(before), unit) for name, of, unit in values]


def _median_share(jobs: Fleet) -> float | None:
    known = jobs.values("io_share")
    return float(np.median(known)) if known else None


def _movers(now: Fleet, before: Fleet, hours: HoursOf) -> _Lines:
    lines: _Lines = []
    weeks = [with_input(week) for week in (now, before)]
    for _, noun, parts in GROUPS:
        sums = [parts(week).by_name(hours.input(week)) for week in weeks]
        what = f"input by {noun} ({hours.noun} h)"
        lines += [(what, *line, "number") for line in _most_changed(*sums)]
    return lines


def _findings(now: Fleet, before: Fleet) -> _Lines:
    sums = [_jobs_by_finding(week) for week in (now, before)]
    return [("jobs with finding", *line, "count") for line in _most_changed(*sums)]


def _jobs_by_finding(jobs: Fleet) -> dict[str, int]:
    code, names = labelled(jobs.items("finding_codes")[1], str)
    return dict(zip(names, np.bincount(code, minlength=len(names)).tolist(), strict=True))


def _most_changed(
    now: Mapping[str, float], before: Mapping[str, float]
) -> list[tuple[str, float, float]]:
    both = [(name, now.get(name, 0), before.get(name, 0)) for name in {*now, *before}]
    moved = [line for line in both if line[1] != line[2]]
    return sorted(moved, key=lambda line: (-abs(line[1] - line[2]), line[0]))[:MOST_CHANGES]


def _change(now: float | None, before: float | None) -> Cell:
    """The difference; as a ratio where both weeks have some."""
    if now is None or before is None:
        return None
    if before and now:
        return Amount(now / before, "relative")
    return "equal" if now == before else "new" if not before else "gone"
