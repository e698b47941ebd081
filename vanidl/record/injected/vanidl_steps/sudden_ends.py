"""Calls functions before a process ends, or becomes another program, without Python's own end."""

from __future__ import annotations

import os

from .imports import wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

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
