"""The error that ends this process, left for the recorder: it knows the exit status alone.

Python keeps an error that nobody caught until its end, so nothing of the program is replaced.
"""

from __future__ import annotations

import atexit
import os
import sys
from time import time_ns

SUFFIX = ".last-error"
_MOST_TEXT = 2000


def watch(folder: str) -> None:
    """Has the process leave its last error in a file of the folder, for its owner alone."""
    atexit.register(_leave, folder)


def _leave(folder: str) -> None:
    error = getattr(sys, "last_value", None)
    if error is None:
        return
    try:
        kind = type(error)
        name = kind.__qualname__
        if kind.__module__ not in ("builtins", "__main__"):
            name = f"{kind.__module__}.{name}"
        message = str(error).strip().partition("\n")[0][:_MOST_TEXT]
        text = f"{time_ns()} {name}{': ' if message else ''}{message}\n"
        path = os.path.join(folder, f"{os.uname().nodename}-{os.getpid()}{SUFFIX}")  # noqa: PTH118
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(number, text.encode("utf-8", "backslashreplace"))
        finally:
            os.close(number)
    except Exception:
        return
