"""What recorded processes have read, as the kernel counts it while they run (`/proc/PID/io`)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vanidl.encoding.budget import whole_number
from vanidl.record.life import PROC, is_of_run

_COUNT = re.compile(rb"^(rchar|read_bytes): (\d+)$", re.M)


_Counts = tuple[int, int]


class ProcessReads:
    """Bytes that the processes of one run on this host have read.

    A process is one of the run if its environment names the run's folder: numbers of processes
    come again, and mean others elsewhere. The kernel adds what a process has read to its parent's
    count once that has waited for it, so a child that is gone is then left out here.

    Attributes:
        processes: how many were counted.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._counts: dict[int, _Counts] = {}
        self._parents: dict[int, object] = {}
        self._gone: set[int] = set()
        self._added: set[int] = set()  # to the counts of their parents
        self._host = os.uname().nodename

    @property
    def called(self) -> int:
        """Bytes that `read` and the like returned, of pipes as well, from cache or not."""
        return sum(self._counts[pid][0] for pid in self._counts.keys() - self._added)

    @property
    def stored(self) -> int:
        """Bytes that storage had to give for them, page faults among them."""
        return sum(self._counts[pid][1] for pid in self._counts.keys() - self._added)

    @property
    def processes(self) -> int:
        """How many processes were counted."""
        return len(self._counts)

    def look(self, described: Iterable[Mapping[str, Any]]) -> None:
        """Counts again, of processes that describe themselves so."""
        for process in described:
            pid = process.get("pid")
            if type(pid) is int and pid > 0 and process.get("host") == self._host:
                self._parents.setdefault(pid, process.get("parent_pid"))
        before = dict(self._counts)
        children = [pid for pid, parent in self._parents.items() if parent in self._parents]
        for pid in (*children, *(self._parents.keys() - set(children))):
            if pid not in self._gone:
                self._look(pid)
        for pid in (self._gone & self._counts.keys()) - self._added:
            self._leave_out(pid, before)

    def _leave_out(self, pid: int, before: Mapping[int, _Counts]) -> None:
        """A child, if its parent's count has grown by at least what the child had read."""
        parent = self._parents[pid]
        if isinstance(parent, int) and parent in before and parent not in self._gone:
            grown = self._counts[parent][0] - before[parent][0]
            if grown >= self._counts[pid][0]:
                self._added.add(pid)

    def _look(self, pid: int) -> None:
        try:
            if pid not in self._counts and not is_of_run(pid, self._folder):
                self._gone.add(pid)
                return
            counts = dict(_COUNT.findall((PROC / str(pid) / "io").read_bytes()))
        except FileNotFoundError:
            self._gone.add(pid)
            return
        except OSError:  # another's, or one that has ended and was not waited for yet
            return
        called, stored = (
            whole_number(counts.get(name, b"").decode()) for name in (b"rchar", b"read_bytes")
        )
        if called is None or stored is None or called < self._counts.get(pid, (0, 0))[0]:
            self._gone.add(pid)
        else:
            self._counts[pid] = called, stored
