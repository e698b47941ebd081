"""The trace viewer: bandwidth, steps, waits, compute and single operations on one axis of time."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from vanidl.analyses.steps import Steps
from vanidl.analyses.timeline import JobTimeline, Timeline
from vanidl.figures.downsample import fold_bins
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.units import count, nbytes, plural, seconds
from vanidl.run import Run
from vanidl.schema import Maybe
from vanidl.sections.section import Json, Object, Section
from vanidl.viewer.content import Content, Room, Slices
from vanidl.viewer.payload import fitted
from vanidl.wording.tracing import record_operations

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


def figure(run: Run, room: Room = Room(), slices: Slices | None = None) -> Figure:  # noqa: B008  (frozen)
    """The slices of the run, those that were gathered before, and the table of its bandwidth."""
    io, steps = run.timeline, run.steps
    if steps is not None and steps.table.undated_s is not None:
        steps = None
    if io is not None and (reason := too_coarse(io, run)):
        if steps is None:
            return _record("", reason=reason)
        io = None
    if io is None and steps is None:
        return _record("", reason=_NOTHING.format(record_operations(run.trace)))
    if steps is None and io is not None and not (io.bytes_read.any() or io.bytes_written.any()):
        return _record("", reason="No bytes were moved, so there is nothing to show over time.")
    job = io.job if io else None
    content, viewer = fitted(slices or Slices(run), job, room)
    words = [_shown(viewer), heatmap_note(io) if io else "", _held(content, served=room.served)]
    table = _table(job) if job else None
    made = _record(" ".join(word for word in words if word), viewer=viewer)
    return replace(made, table=table, alt_text=_alt_text(job, steps))


def _shown(viewer: Spec) -> str:
    """What is drawn, and how to look closer."""
    kinds = {lane["kind"] for lane in viewer["lanes"]}
    if not kinds:
        return f"{_BANDWIDTH.capitalize()} {_ZOOM}."
    top = ["Top:", _BANDWIDTH] if viewer["bandwidth"] else []
    reads = _BY_FATE if viewer["byFate"] else _READS
    slices = [words for words, some in ((_STEPS, kinds - {"io"}), (reads, kinds & {"io"})) if some]
    below = f"{'Below, per' if top else 'Per'} rank: {', and '.join(slices)}."
    return " ".join([*top, below, _NARROW, f"{_ZOOM}; click a slice to see what it is."])


def heatmap_note(io: Timeline) -> str:
    """Where the bins of an untraced run come from, "" for a traced one."""
    if io.source != "heatmap":
        return ""
    width = seconds(float(io.edges_s[1] - io.edges_s[0]))
    return (
        f"From the tracer's heat map, bins of {width}: no single operation was traced, so nothing "
        "shorter than a bin can be seen."
    )


def too_coarse(io: Timeline, run: Run) -> str:
    """Why bins say nothing about when: the tracer's heat map has one; "" where they do."""
    if io.source != "heatmap" or len(io.edges_s) > 2:
        return ""
    width = seconds(float(np.diff(io.edges_s)[0]))
    return (
        f"The tracer's heat map has a single bin of {width}, which holds the whole run, and no "
        "single operation was traced, so nothing is known about when the I/O happened. "
        f"{record_operations(run.trace)}."
    )


def _held(content: Content, *, served: bool) -> str:
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


def _record(caption: str, *, viewer: Spec | None = None, reason: str = "") -> Figure:
    title = "I/O and training steps"
    return Figure("timeline", "Over time", title, caption, None, None, reason, viewer=viewer)


def _alt_text(job: JobTimeline | None, steps: Steps | None) -> str:
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


def _table(job: JobTimeline) -> Table:
    """The job in few spans of time, each the exact sum of its bins."""
    known = [part for part in _COLUMNS if getattr(job, part[0]) is not None]
    amounts = np.stack([getattr(job, name) for name, _, _ in known])
    bounds, sums = fold_bins(job.edges_s, amounts, TABLE_SPANS)
    columns = (
        Column("from", "instant"),
        Column("to", "instant"),
        *(Column(t, u) for _, t, u in known),
    )
    spans = zip(pairwise(bounds.tolist()), sums.T.tolist(), strict=True)
    rows = tuple((low, high, *row) for (low, high), row in spans)
    return Table(columns, rows, spans_of_bins(len(rows), amounts.shape[1]))


def spans_of_bins(spans: int, bins: int) -> str:
    """How a table of spans was made."""
    return f"{plural(spans, 'span')}, the sums of {plural(bins, 'bin')}"


_COLUMNS = (
    ("bytes_read", "read", "bytes"),
    ("bytes_written", "written", "bytes"),
    ("reads", "reads", "count"),
    ("writes", "writes", "count"),
)


def _json(run: Run) -> Object | None:
    timeline = run.timeline
    if timeline is None:
        return None
    bins = len(timeline.edges_s) - 1
    return {"source": timeline.source, "bins": bins,
            "bin_s": float(timeline.edges_s[1] - timeline.edges_s[0])}  # fmt: skip


_KIND = Maybe({"source": str, "bins": int, "bin_s": float})
SECTION = Section("timeline", (figure,), json={"io.timeline": Json(_json, _KIND)})
