"""`vanidl summary RUN`: the answer and its tables on the terminal, in colours for a person."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from typing import TextIO

from vanidl.commands import console
from vanidl.commands.inputs import open_from
from vanidl.report.brief import WIDTH, Line, brief, plain

_NARROWEST, _WIDEST = 60, 120  # columns: wider lines are hard to read


def run(options: argparse.Namespace) -> int:
    """Prints the summary, on one screen unless asked for more; exit status 0."""
    opened = open_from(options)
    if options.full or options.json:
        # All topics, their figures and viewer are loaded: the one screen needs none of them.
        from vanidl.report.summary import summary_json, summary_text

        render = summary_json if options.json else summary_text
        sys.stdout.write(render(opened).rstrip("\n") + "\n")
        return 0
    out = sys.stdout
    write_lines(brief(opened, width_of(out), blocks=shows_blocks(out)), out)
    return 0


def width_of(stream: TextIO) -> int:
    """Columns to fill: those of the terminal within reason, else 80."""
    if not console.is_terminal(stream):
        return WIDTH
    return min(max(shutil.get_terminal_size((WIDTH, 25)).columns, _NARROWEST), _WIDEST)


def shows_blocks(stream: TextIO) -> bool:
    """Whether the encoding of the stream has block signs."""
    try:
        "█▓▒░▚▞▌▄".encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def write_lines(lines: Sequence[Line], stream: TextIO) -> None:
    """Writes the lines, coloured where that is wanted."""
    if not console.wants_colour(stream):
        stream.write(plain(lines))
        return
    from rich.console import Console
    from rich.text import Text

    target = Console(file=console.bare(stream), highlight=False, markup=False, soft_wrap=True)
    for line in lines:
        target.print(Text.assemble(*((piece.text, piece.style) for piece in line)))
