"""A line on the terminal that says how far long work is; nothing in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..console import unescaped

WIDTH = 24


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A function (done, total) that draws the bar, or None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return

    def show(done: int, total: int) -> None:
        filled = WIDTH * done // max(total, 1)
        drawn = "#" * filled + "." * (WIDTH - filled)
        unescaped().write(f"\r{what} [{drawn}] {done}/{total}\033[K")
        sys.stderr.flush()

    try:
        yield show
    finally:
        unescaped().write("\r\033[K")
