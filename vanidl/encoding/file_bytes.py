"""Bytes of a large file that are read where they are used: they need no memory as a whole."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TypeVar

from vanidl.encoding.budget import checked_size, without_waiting
from vanidl.errors import InputError, VanidlError

# The border between a file and the rest: whatever goes wrong while one is read is its verdict.

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


def whole_bytes(path: str | PathLike[str], most: int) -> memoryview | None:
    """The bytes of a file, None where these are more than `most`.

    Raises:
        OSError, InputError: as `FileBytes`.
    """
    number = without_waiting(os.fspath(path), os.O_RDONLY)
    try:
        nbytes = checked_size(number, path)
        return memoryview(_read(number, 0, nbytes)) if nbytes <= most else None
    finally:
        os.close(number)


class FileBytes:
    """Takes the place of a memoryview of a file: slices of it are read when they are asked for.

    A slice is shorter than asked for where the file has become shorter meanwhile.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        """Opens the file.

        Raises:
            OSError: It cannot be read.
            InputError: It is no regular file, or too large for this machine.
        """
        self._file = _Descriptor(path)
        self._start, self._stop = 0, self._file.nbytes

    def __len__(self) -> int:
        return self._stop - self._start

    def __getitem__(self, part: slice) -> memoryview:
        """The bytes of a slice without a step."""
        first, behind, _ = part.indices(len(self))
        return memoryview(self._file.read(self._start + first, max(0, behind - first)))

    def between(self, start: int, stop: int) -> FileBytes:
        """Some of the bytes, none of them read yet."""
        found = FileBytes.__new__(FileBytes)
        found._file = self._file
        found._start, found._stop = self._start + start, self._start + stop
        return found


class _Descriptor:
    """An open file that is closed with the last use of its bytes."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._number = without_waiting(os.fspath(path), os.O_RDONLY)
        weakref.finalize(self, os.close, self._number)
        self.nbytes = checked_size(self._number, path)

    def read(self, start: int, count: int) -> bytes:
        return _read(self._number, start, count)


def _read(number: int, start: int, count: int) -> bytes:
    parts = []
    while count and (part := os.pread(number, count, start)):
        parts.append(part)
        start, count = start + len(part), count - len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


AnyBytes = memoryview | FileBytes
