"""`vanidl compare A B`: did the change help? On the terminal, as JSON, or as a page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from vanidl.commands.inputs import add_read_arguments, open_path
from vanidl.compare import Comparison, compare
from vanidl.compare.recorded import AB_FILE, open_recorded
from vanidl.compare.sides import LETTERS, Side, distinct_names, side_of
from vanidl.errors import UsageError
from vanidl.report.compare.html import write_comparison
from vanidl.report.compare.json import comparison_json
from vanidl.report.compare.text import comparison_text
from vanidl.report.compare.wording import headline
from vanidl.run import Run

NAME = "compare"
HELP = "compare runs: what changed, by how much, and how sure that is"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The sides, how to show the comparison, and how to read runs."""
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help="two or more runs, each compared with the first. A RUN is a log, a folder of logs and "
        "profiler output, or a folder whose sub-folders are repeats of one run. A single RUN is "
        "what `vanidl ab` left.",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write one HTML page")
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    parser.add_argument(
        "--label", action="append", default=[], metavar="NAME", help="name of a side, in order"
    )
    add_read_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints or writes the comparison; exit status 0."""
    show(compared(options), options.output, as_json=options.json)
    return 0


def compared(options: argparse.Namespace) -> Comparison:
    """The comparison that the options ask for."""
    opener = _opener(options)
    paths = [Path(path) for path in options.runs]
    if len(options.label) > len(paths):
        raise UsageError(f"--label: expected at most {len(paths)}, found {len(options.label)}.")
    if len(paths) == 1:
        return _recorded(paths[0], opener, options.label)
    if len(paths) > len(LETTERS):
        raise UsageError(f"expected at most {len(LETTERS)} runs, found {len(paths)}.")
    names = [*options.label, *[""] * len(paths)]
    sides = [
        _side(path, letter, opener, name)
        for path, letter, name in zip(paths, LETTERS, names, strict=False)
    ]
    return compare(distinct_names(sides, paths))


def show(comparison: Comparison, output: str | None, *, as_json: bool) -> None:
    """A page where one is asked for, with its headline; else JSON or text."""
    if output is not None:
        write_comparison(comparison, output)
    if as_json:
        sys.stdout.write(comparison_json(comparison) + "\n")
    elif output is not None:
        sys.stdout.write(f"{headline(comparison).title}\n{output}\n")
    else:
        sys.stdout.write(comparison_text(comparison))


def _side(path: Path, letter: str, opener: Callable[[Path], Run], name: str) -> Side:
    if (path / AB_FILE).is_file():
        raise UsageError(f"{path}: holds both sides of an A/B, so expected it alone, or its runs.")
    return side_of(path, letter, opener, name)


def _opener(options: argparse.Namespace) -> Callable[[Path], Run]:
    return lambda path: open_path(path, options)


def _recorded(path: Path, opener: Callable[[Path], Run], labels: list[str]) -> Comparison:
    if not (path / AB_FILE).is_file():
        raise UsageError(
            f"{path}: expected two or more runs to compare, or one folder that `vanidl ab` left "
            f"(with {AB_FILE} in it)."
        )
    sides, conditions = open_recorded(path, opener, labels)
    return compare(sides, conditions)
