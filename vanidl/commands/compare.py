"""`vanidl compare A B`: did the change help? On the terminal, as JSON, or as a page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from vanidl.commands.inputs import open_path, refuse_input
from vanidl.compare import Comparison, compare
from vanidl.compare.json import render_json
from vanidl.compare.page import write_comparison
from vanidl.compare.runs import open_sides
from vanidl.compare.sides import Side, anonymous_side
from vanidl.compare.text import render_text, write_headline

FAILED = 3
"""Exit status where --fail-on found what it looks for."""


def run(options: argparse.Namespace) -> int:
    """Prints or writes the comparison; exit status 0, or 3 by --fail-on."""
    refuse_input(options.output, [*options.runs, *options.steps], options.data)
    comparison = compared(options)
    show(comparison, options.output, as_json=options.json)
    return FAILED if options.fail_on in primary_verdicts(comparison) else 0


def primary_verdicts(comparison: Comparison) -> set[str]:
    """What is said of every other side by the metric that answers the question."""
    found = (pairing.change(comparison.primary) for pairing in comparison.pairings)
    return {change.verdict for change in found if change is not None}


def compared(options: argparse.Namespace) -> Comparison:
    """The comparison that the options ask for."""
    paths = [Path(path) for path in options.runs]
    opener = partial(open_path, options=options)
    sides, conditions = open_sides(paths, opener, options.label)
    return compare(public_sides(sides, options), conditions)


def show(comparison: Comparison, output: str | None, *, as_json: bool) -> None:
    """A page where one is asked for, with its headline; else JSON or text."""
    if output is not None:
        write_comparison(comparison, output)
    if as_json:
        sys.stdout.write(render_json(comparison) + "\n")
    elif output is not None:
        answer = write_headline(comparison)
        said = f"{answer.ending} {answer.title}".strip()
        sys.stdout.write(f"{said}\n{output}\n")
    else:
        sys.stdout.write(render_text(comparison))


def public_sides(sides: Sequence[Side], options: argparse.Namespace) -> tuple[Side, ...]:
    """The sides, without the names of their folders and commands where --anonymize asks for it."""
    if options.names is None:
        return tuple(sides)
    return tuple(anonymous_side(side, options.names, options.label) for side in sides)
