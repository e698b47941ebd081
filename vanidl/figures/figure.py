"""The record that every figure is, and the table that says the same in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vanidl.report.units import Cell

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


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture, its accessible twin, and how to read both.

    `spec` is None where there is nothing to draw, `table` is None where the picture has too
    many points for one. `empty_reason` says why there is no picture and what to do to get it;
    it is "" where there is one, and where the figure is a table by design.
    """

    id: str
    section: str
    title: str
    caption: str
    spec: Spec | None = None
    table: Table | None = None
    empty_reason: str = ""
