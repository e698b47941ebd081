"""Every metric on all sides in numbers, with interval and verdict."""

from __future__ import annotations

from vanidl.compare import Change, Comparison
from vanidl.compare.comparison import NOT_COMPARABLE, NOT_RECORDED
from vanidl.compare.wording import CONFIDENCE, from_nothing, interval, judged
from vanidl.figures.figure import Column, Figure, Table
from vanidl.formatting.units import Amount, Cell

_MEANS = "A value over several runs is their mean (geometric where all are above zero)."
_CORRECTED = "Verdicts other than that of the first metric are corrected for their number."


def figure(comparison: Comparison) -> Figure:
    """One row a metric, for each side its value, ratio, interval and verdict."""
    columns = [Column("metric"), Column("A", "own")]
    for pairing in comparison.pairings:
        b = pairing.b.letter
        columns += [
            Column(b, "own"),
            Column(f"{b} against {pairing.a.letter}", "relative"),
            Column(f"{CONFIDENCE} interval"),
            Column("verdict"),
        ]
    titles = dict.fromkeys(c.metric.title for p in comparison.pairings for c in p.changes)
    table = Table(tuple(columns), tuple(_row(comparison, title) for title in titles))
    shown = table.without_empty_columns()
    return Figure("metrics", "What changed", "In numbers", _caption(comparison), None, shown)


def _caption(comparison: Comparison) -> str:
    several = any(len(side.samples) > 1 for side in comparison.sides)
    verdicts = any(judged(pairing) for pairing in comparison.pairings)
    said = ((_MEANS, several), (_CORRECTED, several and verdicts))
    return " ".join(sentence for sentence, applies in said if applies)


def _row(comparison: Comparison, title: str) -> tuple[Cell, ...]:
    found = [
        (next((c for c in p.changes if c.metric.title == title), None), judged(p))
        for p in comparison.pairings
    ]
    first = next(change for change, _ in found if change is not None)
    cells: list[Cell] = [title, _amount(first.a, first)]
    for change, verdicts in found:
        cells += _cells(change, verdicts)
    return tuple(cells)


def _cells(change: Change | None, verdicts: bool) -> tuple[Cell, ...]:
    if change is None:
        return (None, None, None, NOT_RECORDED)
    known = change.note if change.verdict in (NOT_RECORDED, NOT_COMPARABLE) else ""
    verdict = known if known.startswith(NOT_RECORDED) else change.verdict
    return (
        _amount(change.b, change),
        from_nothing(change) or change.ratio,
        interval(change) or None,
        verdict if verdicts else None,
    )


def _amount(value: float | None, change: Change) -> Amount | None:
    return None if value is None else Amount(value, change.metric.unit)
