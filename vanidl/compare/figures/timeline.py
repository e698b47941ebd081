"""I/O and steps over time of each side, one above the other on axes of the same length."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.profiled_steps import StepTable
from vanidl.analyses.results import Results
from vanidl.analyses.timeline import Timeline
from vanidl.compare import Comparison, Sample, Side
from vanidl.compare.figures import first_read, named, shown_runs
from vanidl.figures import palette
from vanidl.figures.downsample import compute_rates, fold_bins, n_of_m, round_values
from vanidl.figures.figure import Figure, Spec
from vanidl.formatting.units import byte_scale, seconds

BINS = 1024  # about one for each pixel
MAX_STEPS = 2000  # boxes of a side
HEIGHT = 150  # pixels of a side
_CAPTION = (
    "Bytes per second of the whole job, reads and writes, over seconds since the start of each "
    "job; all sides have the same axes. Below each: the steps of its first rank (grey) and, from "
    "the start of each step, how long it waited for input (orange)."
)


def draw_timeline(comparison: Comparison) -> Figure:
    """One panel a side that recorded operations or steps one by one."""
    panels = [(side, sample) for side in comparison.sides if (sample := first_read(side))]
    drawn = [(side, sample) for side, sample in panels if _has_time(sample)]
    if not drawn:
        reason = "No side recorded operations or steps one by one, so nothing is known over time."
        return _compose_timeline("", reason=reason)
    # Sides without a panel are named: none would read as no I/O.
    missing = [s.letter for s in comparison.sides if s not in [side for side, _ in drawn]]
    spec, cut = _plot_panels(drawn)
    words = [
        _CAPTION,
        _describe_resolution(drawn),
        shown_runs(comparison),
        f"Shown: {cut}." if cut else "",
        f"Not recorded: {', '.join(missing)}." if missing else "",
    ]
    return _compose_timeline(" ".join(word for word in words if word), spec=spec)


def _compose_timeline(caption: str, *, spec: Spec | None = None, reason: str = "") -> Figure:
    return Figure("timeline", "Over time", "I/O and steps", caption, spec, None, reason)


def _has_time(sample: Sample) -> bool:
    results = sample.results
    return results is not None and (
        results.timeline is not None or _find_dated_steps(results) is not None
    )


def _find_dated_steps(results: Results) -> StepTable | None:
    """The steps of a run where their times are known, not only how long they took."""
    table = None if results.steps is None else results.steps.table
    return None if table is None or table.undated_s is not None or not len(table.step) else table


def _plot_panels(drawn: list[tuple[Side, Sample]]) -> tuple[Spec, str]:
    ends = [_find_end_s(sample) for _, sample in drawn]
    # One axis of time and of speed for all sides.
    rate = max(_find_fastest(sample) for _, sample in drawn)
    divisor, unit = byte_scale(rate)
    rows = len(drawn)
    layout = palette.time_layout(100 + HEIGHT * rows)
    layout["xaxis"] = palette.time_axis(anchor="free", position=0, range=[0, max(ends)])
    layout["annotations"] = []
    data: list[Spec] = []
    cuts = []
    for row, (side, sample) in enumerate(drawn):
        top, height = 1 - row / rows, 1 / rows
        layout[_name_axis(2 * row)] = palette.axis(
            f"{unit}/s",
            domain=[top - 0.66 * height, top - 0.13 * height],
            range=[0, 1.05 * rate / divisor or 1],
            nticks=4,
            fixedrange=True,
        )
        # Below the speeds of each side a narrow row for its steps.
        layout[_name_axis(2 * row + 1)] = palette.axis(
            domain=[top - 0.82 * height, top - 0.7 * height],
            range=[0.5, -0.5],
            visible=False,
            fixedrange=True,
        )
        name = {
            "text": named(side, limit=60),
            "x": 0,
            "xref": "paper",
            "xanchor": "left",
            "y": top - 0.12 * height,
            "yref": "paper",
            "yanchor": "bottom",
            "showarrow": False,
        }
        layout["annotations"].append(name)
        traces, cut = _plot_panel(sample, row, divisor)
        data += traces
        cuts.append(cut)
    return {"data": data, "layout": layout}, next((cut for cut in cuts if cut), "")


def _name_axis(axis: int) -> str:
    return f"yaxis{axis + 1}" if axis else "yaxis"


def _find_end_s(sample: Sample) -> float:
    results = sample.results
    ends = [sample.job.run_time_s if sample.job else 0.0]
    if results is not None and results.timeline is not None:
        ends.append(float(results.timeline.edges_s[-1]))
    table = None if results is None else _find_dated_steps(results)
    if table is not None:
        ends.append(float(table.end_s.max()))
    return max(ends)


def _compute_speeds(io: Timeline) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bounds of the bins, shape (n + 1,), and bytes a second of reads and writes, (2, n)."""
    moved = np.stack([io.bytes_read.sum(axis=0), io.bytes_written.sum(axis=0)])
    edges, sums = fold_bins(io.edges_s, moved, BINS)
    return edges, compute_rates(edges, sums)


def _find_fastest(sample: Sample) -> float:
    io = None if sample.results is None else sample.results.timeline
    return 0.0 if io is None else float(_compute_speeds(io)[1].max(initial=0.0))


def _describe_resolution(drawn: list[tuple[Side, Sample]]) -> str:
    # Runs of different length have bins of different width.
    widths: dict[str, list[str]] = {}
    for side, sample in drawn:
        io = None if sample.results is None else sample.results.timeline
        if io is not None:
            edges, _ = _compute_speeds(io)
            width = seconds(float(edges[1] - edges[0]))
            widths.setdefault(width, []).append(side.letter)
    if not widths:
        return ""
    if len(widths) == 1:
        return f"Each level is the mean over {next(iter(widths))}."
    each = (f"{width} ({', '.join(letters)})" for width, letters in widths.items())
    return f"Each level is the mean over {', '.join(each)}."


def _plot_panel(sample: Sample, row: int, divisor: int) -> tuple[list[Spec], str]:
    """I/O above and steps below, each on its axis; and how many steps are shown of how many."""
    results = sample.results
    if results is None:
        return [], ""
    traces: list[Spec] = []
    if results.timeline is not None:
        edges, speed = _compute_speeds(results.timeline)
        start, width = float(edges[0]), float(edges[1] - edges[0])
        traces = [
            _draw_area(name, colour, start, width, [*round_values(values / divisor), 0])
            for name, colour, values in (
                ("reads", palette.READ, speed[0]),
                ("writes", palette.WRITE, speed[1]),
            )
        ]
        traces[1]["fillpattern"] = {"shape": "/", "size": 6, "solidity": 0.3}
        for trace in traces:
            trace["yaxis"] = _name_axis(2 * row).replace("axis", "")
    # Steps of the first rank that has any: a row has no room for more.
    table, cut = _find_dated_steps(results), ""
    if table is not None:
        of_first = np.flatnonzero(table.rank == table.rank.min())
        kept = of_first[:MAX_STEPS]
        begin, length = table.start_s[kept], (table.end_s - table.start_s)[kept]
        lane, waits = np.zeros(len(kept)), table.input_wait_s[kept]
        steps = [_draw_boxes("steps", palette.STEP, (lane, begin, 0.97 * length))]
        if not np.isnan(waits).all():
            waited = np.minimum(np.nan_to_num(waits), length)
            steps.append(_draw_boxes("input waits", palette.IN_WAIT, (lane, begin, waited)))
        for trace in steps:
            trace["yaxis"] = _name_axis(2 * row + 1).replace("axis", "")
        traces += steps
        cut = n_of_m(len(kept), len(of_first), "steps")
    # In the legend only the first panel's.
    for trace in traces:
        trace["legendgroup"] = trace["name"]
        trace["showlegend"] = row == 0
    return traces, cut


def _draw_area(name: str, colour: str, x0: float, dx: float, y: list[float | int | None]) -> Spec:
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
        "hovertemplate": "at %{x:.4g} s: %{y:.3g} %{yaxis.title.text}<extra>" + name + "</extra>",
    }


Spans = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Lane, start in seconds and length in seconds."""


def _draw_boxes(name: str, colour: str, spans: Spans) -> Spec:
    """One outline around all boxes: thin ones blend instead of growing to a whole pixel."""
    lane, start, length = spans
    # One path for all boxes, with a gap after each.
    gap = np.full(len(lane), np.nan)
    x = np.stack([start, start + length, start + length, start, gap], axis=1)
    y = np.stack([lane - 0.4, lane - 0.4, lane + 0.4, lane + 0.4, gap], axis=1)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [None if np.isnan(v) else v for v in np.round(x, 5).ravel().tolist()],
        "y": round_values(y.ravel()),
        "yaxis": "y2",
        "line": {"width": 0, "simplify": False, "color": colour},
        "fill": "toself",
        "fillcolor": colour,
        "hoverinfo": "skip",
    }
