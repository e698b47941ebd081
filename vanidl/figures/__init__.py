"""Figures: results in, pictures with captions and tables out. No statistics, no files."""

from __future__ import annotations

from collections.abc import Callable

from vanidl.analyses import Results
from vanidl.figures import (
    access,
    balance,
    coverage,
    files,
    heatmap,
    kinds,
    layers,
    overlap,
    sizes,
    steps,
    summary,
    timeline,
)
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.trace import Trace

__all__ = ["FIGURES", "Column", "Figure", "Spec", "Table"]

FIGURES: tuple[Callable[[Trace, Results], Figure], ...] = (
    coverage.figure,
    overlap.figure,
    steps.figure,
    timeline.figure,
    heatmap.figure,
    heatmap.by_file,
    sizes.figure,
    access.figure,
    kinds.figure,
    files.figure,
    balance.figure,
    summary.figure,
    layers.figure,
)
"""Every figure, in the order of the page."""
