"""How a fleet went on by days: hours of input, share of time in I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import date

import numpy as np

from vanidl.figures import palette
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.units import count, number, percent
from vanidl.survey.hours import hours_of, with_input
from vanidl.survey.rows import Row

SECTION = "Over time"
MOST_DAYS = 400
MOST_POINTS = 5000


def day_of(row: Row) -> date | None:
    """The day, in UTC, on which the job started."""
    try:
        return date.fromisoformat(str(row["start"])[:10])
    except ValueError:
        return None


def _by_day(rows: Sequence[Row]) -> dict[date, list[Row]]:
    """Rows by the day on which their jobs started, in order; those of no known day left out."""
    days: defaultdict[date, list[Row]] = defaultdict(list)
    for row in rows:
        if day := day_of(row):
            days[day].append(row)
    return dict(sorted(days.items()))


def input_by_day(rows: Sequence[Row]) -> Figure:
    """Hours of input by the day on which jobs started."""
    title = "Input by day"
    known = with_input(rows)
    hours = hours_of(known)
    by_day = _by_day(known)
    if not by_day:
        return Figure("input-trend", SECTION, title, "", empty_reason="No job counted its reads.")
    lines = tuple(
        (str(day), sum(map(hours.input, some)), len(some))
        for day, some in list(by_day.items())[-MOST_DAYS:]
    )
    columns = (Column("day"), Column(f"input ({hours.noun} h)", "number"), Column("jobs", "count"))
    caption = f"Hours of {hours.noun}s in reads of the dataset, by the day on which jobs started."
    most = max(lines, key=lambda line: line[1])
    alt_text = f"Most on {most[0]}: {number(most[1])} {hours.noun} h of {count(most[2])} jobs."
    spec = _bars(lines, f"{hours.noun} h")
    return Figure(
        "input-trend", SECTION, title, caption, spec, Table(columns, lines), alt_text=alt_text
    )


def _bars(lines: Sequence[tuple[str, float, int]], unit: str) -> Spec:
    return {
        "data": [
            {
                "type": "bar",
                "x": [day for day, _, _ in lines],
                "y": [hours for _, hours, _ in lines],
                "customdata": [f"{number(hours)} {unit} of {count(jobs)} jobs"
                               for _, hours, jobs in lines],
                "marker": palette.fill(palette.IN_WAIT),
                "hovertemplate": "%{x}: %{customdata}<extra></extra>",
            }
        ],
        "layout": palette.layout(
            260, xaxis=palette.axis(type="date"), yaxis=palette.axis(unit, rangemode="tozero")
        ),
    }  # fmt: skip


def share_by_day(read: Sequence[Row]) -> Figure:
    """A point per day: medians do not move with the number of jobs."""
    title = "Share of I/O by day"
    by_day = _by_day([row for row in read if row["io_share"] is not None])
    if not by_day:
        reason = "No job has a trace of its operations."
        return Figure("trend", SECTION, title, "", empty_reason=reason)
    names, groups = [str(day) for day in by_day], list(by_day.values())
    shares = [float(np.median([row["io_share"] for row in some])) for some in groups]
    caption = "Median over the jobs that started that day (UTC) of the share of time in I/O."
    spec: Spec = {
        "data": [_line(names, shares, [f"{len(some)}" for some in groups])],
        "layout": palette.layout(
            260, xaxis=palette.axis(type="date"), yaxis=palette.axis("share", tickformat=".0%")
        ),
    }
    columns = (Column("day"), Column("jobs", "count"), Column("median share", "share"),
               Column("rank time in I/O", "s"))  # fmt: skip
    rows = tuple(
        (day, len(some), share, _rank_time_s(some))
        for day, some, share in zip(names, groups, shares, strict=True)
    )
    alt_text = f"From {percent(shares[0])} on {names[0]} to {percent(shares[-1])} on {names[-1]}."
    table = Table(columns, rows[-MOST_POINTS:])
    return Figure("trend", SECTION, title, caption, spec, table, alt_text=alt_text)


def _line(x: list[str], y: list[float], jobs: list[str]) -> Spec:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": x,
        "y": y,
        "customdata": jobs,
        "line": {"color": palette.READ},
        "hovertemplate": "%{x}: %{y:.1%} of %{customdata} jobs<extra></extra>",
    }


def _rank_time_s(rows: Sequence[Row]) -> float:
    return float(sum(row["ranks"] * row["io_per_rank_mean_s"] for row in rows))
