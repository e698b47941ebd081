"""What workers do in tests; a fresh one imports the module that holds it."""

from __future__ import annotations

import os
import re
import sys

from vanidl.parallel import limits

KEPT: list[str] = []
"""What a caller leaves in its own process."""


def kept() -> list[str]:
    """The same in a worker."""
    return KEPT


def shouting() -> str:
    """Prints, too."""
    sys.stdout.write("to standard output\n")
    sys.stdout.flush()
    return "done"


def squares(items: list[int]) -> list[int]:
    """7 kills its worker."""
    if 7 in items:
        os._exit(1)
    return [i * i for i in items]


def within_limits(items: list[int]) -> list[int]:
    """7 never returns from a call into C."""
    limits.GRACE_SECONDS = 0.1
    results = []
    for i in items:
        with limits.limited(limits.Limits(0.1 if i == 7 else 60, 1 << 40)):
            if i == 7:
                re.compile("(a*)*b").match("a" * 60)
            results.append(i * i)
    return results
