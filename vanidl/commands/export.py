"""`vanidl export RUN --to FORMAT -o PATH`: the run for other programs and for papers."""

from __future__ import annotations

import argparse
import sys

from vanidl.commands.inputs import open_from, refuse_input
from vanidl.export.registry import export
from vanidl.model.run_facts import describe_ending


def run(options: argparse.Namespace) -> int:
    """Writes the files and prints their names, of a program that failed that first; status 0."""
    refuse_input(options.output, [options.run, *options.steps], options.data)
    opened = open_from(options)
    written = export(opened, options.to, options.output)
    width = max((len(name) for name, _ in written), default=0)
    lines = [f"{name.ljust(width)}  {holds}\n" for name, holds in written]
    ending = describe_ending(opened.trace.ending)
    said = [f"{ending}\n"] if ending else []
    sys.stdout.write("".join([*said, f"{options.output}\n", *(f"  {line}" for line in lines)]))
    return 0
