"""The record that every figure is, and the table that says the same in numbers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.formatting.units import Cell
from vanidl.schema.dataclass import dataclass

Spec = dict[str, Any]
"""A plotly figure as plain dicts and lists: `data` and `layout`."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column's title and unit, one of those that `units.shown` knows."""

    title: str
    unit: str = "text"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of plain values in the order of the columns; None is "not recorded"."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    cut: str = ""  # "1,000 of 12,345 files", where rows were left out
    sorted_by: int | None = None  # the column whose largest value comes first, where one is meant

    def without_empty_columns(self) -> Table:
        """The same without columns of which no row knows anything, for what is said elsewhere."""
        empty = self._empty_columns()
        kept = [i for i in range(len(self.columns)) if i not in empty]
        columns = tuple(self.columns[i] for i in kept)
        rows = tuple(tuple(row[i] for i in kept) for row in self.rows)
        place = kept.index(self.sorted_by) if self.sorted_by in kept else None
        return Table(columns, rows, self.cut, place)

    def not_recorded(self, *, but: Collection[str] = ()) -> str:
        """` Not recorded: time, ranks.`: its empty columns, but for those said elsewhere; or ""."""
        titles = [self.columns[i].title for i in self._empty_columns()]
        missing = [title for title in titles if title not in but]
        return f" Not recorded: {', '.join(missing)}." if missing else ""

    def _empty_columns(self) -> list[int]:
        """Columns of which no row knows anything; none where there is no row."""
        known = range(len(self.columns))
        return [i for i in known if self.rows and all(row[i] is None for row in self.rows)]


@dataclass(frozen=True, slots=True)
class Levels:
    """Amounts in ever wider equal bins of [start_s, end_s), for a picture that can be zoomed.

    `series[i]` belongs to `spec["data"][i]`: its levels, finest first, each of shape (rows,
    bins) and with the same sum. The picture shows them per second, in units of `divisor`;
    `levels.filled` draws one in.
    """

    start_s: float
    end_s: float
    divisor: int
    series: tuple[tuple[NDArray[np.int64], ...], ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture, a table of the same numbers, and how to read both.

    `spec` is None where there is nothing to draw, `table` is None where the picture has too many
    points for one. `empty_reason` says why there is no picture and what to do to get it; it is ""
    where there is one, and where the figure is a table by design. `alt_text` is what the picture
    shows in a sentence. Neighbours with a `view` share a switch, in which that is their label. With
    `levels`, the spec lacks the amounts, which are drawn in for the zoom. With `viewer`, its slices
    are drawn by the trace viewer. A figure that does not apply to a run is left out of its page.
    One that is `half` reads as well at half the width of a page.
    """

    id: str
    section: str
    title: str
    caption: str
    spec: Spec | None = None
    table: Table | None = None
    empty_reason: str = ""
    alt_text: str = ""
    view: str = ""
    levels: Levels | None = None
    applies: bool = True
    viewer: Spec | None = None
    half: bool = False
