"""The border between a file and the rest: whatever goes wrong while one is read is its verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from vanidl.errors import InputError, VanidlError

Found = TypeVar("Found")
AnyPath = TypeVar("AnyPath", str, Path)


def read_one(read: Callable[[AnyPath], Found], path: AnyPath) -> Found:
    """What `read` makes of one file.

    Raises:
        InputError: It cannot be read, for whatever reason.
        VanidlError: What `read` itself says about other things than the file.
    """
    try:
        return read(path)
    except VanidlError:
        raise
    # The one place that catches everything: a reader meets any bytes at all, and a mistake in it
    # or a lack of memory costs the file at hand, never the hundreds of thousands beside it.
    except Exception as error:
        message = f"{path}: {in_words(error)}; leave the file out, or record it again"
        raise InputError(message) from error


def in_words(error: BaseException) -> str:
    """What an unexpected exception says about a file."""
    if isinstance(error, MemoryError):
        return "expected a file that can be read in the memory at hand, found one that needs more"
    if isinstance(error, RecursionError):
        return "expected a file of some nested parts, found thousands within each other"
    if isinstance(error, OSError):
        return f"expected a readable file, found: {error.strerror or error}"
    text = " ".join(str(error).split())[:200]
    return f"expected a file that can be read, found damage ({type(error).__name__}: {text})"
