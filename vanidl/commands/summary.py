"""`vanidl summary RUN`: the answer and its tables on the terminal."""

from __future__ import annotations

import argparse
import sys

from vanidl.commands.colour import shows_blocks, width_of, write_lines
from vanidl.commands.inputs import open_from
from vanidl.report.brief import brief


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
