"""Bytes of a large file that are read where they are used: they need no memory as a whole."""

from __future__ import annotations

import os
import weakref
from os import PathLike

from vanidl.encoding.budget import checked_size, without_waiting


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
