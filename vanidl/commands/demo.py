"""`vanidl demo`: the report of a recorded training that comes with the package."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from vanidl.commands.inputs import refuse_input
from vanidl.report.html import write_html
from vanidl.run import open_run

RUN = Path(__file__).parents[1] / "demo_run"
"""A PyTorch training on one host, without workers, from a slow parallel file system."""


def run(options: argparse.Namespace) -> int:
    """Writes the page and prints its headline and what to do next; exit status 0."""
    refuse_input(options.output, [RUN])
    opened = open_run(RUN)
    write_html(opened, options.output)
    sys.stdout.write(
        f"{opened.answer.title}\n{options.output}\n"
        "Your own training: vanidl record -o RUN -- python train.py; vanidl report RUN\n"
    )
    return 0
