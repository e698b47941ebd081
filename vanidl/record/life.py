"""Whether a recorded process lives on this host, and what it is doing at this moment.

Its recorder keeps that in a page of memory, which is read here through `/proc/PID/fd`:
`vanidl/record/injected/vanidl_steps/journal.py` writes it. Times in it are of the monotonic clock,
which all processes of a host share, and which does not jump.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from struct import Struct
from typing import Any

PROC = Path("/proc")
SAVE = 0xFE
_PAGE = Struct("<4q")
_LINK = "/memfd:vanidl-present"
_FOLDERS = (b"VANIDL_STEPS=", b"VANIDL_RUN=")

_TROUBLES = {
    "": "its process is gone",
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "D": "in a call of the system that cannot be interrupted, as of storage",
}


@dataclass(frozen=True, slots=True)
class Call:
    """A code as journals have it (0: nothing), and when it began or ended, in ns."""

    code: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class Life:
    """A process on this host: its state as the kernel has it, "" for one that is gone."""

    state: str
    doing: Call | None = None
    last: Call | None = None

    @property
    def is_gone(self) -> bool:
        """Whether it lives no more."""
        return not self.state

    def aged(self, now_ns: int) -> Life:
        """The same with how long ago instead of when; and back, from ages to times."""

        def turned(call: Call | None) -> Call | None:
            return call and Call(call.code, now_ns - call.at_ns if call.code else 0)

        return replace(self, doing=turned(self.doing), last=turned(self.last))

    @property
    def trouble(self) -> str:
        """What keeps it from going on, "" where nothing is known to."""
        return _TROUBLES.get(self.state, "")


def look_at(process: Mapping[str, Any], folder: Path) -> Life | None:
    """What can be seen of a process that describes itself so; None of one elsewhere, or hidden.

    Args:
        process: the text at the head of its journal.
        folder: of the journals of the run, which its environment names.
    """
    pid = process.get("pid")
    if process.get("host") != os.uname().nodename or type(pid) is not int or pid <= 0:
        return None
    try:
        state = _state(pid)
        if state in "ZX" or not _may_be_of_run(pid, folder):
            return Life("")
    except (FileNotFoundError, ProcessLookupError):
        return None if _is_hidden(pid) else Life("")
    except OSError:
        return None
    doing, last = _present(pid, process.get("present"))
    return Life(state, doing, last)


def _present(pid: int, descriptor: object) -> tuple[Call | None, Call | None]:
    """What the process does, and what it did last."""
    if type(descriptor) is not int or descriptor < 0:
        return None, None
    path = PROC / str(pid) / "fd" / str(descriptor)
    content, again = b"", b"?"
    with suppress(OSError):
        if not os.readlink(path).startswith(_LINK):  # noqa: PTH115
            return None, None
        with path.open("rb", buffering=0) as file:
            while content != again:  # amid a store
                content, again = again, os.pread(file.fileno(), _PAGE.size, 0)
    if len(content) != _PAGE.size:
        return None, None
    doing, since_ns, last, at_ns = _PAGE.unpack(content)
    return Call(doing, since_ns), Call(last, at_ns)


def _is_hidden(pid: int) -> bool:
    """Whether a process is there that /proc does not show, as `hidepid` has it."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _may_be_of_run(pid: int, folder: Path) -> bool:
    """Whether the environment names the run; of another user's process, which does not show it."""
    try:
        return is_of_run(pid, folder)
    except PermissionError:
        return True


def is_of_run(pid: int, folder: Path) -> bool:
    """Whether the environment of a process names the folder of a run, or that of its journals.

    Numbers of processes come again, so a number alone tells nothing.

    Raises:
        OSError: it is gone, or another user's.
    """
    for entry in (PROC / str(pid) / "environ").read_bytes().split(b"\0"):
        if entry.startswith(_FOLDERS):
            with suppress(OSError):
                if folder.samefile(os.fsdecode(entry.partition(b"=")[2])):
                    return True
    return False


def anyone_lives(folder: Path) -> bool:
    """Whether a process on this host that can be looked at has a folder in its environment."""
    for path in PROC.glob("[1-9]*"):
        with suppress(OSError):
            pid = int(path.name)
            if pid != os.getpid() and is_of_run(pid, folder) and _state(pid) not in "ZX":
                return True
    return False


def _state(pid: int) -> str:
    return (PROC / str(pid) / "stat").read_bytes().rpartition(b") ")[2][:1].decode("ascii")
