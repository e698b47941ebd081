"""`vanidl report RUN -o report.html`: one HTML file that opens without a network."""

from __future__ import annotations

import argparse
import sys

from vanidl.commands.inputs import open_from, refuse_input
from vanidl.report.html import write_html


def run(options: argparse.Namespace) -> int:
    """Writes the page and prints its headline; exit status 0."""
    refuse_input(options.output, [options.run, *options.steps], options.data)
    opened = open_from(options)
    write_html(opened, options.output)
    answer = opened.answer
    said = f"{answer.ending} {answer.title}".strip()
    sys.stdout.write(f"{said}\n{options.output}\n")
    return 0
