"""Free space under RUN: below a floor, recording stops, and the program goes on.

What is recorded stays usable that way, and a program that writes to the same disk does not fail
for want of what was recorded of it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from vanidl.formatting.units import nbytes

FLOOR_NBYTES = 256 << 20
"""What is left free: two seconds of all that a tracer can write on a fast disk."""
_ANSWER_S = 1.0
STOP = "stop"
"""A file of this name among the journals has the processes stop: they look once a second."""


def free_nbytes(folder: Path) -> int | None:
    """What a user may write there; None where the file system does not say."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize if status.f_blocks else None


class FreeSpace:
    """The space under one RUN while it is recorded.

    Args:
        run: the folder.
        floor_nbytes: how much is to stay free; 0: recording goes on until nothing is.
        journals: the folder of what the program's own processes write, None where they do not.
        stop: has the tracer stop; called again for processes that begin later.

    Attributes:
        stopped_ns: when recording was stopped, since the epoch; 0: it was not.
    """

    def __init__(
        self, run: Path, floor_nbytes: int, journals: Path | None, stop: Callable[[], None]
    ) -> None:
        self._run, self._floor_nbytes = run, floor_nbytes
        self._journals, self._stop = journals, stop
        self._left_nbytes = 0
        self.stopped_ns = 0

    def first_look(self) -> bool:
        """The same, before the command runs: storage that does not answer holds nothing up."""
        thread = threading.Thread(target=self.look, daemon=True)
        thread.start()
        thread.join(_ANSWER_S)
        return self.stopped_ns != 0

    def look(self) -> bool:
        """Stops recording where less is left than should be; whether it has been stopped."""
        if not self.stopped_ns:
            left_nbytes = free_nbytes(self._run)
            if left_nbytes is None or left_nbytes >= self._floor_nbytes:
                return False
            self.stopped_ns, self._left_nbytes = time.time_ns(), left_nbytes
        if self._journals is not None:
            with suppress(OSError):  # again at the next look
                self._journals.mkdir(parents=True, exist_ok=True)
                (self._journals / STOP).touch()
        self._stop()
        return True

    def remark(self, start_ns: int, goes_on: str) -> str:
        """A sentence for the record; "" where recording went on.

        Args:
            start_ns: when the command began.
            goes_on: what cannot be stopped, "" for nothing.
        """
        if not self.stopped_ns:
            return ""
        after_s = (self.stopped_ns - start_ns) / 1e9
        since = f"from {after_s:.1f} s after its start on" if after_s > 0 else "from its start on"
        return (
            f"Recording was stopped {since}, as the disk of RUN had "
            f"{nbytes(self._left_nbytes)} free, less than {nbytes(self._floor_nbytes)} "
            f"(--keep-free). The command went on; what it did from then on is in no number."
            f"{f' {goes_on}' if goes_on else ''}"
        )
