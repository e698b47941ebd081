"""The error that ended a program in Python, as its processes left it (`vanidl_steps.journal`)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from vanidl.encoding.budget import read_whole
from vanidl.formatting.from_logs import clean_text

_SUFFIX = ".last-error"
_MOST_FILES = 1000
_MOST_TEXT = 500


def take_last_error(folder: Path) -> str:
    """The first error that a process left, "" for none; what they left is removed.

    The first is the cause: processes that train together fail once one of them has. Secrets in it
    are masked; what was left is not, so nothing of it stays.
    """
    found, paths = [], []
    with suppress(OSError):  # a folder that cannot be listed any more
        paths = sorted(folder.glob(f"*{_SUFFIX}"))[:_MOST_FILES]
    for path in paths:
        with suppress(OSError, ValueError):
            at, _, text = read_whole(path).decode("utf-8", "replace").partition(" ")
            found.append((int(at), text.strip()))
        with suppress(OSError):
            path.unlink()
    if not found:
        return ""
    return without_secrets(min(found)[1])


def without_secrets(text: str) -> str:
    """A line of a program's output, printable and of bounded length."""
    return clean_text(text)[:_MOST_TEXT]
