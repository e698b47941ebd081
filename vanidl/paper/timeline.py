"""I/O over time: reads above the axis, writes below it, training steps under both."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.ticker import FuncFormatter

from vanidl.analyses.steps import StepTable
from vanidl.analyses.timeline import JobTimeline
from vanidl.figures.downsample import fold_bins, rates
from vanidl.figures.step_spans import ShownSteps, shown_steps, shown_waits
from vanidl.formatting.units import byte_scale
from vanidl.model.trace import Trace
from vanidl.paper.style import READS, STEPS, WAITS, WRITES, drawable, legend
from vanidl.run import Run

BINS = 256
MAX_LANES = 8


def draw(figure: FigureBase, run: Run) -> None:
    """Bandwidth of the whole job, and the steps with their input waits where they are known."""
    job = run.timeline.job if run.timeline else None
    table = run.steps.table if run.steps else None
    if table is not None and table.undated_s is not None:
        table = None  # durations without a place in time
    shown = shown_steps(table, max_ranks=MAX_LANES) if table is not None else None
    heights = [*([3.0] if job else []), *([0.5 + 0.28 * len(shown.ranks)] if shown else [])]
    axes = figure.subplots(
        len(heights), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )[:, 0]
    if job:
        _rates(axes[0], job)
    if table is not None and shown:
        _steps(axes[-1], run.trace, table, shown)
    cut = f"\n({shown.cut})" if shown and shown.cut else ""
    axes[-1].set_xlabel(f"seconds since the start of the job{cut}")
    axes[0].margins(x=0.01)


def _rates(axes: Axes, job: JobTimeline) -> None:
    amounts = np.stack([job.bytes_read, job.bytes_written])
    edges, sums = fold_bins(job.edges_s, amounts, BINS)
    speed = rates(edges, sums)
    divisor, unit = byte_scale(float(speed.max(initial=0.0)))
    for series, values, sign in ((READS, speed[0], 1), (WRITES, speed[1], -1)):
        if values.any():
            style = {**series.fill, "linewidth": 0.25}
            axes.stairs(sign * values / divisor, edges, baseline=0, fill=True, **style)
    axes.axhline(0, color="#444444", linewidth=0.6)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{abs(v):g}"))
    axes.set_ylabel(f"{unit}/s")
    axes.grid(axis="y")
    legend(axes)


def _steps(axes: Axes, trace: Trace, table: StepTable, shown: ShownSteps) -> None:
    rows = shown.rows
    waits = shown_waits(trace, shown.ranks)
    step_lane = np.searchsorted(shown.ranks, table.rank[rows])
    wait_lane = np.searchsorted(shown.ranks, waits.rank)
    length = table.end_s[rows] - table.start_s[rows]
    _boxes(
        axes,
        step_lane,
        (table.start_s[rows], length),
        {**STEPS.fill, "linewidth": 0.15 if len(rows) < 400 else 0},
    )
    if len(waits.rank):
        _boxes(axes, wait_lane, (waits.start_s, waits.length_s), {**WAITS.fill, "linewidth": 0})
    labels = [drawable(trace.processes[trace.ranks[r]].label, limit=14) for r in shown.ranks]
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    legend(axes)


def _boxes(
    axes: Axes,
    lane: np.ndarray[Any, Any],
    spans: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
    style: dict[str, Any],
) -> None:
    label = style["label"]
    for row in np.unique(lane).tolist():
        mine = lane == row
        bars = np.stack([spans[0][mine], spans[1][mine]], axis=1)
        axes.broken_barh(bars.tolist(), (row - 0.37, 0.74), **{**style, "label": label})
        label = "_again"  # one entry in the legend
