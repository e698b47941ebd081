"""Which processes a command starts, seen from outside while it runs.

A tracer's library knows neither ranks nor the processes that it could not trace or that were
killed. Launchers put ranks into the environment of what they start, whatever they are and
however they start it, and the kernel shows that environment; so the recorder looks at its
descendants every few milliseconds. Nothing is put between launcher and program, and a
process that is too short to be seen is no rank.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

PROC = "/proc"
RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "PALS_RANKID",
                  "MV2_COMM_WORLD_RANK", "HOROVOD_RANK", "SLURM_PROCID")  # fmt: skip
"""Launchers' names for the rank of a process, those closest to the program first."""

KEPT = ("PYTHONPATH", "VANIDL_STEPS")
"""Variables by which a process records its steps."""

_RANK = re.compile(r"\d{1,9}", re.ASCII)


@dataclass(slots=True)
class Seen:
    """One process; `started` (ticks since boot) tells it from a later one with its pid.

    The words of its command end in NUL, as the kernel has them.
    """

    pid: int
    parent_pid: int
    started: int
    first_ns: int
    last_ns: int
    command: str = ""
    rank: int | None = None
    gone: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)  # of `KEPT`; {}: not seen


class Watch:
    """The processes below one, as far as they were seen.

    Where there is no /proc, only the first is known.
    """

    def __init__(self, pid: int, command: Sequence[str]) -> None:
        now = time.time_ns()
        words = "".join(f"{word}\0" for word in command)
        self.seen: dict[int, Seen] = {
            pid: Seen(pid, os.getpid(), process_started(pid), now, now, words)
        }

    def look(self) -> None:
        """Sees who is there now."""
        now = time.time_ns()
        pending = [seen for seen in self.seen.values() if not seen.gone]
        while pending:
            seen = pending.pop()
            if not _refresh(seen, now):
                continue
            for child in _children(seen.pid):
                if self._is_new(child):
                    self.seen[child] = Seen(child, seen.pid, process_started(child), now, now)
                    pending.append(self.seen[child])

    def _is_new(self, pid: int) -> bool:
        """Whether no process of this pid was seen, or it was another one, long gone."""
        if pid not in self.seen:
            return True
        return self.seen[pid].gone and process_started(pid) not in (0, self.seen[pid].started)

    def anyone_left(self) -> bool:
        """Whether a process was still there at the last look."""
        return any(not seen.gone for seen in self.seen.values())

    def ranks(self) -> dict[int, int | None]:
        """Rank of every process seen, by pid."""
        return {pid: seen.rank for pid, seen in self.seen.items()}


def _refresh(seen: Seen, now: int) -> bool:
    """Whether the process is still there; if so, what it is now."""
    if not seen.started or process_started(seen.pid) != seen.started:
        seen.gone = True
        return False
    seen.last_ns = now
    command = _text(seen.pid, "cmdline")
    # While a program is being started the kernel may show its command and no environment yet.
    if command and (command != seen.command or seen.first_ns == now or not seen.environment):
        seen.command = command
        environment = environment_of(seen.pid)
        seen.rank = rank_in(environment)
        seen.environment = {name: environment.get(name, "") for name in KEPT if environment}
    return True


def process_started(pid: int) -> int:
    """When a process started, in ticks since boot; 0 for one that is gone or a zombie."""
    fields = _text(pid, "stat").rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[0] != "Z" else 0


def _children(pid: int) -> Iterator[int]:
    try:
        threads = os.listdir(f"{PROC}/{pid}/task")  # noqa: PTH208 - many times a second
    except OSError:
        return
    for thread in threads:
        yield from map(int, _text(pid, f"task/{thread}/children").split())


def environment_of(pid: int) -> dict[str, str]:
    """That which a process was started with; {} of one that cannot be seen."""
    pairs = (entry.partition("=") for entry in _text(pid, "environ").split("\0"))
    return {key: value for key, mark, value in pairs if mark}


def rank_in(environment: Mapping[str, str]) -> int | None:
    """The rank that a launcher gave a process, None for one that has none."""
    values = (environment.get(name, "") for name in RANK_VARIABLES)
    return next((int(value) for value in values if _RANK.fullmatch(value)), None)


def _text(pid: int, name: str) -> str:
    """A file of /proc, "" for a process that is gone or another user's."""
    try:
        with open(f"{PROC}/{pid}/{name}", "rb", buffering=0) as file:  # noqa: PTH123
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
