"""Figures: results in, pictures with captions and tables out. No statistics, no files."""

from __future__ import annotations

from collections.abc import Callable

from vanidl.analyses import Results
from vanidl.figures import (
    access,
    balance,
    clocks,
    coverage,
    datafiles,
    datashares,
    files,
    heatmap,
    kinds,
    layers,
    mounts,
    overlap,
    perstep,
    phases,
    placement,
    samples,
    sizes,
    steps,
    summary,
    timeline,
    transfermodes,
    visits,
)
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.model.trace import Trace

__all__ = ["FIGURES", "Column", "Figure", "Spec", "Table"]

FIGURES: tuple[Callable[[Trace, Results], Figure], ...] = (
    coverage.figure,
    clocks.figure,
    overlap.figure,
    steps.figure,
    perstep.figure,
    perstep.apart,
    placement.figure,
    timeline.figure,
    heatmap.figure,
    heatmap.by_file,
    phases.figure,
    datafiles.figure,
    visits.figure,
    datashares.figure,
    samples.per_file,
    transfermodes.figure,
    samples.never_read,
    sizes.figure,
    access.figure,
    kinds.figure,
    mounts.figure,
    files.figure,
    balance.figure,
    summary.figure,
    layers.figure,
)
"""Every figure, in the order of the page."""
