"""Every metric on all sides: its change, interval and verdict."""

from __future__ import annotations

from vanidl.compare import Change, Comparison
from vanidl.figures.figure import Column, Figure, Table
from vanidl.report.compare.wording import CONFIDENCE, interval
from vanidl.report.units import Amount


def table_of(comparison: Comparison, index: int) -> Table:
    """One row a metric of one pairing."""
    pairing = comparison.pairings[index]
    a, b = pairing.a.letter, pairing.b.letter
    columns = (
        Column("metric"),
        Column(a, "own"),
        Column(b, "own"),
        Column(f"{b} / {a}", "factor"),
        Column(f"{CONFIDENCE} interval"),
        Column("verdict"),
        Column("why no verdict"),
    )
    return Table(columns, tuple(_row(change) for change in pairing.changes))


def _row(change: Change) -> tuple[str | float | Amount | None, ...]:
    unit = change.metric.unit
    return (
        change.metric.title,
        Amount(change.a, unit),
        Amount(change.b, unit),
        change.ratio,
        interval(change) or None,
        change.verdict,
        change.note,
    )


def figure(comparison: Comparison) -> Figure:
    """The table of the first pairing."""
    return Figure(
        "changes", "What changed", "All metrics", "One row a metric.", None, table_of(comparison, 0)
    )
