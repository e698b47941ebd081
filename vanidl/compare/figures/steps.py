"""Where the I/O of each side went, and how its step times are spread, on the same axes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.compare import Comparison, Side
from vanidl.compare.figures import colour, named
from vanidl.figures import palette
from vanidl.figures.downsample import round_values
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.units import Cell, count, percent, plural, seconds
from vanidl.schema.dataclass import dataclass
from vanidl.sections.overlap import (
    OVERLAP_PARTS,
    choose_parts,
    draw_bars,
    explain_parts,
    explain_waits,
)

# Where the I/O of each side went: waited for, hidden, or neither.

_OVERLAP_CAPTION = "Time in I/O of each side, mean over ranks and runs."
_COLUMNS = (
    ("window_s", "window"),
    ("io_s", "I/O"),
    *((attribute, name) for attribute, name, _, _ in OVERLAP_PARTS),
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


def draw_overlap(comparison: Comparison) -> Figure:
    """One stacked bar a side."""
    rows = [Row(side, _average_runs(side)) for side in comparison.sides]
    table = Table(
        (Column("side"), *(Column(title, "s") for _, title in _COLUMNS)),
        tuple((r.side.letter, *(r.seconds[name] for name, _ in _COLUMNS)) for r in rows),
    )
    drawn = [row for row in rows if row.seconds["io_s"] is not None]
    if not drawn:
        reason = "No side has both profiled steps and I/O operations traced one by one."
        return _compose_overlap("", table=table, reason=reason)
    # Sides without recorded operations are named: an empty bar would read as no I/O.
    missing = [row.side.letter for row in rows if row not in drawn]
    note = f" Not recorded: {', '.join(missing)}." if missing else ""

    def values(name: str) -> list[float | None]:
        return [row.seconds[name] for row in drawn]

    parts = choose_parts(values)
    words = f"{_OVERLAP_CAPTION} {explain_parts(parts)}{explain_waits(parts, values)}{note}"
    labels = [named(row.side, limit=22) for row in drawn]
    spec = draw_bars(values, labels, [row.side.letter for row in drawn], 120 + 48 * len(drawn))
    return _compose_overlap(words, spec=spec, table=table)


def _compose_overlap(
    caption: str, *, spec: Spec | None = None, table: Table | None = None, reason: str = ""
) -> Figure:
    title = "Is the I/O hidden or exposed?"
    return Figure("overlap", "Input and compute", title, caption, spec, table, reason)


def _average_runs(side: Side) -> dict[str, float | None]:
    """The mean over the runs of each quantity; None where any run did not record it."""
    rows = [
        sample.account.overlap.mean
        for sample in side.samples
        if sample.account is not None and sample.account.overlap is not None
    ]
    means: dict[str, float | None] = {}
    for name, _ in _COLUMNS:
        values = [getattr(row, name) for row in rows]
        means[name] = sum(values) / len(values) if values and None not in values else None
    return means


BINS = 80  # of a histogram
REACH = 12  # times the largest median: longer steps are counted in the last bar
_STEPS_CAPTION = (
    "Share of the steps of each side, all runs and ranks, by how long they took. The dashed line "
    "is their mean. A tail to the right is a few steps that wait much longer than the rest."
)


def draw_steps(comparison: Comparison) -> Figure:
    """A histogram of step times for each side."""
    times = [(side, step_times(side)) for side in comparison.sides]
    known = [(side, values) for side, values in times if len(values)]
    if not known:
        reason = "No training step was recorded on any side. Profile with torch.profiler."
        return _compose_steps("", reason=reason)

    # Sides without steps are named; all others are drawn over the same edges.
    missing = [side.letter for side, values in times if not len(values)]
    words = [_STEPS_CAPTION, f"Not recorded: {', '.join(missing)}." if missing else ""]
    edges, beyond = _choose_edges(known)
    words.append(f"The last bar holds the {plural(beyond, 'step')} beyond it." if beyond else "")
    # In numbers, all steps of a side: the mean and quantiles.
    columns = (
        Column("side"),
        Column("steps", "count"),
        Column("mean", "s"),
        *(Column(name, "s") for name, _ in _QUANTILES),
    )
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            side.letter,
            len(values),
            float(values.mean()),
            *(float(np.percentile(values, q)) for _, q in _QUANTILES),
        )
        for side, values in known
    )
    return _compose_steps(
        " ".join(word for word in words if word),
        spec=_plot_histograms(comparison, known, edges),
        table=Table(columns, rows),
    )


def _compose_steps(
    caption: str, *, spec: Spec | None = None, table: Table | None = None, reason: str = ""
) -> Figure:
    title = "Step times"
    return Figure("steps", "Input and compute", title, caption, spec, table, reason)


def step_times(side: Side) -> NDArray[np.float64]:
    """Durations in seconds of the steps of all runs and ranks of a side."""
    durations = [
        sample.results.steps.table.duration_s
        for sample in side.samples
        if sample.results is not None and sample.results.steps is not None
    ]
    return np.concatenate(durations) if durations else np.empty(0)


Known = list[tuple[Side, NDArray[np.float64]]]


def _choose_edges(known: Known) -> tuple[NDArray[np.float64], int]:
    """Bounds of the bars, and how many steps lie beyond them."""
    longest = max(float(values.max()) for _, values in known)
    # A single stall would press all other steps into one bar.
    reach = REACH * max(float(np.median(values)) for _, values in known)
    top = min(longest, reach) if reach > 0 else longest
    beyond = sum(int((values > top).sum()) for _, values in known)
    shortest = min(float(values.min()) for _, values in known)
    # From 0 on, unless that leaves more than half of the axis empty.
    low = 0.95 * shortest if shortest > top / 2 else 0.0
    return np.linspace(low, top or 1.0, BINS + 1), beyond


def _plot_histograms(comparison: Comparison, known: Known, edges: NDArray[np.float64]) -> Spec:
    rows = len(known)
    data, layout = [], palette.layout(96 + 130 * rows, bargap=0.06, shapes=[])
    tallest = 0.0
    # Shares, not counts: a side with more runs has no higher bars.
    for row, (side, values) in enumerate(known):
        counts, _ = np.histogram(np.minimum(values, edges[-1]), edges)
        shares = counts / len(values)
        spans = [
            f"{seconds(float(low))} to {seconds(float(high))}: {count(n)} steps ({percent(share)})"
            for low, high, n, share in zip(edges[:-1], edges[1:], counts, shares, strict=True)
        ]
        bars: dict[str, Any] = {
            "type": "bar",
            "name": named(side),
            "x": round_values((edges[:-1] + edges[1:]) / 2),
            "y": round_values(100 * shares),
            "width": float(f"{0.94 * (edges[1] - edges[0]):.4g}"),
            "customdata": spans,
            "marker": palette.fill(colour(comparison, side)),
            "hovertemplate": "%{customdata}<extra>" + side.letter + "</extra>",
        }
        bars["yaxis"] = _name_axis(row)
        tallest = max(tallest, *bars["y"])
        data.append(bars)
        mean = float(values.mean())
        mean_line = {
            "type": "line",
            "x0": mean,
            "x1": mean,
            "y0": 0,
            "y1": 1,
            "yref": f"{_name_axis(row)} domain",
            "line": {"color": palette.INK, "width": 1.5, "dash": "dash"},
        }
        layout["shapes"].append(mean_line)
    # One scale for all sides, or the bars would not compare.
    for row in range(rows):
        layout[_name_axis(row).replace("y", "yaxis")] = palette.axis(
            domain=[1 - (row + 0.88) / rows, 1 - row / rows],
            range=[0, 1.08 * tallest],
            nticks=4,
            ticksuffix=" %",
            fixedrange=True,
        )
    layout["xaxis"] = palette.axis(
        ticksuffix=" s",
        anchor=_name_axis(rows - 1),
        range=[float(edges[0]), float(edges[-1])],
        fixedrange=True,
    )
    return {"data": data, "layout": layout}


def _name_axis(row: int) -> str:
    return f"y{row + 1}" if row else "y"


_QUANTILES = (("shortest", 0), ("10 %", 10), ("median", 50), ("90 %", 90), ("99 %", 99),
              ("longest", 100))  # fmt: skip
