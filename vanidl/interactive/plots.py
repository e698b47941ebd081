"""Sections' pictures as plotly figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vanidl.analyses.timeline import JobTimeline
from vanidl.errors import UsageError
from vanidl.figures import palette
from vanidl.figures.downsample import fill_level
from vanidl.figures.figure import Spec
from vanidl.formatting.units import byte_scale
from vanidl.run import Run
from vanidl.sections.registry import figures

if TYPE_CHECKING:
    import plotly.graph_objects

TIMELINE = "timeline"
_FINEST = 0


def names(run: Run) -> tuple[str, ...]:
    """What can be drawn of this run, in the order of its page."""
    drawn = {f.id: f.spec for f in figures(run) if f.applies}
    timeline = (TIMELINE,) if run.timeline is not None else ()
    return (*timeline, *(name for name, spec in drawn.items() if spec and name != TIMELINE))


def figure(run: Run, name: str) -> plotly.graph_objects.Figure:
    """One picture, zoomed out, at its finest.

    Raises:
        UsageError: there is no such picture for this run, or plotly is not installed.
    """
    try:
        from plotly import graph_objects
    except ImportError as error:
        raise UsageError(
            f"expected the package plotly, found: {error}; pip install 'vanidl-io[notebook]'"
        ) from error
    made = graph_objects.Figure(_spec(run, name))
    made.update_layout(template="none")
    return made


def _spec(run: Run, name: str) -> Spec:
    if name not in names(run):
        known = ", ".join(names(run)) or "none: nothing was recorded that can be drawn"
        raise UsageError(f"expected the name of a picture of this run ({known}), found {name!r}.")
    if name == TIMELINE and run.timeline is not None:
        return _timeline(run, run.timeline.job)
    return next(fill_level(f, _FINEST) for f in figures(run) if f.id == name)


def _timeline(run: Run, job: JobTimeline) -> Spec:
    """Bytes per second of the whole job, and the steps of each rank below."""
    width_s = job.edges_s[1] - job.edges_s[0]
    speeds = [("read", palette.READ, job.bytes_read), ("written", palette.WRITE, job.bytes_written)]
    largest = max((int(amounts.max(initial=0)) for _, _, amounts in speeds), default=0)
    divisor, unit = byte_scale(int(largest / width_s))
    lines = [
        {
            "type": "scatter", "mode": "lines", "name": label, "line": {"color": colour},
            "line_shape": "hv", "x": job.edges_s[:-1], "y": amounts / (width_s * divisor),
        }
        for label, colour, amounts in speeds
    ]  # fmt: skip
    layout = palette.layout(
        420,
        xaxis=palette.axis("s since the start of the job", anchor="y2"),
        yaxis=palette.axis(f"{unit}/s", rangemode="tozero", domain=[0.32, 1.0]),
        yaxis2=palette.axis(domain=[0.0, 0.24], autorange="reversed"),
        barmode="overlay",
    )
    return {"data": [*lines, *_steps(run)], "layout": layout}


def _steps(run: Run) -> list[dict[str, Any]]:
    """The steps of each rank from begin to end, the more orange the more of them was input wait."""
    rows = run.frame("steps")
    if rows.empty:
        return []
    waited = 100 * rows["input_wait_s"] / rows["duration_s"]
    marker = {
        "color": waited, "colorscale": palette.scale(palette.WAIT_RAMP), "cmin": 0, "cmax": 100,
        "line": {"width": 0.5, "color": palette.PAPER},
    }  # fmt: skip
    step = {
        "type": "bar", "orientation": "h", "yaxis": "y2", "name": "steps", "showlegend": False,
        "base": rows["start_s"], "x": rows["duration_s"], "y": rows["rank"], "marker": marker,
        "customdata": list(zip(rows["step"], waited, strict=True)),
        "hovertemplate": "step %{customdata[0]}: %{x:.3g} s, %{customdata[1]:.3g} % input wait"
        "<extra>%{y}</extra>",
    }  # fmt: skip
    return [step]
