"""What each field of the JSON outputs means, and in which unit: one line a name.

A name means the same wherever it stands; where it does not, the line names more of the path, in
which * is any one name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from vanidl.schema import (
    compare_fields,
    evidence_fields,
    file_fields,
    run_fields,
    table_fields,
    training_fields,
)

TABLES = (
    run_fields.FIELDS,
    training_fields.FIELDS,
    evidence_fields.FIELDS,
    compare_fields.FIELDS,
    table_fields.FIELDS,
    file_fields.FIELDS,
)


@dataclass(frozen=True, slots=True)
class Meaning:
    """`unit` is "" for text, flags and objects, "1" for a share or a ratio."""

    text: str
    unit: str


def meaning_of(path: str) -> Meaning:
    """The meaning of the field at a path.

    Raises:
        TypeError: nothing says what it means.
    """
    return meanings()[line_of(path)]


def line_of(path: str) -> str:
    """The longest end of the path that has a meaning.

    Raises:
        TypeError: none has.
    """
    names = path.split(".")
    whole = [path, *(f"{names[0]}.*.{name}" for name in names[2:])] if len(names) == 3 else [path]
    ends = (*whole, *(".".join(names[first:]) for first in range(1, len(names))))
    found = next((end for end in ends if end in meanings()), None)
    if found is None:
        raise TypeError(f"{path}: no line of vanidl/schema/*_fields.py says what it means")
    return found


@lru_cache
def meanings() -> dict[str, Meaning]:
    """Every line, by its name or end of a path."""
    return {name: meaning for table in TABLES for name, meaning in _lines(table)}


def _lines(table: str) -> Iterator[tuple[str, Meaning]]:
    for line in table.strip().splitlines():
        name, unit, text = (part.strip() for part in line.split("|"))
        yield name, Meaning(text, unit)
