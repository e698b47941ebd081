"""Where the I/O of each side went: waited for, hidden, or neither."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vanidl.breakdown.overlap import RankOverlap
from vanidl.compare import Comparison, Side
from vanidl.compare.figures.sides import named
from vanidl.figures import palette
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.units import seconds
from vanidl.sections.overlap import PARTS, Part, drawn_parts, draws_waits, meanings, wait_words

_CAPTION = "Time in I/O of each side, mean over ranks and runs."
_COLUMNS = (
    ("window_s", "window"),
    ("io_s", "I/O"),
    *((attribute, name) for attribute, name, _, _ in PARTS),
    ("exposed_s", "exposed"),
    ("compute_s", "compute"),
    ("input_wait_s", "input wait"),
    ("input_wait_io_s", "of it I/O"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds of one side; None where a run did not record them."""

    side: Side
    seconds: dict[str, float | None]


def figure(comparison: Comparison) -> Figure:
    """One stacked bar a side."""
    rows = [Row(side, _means(side)) for side in comparison.sides]
    table = Table(
        (Column("side"), *(Column(title, "s") for _, title in _COLUMNS)),
        tuple((r.side.letter, *(r.seconds[name] for name, _ in _COLUMNS)) for r in rows),
    )
    drawn = [row for row in rows if row.seconds["io_s"] is not None]
    if not drawn:
        reason = "No side has both profiled steps and I/O operations traced one by one."
        return _record("", table=table, reason=reason)
    missing = [row.side.letter for row in rows if row not in drawn]
    note = f" Not recorded: {', '.join(missing)}." if missing else ""
    parts = _drawn(drawn)
    words = f"{_CAPTION} {meanings(parts)}{wait_words(parts, _values(drawn))}{note}"
    return _record(words, spec=_spec(drawn), table=table)


def _record(
    caption: str, *, spec: Spec | None = None, table: Table | None = None, reason: str = ""
) -> Figure:
    title = "Is the I/O hidden or exposed?"
    return Figure("overlap", "Input and compute", title, caption, spec, table, reason)


def _means(side: Side) -> dict[str, float | None]:
    """The mean over the runs of each quantity; None where any run did not record it."""
    found = [
        sample.account.overlap.mean
        for sample in side.samples
        if sample.account is not None and sample.account.overlap is not None
    ]
    return {name: _mean(found, name) for name, _ in _COLUMNS}


def _mean(rows: list[RankOverlap], name: str) -> float | None:
    values = [getattr(row, name) for row in rows]
    return sum(values) / len(values) if values and None not in values else None


def _spec(rows: list[Row]) -> Spec:
    labels = [named(row.side, limit=22) for row in rows]
    data = [_bars(rows, part) for part in _drawn(rows)]
    data += [_waits(rows)] if draws_waits(_values(rows)) else []
    layout = palette.layout(
        120 + 48 * len(rows),
        barmode="stack",
        bargap=0.35,
        xaxis=palette.axis(ticksuffix=" s", rangemode="tozero", fixedrange=True),
        yaxis=palette.axis(
            tickvals=list(range(len(rows))),
            ticktext=labels,
            range=[len(rows) - 0.5, -0.5],
            showgrid=False,
            fixedrange=True,
        ),
    )
    return {"data": data, "layout": layout}


def _drawn(rows: list[Row]) -> list[Part]:
    return drawn_parts(_values(rows))


def _values(rows: list[Row]) -> Callable[[str], list[float | None]]:
    return lambda name: [row.seconds[name] for row in rows]


def _bars(rows: list[Row], part: Part) -> Spec:
    attribute, name, colour, pattern = part
    values = [row.seconds[attribute] for row in rows]
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "x": values,
        "y": list(range(len(rows))),
        "customdata": _hover(rows, values),
        "marker": palette.fill(colour, pattern),
        "hovertemplate": "%{customdata} " + name + "<extra></extra>",
    }


def _waits(rows: list[Row]) -> Spec:
    values = [row.seconds["input_wait_s"] for row in rows]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "whole input wait",
        "x": values,
        "y": list(range(len(rows))),
        "customdata": _hover(rows, values),
        "marker": {"symbol": "diamond-open", "size": 9, "color": palette.INK},
        "hovertemplate": "%{customdata} waited in all<extra></extra>",
    }


def _hover(rows: list[Row], values: list[float | None]) -> list[str]:
    return [f"{row.side.letter}: {seconds(v)}" for row, v in zip(rows, values, strict=True)]
