"""The figures of a comparison: sides side by side on the same axes. A new one is listed here."""

from __future__ import annotations

from collections.abc import Callable

from vanidl.compare import Comparison
from vanidl.compare.figures.changes import (
    draw_ceiling,
    draw_changes,
    draw_metrics,
    draw_repeats,
    draw_runs,
)
from vanidl.compare.figures.operations import draw_access, draw_sizes
from vanidl.compare.figures.steps import draw_overlap, draw_steps
from vanidl.compare.figures.timeline import draw_timeline
from vanidl.figures.figure import Figure

FIGURES: tuple[Callable[[Comparison], Figure], ...] = (
    draw_changes,
    draw_metrics,
    draw_repeats,
    draw_ceiling,
    draw_overlap,
    draw_steps,
    draw_timeline,
    draw_sizes,
    draw_access,
    draw_runs,
)
"""Every figure, in the order of the page."""
