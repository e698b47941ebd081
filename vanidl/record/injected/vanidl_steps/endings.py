"""How this process ends: what is written before, and the error that ends it.

That is left for the recorder, which knows the exit status alone. Python keeps an error that nobody
caught until its end. Ends that run no `atexit` are caught in `os`.
"""

from __future__ import annotations

import atexit
import os
import sys
from time import time_ns

from .registry import wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SUFFIX = ".last-error"
_MOST_TEXT = 2000
_ENDS = ("_exit", "execv", "execve")  # all others of `os` call these
_calls: list[Callable[[], None]] = []


def before(call: Callable[[], None]) -> None:
    """Has a function called, which raises nothing, and may be called more than once."""
    if not _calls:
        for name in _ENDS:
            setattr(os, name, _calling(getattr(os, name)))
    _calls.append(call)


def _calling(original: Any) -> Any:  # noqa: ANN401
    @wraps(original)
    def end(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        for call in _calls:
            call()
        return original(*args, **kwargs)

    return end


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
