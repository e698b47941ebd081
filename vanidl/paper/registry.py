"""Figures for papers, from the same results as the report: PDF, SVG and PNG.

Every figure alone in the width of one and of two columns, and the panel of four on a page:
summary, request sizes, timeline, access pattern. They are told apart in black and white.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vanidl.errors import package_missing
from vanidl.figures.figure import Figure as PageFigure
from vanidl.run import Run
from vanidl.schema.dataclass import dataclass
from vanidl.sections import job, overlap, requests, timeline

try:
    from vanidl.paper import drawings, style
except ImportError as error:
    raise package_missing(error, "--to figures needs", "matplotlib", "figures") from error

if TYPE_CHECKING:
    from matplotlib.figure import Figure, FigureBase

FORMATS = ("pdf", "svg", "png")
PANEL = "panel"


@dataclass(frozen=True, slots=True)
class Drawing:
    """One figure: what draws it, how high it is, and where the report says why it is empty."""

    title: str
    draw: Callable[[FigureBase, Run], None]
    height_in: Callable[[Run], float]
    on_page: Callable[[Run], PageFigure]


def _measure_steps(run: Run) -> float:
    lanes = run.steps.ranks if run.steps else 0
    return 1.9 + 0.13 * min(lanes, drawings.MAX_LANES) + (0.25 if lanes else 0)


DRAWINGS: dict[str, Drawing] = {
    "summary": Drawing("Summary", drawings.draw_summary, lambda _: 1.9, job.draw_totals),
    "sizes": Drawing("Request sizes", drawings.draw_sizes, lambda _: 2.7, requests.draw_sizes),
    "timeline": Drawing(
        "I/O over time", drawings.draw_timeline, _measure_steps, timeline.draw_timeline
    ),
    "access": Drawing("Access pattern", drawings.draw_access, lambda _: 1.5, requests.draw_access),
    "overlap": Drawing(
        "I/O during training",
        drawings.draw_overlap,
        lambda run: 1.2 + 0.17 * drawings.count_bars(run),
        overlap.draw_overlap,
    ),
    "ranks": Drawing(
        "I/O by rank", drawings.draw_ranks, lambda _: 2.2, timeline.draw_ranks_over_time
    ),
}
"""Every figure by the name of its files."""

PANEL_PARTS = ("summary", "sizes", "timeline", "access")
PANEL_HEIGHT_IN = 5.6


def explain_missing(name: str, run: Run) -> str:
    """Why there is nothing to draw, in the words of the report; "" where there is something."""
    return DRAWINGS[name].on_page(run).empty_reason


def draw_figure(name: str, run: Run, width_in: float) -> Figure:
    """One figure of that width in inches; what is unknown is said in its place."""
    from matplotlib.figure import Figure

    drawing = DRAWINGS[name]
    with style.applied():
        size = (width_in, drawing.height_in(run))
        figure = Figure(figsize=size, layout="constrained")
        _fill_figure(figure, name, run)
        _lay_out(figure)
    return figure


def draw_panel(run: Run) -> Figure:
    """Summary, request sizes, timeline and access pattern on one page of two columns."""
    from matplotlib.figure import Figure

    with style.applied():
        size = (style.WIDTHS_IN["2col"], PANEL_HEIGHT_IN)
        figure = Figure(figsize=size, layout="constrained")
        parts = figure.subfigures(
            2, 2, width_ratios=(1, 1.25), height_ratios=(1, 1.05), wspace=0.04, hspace=0.04
        )
        for letter, name, part in zip(
            "abcd", PANEL_PARTS, np.asarray(parts, object).ravel(), strict=True
        ):
            title = f"({letter}) {DRAWINGS[name].title}"
            part.suptitle(title, x=0.02, ha="left", fontsize=8.5, fontweight="bold")
            _fill_figure(part, name, run)
        _lay_out(figure)
    return figure


def write_figures(run: Run, folder: Path) -> list[tuple[str, str]]:
    """Writes every figure that has something to show, and the panel; what was written."""
    written = [(f"{PANEL}.*", ", ".join(FORMATS))]
    _save_figure(draw_panel(run), folder / PANEL)
    for name in DRAWINGS:
        why = explain_missing(name, run)
        if why:
            written.append((name, f"not drawn: {why}"))
            continue
        for label, width_in in style.WIDTHS_IN.items():
            _save_figure(draw_figure(name, run, width_in), folder / f"{name}-{label}")
        written.append((f"{name}-*", ", ".join(FORMATS)))
    return written


def _lay_out(figure: Figure) -> None:
    """Places everything once, instead of at each format that is saved."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def _fill_figure(figure: FigureBase, name: str, run: Run) -> None:
    why = explain_missing(name, run)
    if why:
        style.unknown(figure, why)
    else:
        DRAWINGS[name].draw(figure, run)


def _save_figure(figure: Figure, path: Path) -> None:
    with style.applied():
        for form in FORMATS:
            date = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(form, {})
            held = BytesIO()  # matplotlib hides a full disk behind errors of its own
            figure.savefig(held, format=form, metadata=date)
            path.with_name(f"{path.name}.{form}").write_bytes(held.getvalue())
