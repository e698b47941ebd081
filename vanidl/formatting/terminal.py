"""Paragraphs and tables of text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TextIO

WIDTH = 98  # columns of text output

Row = tuple[str, ...]


def printable(document: str) -> str:
    """Control characters of names shown as escapes: a log cannot drive the terminal."""
    if document.replace("\n", "").isprintable():
        return document
    return "".join(
        c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode("ascii")
        for c in document
    )


class EscapedStream:
    """A text stream on which only line breaks control the terminal.

    Everything that a command says goes through one, whatever it is made of: names in logs,
    messages of errors, words of the command line.
    """

    def __init__(self, stream: TextIO) -> None:
        self.unescaped = stream

    def write(self, text: str) -> int:
        """Writes the text with other control characters as escapes."""
        self.unescaped.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Writes each of the texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        """All else is as of the stream."""
        return getattr(self.unescaped, name)


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
    lines = [_align_row(row, widths) for row in rows]
    return "\n".join([title, *lines, ""])


def _align_row(row: Row, widths: Sequence[int]) -> str:
    """Names to the left, numbers to the right."""
    first, *rest = row
    cells = [first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(rest, widths[1:], strict=True))]
    return ("  " + "  ".join(cells)).rstrip()
