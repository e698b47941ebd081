"""What happened when: the trace viewer, and heat maps of ranks, layers and files over time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.profiled_steps import Steps
from vanidl.analyses.timeline import JobTimeline, Timeline
from vanidl.figures import palette
from vanidl.figures.downsample import build_levels, fold_bins, n_of_m
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.names import distinct, elided, plotted
from vanidl.formatting.units import byte_scale, change, count, nbytes, plural, seconds
from vanidl.model.trace import DFS, MPIIO, POSIX, STDIO
from vanidl.run import Run
from vanidl.schema.schema import Maybe
from vanidl.sections.section import Json, Object, Section
from vanidl.viewer.content import Content, Room, Slices
from vanidl.viewer.payload import fitted
from vanidl.wording.tracing import advise_tracing

TABLE_SPANS = 64
_BANDWIDTH = "bytes per second of the whole job."
_STEPS = "steps with their numbers, what they waited for, what they computed"
_READS = "each read and write as a slice"
_BY_FATE = f"{_READS} in the colour of what became of it"
_NARROW = (
    "Where a slice is narrower than a pixel, the filled part of a column is the part of its time "
    "that was busy."
)
_ZOOM = "Click into the picture, then the wheel zooms; drag to zoom to a time"
_NOTHING = (
    "Neither single operations nor training steps were recorded, so nothing is known about when "
    "the I/O happened. {}."
)


def draw_timeline(run: Run, room: Room = Room(), slices: Slices | None = None) -> Figure:  # noqa: B008  (frozen)
    """The slices of the run, those that were gathered before, and the table of its bandwidth."""
    io, steps = run.timeline, run.steps
    # Steps without a date have no place in time.
    if steps is not None and steps.table.undated_s is not None:
        steps = None
    # Nor do operations that were only counted over long pieces of it.
    if io is not None and (reason := explain_coarse_bins(io, run)):
        if steps is None:
            return _compose_timeline("", reason=reason)
        io = None
    if io is None and steps is None:
        return _compose_timeline("", reason=_NOTHING.format(advise_tracing(run.trace)))
    if steps is None and io is not None and not (io.bytes_read.any() or io.bytes_written.any()):
        return _compose_timeline(
            "", reason="No bytes were moved, so there is nothing to show over time."
        )
    job = io.job if io else None
    # What of the slices fits into the page, and what the viewer needs beside.
    content, viewer = fitted(slices or Slices(run), job, room)
    words = [
        _say_what_is_drawn(viewer),
        note_heatmap(io) if io else "",
        _say_what_is_missing(content, served=room.served),
    ]
    table = _tabulate_timeline(job) if job else None
    made = _compose_timeline(" ".join(word for word in words if word), viewer=viewer)
    return replace(made, table=table, alt_text=_describe_timeline(job, steps))


def _say_what_is_drawn(viewer: Spec) -> str:
    """What is drawn, and how to look closer."""
    kinds = {lane["kind"] for lane in viewer["lanes"]}
    if not kinds:
        return f"{_BANDWIDTH.capitalize()} {_ZOOM}."
    top = ["Top:", _BANDWIDTH] if viewer["bandwidth"] else []
    reads = _BY_FATE if viewer["byFate"] else _READS
    slices = [words for words, some in ((_STEPS, kinds - {"io"}), (reads, kinds & {"io"})) if some]
    below = f"{'Below, per' if top else 'Per'} rank: {', and '.join(slices)}."
    return " ".join([*top, below, _NARROW, f"{_ZOOM}; click a slice to see what it is."])


def note_heatmap(io: Timeline) -> str:
    """Where the bins of an untraced run come from, "" for a traced one."""
    if io.source != "heatmap":
        return ""
    width = seconds(float(io.edges_s[1] - io.edges_s[0]))
    return (
        f"From the tracer's heat map, bins of {width}: no single operation was traced, so nothing "
        "shorter than a bin can be seen."
    )


def explain_coarse_bins(io: Timeline, run: Run) -> str:
    """Why bins say nothing about when: the tracer's heat map has one; "" where they do."""
    if io.source != "heatmap" or len(io.edges_s) > 2:
        return ""
    width = seconds(float(np.diff(io.edges_s)[0]))
    return (
        f"The tracer's heat map has a single bin of {width}, which holds the whole run, and no "
        "single operation was traced, so nothing is known about when the I/O happened. "
        f"{advise_tracing(run.trace)}."
    )


def _say_what_is_missing(content: Content, *, served: bool) -> str:
    """What the page does not hold, "" where it holds all."""
    words = []
    if content.held_count < content.total_count and not served:
        words.append(
            f"This page holds {count(content.held_count)} of {count(content.total_count)} slices"
            + (", all of those in the worst steps" if content.worst and content.windows else "")
            + ". Of the others it shows how much of each bin was busy; vanidl view RUN shows "
            "every one of them."
        )
    if content.ranks_cut:
        words.append(f"Shown: {content.ranks_cut}.")
    return " ".join(words)


def _compose_timeline(caption: str, *, viewer: Spec | None = None, reason: str = "") -> Figure:
    title = "I/O and training steps"
    return Figure("timeline", "Over time", title, caption, None, None, reason, viewer=viewer)


def _describe_timeline(job: JobTimeline | None, steps: Steps | None) -> str:
    """When most was read and written, and where the steps lie, in words."""
    words = []
    for name, amounts in (("read", job.bytes_read), ("written", job.bytes_written)) if job else ():
        if job and amounts.any():
            most = seconds(float(job.edges_s[int(amounts.argmax())]))
            words.append(f"{nbytes(int(amounts.sum()))} are {name}, most at {most}.")
    if steps is not None and len(steps.table.start_s):
        first, last = float(steps.table.start_s.min()), float(steps.table.end_s.max())
        words.append(
            f"{plural(len(steps.table.step), 'training step')} from {seconds(first)} to "
            f"{seconds(last)}."
        )
    return " ".join(words)


def _tabulate_timeline(job: JobTimeline) -> Table:
    """The job in few spans of time, each the exact sum of its bins."""
    known = [part for part in _SPAN_COLUMNS if getattr(job, part[0]) is not None]
    amounts = np.stack([getattr(job, name) for name, _, _ in known])
    bounds, sums = fold_bins(job.edges_s, amounts, TABLE_SPANS)
    columns = (
        Column("from", "instant"),
        Column("to", "instant"),
        *(Column(t, u) for _, t, u in known),
    )
    spans = zip(pairwise(bounds.tolist()), sums.T.tolist(), strict=True)
    rows = tuple((low, high, *row) for (low, high), row in spans)
    return Table(columns, rows, name_spans(len(rows), amounts.shape[1]))


def name_spans(spans: int, bins: int) -> str:
    """How a table of spans was made."""
    return f"{plural(spans, 'span')}, the sums of {plural(bins, 'bin')}"


_SPAN_COLUMNS = (
    ("bytes_read", "read", "bytes"),
    ("bytes_written", "written", "bytes"),
    ("reads", "reads", "count"),
    ("writes", "writes", "count"),
)


def _collect_timeline(run: Run) -> Object | None:
    timeline = run.timeline
    if timeline is None:
        return None
    bins = len(timeline.edges_s) - 1
    return {"source": timeline.source, "bins": bins,
            "bin_s": float(timeline.edges_s[1] - timeline.edges_s[0])}  # fmt: skip


_TIMELINE_KIND = Maybe({"source": str, "bins": int, "bin_s": float})
TIMELINE = Section(
    "timeline", (draw_timeline,), json={"io.timeline": Json(_collect_timeline, _TIMELINE_KIND)}
)


# Which rank, and which file, moved data when.

Int64Array = NDArray[np.int64]

LINE_SPANS = 8  # spans of time in the text, which has a line for them
TABLE_FILES = 100
TABLE_ROWS = 128
_HEAT_CAPTION = (
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


def draw_ranks_over_time(run: Run) -> Figure:
    """Bytes per second by rank and time."""
    names = ("heatmap", "I/O by rank and time", "per rank")
    if run.timeline is None:
        return leave_heat_empty(names, _NO_TRACE.format("rank", advise_tracing(run.trace)))
    return _draw_ranks(names, run.timeline, run)


def draw_layer_over_time(run: Run, layer: str) -> Figure:
    """The same from the heat map that Darshan keeps of a layer that the run is not seen through."""
    names = (f"heatmap-{layer.lower()}", f"I/O by rank and time through {layer}", layer)
    found = run.results.heatmaps.get(layer)
    if found is None or layer == run.summary.layer:
        reason = f"The log holds no heat map of {layer} beside what is shown above."
        return replace(leave_heat_empty(names, reason), applies=False)
    return _draw_ranks(names, found, run)


def _draw_ranks(names: tuple[str, str, str], timeline: Timeline, run: Run) -> Figure:
    moved = timeline.bytes_read + timeline.bytes_written
    if reason := explain_coarse_bins(timeline, run):
        return leave_heat_empty(names, reason)
    if not moved.any():
        return leave_heat_empty(names, _NO_BYTES)
    labels = [plotted(label) for label in timeline.row_labels]
    # Of many ranks neighbours share a row.
    grouped = len(labels) < timeline.ranks
    one = "group of neighbouring ranks" if grouped else "rank"
    of_all = f" ({timeline.ranks:,} ranks in all)" if grouped else ""
    shown = timeline.row_labels[:TABLE_ROWS]
    lines = len(timeline.row_labels)
    table = tabulate_lines("rank", shown, timeline.edges_s, moved[:TABLE_ROWS], cut_from=lines)
    many = _MANY_RANKS if lines > 1 else ""
    words = [f"One line per {one}{of_all}{_HEAT_CAPTION}{many}", note_heatmap(timeline)]
    caption = " ".join(word for word in words if word)
    return compose_heat(names, caption, labels, (timeline.edges_s, moved), table)


def draw_files_over_time(run: Run) -> Figure:
    """Bytes per second by file and time."""
    line = run.results.filetimeline
    names = ("filemap", "I/O by file and time", "per file")
    if line is None:
        return leave_heat_empty(names, _NO_TRACE.format("file", advise_tracing(run.trace)))
    moved = line.bytes_read + line.bytes_written
    if not moved.any():
        return leave_heat_empty(names, _NO_BYTES)
    labels = [plotted(path) for path in line.paths]
    cut = n_of_m(len(labels), line.files, "files, those with most traffic")
    shown = line.paths[:TABLE_FILES]
    table = tabulate_lines("file", shown, line.edges_s, moved[:TABLE_FILES], cut_from=line.files)
    caption = _FILES_CAPTION + (_MANY_FILES if len(labels) > 1 else "")
    caption += f" Shown: {cut}." if cut else ""
    return compose_heat(names, caption, labels, (line.edges_s, moved), table)


def leave_heat_empty(names: tuple[str, str, str], reason: str) -> Figure:
    """A heat map (its name, title and view) that says why there is nothing to draw."""
    name, title, view = names
    return Figure(name, "Over time", title, "", empty_reason=reason, view=view)


def compose_heat(
    names: tuple[str, str, str],
    caption: str,
    labels: list[str],
    amounts: tuple[NDArray[np.float64], Int64Array],
    table: Table,
) -> Figure:
    """A heat map of labelled lines; `amounts` are the edges of its bins and what each moved."""
    name, title, view = names
    edges_s, moved = amounts
    # The unit of the colours fits the coarsest level, which is seen first.
    coarse = build_levels(edges_s, (moved,), 1).series[0][-1]
    width = (edges_s[-1] - edges_s[0]) / coarse.shape[1]
    divisor, unit = byte_scale(float(coarse.max()) / max(float(width), 1e-9))
    levels = build_levels(edges_s, (moved,), divisor)
    names_of_lines = distinct(labels)
    heat = {
        "type": "heatmap",
        "y": names_of_lines,
        "zmin": 0,
        "colorscale": palette.scale(palette.RAMP, power=2),
        "colorbar": palette.colorbar(f" {unit}/s"),
        "hoverongaps": False,
        "hovertemplate": "%{y}, at %{x:.4g} s: %{z:.3g} " + f"{unit}/s<extra></extra>",
    }
    layout = palette.time_layout(
        124 + min(max(24 * len(labels), 60), 420),
        xaxis=palette.time_axis(showgrid=False, range=[levels.start_s, levels.end_s]),
        yaxis={**palette.rank_axis(names_of_lines), "type": "category"},
    )
    # The busiest line and the busiest moment, in words.
    by_line, over_time = moved.sum(axis=1), moved.sum(axis=0)
    line, moment = int(by_line.argmax()), int(over_time.argmax())
    alt_text = (
        f"{plural(len(labels), 'line')}. Most is moved by {labels[line]}, "
        f"{nbytes(int(by_line[line]))} of {nbytes(int(moved.sum()))}; "
        f"the busiest moment is {seconds(float(edges_s[moment]))} after the start."
    )
    spec = {"data": [heat], "layout": layout}
    return Figure(name, "Over time", title, caption, spec, table, "", alt_text, view, levels)


def tabulate_lines(
    what: str,
    names: tuple[str, ...],
    edges_s: NDArray[np.float64],
    moved: Int64Array,
    *,
    cut_from: int = 0,
) -> Table:
    """Bytes of each line in a few spans of time, each the exact sum of its bins."""
    bins = moved.shape[1]
    bounds, sums = fold_bins(edges_s, moved, LINE_SPANS)
    spans = sums.shape[1]
    titles = [change(float(a), float(b)) for a, b in pairwise(bounds)]
    columns = (Column(what), Column("all", "bytes"), *(Column(t, "bytes") for t in titles))
    rows = tuple(
        (elided(name, limit=80), int(row.sum()), *row.tolist())
        for name, row in zip(names, sums, strict=True)
    )
    cuts = [n_of_m(len(names), cut_from, f"{what}s"), name_spans(spans, bins)]
    return Table(columns, rows, "; ".join(cut for cut in cuts if cut))


_OF_LAYERS = (partial(draw_layer_over_time, layer=layer) for layer in (POSIX, MPIIO, STDIO, DFS))
HEATMAP = Section("heatmap", (draw_ranks_over_time, *_OF_LAYERS, draw_files_over_time))
