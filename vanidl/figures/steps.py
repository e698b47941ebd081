"""How long each training step took, and how much of it was waiting for input."""

from __future__ import annotations

import numpy as np

from vanidl.analyses import Results
from vanidl.analyses.steps import StepTable
from vanidl.figures import palette
from vanidl.figures.cutting import rounded
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.figures.stepspans import ShownSteps, shown_steps
from vanidl.report.units import seconds
from vanidl.trace import Trace

TABLE_LIMIT = 500
_BARS = (
    "One bar a step, as wide as it lasted and as high: orange is the input wait, grey the rest. "
)
_DOTS = "One dot a step and rank: grey its duration, orange the input wait in it. "
_CAPTION = (
    "Steps that start late in an epoch or after a checkpoint stand out; even orange from start "
    "to end means that the loader cannot keep up."
)


def figure(trace: Trace, results: Results) -> Figure:
    """Duration and input wait of the profiled steps over time."""
    steps = results.steps
    if steps is None or len(steps.table.step) == 0:
        reason = (
            "No training step was recorded. Profile with torch.profiler and call prof.step() "
            "after each batch."
        )
        return Figure("steps", "Input and compute", "Training steps", "", empty_reason=reason)
    shown = shown_steps(steps.table)
    single = len(shown.ranks) == 1
    words = [(_BARS if single else _DOTS) + _CAPTION]
    if np.isnan(steps.table.input_wait_s[shown.rows]).all():
        words.append("Input wait was not recorded: that is unknown, not zero.")
    words += [f"Shown: {shown.cut}."] if shown.cut else []
    spec = (_bars if single else _dots)(steps.table, shown.rows)
    table = _table(trace, steps.table, shown) if len(shown.rows) <= TABLE_LIMIT else None
    return Figure("steps", "Input and compute", "Training steps", " ".join(words), spec, table)


def _bars(table: StepTable, rows: np.ndarray) -> Spec:
    length = table.end_s[rows] - table.start_s[rows]
    waits = table.input_wait_s[rows]
    rest = length - np.nan_to_num(waits)
    middle = np.round(table.start_s[rows] + length / 2, 6).tolist()
    data = [
        _column("input wait", palette.IN_WAIT, middle, waits, length),
        _column("rest of the step", palette.STEP, middle, rest, length),
    ]
    for trace in data:
        trace["customdata"] = _hover(table, rows)
    return {"data": data, "layout": _layout(barmode="stack")}


def _column(
    name: str, colour: str, middle: list[float], values: np.ndarray, width: np.ndarray
) -> Spec:
    return {
        "type": "bar",
        "name": name,
        "x": middle,
        "y": rounded(values),
        "width": rounded(width * 0.94),
        "marker": {"color": colour, "line": {"width": 0}},
        "hovertemplate": "%{customdata}<extra>" + name + "</extra>",
    }


def _dots(table: StepTable, rows: np.ndarray) -> Spec:
    starts = np.round(table.start_s[rows], 6).tolist()
    series = (
        ("step", palette.STEP, "circle", table.end_s[rows] - table.start_s[rows]),
        ("input wait", palette.IN_WAIT, "triangle-up", table.input_wait_s[rows]),
    )
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": starts,
            "y": rounded(values),
            "customdata": _hover(table, rows),
            "marker": {"color": colour, "symbol": symbol, "size": 5},
            "hovertemplate": "%{customdata}<extra>" + name + "</extra>",
        }
        for name, colour, symbol, values in series
    ]
    return {"data": data, "layout": _layout()}


def _hover(table: StepTable, rows: np.ndarray) -> list[str]:
    length = (table.end_s - table.start_s)[rows]
    return [
        f"step {int(k)}: {seconds(float(s))}, waited {seconds(float(w))}"
        for k, s, w in zip(table.step[rows], length, table.input_wait_s[rows], strict=True)
    ]


def _layout(**more: object) -> Spec:
    return palette.layout(
        300,
        dragmode="zoom",
        xaxis=palette.axis("seconds since the start of the job", showgrid=False),
        yaxis=palette.axis("seconds", rangemode="tozero", fixedrange=True),
        **more,
    )


def _table(trace: Trace, table: StepTable, shown: ShownSteps) -> Table:
    columns = (
        Column("rank"),
        Column("step", "count"),
        Column("start", "s"),
        Column("duration", "s"),
        Column("input wait", "s"),
        Column("time in I/O", "s"),
    )
    labels = [trace.processes[process].label for process in trace.ranks]
    rows = tuple(
        (
            labels[int(table.rank[i])],
            int(table.step[i]),
            float(table.start_s[i]),
            float(table.end_s[i] - table.start_s[i]),
            _known(table.input_wait_s[i]),
            _known(table.busy_s[i]),
        )
        for i in shown.rows
    )
    return Table(columns, rows, shown.cut)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
