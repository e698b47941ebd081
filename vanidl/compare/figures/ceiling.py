"""What input costs each side, measured against runs with batches from memory."""

from __future__ import annotations

from vanidl.compare import Comparison
from vanidl.figures.figure import Column, Figure, Table
from vanidl.formatting.units import plural
from vanidl.wording.ceiling import details

_COLUMNS = (
    Column("side"), Column("mean step", "s"), Column("with batches from memory", "s"),
    Column("input costs", "share"), Column("at least", "share"), Column("at most", "share"),
)  # fmt: skip
_CAPTION = (
    "Beside each pair command A ran with batches from memory, so that input was free. What input "
    "costs of the wall time of steps is the most that any change of it can gain. The bounds are "
    "those of a 98 % interval"
)


def figure(comparison: Comparison) -> Figure:
    """A row for each side that was measured."""
    title = "The ceiling: steps with batches from memory"
    found = [(side, side.ceiling) for side in comparison.sides if side.ceiling is not None]
    if not found:
        reason = "Not measured: vanidl ab --ceiling measures it."
        return Figure("ceiling", "What changed", title, "", empty_reason=reason, applies=False)
    rows = tuple((side.letter, c.step_s, c.free_s, c.cost, c.low, c.high) for side, c in found)
    over = f" over {plural(found[0][1].pairs, 'pair')}. " if found[0][1].pairs > 1 else ". "
    said = " ".join(f"{side.letter}: {details(c)}" for side, c in found)
    return Figure(
        "ceiling", "What changed", title, _CAPTION + over + said, table=Table(_COLUMNS, rows)
    )
