"""How a fleet went on by days: hours of input, share of time in I/O."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import numpy as np
from numpy.typing import NDArray

from vanidl.figures import palette
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.units import number, percent, plural
from vanidl.survey.fleet import NO_DAY, Fleet
from vanidl.survey.hours import hours_of, with_input

SECTION = "Over time"
MOST_DAYS = 400
MOST_POINTS = 5000


def _by_day(jobs: Fleet) -> tuple[Fleet, list[str], NDArray[np.intp]]:
    """(jobs of a known day, the days in order, index of the day of each job)."""
    days = jobs.days()
    found, day = np.unique(days[days != NO_DAY], return_inverse=True)
    names = [str(date.fromordinal(ordinal)) for ordinal in found.tolist()]
    return jobs.only(days != NO_DAY), names, day


def input_by_day(jobs: Fleet) -> Figure:
    """Hours of input by the day on which jobs started."""
    title = "Input by day"
    known = with_input(jobs)
    hours = hours_of(known)
    dated, names, day = _by_day(known)
    if not names:
        return Figure("input-trend", SECTION, title, "", empty_reason="No job counted its reads.")
    sums = np.bincount(day, hours.input(dated)).tolist()
    lines = tuple(zip(names, sums, np.bincount(day).tolist(), strict=True))[-MOST_DAYS:]
    columns = (Column("day"), Column(f"input ({hours.noun} h)", "number"), Column("jobs", "count"))
    caption = f"Hours of {hours.noun}s in reads of the dataset, by the day on which jobs started."
    most = max(lines, key=lambda line: line[1])
    alt_text = f"Most on {most[0]}: {number(most[1])} {hours.noun} h of {plural(most[2], 'job')}."
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


def share_by_day(jobs: Fleet) -> Figure:
    """A point per day: medians do not move with the number of jobs."""
    title = "Share of I/O by day"
    dated, names, day = _by_day(jobs.only(jobs.known("io_share")))
    if not names:
        reason = "No job has a trace of its operations."
        return Figure("trend", SECTION, title, "", empty_reason=reason)
    shares = _medians(dated.numbers("io_share"), day)
    many = np.bincount(day).tolist()
    rank_time_s = np.bincount(day, dated.numbers("ranks") * dated.numbers("io_per_rank_mean_s"))
    caption = "Median over the jobs that started that day (UTC) of the share of time in I/O."
    spec: Spec = {
        "data": [_line(names, shares, [plural(jobs, "job") for jobs in many])],
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


def _line(x: list[str], y: list[float], jobs: list[str]) -> Spec:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": x,
        "y": y,
        "customdata": jobs,
        "line": {"color": palette.READ},
        "hovertemplate": "%{x}: %{y:.1%}, median of %{customdata}<extra></extra>",
    }


def _medians(values: NDArray[np.float64], day: NDArray[np.intp]) -> list[float]:
    """The median of each day's values."""
    order = np.argsort(day, kind="stable")
    borders = np.flatnonzero(np.diff(day[order])) + 1
    return [float(np.median(some)) for some in np.split(values[order], borders)]
