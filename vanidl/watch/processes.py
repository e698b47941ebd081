"""What recorded processes have read, as the kernel counts it while they run (`/proc/PID/io`)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vanidl.readers.budget import whole_number

PROC = Path("/proc")
_FOLDER = b"VANIDL_STEPS="
_COUNT = re.compile(rb"^(rchar|read_bytes): (\d+)$", re.M)


class ProcessReads:
    """Bytes that the processes of one run on this host have read.

    A process is one of the run if its environment names the run's folder: numbers of processes
    come again, and mean others elsewhere. What it read after it was last looked at is not known.

    Attributes:
        called: bytes that `read` and the like returned, of pipes as well, from cache or not.
        stored: bytes that storage had to give for them, page faults among them.
        processes: how many were counted.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._counts: dict[int, tuple[int, int]] = {}
        self._gone: set[int] = set()
        self._host = os.uname().nodename

    @property
    def called(self) -> int:
        """Bytes by calls."""
        return sum(called for called, _ in self._counts.values())

    @property
    def stored(self) -> int:
        """Bytes from storage."""
        return sum(stored for _, stored in self._counts.values())

    @property
    def processes(self) -> int:
        """How many processes were counted."""
        return len(self._counts)

    def look(self, described: Iterable[Mapping[str, Any]]) -> None:
        """Counts again, of processes that describe themselves so."""
        for process in described:
            pid = process.get("pid")
            if type(pid) is not int or pid <= 0 or process.get("host") != self._host:
                continue
            if pid not in self._gone:
                self._look(pid)

    def _look(self, pid: int) -> None:
        try:
            if pid not in self._counts and not self._is_of_run(pid):
                self._gone.add(pid)
                return
            counts = dict(_COUNT.findall((PROC / str(pid) / "io").read_bytes()))
        except OSError:  # it has ended, or may not be looked at
            self._gone.add(pid)
            return
        called, stored = (
            whole_number(counts.get(name, b"").decode()) for name in (b"rchar", b"read_bytes")
        )
        if called is None or stored is None or called < self._counts.get(pid, (0, 0))[0]:
            self._gone.add(pid)
        else:
            self._counts[pid] = called, stored

    def _is_of_run(self, pid: int) -> bool:
        for entry in (PROC / str(pid) / "environ").read_bytes().split(b"\0"):
            if entry.startswith(_FOLDER):
                named = os.fsdecode(entry[len(_FOLDER) :])
                try:
                    return self._folder.samefile(named)
                except OSError:
                    return False
        return False
