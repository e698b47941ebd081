"""Which rank moved data when."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import Colormap, LinearSegmentedColormap, PowerNorm
from matplotlib.figure import FigureBase

from vanidl.figures.downsample import fold_bins, rates
from vanidl.formatting.units import byte_scale
from vanidl.paper.style import drawable
from vanidl.run import Run

BINS = 256
_MOST_LABELS = 12


def draw(figure: FigureBase, run: Run) -> None:
    """One line per rank or group of ranks; darker means more bytes per second, white none."""
    line = run.timeline
    if line is None:
        raise ValueError("expected a timeline, found none: nothing to draw")
    edges, sums = fold_bins(line.edges_s, line.bytes_read + line.bytes_written, BINS)
    speed = rates(edges, sums)
    divisor, unit = byte_scale(float(speed.max(initial=0.0)))
    axes = figure.subplots()
    shown = np.ma.masked_equal(speed / divisor, 0)
    rows = len(line.row_labels)
    most = float(shown.max()) if shown.count() else 1.0
    mesh = axes.pcolormesh(
        edges, np.arange(rows + 1) - 0.5, shown, cmap=_greys(), rasterized=True,
        norm=PowerNorm(0.5, 0, most),
    )  # fmt: skip
    every = -(-rows // _MOST_LABELS)
    places = list(range(0, rows, every))
    axes.set_yticks(places, [drawable(line.row_labels[i], limit=18) for i in places])
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_xlabel("seconds since the start of the job")
    bar = figure.colorbar(mesh, ax=axes, pad=0.02, aspect=16)
    bar.set_label(f"{unit}/s")


def _greys() -> Colormap:
    """Greys without their lightest part, so that little differs from nothing."""
    return LinearSegmentedColormap.from_list("io", ["#d0d0d0", "#000000"])
