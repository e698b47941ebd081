"""A key figure of a page: a number with its unit and what it means."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tile:
    """One key figure; `meaning` is its definition in a line."""

    label: str
    value: str
    meaning: str
