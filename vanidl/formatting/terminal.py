"""Paragraphs and tables of text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 98

Row = tuple[str, ...]


def printable(document: str) -> str:
    """Control characters of names shown as escapes: a log cannot drive the terminal."""
    return "".join(
        c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode("ascii")
        for c in document
    )


def paragraph(sentence: str) -> str:
    """The sentence in lines of at most WIDTH columns."""
    return textwrap.fill(sentence, WIDTH)


def named_values(title: str, rows: Iterable[tuple[str, str]]) -> str | None:
    """Names and values in two columns under a title; None without rows."""
    pairs = list(rows)
    if not pairs:
        return None
    width = max(len(name) for name, _ in pairs)
    lines = [
        textwrap.fill(f"  {name.ljust(width)}  {value}", WIDTH, subsequent_indent=" " * (width + 4))
        for name, value in pairs
    ]
    return "\n".join([title, *lines, ""])


def aligned_table(title: str, rows: Sequence[Row]) -> str | None:
    """Header and rows in aligned columns under a title; None where there is only a header."""
    if len(rows) < 2:  # a header and nothing under it
        return None
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [_aligned(row, widths) for row in rows]
    return "\n".join([title, *lines, ""])


def _aligned(row: Row, widths: Sequence[int]) -> str:
    """Names to the left, numbers to the right."""
    first, *rest = row
    cells = [first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(rest, widths[1:], strict=True))]
    return ("  " + "  ".join(cells)).rstrip()
