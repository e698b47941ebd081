"""The primary metric of every single run: is the change larger than the noise?"""

from __future__ import annotations

from vanidl.compare import Change, Comparison, Side
from vanidl.compare.figures.sides import colour, named
from vanidl.figures import palette
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.units import Amount, Cell, shown

_PAIRED = (
    "One point a run; runs above the same number are a pair, recorded one right after the other. "
    "Where one side lies apart from the other in nearly every pair, the change is real."
)
_UNPAIRED = (
    "One point a run, in the order of the runs of each side. Where the sides do not overlap, the "
    "change is real."
)


def figure(comparison: Comparison) -> Figure:
    """The primary metric of each run of each side."""
    primary = [pairing.change(comparison.primary) for pairing in comparison.pairings]
    changes = [change for change in primary if change is not None]
    most = max(len(side.samples) for side in comparison.sides)
    if most < 2:
        reason = (
            "Every side is one run, so nothing is known about how runs of the same thing differ. "
            'Run both several times, alternately: vanidl ab --a "..." --b "...".'
        )
        return _record("", reason=reason)
    if not changes:
        return _record("", reason="The metric of the question was not recorded.")
    paired = all(pairing.paired for pairing in comparison.pairings)
    rows = _values(comparison, changes)
    spec = {"data": [_line(comparison, s, v, changes[0]) for s, v in rows],
            "layout": _layout(changes[0], paired, most)}  # fmt: skip
    caption = _PAIRED if paired else _UNPAIRED
    return _record(caption, spec=spec, table=_table(rows, changes[0], paired))


def _record(
    caption: str, *, spec: Spec | None = None, table: Table | None = None, reason: str = ""
) -> Figure:
    return Figure("repeats", "What changed", "Run by run", caption, spec, table, reason)


Rows = list[tuple[Side, tuple[float | None, ...]]]


def _values(comparison: Comparison, changes: list[Change]) -> Rows:
    sides = [(comparison.sides[0], changes[0].values_a)]
    others = zip(comparison.sides[1:], changes, strict=True)
    return sides + [(side, change.values_b) for side, change in others]


def _line(
    comparison: Comparison, side: Side, values: tuple[float | None, ...], change: Change
) -> Spec:
    unit = change.metric.unit
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": named(side),
        "x": list(range(1, len(values) + 1)),
        "y": list(values),
        "customdata": [shown(value, unit) for value in values],
        "line": {"color": colour(comparison, side), "width": 1, "dash": "dot"},
        "marker": {"color": colour(comparison, side), "size": 9},
        "hovertemplate": "%{customdata}<extra>" + side.letter + "</extra>",
    }


def _layout(change: Change, paired: bool, most: int) -> Spec:
    return palette.layout(
        280,
        xaxis=palette.axis(
            "pair" if paired else "run", dtick=max(1, most // 12), showgrid=False, fixedrange=True
        ),
        yaxis=palette.axis(_axis_title(change), fixedrange=True),
    )


def _axis_title(change: Change) -> str:
    title, unit = change.metric.title, change.metric.unit
    return f"{title} in {unit}" if unit else title


def _table(rows: Rows, change: Change, paired: bool) -> Table:
    columns = (Column("pair" if paired else "run", "count"),
               *(Column(side.letter, "own") for side, _ in rows))  # fmt: skip
    most = max(len(values) for _, values in rows)
    unit = change.metric.unit
    lines: list[tuple[Cell, ...]] = [
        (i + 1, *(_cell(values, i, unit) for _, values in rows)) for i in range(most)
    ]
    return Table(columns, tuple(lines))


def _cell(values: tuple[float | None, ...], i: int, unit: str) -> Amount | None:
    value = values[i] if i < len(values) else None
    return None if value is None else Amount(value, unit)
