"""`vanidl check PATH...`: are these logs whole, and what do they miss?"""

from __future__ import annotations

import argparse
import sys

from vanidl.check.check import check, check_json, check_text
from vanidl.commands.inputs import progress_line
from vanidl.errors import InputError


def run(options: argparse.Namespace) -> int:
    """Prints verdicts on files; exit status 0 where at least one could be read.

    Raises:
        InputError: nothing at all could be read; the table is printed before.
    """
    with progress_line() as progress:
        verdicts = check(options.paths, progress)
    render = check_json if options.json else check_text
    sys.stdout.write(render(verdicts, every=options.all))
    if not any(verdict.read for verdict in verdicts):
        raise InputError(
            f"{options.paths[0]}: expected at least one log that can be read, found none; "
            "the table says of each file why"
        )
    return 0
