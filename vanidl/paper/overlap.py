"""Where each rank's I/O went: waited for, hidden, behind communication, other, unobserved."""

from __future__ import annotations

from matplotlib.figure import FigureBase

from vanidl.breakdown.overlap import Overlap, RankOverlap
from vanidl.paper.style import Series, drawable
from vanidl.run import Run
from vanidl.sections.overlap import PARTS

LIMIT = 12
_HATCH = {
    "in_wait_s": "",
    "behind_communication_s": "....",
    "other_s": "xxxx",
    "hidden_s": "////",
    "unknown_s": "----",
    "unobserved_s": "",
}


def draw(figure: FigureBase, run: Run) -> None:
    """One bar per rank, the mean first; beyond LIMIT ranks those with the longest input wait."""
    overlap = run.overlap
    if overlap is None:
        raise ValueError("expected an overlap, found none: nothing to draw")
    rows = _picked(overlap)
    axes = figure.subplots()
    left = [0.0] * len(rows)
    for attribute, name, colour, _ in PARTS:
        values = [getattr(row, attribute) or 0.0 for row in rows]
        if not any(values):
            continue
        series = Series(name, colour, _HATCH[attribute])
        axes.barh(range(len(rows)), values, 0.66, left, **series.fill)
        left = [a + b for a, b in zip(left, values, strict=True)]
    waits = [(row.input_wait_s, i) for i, row in enumerate(rows) if row.input_wait_s is not None]
    if waits:
        wait_s, lane = zip(*waits, strict=True)
        axes.plot(
            wait_s, lane, color="black", label="whole input wait", marker="D", linestyle="none",
            markersize=4, markerfacecolor="white",
        )  # fmt: skip
    axes.set_yticks(range(len(rows)), [drawable(row.label, limit=18) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(_axis_title(len(rows), overlap))
    figure.legend(loc="outside upper left", ncols=2, borderaxespad=0.2, columnspacing=1.0)


def lanes(run: Run) -> int:
    """How many bars there are."""
    return len(_picked(run.overlap)) if run.overlap else 0


def _picked(overlap: Overlap) -> tuple[RankOverlap, ...]:
    ranks = overlap.per_rank
    if len(ranks) <= 1:
        return ranks
    order = sorted(range(len(ranks)), key=lambda i: -(ranks[i].input_wait_s or 0.0))
    return (overlap.mean, *(ranks[i] for i in sorted(order[:LIMIT])))


def _axis_title(rows: int, overlap: Overlap) -> str:
    ranks = len(overlap.per_rank)
    cut = f"\n({LIMIT} of {ranks:,} ranks, longest waits)" if rows - 1 < ranks > LIMIT else ""
    return f"seconds in I/O{cut}"
