"""Which dataset file is read when."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.datafiles import ReadGrid
from vanidl.analyses.dataset import Dataset
from vanidl.figures import palette
from vanidl.figures.downsample import fold_bins, n_of_m, round_values
from vanidl.figures.figure import Figure, Spec
from vanidl.formatting.names import plotted
from vanidl.formatting.units import byte_scale, plural, seconds
from vanidl.run import Run
from vanidl.sections.dataset import NO_DATASET
from vanidl.sections.heatmap import TABLE_FILES, span_table
from vanidl.sections.phases import epoch_lines
from vanidl.sections.section import Section

CELLS = 64_000
MOST_BINS = 512
_CAPTION = (
    "One row per file, by first visit from top to bottom, over seconds since the start of the job; "
    "a stronger colour is more bytes."
)
_MANY = (
    " A staircase is a dataset read in order, a cloud one read shuffled; the pattern repeats with "
    "each epoch."
)
_BORDERS = " Dashed lines: where epochs begin."


def figure(run: Run) -> Figure:
    """Bytes read of each file over time, at most 1,000 files."""
    data = run.dataset
    if data is None:
        return _record("", reason=NO_DATASET)
    if data.grid is None or not data.grid.nbytes.any():
        reason = "When each file was read is not recorded: it needs single operations."
        return _record("", reason=reason)
    cut = n_of_m(len(data.grid.file), data.grid.files, "files")
    spec = _spec(data, data.grid)
    spec["layout"]["shapes"] = epoch_lines(run.phases)
    caption = _CAPTION + (_MANY if len(data.grid.file) > 1 else "")
    caption += _BORDERS if spec["layout"]["shapes"] else ""
    figure = _record(caption + (f" Shown: {cut}." if cut else ""), spec=spec)
    shown = data.grid.file[:TABLE_FILES].tolist()
    names = tuple(data.files[i].path for i in shown)
    amounts = data.grid.nbytes[:TABLE_FILES]
    table = span_table("file", names, data.grid.edges_s, amounts, cut_from=data.grid.files)
    return replace(figure, table=table, alt_text=_alt_text(data.grid))


def _record(caption: str, *, spec: Spec | None = None, reason: str = "") -> Figure:
    title = "Which file is read when"
    return Figure("visits", "Dataset", title, caption, spec, None, reason)


def _spec(data: Dataset, grid: ReadGrid) -> Spec:
    edges, sums = fold_bins(grid.edges_s, grid.nbytes, _bins(len(grid.file)))
    divisor, unit = byte_scale(float(sums.max(initial=0)))
    heat = {
        "type": "heatmap",
        "x": rounded_edges(edges),
        "y": list(range(len(grid.file))),
        "z": [round_values(row / divisor) for row in sums],
        "zmin": 0,
        "colorscale": _scale(),
        "colorbar": palette.colorbar(f" {unit}"),
        "hovertemplate": "%{y}, at %{x:.2f} s: %{z:.3g} " + unit + "<extra></extra>",
    }
    layout = palette.time_layout(110 + min(max(22 * len(grid.file), 90), 620))
    layout["margin"] = {**layout["margin"], "l": 72}
    layout["xaxis"] = palette.time_axis(range=[float(edges[0]), float(edges[-1])])
    names = [plotted(data.files[i].path.rsplit("/", 1)[-1], limit=20) for i in grid.file.tolist()]
    layout["yaxis"] = palette.rank_axis(names)
    return {"data": [heat], "layout": layout}


def _scale() -> list[list[float | str]]:
    """Nothing is transparent, little beside much is seen."""
    first, *rest = palette.scale(palette.RAMP, power=2)
    return [[0.0, "rgba(0,0,0,0)"], [1e-9, "rgba(0,0,0,0)"], [1e-9, first[1]], *rest]


def _bins(files: int) -> int:
    return max(min(MOST_BINS, CELLS // max(files, 1)), 64)


def rounded_edges(edges: NDArray[np.float64]) -> list[float]:
    """Edges of bins to the microsecond."""
    values: list[float] = np.round(edges, 6).tolist()
    return values


def _alt_text(grid: ReadGrid) -> str:
    first = seconds(float(grid.edges_s[int(np.flatnonzero(grid.nbytes.sum(axis=0))[0])]))
    return f"{plural(grid.files, 'file')}, the first read {first} after the start."


SECTION = Section("visits", (figure,))
