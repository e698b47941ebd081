"""What changed since the week before."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta

import numpy as np

from vanidl.figures.figure import Column, Figure, Table
from vanidl.formatting.names import elided
from vanidl.formatting.units import Amount, Cell
from vanidl.survey.days import SECTION, day_of
from vanidl.survey.groups import GROUPS
from vanidl.survey.hours import HoursOf, hours_of, with_input
from vanidl.survey.rows import Row

DAYS = 7
MOST_CHANGES = 5  # of users, of commands, of file systems and of findings

_Lines = list[tuple[str, str, float | None, float | None, str]]
"""What, whose, in the last week, in the one before, unit."""


def changes_figure(rows: Sequence[Row]) -> Figure:
    """The last seven days that jobs started on beside the seven before."""
    title = "The last week and the one before"
    days = [day for row in rows if (day := day_of(row))]
    now, before = (_between(rows, max(days, default=date.min), weeks) for weeks in (0, 1))
    if not before:
        reason = "No job started in the week before the last one."
        return Figure("changes", SECTION, title, "", empty_reason=reason)
    hours = hours_of([*now, *before])
    lines = _totals(now, before, hours) + _movers(now, before, hours) + _findings(now, before)
    table = Table(
        (Column("what"), Column("of"), Column("last week"), Column("week before"),
         Column("change")),
        tuple((what, elided(whose, limit=60), Amount(a, unit), Amount(b, unit), _change(a, b))
              for what, whose, a, b, unit in lines),
    )  # fmt: skip
    last = max(days)
    caption = (
        f"Jobs that started from {last - timedelta(DAYS - 1)} to {last} (UTC) and in the seven "
        f"days before; of users, commands, file systems and findings the {MOST_CHANGES} that "
        "changed most."
    )
    return Figure("changes", SECTION, title, caption, table=table)


def _between(rows: Sequence[Row], last: date, weeks: int) -> list[Row]:
    """Jobs of the week that ended so many weeks before the last day."""
    if last == date.min:
        return []
    days = {last - timedelta(n) for n in range(DAYS * weeks, DAYS * (weeks + 1))}
    return [row for row in rows if day_of(row) in days]


def _totals(now: Sequence[Row], before: Sequence[Row], hours: HoursOf) -> _Lines:
    share = _median("io_share")
    values: tuple[tuple[str, Callable[[Sequence[Row]], float | None], str], ...] = (
        ("jobs", len, "count"),
        ("jobs not read", lambda some: sum(row["problem"] is not None for row in some), "count"),
        (f"run time ({hours.noun} h)", lambda some: sum(map(hours.all, some)), "number"),
        (f"input ({hours.noun} h)", lambda some: sum(map(hours.input, with_input(some))), "number"),
        ("median share of I/O", share, "share"),
        ("read", lambda some: sum(row["storage_bytes_read"] or 0 for row in some), "bytes"),
    )
    return [(name, "all jobs", of(now), of(before), unit) for name, of, unit in values]


def _median(name: str) -> Callable[[Sequence[Row]], float | None]:
    def of(rows: Sequence[Row]) -> float | None:
        known = [row[name] for row in rows if row[name] is not None]
        return float(np.median(known)) if known else None

    return of


def _movers(now: Sequence[Row], before: Sequence[Row], hours: HoursOf) -> _Lines:
    lines: _Lines = []
    for _, noun, parts in GROUPS:
        sums: list[defaultdict[str, float]] = [defaultdict(float), defaultdict(float)]
        for week, found in zip((now, before), sums, strict=True):
            for row in with_input(week):
                for name, share in parts(row):
                    found[name] += share * hours.input(row)
        what = f"input by {noun} ({hours.noun} h)"
        lines += [(what, *line, "number") for line in _most_changed(*sums)]
    return lines


def _findings(now: Sequence[Row], before: Sequence[Row]) -> _Lines:
    sums = [
        Counter(c for row in week for c in row["finding_codes"] or ()) for week in (now, before)
    ]
    return [("jobs with finding", *line, "count") for line in _most_changed(*sums)]


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
