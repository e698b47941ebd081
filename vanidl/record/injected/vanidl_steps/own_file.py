"""The file that one process of the program appends to, whatever the program does to descriptors.

Programs close descriptors that they did not open, as daemons do at their start, and the number may
be one of their own files then. So it is looked at before each write which file it is of.
"""

from __future__ import annotations

import os

_STOP = "stop"


def is_stopped(folder: str) -> bool:
    """Whether the recorder has asked for no more, as the disk is about to be full."""
    return os.path.exists(os.path.join(folder, _STOP))  # noqa: PTH110, PTH118


class OwnFile:
    """A new file of this process in a folder."""

    def __init__(self, folder: str, suffix: str) -> None:
        name = f"{os.uname().nodename}-{os.getpid()}"
        self._path, self._number = _new(os.path.join(folder, name), suffix)  # noqa: PTH118
        self._identity = _identity(self._number)

    def write(self, data: bytes) -> None:
        """Adds to the file; opens it again where the program has closed it."""
        if not self._is_mine():
            self._number = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        while data:
            data = data[os.write(self._number, data) :]

    def leave(self) -> None:
        """Closes the number that a forked child has of its parent's file."""
        if self._is_mine():
            os.close(self._number)

    def _is_mine(self) -> bool:
        try:
            return _identity(self._number) == self._identity
        except OSError:
            return False


def _identity(number: int) -> tuple[int, int]:
    found = os.fstat(number)
    return found.st_dev, found.st_ino


def _new(path: str, suffix: str) -> tuple[str, int]:
    """A file that was not there: the number of a process may come again within a run."""
    for k in range(1000):
        again = f"{path}-{k}{suffix}" if k else f"{path}{suffix}"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            return again, os.open(again, flags, 0o644)
        except FileExistsError:
            continue
    raise FileExistsError(path)
