"""Which rank, and which file, moved data when."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vanidl.figures import palette
from vanidl.figures.downsample import fold_bins, levels, n_of_m
from vanidl.figures.figure import Column, Figure, Levels, Spec, Table
from vanidl.formatting.names import distinct, elided, plotted
from vanidl.formatting.units import byte_scale, change, nbytes, plural, seconds
from vanidl.run import Run
from vanidl.sections.section import Section
from vanidl.sections.timeline import heatmap_note, spans_of_bins, too_coarse
from vanidl.wording.tracing import record_operations

Int64Array = NDArray[np.int64]

TABLE_SPANS = 8
TABLE_FILES = 100
TABLE_ROWS = 128
_CAPTION = (
    ", time since the start of the job to the right. A stronger colour means more "
    "bytes per second (reads and writes together), blank means no I/O."
)
_MANY_RANKS = " Vertical stripes: all ranks at once. A lone strong line: one rank does the work."
_FILES_CAPTION = (
    "One line per file, most traffic on top, time since the start of the job to the right. A "
    "stronger colour means more bytes per second (reads and writes together), blank means no I/O."
)
_MANY_FILES = (
    " Lines that fill from left to right: one file after the other. Scattered dots: shuffled."
)
_NO_TRACE = "No single operation was traced, so it is not known which {} moved data when. {}."
_NO_BYTES = "No bytes were moved, so there is nothing to show over time."


def figure(run: Run) -> Figure:
    """Bytes per second by rank and time."""
    timeline = run.timeline
    names = ("heatmap", "I/O by rank and time", "per rank")
    if timeline is None:
        return _empty(names, _NO_TRACE.format("rank", record_operations(run.trace)))
    moved = timeline.bytes_read + timeline.bytes_written
    if reason := too_coarse(timeline, run):
        return _empty(names, reason)
    if not moved.any():
        return _empty(names, _NO_BYTES)
    labels = [plotted(label) for label in timeline.row_labels]
    grouped = len(labels) < timeline.ranks
    one = "group of neighbouring ranks" if grouped else "rank"
    of_all = f" ({timeline.ranks:,} ranks in all)" if grouped else ""
    shown = timeline.row_labels[:TABLE_ROWS]
    lines = len(timeline.row_labels)
    table = span_table("rank", shown, timeline.edges_s, moved[:TABLE_ROWS], cut_from=lines)
    many = _MANY_RANKS if lines > 1 else ""
    words = [f"One line per {one}{of_all}{_CAPTION}{many}", heatmap_note(timeline)]
    caption = " ".join(word for word in words if word)
    return _drawn(names, caption, labels, (timeline.edges_s, moved), table)


def by_file(run: Run) -> Figure:
    """Bytes per second by file and time."""
    line = run.results.filetimeline
    names = ("filemap", "I/O by file and time", "per file")
    if line is None:
        return _empty(names, _NO_TRACE.format("file", record_operations(run.trace)))
    moved = line.bytes_read + line.bytes_written
    if not moved.any():
        return _empty(names, _NO_BYTES)
    labels = [plotted(path) for path in line.paths]
    cut = n_of_m(len(labels), line.files, "files, those with most traffic")
    shown = line.paths[:TABLE_FILES]
    table = span_table("file", shown, line.edges_s, moved[:TABLE_FILES], cut_from=line.files)
    caption = _FILES_CAPTION + (_MANY_FILES if len(labels) > 1 else "")
    caption += f" Shown: {cut}." if cut else ""
    return _drawn(names, caption, labels, (line.edges_s, moved), table)


def _empty(names: tuple[str, str, str], reason: str) -> Figure:
    name, title, view = names
    return Figure(name, "Over time", title, "", empty_reason=reason, view=view)


def _drawn(
    names: tuple[str, str, str],
    caption: str,
    labels: list[str],
    amounts: tuple[NDArray[np.float64], Int64Array],
    table: Table,
) -> Figure:
    name, title, view = names
    edges_s, moved = amounts
    unit, found = _levels(edges_s, moved)
    spec = _spec(distinct(labels), unit, (found.start_s, found.end_s))
    alt_text = _alt_text(labels, edges_s, moved)
    return Figure(name, "Over time", title, caption, spec, table, "", alt_text, view, found)


def _levels(edges_s: NDArray[np.float64], moved: Int64Array) -> tuple[str, Levels]:
    """Unit of the colours and the levels; the unit fits the coarsest level."""
    coarse = levels(edges_s, (moved,), 1).series[0][-1]
    width = (edges_s[-1] - edges_s[0]) / coarse.shape[1]
    divisor, unit = byte_scale(float(coarse.max()) / max(float(width), 1e-9))
    return unit, levels(edges_s, (moved,), divisor)


def _alt_text(labels: list[str], edges_s: NDArray[np.float64], moved: Int64Array) -> str:
    """The busiest line and the busiest moment, in words."""
    by_line, over_time = moved.sum(axis=1), moved.sum(axis=0)
    line, moment = int(by_line.argmax()), int(over_time.argmax())
    return (
        f"{plural(len(labels), 'line')}. Most is moved by {labels[line]}, "
        f"{nbytes(int(by_line[line]))} of {nbytes(int(moved.sum()))}; "
        f"the busiest moment is {seconds(float(edges_s[moment]))} after the start."
    )


def span_table(
    what: str,
    names: tuple[str, ...],
    edges_s: NDArray[np.float64],
    moved: Int64Array,
    *,
    cut_from: int = 0,
) -> Table:
    """Bytes of each line in a few spans of time, each the exact sum of its bins."""
    bins = moved.shape[1]
    bounds, sums = fold_bins(edges_s, moved, TABLE_SPANS)
    spans = sums.shape[1]
    titles = [change(float(a), float(b)) for a, b in pairwise(bounds)]
    columns = (Column(what), Column("all", "bytes"), *(Column(t, "bytes") for t in titles))
    rows = tuple(
        (elided(name, limit=80), int(row.sum()), *row.tolist())
        for name, row in zip(names, sums, strict=True)
    )
    cuts = [n_of_m(len(names), cut_from, f"{what}s"), spans_of_bins(spans, bins)]
    return Table(columns, rows, "; ".join(cut for cut in cuts if cut))


def _spec(labels: list[str], unit: str, span: tuple[float, float]) -> Spec:
    heat = {
        "type": "heatmap",
        "y": labels,
        "zmin": 0,
        "colorscale": palette.scale(palette.RAMP, power=2),
        "colorbar": palette.colorbar(f" {unit}/s"),
        "hoverongaps": False,
        "hovertemplate": "%{y}, at %{x:.4g} s: %{z:.3g} " + f"{unit}/s<extra></extra>",
    }
    layout = palette.time_layout(
        124 + min(max(24 * len(labels), 60), 420),
        xaxis=palette.time_axis(showgrid=False, range=list(span)),
        yaxis={**palette.rank_axis(labels), "type": "category"},
    )
    return {"data": [heat], "layout": layout}


SECTION = Section("heatmap", (figure, by_file))
