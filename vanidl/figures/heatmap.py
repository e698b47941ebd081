"""Which rank moved data when."""

from __future__ import annotations

import numpy as np

from vanidl.analyses import Results
from vanidl.analyses.timeline import Timeline
from vanidl.figures import palette
from vanidl.figures.cutting import folded, rates, rounded
from vanidl.figures.figure import Figure, Spec
from vanidl.figures.labels import plotted
from vanidl.figures.timeline import heatmap_note
from vanidl.report.units import byte_scale
from vanidl.trace import Trace

BINS = 512
_CAPTION = (
    "One line a rank, time since the start of the job to the right. A stronger colour means more "
    "bytes per second (reads and writes together), blank means no I/O. Vertical stripes: all "
    "ranks at once. A lone strong line: one rank does the work."
)


def figure(trace: Trace, results: Results) -> Figure:
    """Bytes per second by rank and time."""
    del trace
    timeline = results.timeline
    if timeline is None:
        reason = (
            "No single operation was traced, so it is not known which rank moved data when. "
            "Record with DXT_ENABLE_IO_TRACE=1."
        )
        return _record("", reason=reason)
    if not (timeline.bytes_read.any() or timeline.bytes_written.any()):
        return _record("", reason="No bytes were moved, so there is nothing to show over time.")
    grouped = len(timeline.row_labels) < timeline.ranks
    note = f" Each line is a group of neighbouring ranks ({timeline.ranks:,} in all)."
    words = [_CAPTION + (note if grouped else ""), heatmap_note(timeline)]
    return _record(" ".join(word for word in words if word), spec=_spec(timeline))


def _record(caption: str, *, spec: Spec | None = None, reason: str = "") -> Figure:
    return Figure("heatmap", "Over time", "I/O by rank and time", caption, spec, None, reason)


def _spec(timeline: Timeline) -> Spec:
    edges, sums = folded(timeline.edges_s, timeline.bytes_read + timeline.bytes_written, BINS)
    speed = rates(edges, sums)
    divisor, unit = byte_scale(float(speed.max()))
    scaled = np.where(sums > 0, speed / divisor, np.nan)
    labels = [plotted(label) for label in timeline.row_labels]
    heat = {
        "type": "heatmap",
        "x": rounded(edges),
        "y": list(range(len(labels))),
        "z": [rounded(row) for row in scaled],
        "zmin": 0,
        "zmax": float(np.nanmax(scaled)),
        "colorscale": palette.scale(palette.RAMP, power=2),
        "colorbar": palette.colorbar(f" {unit}/s"),
        "hoverongaps": False,
        "hovertemplate": "from %{x:.4g} s: %{z:.4g} " + f"{unit}/s<extra></extra>",
    }
    return {"data": [heat], "layout": _layout(labels)}


def _layout(labels: list[str]) -> Spec:
    return palette.time_layout(
        124 + min(max(24 * len(labels), 60), 420),
        xaxis=palette.time_axis(showgrid=False),
        yaxis=palette.rank_axis(labels),
    )
