"""Styled lines on a terminal: colours where somebody looks, plain text in a pipe."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import TextIO

from vanidl.commands import console
from vanidl.report.brief import WIDTH, Line, plain

_NARROWEST, _WIDEST = 60, 120


def is_terminal(stream: TextIO) -> bool:
    """Whether a person looks at it."""
    return stream.isatty()


def width_of(stream: TextIO) -> int:
    """Columns to fill: those of the terminal within reason, else 80."""
    if not is_terminal(stream):
        return WIDTH
    return min(max(shutil.get_terminal_size((WIDTH, 25)).columns, _NARROWEST), _WIDEST)


def wants_colour(stream: TextIO) -> bool:
    """A terminal that knows colours, and nobody who asked for none (https://no-color.org)."""
    plain_terminal = os.environ.get("TERM", "") in ("", "dumb")
    return is_terminal(stream) and not plain_terminal and not os.environ.get("NO_COLOR")


def shows_blocks(stream: TextIO) -> bool:
    """Whether the encoding of the stream has block signs."""
    try:
        "█▓▒░▚▞▌▄".encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def write_lines(lines: Sequence[Line], stream: TextIO) -> None:
    """Writes the lines, coloured where that is wanted."""
    if not wants_colour(stream):
        stream.write(plain(lines))
        return
    from rich.console import Console
    from rich.text import Text

    target = Console(file=console.bare(stream), highlight=False, markup=False, soft_wrap=True)
    for line in lines:
        target.print(Text.assemble(*((piece.text, piece.style) for piece in line)))
