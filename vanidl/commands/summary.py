"""`vanidl summary RUN`: the answer and its tables on the terminal."""

from __future__ import annotations

import argparse
import sys

from vanidl.commands.inputs import add_run_arguments, open_from
from vanidl.report.json import summary_json
from vanidl.report.text import summary_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """RUN, what to look at, and --json."""
    add_run_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")


def run(options: argparse.Namespace) -> int:
    """Prints the summary; exit status 0."""
    opened = open_from(options)
    render = summary_json if options.json else summary_text
    sys.stdout.write(render(opened).rstrip("\n") + "\n")
    return 0
