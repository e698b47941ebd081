"""Figures of a comparison: sides side by side on the same axes."""

from __future__ import annotations

from collections.abc import Callable

from vanidl.compare import Comparison
from vanidl.figures.compare import changes
from vanidl.figures.figure import Figure

FIGURES: tuple[Callable[[Comparison], Figure], ...] = (changes.figure,)
"""Every figure, in the order of the page."""
