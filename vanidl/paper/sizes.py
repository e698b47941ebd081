"""Request sizes: how many operations moved that many bytes, and how much they moved."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.ticker import FuncFormatter

from vanidl.analyses.sizes import SizeBin
from vanidl.formatting.units import byte_scale, nbytes
from vanidl.paper.style import READS, WRITES, Series, legend
from vanidl.run import Run

_MOST_LABELS = 10


def draw(figure: FigureBase, run: Run) -> None:
    """Bars of operations, and of bytes below where single operations were traced."""
    traced = run.sizes.histogram
    with_bytes = bool(traced) and all(b.bytes_read is not None for b in traced)
    bins = traced or run.sizes.darshan_histogram
    axes = figure.subplots(2 if with_bytes else 1, 1, sharex=True, squeeze=False)[:, 0]
    _bars(axes[0], [b.reads for b in bins], [b.writes for b in bins])
    axes[0].set_ylabel("operations")
    legend(axes[0])
    if with_bytes:
        read, written = ([getattr(b, n) for b in bins] for n in _BYTES)
        divisor, unit = byte_scale(max(*read, *written))
        _bars(axes[1], [v / divisor for v in read], [v / divisor for v in written])
        axes[1].set_ylabel(unit)
    _label_sizes(axes[-1], bins)
    figure.align_ylabels(list(axes))


_BYTES = ("bytes_read", "bytes_written")


def _bars(axes: Axes, read: Sequence[float], written: Sequence[float]) -> None:
    shown: list[tuple[Series, Sequence[float]]] = [
        (series, values) for series, values in ((READS, read), (WRITES, written)) if any(values)
    ]
    width = 0.84 / max(len(shown), 1)
    for i, (series, values) in enumerate(shown):
        left = [k - 0.42 + i * width for k in range(len(values))]
        axes.bar(left, values, width, align="edge", **series.fill)
    axes.grid(axis="y")
    axes.locator_params(axis="y", nbins=4)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _label_sizes(axes: Axes, bins: Sequence[SizeBin]) -> None:
    every = -(-len(bins) // _MOST_LABELS)
    places = list(range(0, len(bins), every))
    axes.set_xticks(places, [nbytes(bins[i].low) for i in places], rotation=35, ha="right")
    axes.tick_params(axis="x", pad=1)
    axes.set_xlabel("size of the request, from")
