"""How a fleet went on: hours of input and share of I/O by day, and what changed by week."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, timedelta

import numpy as np
from numpy.typing import NDArray

from vanidl.figures import palette
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.names import elided
from vanidl.formatting.units import Amount, Cell, number, percent, plural
from vanidl.survey.fleet import NO_DAY, Fleet, label_texts, pick_hours, select_with_input
from vanidl.survey.groups import GROUPS

SECTION = "Over time"
MOST_DAYS = 400
MOST_POINTS = 5000


def _split_by_day(jobs: Fleet) -> tuple[Fleet, list[str], NDArray[np.intp]]:
    """(jobs of a known day, the days in order, index of the day of each job)."""
    days = jobs.days()
    found, day = np.unique(days[days != NO_DAY], return_inverse=True)
    names = [str(date.fromordinal(ordinal)) for ordinal in found.tolist()]
    return jobs.only(days != NO_DAY), names, day


def draw_input_by_day(jobs: Fleet) -> Figure:
    """Hours of input by the day on which jobs started."""
    title = "Input by day"
    known = select_with_input(jobs)
    hours = pick_hours(known)
    dated, names, day = _split_by_day(known)
    if not names:
        return Figure("input-trend", SECTION, title, "", empty_reason="No job counted its reads.")
    # The last days, where there are more than a table holds.
    sums = np.bincount(day, hours.input(dated)).tolist()
    lines = tuple(zip(names, sums, np.bincount(day).tolist(), strict=True))[-MOST_DAYS:]
    columns = (Column("day"), Column(f"input ({hours.noun} h)", "number"), Column("jobs", "count"))
    caption = f"Hours of {hours.noun}s in reads of the dataset, by the day on which jobs started."
    # A bar a day, and in words the day with most.
    most = max(lines, key=lambda line: line[1])
    alt_text = f"Most on {most[0]}: {number(most[1])} {hours.noun} h of {plural(most[2], 'job')}."
    unit = f"{hours.noun} h"
    spec = {
        "data": [
            {
                "type": "bar",
                "x": [day for day, _, _ in lines],
                "y": [hours for _, hours, _ in lines],
                "customdata": [f"{number(hours)} {unit} of {plural(jobs, 'job')}"
                               for _, hours, jobs in lines],
                "marker": palette.fill(palette.IN_WAIT),
                "hovertemplate": "%{x}: %{customdata}<extra></extra>",
            }
        ],
        "layout": palette.layout(
            260, xaxis=palette.axis(type="date"), yaxis=palette.axis(unit, rangemode="tozero")
        ),
    }  # fmt: skip
    return Figure(
        "input-trend", SECTION, title, caption, spec, Table(columns, lines), alt_text=alt_text
    )


def draw_share_by_day(jobs: Fleet) -> Figure:
    """A point per day: medians do not move with the number of jobs."""
    title = "Share of I/O by day"
    dated, names, day = _split_by_day(jobs.only(jobs.known("io_share")))
    if not names:
        reason = "No job has a trace of its operations."
        return Figure("trend", SECTION, title, "", empty_reason=reason)
    # The median of each day, and the time that all ranks spent.
    # The median of each day's values.
    values = dated.numbers("io_share")
    order = np.argsort(day, kind="stable")
    borders = np.flatnonzero(np.diff(day[order])) + 1
    shares = [float(np.median(some)) for some in np.split(values[order], borders)]
    many = np.bincount(day).tolist()
    rank_time_s = np.bincount(day, dated.numbers("ranks") * dated.numbers("io_per_rank_mean_s"))
    caption = "Median over the jobs that started that day (UTC) of the share of time in I/O."
    # The curve, its table and its alt text.
    spec: Spec = {
        "data": [
            {
                "type": "scatter",
                "mode": "lines+markers",
                "x": names,
                "y": shares,
                "customdata": [plural(jobs, "job") for jobs in many],
                "line": {"color": palette.READ},
                "hovertemplate": "%{x}: %{y:.1%}, median of %{customdata}<extra></extra>",
            }
        ],
        "layout": palette.layout(
            260, xaxis=palette.axis(type="date"), yaxis=palette.axis("share", tickformat=".0%")
        ),
    }
    columns = (Column("day"), Column("jobs", "count"), Column("median share", "share"),
               Column("rank time in I/O", "s"))  # fmt: skip
    rows = tuple(zip(names, many, shares, rank_time_s.tolist(), strict=True))
    ends = [f"{percent(shares[at])} on {names[at]}" for at in (0, -1)]
    alt_text = f"From {' to '.join(ends)}." if len(names) > 1 else f"{ends[0]}."
    table = Table(columns, rows[-MOST_POINTS:])
    return Figure("trend", SECTION, title, caption, spec, table, alt_text=alt_text)


DAYS = 7
MOST_CHANGES = 5  # of users, of commands, of file systems and of findings


def draw_changes(jobs: Fleet) -> Figure:
    """The last seven days that jobs started on beside the seven before."""
    title = "The last week and the one before"
    # The two weeks that end with the last day on which a job started.
    days = jobs.days()
    last = int(days.max(initial=NO_DAY))
    now, before = (jobs.only(_is_in_week(days, last - DAYS * weeks)) for weeks in (0, 1))
    if not len(before):
        reason = "No job started in the week before the last one."
        return Figure("changes", SECTION, title, "", empty_reason=reason)
    # What changed: totals, then users, commands and file systems, then findings.
    hours = pick_hours(jobs.only(_is_in_week(days, last) | _is_in_week(days, last - DAYS)))
    values: tuple[tuple[str, Callable[[Fleet], float | None], str], ...] = (
        ("jobs", len, "count"),
        ("jobs not read", lambda jobs: int(jobs.known("problem").sum()), "count"),
        (f"run time ({hours.noun} h)", lambda jobs: sum(hours.all(jobs).tolist()), "number"),
        (f"input ({hours.noun} h)",
         lambda jobs: sum(hours.input(select_with_input(jobs)).tolist()), "number"),
        ("median share of I/O", _compute_median_share, "share"),
        ("read", lambda jobs: sum(jobs.values("storage_bytes_read")), "bytes"),
    )  # fmt: skip
    lines = [(name, "all jobs", of(now), of(before), unit) for name, of, unit in values]
    weeks = [select_with_input(week) for week in (now, before)]
    for _, noun, parts in GROUPS:
        by_part = [parts(week).by_name(hours.input(week)) for week in weeks]
        what = f"input by {noun} ({hours.noun} h)"
        lines += [(what, *line, "number") for line in _find_most_changed(*by_part)]
    by_finding = [_count_jobs_by_finding(week) for week in (now, before)]
    lines += [("jobs with finding", *line, "count") for line in _find_most_changed(*by_finding)]
    table = Table(
        (Column("what"), Column("of"), Column("last week"), Column("week before"),
         Column("change")),
        tuple((what, elided(whose, limit=60), Amount(a, unit), Amount(b, unit),
               _compute_change(a, b))
              for what, whose, a, b, unit in lines),
    )  # fmt: skip
    day = date.fromordinal(last)
    caption = (
        f"Jobs that started from {day - timedelta(DAYS - 1)} to {day} (UTC) and in the seven "
        f"days before; of users, commands, file systems and findings the {MOST_CHANGES} that "
        "changed most."
    )
    return Figure("changes", SECTION, title, caption, table=table)


def _is_in_week(days: NDArray[np.int64], last: int) -> NDArray[np.bool_]:
    """Whether a day is known and one of the week that ends with the last one."""
    found: NDArray[np.bool_] = (days != NO_DAY) & (days > last - DAYS) & (days <= last)
    return found


def _compute_median_share(jobs: Fleet) -> float | None:
    known = jobs.values("io_share")
    return float(np.median(known)) if known else None


def _count_jobs_by_finding(jobs: Fleet) -> dict[str, int]:
    code, names = label_texts(jobs.items("finding_codes")[1], str)
    return dict(zip(names, np.bincount(code, minlength=len(names)).tolist(), strict=True))


def _find_most_changed(
    now: Mapping[str, float], before: Mapping[str, float]
) -> list[tuple[str, float, float]]:
    both = [(name, now.get(name, 0), before.get(name, 0)) for name in {*now, *before}]
    moved = [line for line in both if line[1] != line[2]]
    return sorted(moved, key=lambda line: (-abs(line[1] - line[2]), line[0]))[:MOST_CHANGES]


def _compute_change(now: float | None, before: float | None) -> Cell:
    """The difference; as a ratio where both weeks have some."""
    if now is None or before is None:
        return None
    if before and now:
        return Amount(now / before, "relative")
    return "equal" if now == before else "new" if not before else "gone"
