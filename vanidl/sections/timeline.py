"""I/O over time above the training steps, on one axis of time."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from vanidl.analyses.steps import Steps, StepTable
from vanidl.analyses.timeline import JobTimeline, Timeline
from vanidl.figures import palette
from vanidl.figures.downsample import folded, rounded
from vanidl.figures.figure import Column, Figure, Levels, Spec, Table
from vanidl.figures.levels import levels
from vanidl.figures.step_spans import ShownSteps, shown_steps, shown_waits
from vanidl.formatting.names import plotted
from vanidl.formatting.units import byte_scale, nbytes, plural, seconds
from vanidl.model.trace import Trace
from vanidl.run import Run
from vanidl.sections.section import Object, Section
from vanidl.sections.steps import step_table

UNIT_BINS = 2048
TABLE_SPANS = 64
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


def figure(run: Run) -> Figure:
    """Bandwidth over time, and steps with their input waits below it."""
    io, steps = run.timeline, run.steps
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
    job = io.job if io else None
    unit, found = _levels(job) if job else ("", None)
    data = _io_traces() if job else []
    words = [_IO_CAPTION, heatmap_note(io) or _resolution(io.job)] if io else []
    if steps and shown:
        step_data, cuts = _step_traces(run.trace, steps.table, shown)
        data += step_data
        words += [_STEP_CAPTION if io else _STEPS_ALONE, *(f"Shown: {cut}." for cut in cuts if cut)]
    layout = _layout(run.trace, (job, unit), steps.table if steps else None, shown)
    figure = _record(" ".join([*words, _ZOOM]), spec={"data": data, "layout": layout})
    table = _table(job) if job else None
    if table is None and steps and shown:
        table = step_table(run.trace, steps.table, shown)
    return replace(figure, table=table, levels=found, alt_text=_alt_text(job, steps))


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
    title = "I/O and training steps"
    return Figure("timeline", "Over time", title, caption, spec, None, reason, view="whole job")


def _io_traces() -> list[Spec]:
    """Two filled step lines, without their points: those depend on the zoom."""
    areas = [_unfilled("reads", palette.READ), _unfilled("writes", palette.WRITE)]
    areas[1]["fillpattern"] = {"shape": "/", "size": 6, "solidity": 0.3}
    return areas


def _levels(job: JobTimeline) -> tuple[str, Levels]:
    """Unit of the axis and the levels; the unit fits bins that are as wide as a pixel."""
    series = (job.bytes_read[None], job.bytes_written[None])
    found = levels(job.edges_s, series, 1)
    length_s = max(found.end_s - found.start_s, 1e-9)
    fitting = [next(a for a in amounts if a.shape[1] <= UNIT_BINS) for amounts in found.series]
    largest = max(float(a.max()) * a.shape[1] / length_s for a in fitting)
    divisor, unit = byte_scale(largest)
    return unit, replace(found, divisor=divisor)


def _resolution(job: JobTimeline) -> str:
    width = seconds(float(job.edges_s[1] - job.edges_s[0]))
    return f"A level is the mean over one bin; zoomed in, bins are down to {width} wide."


def _alt_text(job: JobTimeline | None, steps: Steps | None) -> str:
    """When most was read and written, and where the steps lie, in words."""
    words = []
    for name, amounts in (("read", job.bytes_read), ("written", job.bytes_written)) if job else ():
        if job and amounts.any():
            most = seconds(float(job.edges_s[int(amounts.argmax())]))
            words.append(f"{nbytes(int(amounts.sum()))} are {name}, most at {most}.")
    if steps is not None and len(steps.table.start_s):
        first, last = float(steps.table.start_s.min()), float(steps.table.end_s.max())
        words.append(
            f"{plural(len(steps.table.step), 'training step')} from {seconds(first)} to "
            f"{seconds(last)}."
        )
    return " ".join(words)


def _table(job: JobTimeline) -> Table:
    """The job in few spans of time, each the exact sum of its bins."""
    known = [part for part in _COLUMNS if getattr(job, part[0]) is not None]
    amounts = np.stack([getattr(job, name) for name, _, _ in known])
    bounds, sums = folded(job.edges_s, amounts, TABLE_SPANS)
    columns = (Column("from", "s"), Column("to", "s"), *(Column(t, u) for _, t, u in known))
    spans = zip(pairwise(bounds.tolist()), sums.T.tolist(), strict=True)
    rows = tuple((low, high, *row) for (low, high), row in spans)
    return Table(columns, rows, f"{len(rows)} spans, the sums of {amounts.shape[1]:,} bins")


_COLUMNS = (
    ("bytes_read", "read", "bytes"),
    ("bytes_written", "written", "bytes"),
    ("reads", "reads", "count"),
    ("writes", "writes", "count"),
)


def _unfilled(name: str, colour: str) -> Spec:
    """An area whose points are drawn in for the zoom."""
    return {k: v for k, v in area(name, colour, 0, 0, []).items() if k not in ("x0", "dx", "y")}


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
        "hovertemplate": "at %{x:.4g} s: %{y:.4g} %{yaxis.title.text}<extra>" + name + "</extra>",
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
    trace: Trace,
    io: tuple[JobTimeline | None, str],
    table: StepTable | None,
    shown: ShownSteps | None,
) -> Spec:
    job, unit = io
    lanes = len(shown.ranks) if shown else 0
    lanes_height = min(24 * lanes, 10 * lanes + 120) + 20 if lanes else 0
    io_height = 200 if job else 0
    gap = 24 if job and lanes else 0
    inner = io_height + gap + lanes_height
    layout = palette.time_layout(inner + 92)
    layout["xaxis"] = palette.time_axis(anchor="free", position=0)
    layout["yaxis"] = palette.axis(
        f"{unit}/s" if job else "",
        domain=[(lanes_height + gap) / inner, 1] if job else [0.99, 1],
        rangemode="tozero",
        fixedrange=True,
        visible=job is not None,
    )
    if job:
        layout["xaxis"]["range"] = [float(job.edges_s[0]), float(job.edges_s[-1])]
    elif table is not None and len(table.start_s):
        layout["xaxis"]["range"] = [float(table.start_s.min()), float(table.end_s.max())]
    if shown:
        layout["yaxis2"] = _lanes(trace, shown, lanes_height / inner)
    if table is not None and job is not None and len(table.start_s):
        _add_window(layout, job, table)
    return layout


def _lanes(trace: Trace, shown: ShownSteps, top: float) -> Spec:
    labels = [plotted(trace.processes[trace.ranks[r]].label) for r in shown.ranks]
    return palette.rank_axis(labels) | {"domain": [0, top]}


def _add_window(layout: Spec, job: JobTimeline, table: StepTable) -> None:
    """The time of the profiled steps, where they are a small part of the run: for a button."""
    first, last = float(table.start_s.min()), float(table.end_s.max())
    if last - first > 0.6 * float(job.edges_s[-1] - job.edges_s[0]):
        return
    margin = 0.03 * (last - first)
    layout["meta"] = {**layout["meta"], "steps": [first - margin, last + margin]}


def _json(run: Run) -> Object | None:
    timeline = run.timeline
    if timeline is None:
        return None
    bins = len(timeline.edges_s) - 1
    return {"source": timeline.source, "bins": bins,
            "bin_s": float(timeline.edges_s[1] - timeline.edges_s[0])}  # fmt: skip


SECTION = Section("timeline", (figure,), json={"io.timeline": _json})
