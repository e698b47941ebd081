"""Names from logs made safe to look at: they may hold anything that a file name may."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any

_INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # controls, bidi overrides, lone surrogates, breaks


def printable(name: str) -> str:
    """The name with line breaks, controls and direction marks written out as escapes."""
    if name.isprintable():
        return name
    return "".join(_escape(c) if unicodedata.category(c) in _INVISIBLE else c for c in name)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def elided(name: str, *, limit: int = 160) -> str:
    """A printable name of at most `limit` characters, cut in the middle."""
    name = printable(name)
    if len(name) <= limit:
        return name
    head = limit // 3
    return f"{name[:head]}…{name[len(name) - (limit - head - 1) :]}"


def distinct(labels: Sequence[str]) -> list[str]:
    """The labels, repeated ones numbered: an axis of names draws equal names as one."""
    seen: Counter[str] = Counter()
    names = []
    for label in labels:
        seen[label] += 1
        names.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return names


def plotted(name: str, *, limit: int = 22) -> str:
    """A name as tick or hover text: plotly reads tags and entities, so both are taken away."""
    short = elided(name, limit=limit)
    return short.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a spreadsheet takes for the beginning of a formula."""


def format_csv_cell(value: Any) -> Any:  # noqa: ANN401  (whatever a table holds)
    """The value with nothing that a line of CSV cannot hold, or that a spreadsheet would run."""
    # A flag of Python, or of NumPy, which to import costs more than most commands.
    dtype = getattr(value, "dtype", None)
    if isinstance(value, bool) or (getattr(dtype, "kind", "") == "b" and value.shape == ()):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return json.dumps(value)
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
