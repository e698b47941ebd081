"""How much a file of operations on object storage that is being written holds so far."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vanidl.readers.bounds import impossible
from vanidl.readers.objects.operations import MAGIC, NAME, READ, TEXT, failed
from vanidl.readers.recorded_rows import Follower

_MOST_ROWS = 32_768


class LiveOperations:
    """The reads of one process so far: `reads` requests, for `nbytes`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reads = self.nbytes = 0
        self._follower = Follower(path, (MAGIC,), "operations on object storage")
        self._restarts = 0
        self._text_rows = 0  # of the last text that are still to come

    def read(self) -> None:
        """Reads what has been written.

        Raises:
            InputError: it cannot be read, or is something else.
        """
        while len(rows := self._follower.peek(_MOST_ROWS)):
            if self._follower.restarts != self._restarts:
                self._restarts = self._follower.restarts
                self.reads = self.nbytes = self._text_rows = 0
            self._follower.advance(len(rows))
            self._count(rows)

    def _count(self, rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> None:
        after = min(self._text_rows, len(rows))
        self._text_rows -= after
        is_request = np.ones(len(rows), bool)
        is_request[:after] = False
        for row in np.flatnonzero((rows[:, 0] == TEXT) | (rows[:, 0] == NAME)).tolist():
            if row >= after:
                after = row + 1 + max(int(rows[row, 1]), 0)
                is_request[row:after] = False
                self._text_rows = max(after - len(rows), 0)
        code, _, offset, nbytes, begin, end = (
            np.ascontiguousarray(column) for column in rows[is_request].T
        )
        read = (code & 0xFF == READ) & ~impossible(offset, nbytes, begin, end)
        self.reads += int(read.sum())
        self.nbytes += int(nbytes[read & ~failed(code)].sum())
