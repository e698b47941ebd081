"""What a run takes of its hosts while it is recorded: memory, and bytes that the kernel counts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from vanidl.analyses.memory import estimate_trend, sum_hosts
from vanidl.encoding.budget import whole_number
from vanidl.errors import InputError
from vanidl.readers.run_folder import MEMORY_FOLDER, parse_memory
from vanidl.record.alive import PROC, is_of_run
from vanidl.schema.dataclass import dataclass

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
                self._read_counts(pid)
        for pid in (self._gone & self._counts.keys()) - self._added:
            self._leave_out(pid, before)

    def _leave_out(self, pid: int, before: Mapping[int, _Counts]) -> None:
        """A child, if its parent's count has grown by at least what the child had read."""
        parent = self._parents[pid]
        if isinstance(parent, int) and parent in before and parent not in self._gone:
            grown = self._counts[parent][0] - before[parent][0]
            if grown >= self._counts[pid][0]:
                self._added.add(pid)

    def _read_counts(self, pid: int) -> None:
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


EVERY_S = 5.0  # memory changes slowly beside steps
_MOST_FILES = 64
_MOST_NBYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class MemoryState:
    """Bytes that the processes of the fullest host take now; None: not known."""

    host: str
    nbytes: int
    limit_nbytes: int | None
    out_of_memory_s: float | None  # going on as it does; None: no trend that holds


class LiveMemory:
    """The looks at memory in a RUN, read as they are written."""

    def __init__(self, run: Path) -> None:
        self._folder = run / MEMORY_FOLDER
        self._lines: dict[Path, tuple[int, list[bytes]]] = {}
        self._next_s = 0.0
        self._latest: MemoryState | None = None

    def look(self, now_s: float) -> MemoryState | None:
        """The state at that time of a clock that does not jump; None before the first look."""
        if now_s >= self._next_s:
            self._next_s = now_s + EVERY_S
            states = [
                state
                for path in self._list_files()
                if (state := self._read_state(path)) is not None
            ]
            self._latest = max(states, key=_compute_fullness, default=None)
        return self._latest

    def _list_files(self) -> list[Path]:
        with suppress(OSError):
            return sorted(self._folder.glob("*.memory"))[:_MOST_FILES]
        return []

    def _read_state(self, path: Path) -> MemoryState | None:
        offset, lines = self._lines.get(path, (0, []))
        with suppress(OSError), path.open("rb") as file:
            file.seek(offset)
            # Whole lines that are new; a line that is still being written is read with the next
            # look.
            whole, end, _ = file.read(_MOST_NBYTES).rpartition(b"\n")
            lines = [*lines, *whole.splitlines()]
            self._lines[path] = offset + len(whole) + len(end), lines
        try:
            host = parse_memory(lines, str(path))
        except InputError:
            return None
        at_s, nbytes = sum_hosts(host)
        if not len(at_s):
            return None
        slope = estimate_trend(at_s, nbytes)
        limit = host.limit if host.limit > 0 else None
        # What is left is of the limit, or of the host where that has less.
        left = None if limit is None else limit - float(nbytes[-1])
        if left is not None and host.limit_of != "control group" and host.available[-1] >= 0:
            left = min(left, float(host.available[-1]))
        # Straight on: memory that grew so far grows as fast until there is none.
        out = max(left, 0.0) / slope if slope is not None and left is not None else None
        return MemoryState(host.host, int(nbytes[-1]), limit, out)


def _compute_fullness(state: MemoryState) -> float:
    return state.nbytes / state.limit_nbytes if state.limit_nbytes else 0.0
