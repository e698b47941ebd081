"""`vanidl export RUN --to FORMAT -o PATH`: the run for other programs and for papers."""

from __future__ import annotations

import argparse
import sys

from vanidl.commands.inputs import add_run_arguments, open_from
from vanidl.commands.outputs import refuse_input
from vanidl.export import FORMATS, export


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """RUN, what to look at, the format and where it goes."""
    add_run_arguments(parser, window_end=("--until",))  # here --to is the format
    what = "; ".join(f"{name}: {form.holds}" for name, form in FORMATS.items())
    parser.add_argument("--to", required=True, choices=tuple(FORMATS), help=what)
    parser.add_argument(
        "-o", "--output", required=True, metavar="PATH", help="the file or new folder to write"
    )


def run(options: argparse.Namespace) -> int:
    """Writes the files and prints their names; exit status 0."""
    refuse_input(options.output, [options.run, *options.steps], options.data)
    opened = open_from(options)
    written = export(opened, options.to, options.output)
    width = max((len(name) for name, _ in written), default=0)
    lines = [f"{name.ljust(width)}  {holds}\n" for name, holds in written]
    sys.stdout.write("".join([f"{options.output}\n", *(f"  {line}" for line in lines)]))
    return 0
