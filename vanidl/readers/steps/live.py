"""Totals of a journal that is being written: those of `loop.profile`, without holding its events.

Rows are read once, in portions. Of the events only the last step or two are held: what lies before
a step is settled. What this rests on can turn out otherwise as more is read: which thread
trains, which loaders give the batches of steps, or that calls lay within a longer one. Then the
file is read again from its beginning. That happens while it is small, and again once it has
doubled, so reading stays in proportion to its size.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from vanidl.encoding.budget import bounded_name
from vanidl.readers.recorded_rows import Follower
from vanidl.readers.steps.journal import (
    END,
    ITER,
    KIND,
    MAGICS,
    OPTIMIZER,
    OTHER_STEP,
    STEP,
    TEXT,
    WAIT,
    Int64Array,
    describes_loader,
    sound_events,
    split_texts,
)
from vanidl.readers.steps.live_scan import NOTHING, Fetched, Known, LoopTotals, Scan, learned
from vanidl.readers.steps.loaders import loader_name, roles_of

MOST_ROWS = 32_768
"""Of a portion: a megabyte."""
_MOST_TEXT_ROWS = 4_096
_MOST_LOADERS = 1_000
_SMALL_BYTES = 4 << 20
_OF_LOOP = (WAIT, END, ITER, OPTIMIZER, STEP, OTHER_STEP)
_WORDS = ("loader", "class", "dataset", "role")


class LiveJournal:
    """What one process has recorded of its loop so far.

    Attributes:
        path: its file.
        process: host, pid, rank and so on; None until that has been read.
        totals: of all that was read, when it was last read to its end.
        fetched: the same of the batches that this process fetched.
        last: code of the last event of the loop, as it stands in the file; 0: none yet.
        has_ended: whether the process has written that it ends.
        has_stopped: whether it goes on and writes no more.
        is_behind: whether more is written than was read.
        is_exact: False where a bound on memory made totals approximate.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._follower = Follower(path, MAGICS, "steps")
        self._restarts = 0
        self._forget()

    def _forget(self) -> None:
        self.process: Mapping[str, Any] | None = None
        self.totals, self.fetched = LoopTotals(), Fetched()
        self.last, self.has_ended, self.has_stopped = 0, False, False
        self.is_behind, self.is_exact = True, True
        self._loaders: dict[int, dict[str, Any]] = {}
        self._known: Known = NOTHING
        self._scan = Scan(self._known, 0)
        self._skipped = 0  # rows of a text that is too long to be one
        self._again_at = 0

    def read(self, most_rows: int, *, ended: bool = False) -> int:
        """Reads what has been written; how many rows, which may be rows of before.

        Args:
            most_rows: to read now.
            ended: whether nothing more will be written: totals are settled, whatever it takes.

        Raises:
            InputError: it cannot be read, or is something else.
        """
        read = 0
        while read < most_rows or ended:
            rows = self._portion()
            read += rows
            if self._scan.reached_back_ns:
                self._scan_again(self._known, 2 * self._scan.reached_back_ns)
            elif rows < MOST_ROWS and not self._settled(ended):
                self.is_behind = False
                break
        return read

    def name(self, loader: int) -> str:
        """`DataLoader 0 (Images, training)`."""
        return loader_name(loader, self._loaders.get(loader, {}), self.role(loader))

    def role(self, loader: int) -> str:
        """What its batches are for, "" where nothing tells yet."""
        return self._known.loaders.role(loader)

    def _portion(self) -> int:
        """Reads some rows; how many are there, less than `MOST_ROWS` at their end."""
        rows = self._follower.peek(MOST_ROWS)
        there = len(rows)
        if self._follower.restarts != self._restarts:
            self._restarts = self._follower.restarts
            self._forget()
        skipped = min(self._skipped, len(rows))
        self._skipped -= skipped
        rows = rows[skipped : skipped + self._whole(rows[skipped:])]
        self._follower.advance(skipped + len(rows))
        texts, is_event = split_texts(rows)
        for text in texts:
            self._note(text)
        codes = rows[is_event, 0]
        of_loop = codes[np.isin(codes & KIND, _OF_LOOP)]
        self.last = int(of_loop[-1]) if len(of_loop) else self.last
        self._scan.add(sound_events(rows[is_event])[0])
        return there

    def _whole(self, rows: Int64Array) -> int:
        """How many rows there are before a text that is not there as a whole."""
        after = 0
        for row in np.flatnonzero(rows[:, 0] == TEXT).tolist():
            if row < after:
                continue
            length = max(int(rows[row, 1]), 0)
            after = row + 1 + length
            if after > len(rows):
                if length <= _MOST_TEXT_ROWS:
                    return int(row)
                self._skipped = after - len(rows)
        return len(rows)

    def _note(self, text: Mapping[str, Any]) -> None:
        if "pid" in text and self.process is None:
            self.process = text
        self.has_stopped |= "stopped" in text
        self.has_ended |= "ended" in text and not self.has_stopped
        if describes_loader(text) and (
            text["loader"] in self._loaders or len(self._loaders) < _MOST_LOADERS
        ):
            words = {word: text[word] for word in _WORDS if word in text}
            self._loaders[text["loader"]] = {
                word: bounded_name(value) if isinstance(value, str) else value
                for word, value in words.items()
            }

    def _settled(self, ended: bool) -> bool:
        """At the end of what is written: whether it has to be read again."""
        known = learned(self._scan, roles_of(self._loaders))
        if known != self._known and (ended or self._may_read_again()):
            self._scan_again(known, self._scan.hold_ns)
            return True
        self.totals, self.fetched = self._scan.totals(), self._scan.fetched
        self.is_exact = self._scan.is_exact
        return False

    def _may_read_again(self) -> bool:
        nbytes = self._follower.nbytes
        return nbytes < _SMALL_BYTES or nbytes >= 2 * self._again_at

    def _scan_again(self, known: Known, hold_ns: int) -> None:
        self._again_at = self._follower.nbytes
        self._known = deepcopy(known)
        self._scan = Scan(self._known, hold_ns)
        self._skipped = 0
        self._follower.rewind()
        self.is_behind = True
