"""Figures for papers, a function each: I/O over time, by rank, size and order, and in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import FigureBase
from matplotlib.ticker import FuncFormatter

from vanidl.analyses.profiled_steps import StepTable
from vanidl.analyses.timeline import JobTimeline
from vanidl.breakdown.account import MEAN, RUN, WAIT
from vanidl.breakdown.causes import STORAGE
from vanidl.figures.downsample import compute_rates, fold_bins
from vanidl.formatting.units import bandwidth, byte_scale, count, nbytes, percent, seconds
from vanidl.model.trace import Trace
from vanidl.paper.style import READS, STEPS, WAITS, WRITES, Series, drawable, legend
from vanidl.run import Run
from vanidl.sections.breakdown import range_words
from vanidl.sections.overlap import choose_parts, pick_ranks, read_values, shows_waits
from vanidl.sections.requests import ACCESS_PARTS, COUNTED_ACCESS_PARTS, count_operations
from vanidl.sections.steps import ShownSteps, choose_steps, choose_waits

# Access pattern: does each request follow the one before it?

_ACCESS_HATCH = {"first": "", "consecutive": "", "forward": "////", "backward": "\\\\\\\\"}


def draw_access(figure: FigureBase, run: Run) -> None:
    """One bar of reads and one of writes, each 100 % in all."""
    access = run.access
    if access is None:
        raise ValueError("expected an access pattern, found none: nothing to draw")
    sides = [(n, c) for n, c in (("reads", access.read), ("writes", access.write)) if c.ops]
    axes = figure.subplots()
    left = [0.0] * len(sides)
    for attribute, name, colour, _ in (
        COUNTED_ACCESS_PARTS if access.source == "counters" else ACCESS_PARTS
    ):
        share = [100 * count_operations(counts, attribute) / counts.ops for _, counts in sides]
        axes.barh(
            range(len(sides)),
            share,
            0.62,
            left,
            **Series(name, colour, _ACCESS_HATCH[attribute]).fill,
        )
        left = [a + b for a, b in zip(left, share, strict=True)]
    # The first side on top, as it is read.
    axes.set_yticks(range(len(sides)), [f"{side}\n{counts.ops:,}" for side, counts in sides])
    axes.set_ylim(len(sides) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of the operations")
    axes.tick_params(axis="y", length=0)
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, borderaxespad=0.2, columnspacing=1.0
    )


# Where each rank's I/O went: waited for, hidden, behind communication, other, unobserved.

MOST_RANKS = 12
_OVERLAP_HATCH = {
    "in_wait_s": "",
    "behind_communication_s": "....",
    "other_s": "xxxx",
    "hidden_s": "////",
    "unknown_s": "----",
    "unobserved_s": "",
}


def draw_overlap(figure: FigureBase, run: Run) -> None:
    """One bar per rank, the mean first; beyond `MOST_RANKS` those with the longest input wait."""
    overlap = run.overlap
    if overlap is None:
        raise ValueError("expected an overlap, found none: nothing to draw")
    rows = pick_ranks(overlap, MOST_RANKS)
    axes = figure.subplots()
    left = [0.0] * len(rows)
    values_of = read_values(rows)
    for attribute, name, colour, _ in choose_parts(values_of):
        values = [value or 0.0 for value in values_of(attribute)]
        series = Series(name, colour, _OVERLAP_HATCH[attribute])
        axes.barh(range(len(rows)), values, 0.66, left, **series.fill)
        left = [a + b for a, b in zip(left, values, strict=True)]
    if shows_waits(values_of):
        waits = [
            (value, i) for i, value in enumerate(values_of("input_wait_s")) if value is not None
        ]
        wait_s, lane = zip(*waits, strict=True)
        axes.plot(
            wait_s, lane, color="black", label="whole input wait", marker="D", linestyle="none",
            markersize=4, markerfacecolor="white",
        )  # fmt: skip
    axes.set_yticks(range(len(rows)), [drawable(row.label, limit=18) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    # Beside the bars of ranks stands the one of their mean.
    ranks = len(overlap.per_rank)
    cut = len(rows) - 1 < ranks > MOST_RANKS
    chosen = f"\n({MOST_RANKS} of {ranks:,} ranks, longest waits)" if cut else ""
    axes.set_xlabel(f"seconds in I/O{chosen}")
    if axes.get_legend_handles_labels()[0]:  # none where no part is long enough to be seen
        figure.legend(loc="outside upper left", ncols=2, borderaxespad=0.2, columnspacing=1.0)


def count_bars(run: Run) -> int:
    """How many bars there are."""
    return len(pick_ranks(run.overlap, MOST_RANKS)) if run.overlap else 0


# Which rank moved data when.

RANK_BINS = 256
_MOST_RANK_LABELS = 12


def draw_ranks(figure: FigureBase, run: Run) -> None:
    """One line per rank or group of ranks; darker means more bytes per second, white none."""
    line = run.timeline
    if line is None:
        raise ValueError("expected a timeline, found none: nothing to draw")
    edges, sums = fold_bins(line.edges_s, line.bytes_read + line.bytes_written, RANK_BINS)
    speed = compute_rates(edges, sums)
    divisor, unit = byte_scale(float(speed.max(initial=0.0)))
    axes = figure.subplots()
    shown = np.ma.masked_equal(speed / divisor, 0)
    rows = len(line.row_labels)
    most = float(shown.max()) if shown.count() else 1.0
    # Greys without their lightest part, so that little differs from nothing.
    greys = LinearSegmentedColormap.from_list("io", ["#d0d0d0", "#000000"])
    mesh = axes.pcolormesh(
        edges, np.arange(rows + 1) - 0.5, shown, cmap=greys, rasterized=True,
        norm=PowerNorm(0.5, 0, most),
    )  # fmt: skip
    every = -(-rows // _MOST_RANK_LABELS)
    places = list(range(0, rows, every))
    axes.set_yticks(places, [drawable(line.row_labels[i], limit=18) for i in places])
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_xlabel("seconds since the start of the job")
    bar = figure.colorbar(mesh, ax=axes, pad=0.02, aspect=16)
    bar.set_label(f"{unit}/s")


# Request sizes: how many operations moved that many bytes, and how much they moved.

_MOST_LABELS = 10


def draw_sizes(figure: FigureBase, run: Run) -> None:
    """Bars of operations, and of bytes below where single operations were traced."""
    traced = run.sizes.histogram
    with_bytes = bool(traced) and all(b.bytes_read is not None for b in traced)
    bins = traced or run.sizes.darshan_histogram
    axes = figure.subplots(2 if with_bytes else 1, 1, sharex=True, squeeze=False)[:, 0]
    _draw_bars(axes[0], [b.reads for b in bins], [b.writes for b in bins])
    axes[0].set_ylabel("operations")
    legend(axes[0])
    if with_bytes:
        read, written = ([getattr(b, n) for b in bins] for n in _BYTES)
        divisor, unit = byte_scale(max(*read, *written))
        _draw_bars(axes[1], [v / divisor for v in read], [v / divisor for v in written])
        axes[1].set_ylabel(unit)
    # Names of some sizes only, where there are many.
    places = list(range(0, len(bins), -(-len(bins) // _MOST_LABELS)))
    axes[-1].set_xticks(places, [nbytes(bins[i].low) for i in places], rotation=35, ha="right")
    axes[-1].tick_params(axis="x", pad=1)
    axes[-1].set_xlabel("size of the request, from")
    figure.align_ylabels(list(axes))


_BYTES = ("bytes_read", "bytes_written")


def _draw_bars(axes: Axes, read: Sequence[float], written: Sequence[float]) -> None:
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


# The run in numbers: one short table.


def draw_summary(figure: FigureBase, run: Run) -> None:
    """Quantities on the left, values on the right, a thin line between rows.

    Values of cells carry the key of theirs, as the id of their group in SVG.
    """
    rows = _list_quantities(run)
    axes = figure.subplots()
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(len(rows), 0)
    for i, (quantity, value, cell) in enumerate(rows):
        axes.text(0, i + 0.5, quantity, va="center", color="#333333")
        said = axes.text(1, i + 0.5, drawable(value, limit=40), va="center", ha="right")
        if cell:
            said.set_gid(f"cell:{cell}")
        axes.axhline(i + 1, color="#cccccc", linewidth=0.4)


def _list_quantities(run: Run) -> list[tuple[str, str, str]]:
    """Quantity, value, and the key of the cell that it is, "" where it is none."""
    summary, overlap, account = run.summary, run.overlap, run.breakdown
    time, stored = summary.time, f"{MEAN}/{RUN}/{STORAGE}"
    rows = [
        ("run time", seconds(run.trace.job.run_time_s), ""),
        ("ranks", count(len(run.trace.ranks)), ""),
        (f"operations through {summary.layer}", count(summary.ops), ""),
        ("bytes read", nbytes(summary.bytes_read), ""),
        ("bytes written", nbytes(summary.bytes_written), ""),
        ("bandwidth while any rank is in I/O", bandwidth(summary.aggregate_bytes_per_s), ""),
    ]
    if account.observed.any():
        # Of training the account says what it felt; this is what its processes did.
        busy_s = time.per_rank_mean_s if time else None
        rows.append(("busy with operations, mean over ranks", seconds(busy_s), ""))
    else:
        cell = account.cell(stored)
        rows.append(("time in storage, mean over ranks", range_words(cell), stored))
    if overlap is not None:
        waited = f"{MEAN}/{WAIT}/" if overlap.input_wait_share is not None else ""
        rows += [
            ("input wait, share of the steps", percent(overlap.input_wait_share), waited),
            ("I/O in the steps that is hidden", percent(overlap.hidden_fraction), ""),
        ]
    return rows


BINS = 256
MAX_LANES = 8  # ranks whose steps are drawn


def draw_timeline(figure: FigureBase, run: Run) -> None:
    """Bandwidth of the whole job, and the steps with their input waits where they are known."""
    job = run.timeline.job if run.timeline else None
    table = run.steps.table if run.steps else None
    if table is not None and table.undated_s is not None:
        table = None  # durations without a place in time
    shown = choose_steps(table, max_ranks=MAX_LANES) if table is not None else None
    heights = [*([3.0] if job else []), *([0.5 + 0.28 * len(shown.ranks)] if shown else [])]
    axes = figure.subplots(
        len(heights), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )[:, 0]
    if job:
        _draw_rates(axes[0], job)
    if table is not None and shown:
        _draw_steps(axes[-1], run.trace, table, shown)
    cut = f"\n({shown.cut})" if shown and shown.cut else ""
    axes[-1].set_xlabel(f"seconds since the start of the job{cut}")
    axes[0].margins(x=0.01)


def _draw_rates(axes: Axes, job: JobTimeline) -> None:
    amounts = np.stack([job.bytes_read, job.bytes_written])
    edges, sums = fold_bins(job.edges_s, amounts, BINS)
    speed = compute_rates(edges, sums)
    divisor, unit = byte_scale(float(speed.max(initial=0.0)))
    # Reads above the axis, writes below: no series hides the other in black and white.
    for series, values, sign in ((READS, speed[0], 1), (WRITES, speed[1], -1)):
        if values.any():
            style = {**series.fill, "linewidth": 0.25}
            axes.stairs(sign * values / divisor, edges, baseline=0, fill=True, **style)
    axes.axhline(0, color="#444444", linewidth=0.6)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{abs(v):g}"))
    axes.set_ylabel(f"{unit}/s")
    axes.grid(axis="y")
    legend(axes)


def _draw_steps(axes: Axes, trace: Trace, table: StepTable, shown: ShownSteps) -> None:
    # Boxes of steps, and on them those of the waits.
    rows = shown.rows
    waits = choose_waits(trace, shown.ranks)
    step_lane = np.searchsorted(shown.ranks, table.rank[rows])
    wait_lane = np.searchsorted(shown.ranks, waits.rank)
    length = table.end_s[rows] - table.start_s[rows]
    _draw_boxes(
        axes,
        step_lane,
        (table.start_s[rows], length),
        {**STEPS.fill, "linewidth": 0.15 if len(rows) < 400 else 0},
    )
    if len(waits.rank):
        _draw_boxes(
            axes, wait_lane, (waits.start_s, waits.length_s), {**WAITS.fill, "linewidth": 0}
        )
    labels = [drawable(trace.processes[trace.ranks[r]].label, limit=14) for r in shown.ranks]
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    legend(axes)


def _draw_boxes(
    axes: Axes,
    lane: np.ndarray[Any, Any],
    spans: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
    style: dict[str, Any],
) -> None:
    label = style["label"]
    for row in np.unique(lane).tolist():
        mine = lane == row
        bars = np.stack([spans[0][mine], spans[1][mine]], axis=1)
        axes.broken_barh(bars.tolist(), (row - 0.37, 0.74), **{**style, "label": label})
        label = "_again"  # one entry in the legend
