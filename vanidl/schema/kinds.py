"""What a JSON value is, said beside the code that makes it.

A kind is an annotation (`int`, `str | None`, `tuple[float, ...]`, a dataclass), `{name: kind}` for
an object of these names, `{str: kind}` for one with names of its own, `[kind]` for a list, or
`Maybe(kind)` where null is a value, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

Kind = Any
"""An annotation, a dict, a list of one kind, or Maybe."""


@dataclass(frozen=True, slots=True)
class Maybe:
    """The kind, or null."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class Partly:
    """An object of which any field may be missing, and which has no others."""

    fields: Mapping[str, Kind]


def fields_of(record: type, *, without: tuple[str, ...] = ()) -> dict[str, Kind]:
    """The fields of a dataclass by name, some left out: what `values_of` makes of it."""
    hints = get_type_hints(record)
    names = [field.name for field in dataclasses.fields(record)]
    return {name: hints[name] for name in names if name not in without}
