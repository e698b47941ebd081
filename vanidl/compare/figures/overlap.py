"""Where the I/O of each side went: waited for, hidden, or neither."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vanidl.breakdown.overlap import RankOverlap
from vanidl.compare import Comparison, Side
from vanidl.compare.figures.sides import named
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.sections.overlap import (
    OVERLAP_PARTS,
    choose_parts,
    draw_bars,
    explain_parts,
    explain_waits,
)

_CAPTION = "Time in I/O of each side, mean over ranks and runs."
_COLUMNS = (
    ("window_s", "window"),
    ("io_s", "I/O"),
    *((attribute, name) for attribute, name, _, _ in OVERLAP_PARTS),
    ("exposed_s", "exposed"),
    ("compute_s", "compute"),
    ("input_wait_s", "input wait"),
    ("input_wait_io_s", "of it I/O"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds of one side; None where a run did not record them."""

    side: Side
    seconds: dict[str, float | None]


def draw_overlap(comparison: Comparison) -> Figure:
    """One stacked bar a side."""
    rows = [Row(side, _average_runs(side)) for side in comparison.sides]
    table = Table(
        (Column("side"), *(Column(title, "s") for _, title in _COLUMNS)),
        tuple((r.side.letter, *(r.seconds[name] for name, _ in _COLUMNS)) for r in rows),
    )
    drawn = [row for row in rows if row.seconds["io_s"] is not None]
    if not drawn:
        reason = "No side has both profiled steps and I/O operations traced one by one."
        return _record("", table=table, reason=reason)
    missing = [row.side.letter for row in rows if row not in drawn]
    note = f" Not recorded: {', '.join(missing)}." if missing else ""
    values = _values(drawn)
    parts = choose_parts(values)
    words = f"{_CAPTION} {explain_parts(parts)}{explain_waits(parts, values)}{note}"
    labels = [named(row.side, limit=22) for row in drawn]
    spec = draw_bars(values, labels, [row.side.letter for row in drawn], 120 + 48 * len(drawn))
    return _record(words, spec=spec, table=table)


def _record(
    caption: str, *, spec: Spec | None = None, table: Table | None = None, reason: str = ""
) -> Figure:
    title = "Is the I/O hidden or exposed?"
    return Figure("overlap", "Input and compute", title, caption, spec, table, reason)


def _average_runs(side: Side) -> dict[str, float | None]:
    """The mean over the runs of each quantity; None where any run did not record it."""
    rows = [
        sample.account.overlap.mean
        for sample in side.samples
        if sample.account is not None and sample.account.overlap is not None
    ]
    return {name: _average(rows, name) for name, _ in _COLUMNS}


def _average(rows: list[RankOverlap], name: str) -> float | None:
    values = [getattr(row, name) for row in rows]
    return sum(values) / len(values) if values and None not in values else None


def _values(rows: list[Row]) -> Callable[[str], list[float | None]]:
    return lambda name: [row.seconds[name] for row in rows]
