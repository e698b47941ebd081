"""Files opened and closed by many threads so that a tracer tells them apart.

A close is over for the operating system before a tracer has noted it. Where another thread opens a
file meanwhile it gets the same number, and the tracer books its reads on the file that was closed:
Darshan showed 1 of 1,500 files without a read. So nothing is closed while an open is under way.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Condition

MOST_WAITING = 64
"""Files that wait to be closed; then opens wait, too."""


class Descriptors:
    """Open files of one process."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._opening, self._waiting = 0, list[int]()

    @contextmanager
    def opened(self, path: Path) -> Iterator[int]:
        """A file for reading; it is closed behind the block, or soon after.

        Raises:
            OSError: It cannot be opened.
        """
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) < MOST_WAITING)
            self._opening += 1
        file = -1
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        finally:
            self._end_of(opening=1)
        try:
            yield file
        finally:
            with self._changed:
                self._waiting.append(file)
            self._end_of(opening=0)

    def _end_of(self, *, opening: int) -> None:
        """Closes what waits, if nothing is being opened: an open has to wait for the lock."""
        with self._changed:
            self._opening -= opening
            if not self._opening:
                while self._waiting:
                    os.close(self._waiting.pop())
                self._changed.notify_all()
