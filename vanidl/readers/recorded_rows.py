"""Files that the recorder's hooks write in a process: a line, then rows of 64-bit integers."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vanidl.encoding.budget import read_whole, without_waiting
from vanidl.errors import InputError
from vanidl.schema.dataclass import dataclass

_INTEGER_BYTES = 8


@dataclass(frozen=True, slots=True)
class RecordedRows:
    """The whole rows of a file, its first line among them; `losses` says what is cut."""

    rows: NDArray[np.int64]  # (rows, integers of a row)
    nbytes: int  # of the file
    losses: tuple[str, ...]


def read_rows(path: Path, magics: tuple[bytes, ...], what: str) -> RecordedRows:
    """The rows of a file that begins with one of `magics`, which are one row long each.

    Raises:
        InputError: it cannot be read, or is something else than `what`.
    """
    try:
        content = read_whole(path)
    except OSError as error:
        raise refuse_rows(path, what, f"no readable file ({error.strerror})") from error
    if not content.startswith(magics):
        raise refuse_rows(path, what, "something else or nothing")
    row_bytes = len(magics[0])
    columns = row_bytes // _INTEGER_BYTES
    cut = len(content) % row_bytes
    losses = (f"its last row is cut: {cut} of {row_bytes} bytes",) if cut else ()
    rows = np.frombuffer(content, "<i8", len(content) // row_bytes * columns)
    return RecordedRows(rows.reshape(-1, columns), len(content), losses)


class Follower:
    """The rows of such a file that is being written, in portions.

    Attributes:
        restarts: how often another file was found in its place.
    """

    def __init__(self, path: Path, magics: tuple[bytes, ...], what: str) -> None:
        self.path, self.restarts = path, 0
        self.nbytes = 0  # of the file when it was last looked at
        self._magics, self._what = magics, what
        self._row_bytes = len(magics[0])
        self._offset = 0
        self._inode: int | None = None

    def rewind(self) -> None:
        """From the beginning again."""
        self._offset = 0

    def peek(self, most_rows: int) -> NDArray[np.int64]:
        """The next whole rows, as far as they are written; opened again, for network file systems.

        Raises:
            InputError: it cannot be read, or is something else.
        """
        columns = self._row_bytes // _INTEGER_BYTES
        try:
            with open(self.path, "rb", opener=without_waiting) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise refuse_rows(self.path, self._what, "no regular file")
                # Another file in its place, or one that became shorter: from its beginning.
                if self._inode not in (None, status.st_ino) or status.st_size < self._offset:
                    self._offset, self.restarts = 0, self.restarts + 1
                self._inode, self.nbytes = status.st_ino, status.st_size
                if not self._offset:
                    head = file.read(self._row_bytes)
                    if len(head) < self._row_bytes and any(
                        m.startswith(head) for m in self._magics
                    ):
                        return np.empty((0, columns), np.int64)  # its first row is being written
                    if head not in self._magics:
                        raise refuse_rows(self.path, self._what, "something else")
                    self._offset = self._row_bytes
                file.seek(self._offset)
                content = file.read(most_rows * self._row_bytes)
        except OSError as error:
            found = f"no readable file ({error.strerror})"
            raise refuse_rows(self.path, self._what, found) from error
        rows = np.frombuffer(content, "<i8", len(content) // self._row_bytes * columns)
        return rows.reshape(-1, columns)

    def advance(self, rows: int) -> None:
        """That many rows have been used."""
        self._offset += rows * self._row_bytes


def refuse_rows(path: Path, what: str, found: str) -> InputError:
    """The error of a file that holds none of what was recorded."""
    return InputError(
        f"{path}: expected {what} recorded by vanidl record, found {found}; remove it, the rest "
        "of the run can be used without"
    )
