"""Figures of a comparison."""

from __future__ import annotations

from vanidl.compare import Comparison, Sample, Side
from vanidl.figures import palette
from vanidl.formatting.names import plotted

# How a side is drawn: its colour and its name.


def colour(comparison: Comparison, side: Side) -> str:
    """The colour of a side, the same in all figures."""
    return palette.SIDES[comparison.sides.index(side) % len(palette.SIDES)]


def named(side: Side, *, limit: int = 28) -> str:
    """`A: torch_workers0`, safe as plotly text."""
    return f"{side.letter}: {plotted(side.name, limit=limit)}"


def first_read(side: Side) -> Sample | None:
    """The first run of a side that could be read; pictures of one run show it."""
    return next((sample for sample in side.samples if sample.results is not None), None)


def shown_runs(comparison: Comparison) -> str:
    """Says which run is shown where a side has several, else ""."""
    many = [side for side in comparison.sides if len(side.samples) > 1]
    return "Shown: the first run of each side." if many else ""
