"""I/O over time above the training steps, on one axis of time."""

from __future__ import annotations

import numpy as np

from vanidl.analyses import Results
from vanidl.analyses.steps import StepTable
from vanidl.analyses.timeline import Timeline
from vanidl.figures import palette
from vanidl.figures.cutting import folded, rates, rounded
from vanidl.figures.figure import Figure, Spec
from vanidl.figures.labels import plotted
from vanidl.figures.stepspans import ShownSteps, shown_steps, shown_waits
from vanidl.report.units import byte_scale, seconds
from vanidl.trace import Trace

BINS = 2048
STEP_WIDTH = 0.97  # of a step is drawn, so that the next one is told apart
_IO_CAPTION = "Bytes per second of the whole job, reads and writes, over seconds since its start."
_STEP_CAPTION = (
    "Below: the training steps of each rank (grey) and the waits for input in them (orange), on "
    "the same axis of time. While a rank is orange its training stands still for "
    "input; while it is plain grey, other work of the step goes on."
)
_STEPS_ALONE = (
    "The training steps of each rank (grey) and the waits for input in them (orange), over seconds "
    "since the start of the job. No single I/O operation was traced."
)
_ZOOM = (
    "Drag sideways to zoom in on a time, here and in the other pictures; double-click to go back."
)


def figure(trace: Trace, results: Results) -> Figure:
    """Bandwidth over time, and steps with their input waits below it."""
    io, steps = results.timeline, results.steps
    if steps is not None and steps.table.undated_s is not None:
        steps = None
    if io is None and steps is None:
        return _record(
            "",
            reason="Neither single operations nor training steps were recorded, so nothing is "
            "known about when the I/O happened. Record with DXT_ENABLE_IO_TRACE=1.",
        )
    if steps is None and io is not None and not (io.bytes_read.any() or io.bytes_written.any()):
        return _record("", reason="No bytes were moved, so there is nothing to show over time.")
    shown = shown_steps(steps.table) if steps else None
    data = _io_traces(io) if io else []
    words = [_IO_CAPTION, _resolution(io)] if io else []
    if steps and shown:
        step_data, cuts = _step_traces(trace, steps.table, shown)
        data += step_data
        words += [_STEP_CAPTION if io else _STEPS_ALONE, *(f"Shown: {cut}." for cut in cuts if cut)]
    layout = _layout(trace, io, steps.table if steps else None, shown)
    return _record(" ".join([*words, _ZOOM]), spec={"data": data, "layout": layout})


def heatmap_note(io: Timeline) -> str:
    """Where the bins of an untraced run come from, "" for a traced one."""
    if io.source != "heatmap":
        return ""
    width = seconds(float(io.edges_s[1] - io.edges_s[0]))
    return (
        f"From Darshan's heat map, bins of {width}: no single operation was traced, so nothing "
        "shorter than a bin can be seen."
    )


def _record(caption: str, *, spec: Spec | None = None, reason: str = "") -> Figure:
    return Figure("timeline", "Over time", "I/O and training steps", caption, spec, None, reason)


def _io_traces(io: Timeline) -> list[Spec]:
    """Two filled step lines; each point holds until the next."""
    divisor, _ = _scale(io)
    areas = [
        area("reads", palette.READ, *_rates(io.edges_s, io.bytes_read, divisor)),
        area("writes", palette.WRITE, *_rates(io.edges_s, io.bytes_written, divisor)),
    ]
    areas[1]["fillpattern"] = {"shape": "/", "size": 6, "solidity": 0.3}
    return areas


def _resolution(io: Timeline) -> str:
    edges, _ = folded(io.edges_s, io.bytes_read[:1], BINS)
    if io.source == "heatmap":
        return heatmap_note(io)
    return f"Each level is the mean over {seconds(float(edges[1] - edges[0]))}."


def _rates(
    edges_s: np.ndarray[tuple[int], np.dtype[np.float64]],
    nbytes: np.ndarray[tuple[int, int], np.dtype[np.int64]],
    divisor: int,
) -> tuple[float, float, list[float | int | None]]:
    """Start, width of a bin, and the rate in each bin with a closing zero."""
    edges, sums = folded(edges_s, nbytes.sum(axis=0, keepdims=True), BINS)
    speed = rates(edges, sums)[0] / divisor
    return float(edges[0]), float(edges[1] - edges[0]), [*rounded(speed), 0]


def _scale(io: Timeline) -> tuple[int, str]:
    edges, read = folded(io.edges_s, io.bytes_read.sum(axis=0, keepdims=True), BINS)
    _, written = folded(io.edges_s, io.bytes_written.sum(axis=0, keepdims=True), BINS)
    return byte_scale(float(rates(edges, np.maximum(read, written)).max(initial=0.0)))


def area(name: str, colour: str, x0: float, dx: float, y: list[float | int | None]) -> Spec:
    """A filled step line; each of the points, `dx` apart from `x0` on, holds until the next."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x0": x0,
        "dx": dx,
        "y": y,
        "line": {"shape": "hv", "width": 1, "color": colour},
        "fill": "tozeroy",
        "hovertemplate": "at %{x:.2f} s: %{y:.4g} %{yaxis.title.text}<extra>" + name + "</extra>",
    }


def _step_traces(
    trace: Trace, table: StepTable, shown: ShownSteps
) -> tuple[list[Spec], tuple[str, str]]:
    """Filled boxes, as wide as they last and no wider, and what to say when hovering."""
    waits = shown_waits(trace, shown.ranks)
    rows = shown.rows
    length = table.duration_s[rows]
    step_lanes = np.searchsorted(shown.ranks, table.rank[rows])
    wait_lanes = np.searchsorted(shown.ranks, waits.rank)
    names = [f"step {int(k)}: {seconds(s)}" for k, s in zip(table.step[rows], length, strict=True)]
    waited = [f"waited {seconds(float(s))}" for s in waits.length_s]
    data = [
        boxes("steps", palette.STEP, (step_lanes, table.start_s[rows], STEP_WIDTH * length)),
        _spots(names, (step_lanes, table.start_s[rows], 1.5 * length)),
    ]
    if len(waits.rank):
        spans = (wait_lanes, waits.start_s, waits.length_s)
        data[1:1] = [boxes("input waits", palette.IN_WAIT, spans)]
        data.append(_spots(waited, spans))
    return data, (shown.cut, waits.cut)


Spans = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Lane, start in seconds and length in seconds."""


def boxes(name: str, colour: str, spans: Spans) -> Spec:
    """One outline around all boxes: thin ones blend instead of growing to a whole pixel."""
    lane, start, length = spans
    gap = np.full(len(lane), np.nan)
    x = np.stack([start, start + length, start + length, start, gap], axis=1)
    y = np.stack([lane - 0.4, lane - 0.4, lane + 0.4, lane + 0.4, gap], axis=1)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [None if np.isnan(v) else v for v in np.round(x, 5).ravel().tolist()],
        "y": rounded(y.ravel()),
        "yaxis": "y2",
        "line": {"width": 0, "simplify": False, "color": colour},
        "fill": "toself",
        "fillcolor": colour,
        "hoverinfo": "skip",
    }


def _spots(texts: list[str], spans: Spans) -> Spec:
    """Unseen points in the middle of boxes, for the text when hovering."""
    lane, start, length = spans
    return {
        "type": "scatter",
        "mode": "none",
        "hoveron": "points",
        "showlegend": False,
        "x": np.round(start + length / 2, 5).tolist(),
        "y": lane.tolist(),
        "yaxis": "y2",
        "text": texts,
        "hovertemplate": "%{text}<extra></extra>",
    }


def _layout(
    trace: Trace, io: Timeline | None, table: StepTable | None, shown: ShownSteps | None
) -> Spec:
    lanes = len(shown.ranks) if shown else 0
    lanes_height = min(24 * lanes, 10 * lanes + 120) + 20 if lanes else 0
    io_height = 200 if io else 0
    gap = 24 if io and lanes else 0
    inner = io_height + gap + lanes_height
    layout = palette.time_layout(inner + 92)
    layout["xaxis"] = palette.time_axis(anchor="free", position=0)
    layout["yaxis"] = palette.axis(
        f"{_scale(io)[1]}/s" if io else "",
        domain=[(lanes_height + gap) / inner, 1] if io else [0.99, 1],
        rangemode="tozero",
        fixedrange=True,
        visible=io is not None,
    )
    if io:
        layout["xaxis"]["range"] = [float(io.edges_s[0]), float(io.edges_s[-1])]
    elif table is not None and len(table.start_s):
        layout["xaxis"]["range"] = [float(table.start_s.min()), float(table.end_s.max())]
    if shown:
        layout["yaxis2"] = _lanes(trace, shown, lanes_height / inner)
    if table is not None and io is not None and len(table.start_s):
        _add_windows(layout, io, table)
    return layout


def _lanes(trace: Trace, shown: ShownSteps, top: float) -> Spec:
    labels = [plotted(trace.processes[trace.ranks[r]].label) for r in shown.ranks]
    return palette.rank_axis(labels) | {"domain": [0, top]}


def _add_windows(layout: Spec, io: Timeline, table: StepTable) -> None:
    """Two buttons where the profiled steps are a small part of the run."""
    whole = [float(io.edges_s[0]), float(io.edges_s[-1])]
    first, last = float(table.start_s.min()), float(table.end_s.max())
    if last - first > 0.6 * (whole[1] - whole[0]):
        return
    margin = 0.03 * (last - first)
    choices = (("whole run", whole), ("profiled steps", [first - margin, last + margin]))
    buttons = [
        {"label": label, "method": "relayout", "args": [{"xaxis.range": bounds}]}
        for label, bounds in choices
    ]
    menu = {
        "type": "buttons",
        "showactive": False,
        "direction": "right",
        "buttons": buttons,
        "x": 0,
        "xanchor": "left",
        "y": 0,
        "yanchor": "top",
        "pad": {"t": 28},
        "bgcolor": palette.PAPER,
        "bordercolor": palette.FAINT,
        "font": {"size": 11},
    }
    layout["updatemenus"] = [menu]
    layout["margin"] = {**layout["margin"], "b": 68}
    layout["height"] += 36
