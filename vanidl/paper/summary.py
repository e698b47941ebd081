"""The run in numbers: one short table."""

from __future__ import annotations

from matplotlib.figure import FigureBase

from vanidl.formatting.units import bandwidth, count, nbytes, percent, seconds
from vanidl.paper.style import drawable
from vanidl.run import Run


def draw(figure: FigureBase, run: Run) -> None:
    """Quantities on the left, values on the right, a thin line between rows."""
    rows = _rows(run)
    axes = figure.subplots()
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(len(rows), 0)
    for i, (quantity, value) in enumerate(rows):
        axes.text(0, i + 0.5, quantity, va="center", color="#333333")
        axes.text(1, i + 0.5, drawable(value, limit=40), va="center", ha="right")
        axes.axhline(i + 1, color="#cccccc", linewidth=0.4)


def _rows(run: Run) -> list[tuple[str, str]]:
    summary, overlap = run.summary, run.overlap
    time = summary.time
    rows = [
        ("run time", seconds(run.trace.job.run_time_s)),
        ("ranks", count(len(run.trace.ranks))),
        (f"operations through {summary.layer}", count(summary.ops)),
        ("bytes read", nbytes(summary.bytes_read)),
        ("bytes written", nbytes(summary.bytes_written)),
        ("time in I/O, mean over ranks", seconds(time.per_rank_mean_s if time else None)),
        ("share of the run time", percent(time.share if time else None)),
        ("bandwidth while any rank is in I/O", bandwidth(summary.aggregate_bytes_per_s)),
    ]
    if overlap is not None:
        rows += [
            ("input wait, share of the steps", percent(overlap.input_wait_share)),
            ("I/O in the steps that is hidden", percent(overlap.hidden_fraction)),
        ]
    return rows
