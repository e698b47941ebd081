"""Figures of a comparison: sides side by side on the same axes."""

from __future__ import annotations

from collections.abc import Callable

from vanidl.compare import Comparison
from vanidl.compare.figures import (
    access,
    ceiling,
    changes,
    metrics,
    overlap,
    repeats,
    runs,
    sizes,
    steps,
    timeline,
)
from vanidl.figures.figure import Figure

FIGURES: tuple[Callable[[Comparison], Figure], ...] = (
    changes.figure,
    metrics.figure,
    repeats.figure,
    ceiling.figure,
    overlap.figure,
    steps.figure,
    timeline.figure,
    sizes.figure,
    access.figure,
    runs.figure,
)
"""Every figure, in the order of the page."""
