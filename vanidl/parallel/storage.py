"""Storage that may never answer: which paths lie on it, and whether it does.

A call to a mount whose server is gone waits for ever, and no signal ends the process that made it:
so it is made by a process that can be left behind.
"""

from __future__ import annotations

import errno
import os
import re
import select
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

ANSWER_S = 8.0
"""How long storage is waited for before it counts as dead."""

_MOUNTS = Path("/proc/self/mountinfo")
_REMOTE = re.compile(
    rb"fuse|nfs|lustre|gpfs|beegfs|ceph|cifs|smb|9p|afs|pvfs|orangefs|panfs|wekafs|gluster|virtiofs"
)
_ESCAPED = re.compile(rb"\\([0-7]{3})")
_MOST_LINKS = 40  # as Linux follows


class RemoteMounts:
    """Mounts whose storage another process or machine serves; looking them up touches none."""

    def __init__(self) -> None:
        self._kinds: dict[str, bytes] = {}
        with suppress(OSError):  # elsewhere than on Linux nobody says
            for line in _MOUNTS.read_bytes().splitlines():
                # "36 35 98:0 / /mnt/point rw,noatime shared:1 - ext3 /dev/root rw"
                head, _, tail = line.partition(b" - ")
                point = _ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), head.split(b" ")[4])
                self._kinds[os.fsdecode(point)] = tail.partition(b" ")[0]

    def of(self, path: str) -> str:
        """The point where the path is mounted from elsewhere, "" where it is not.

        Links are followed as far as they lie on this machine's own storage.
        """
        whole = os.path.abspath(path)  # noqa: PTH100 - resolving would look it up
        done, left = "/", [part for part in whole.split("/") if part][::-1]
        links = 0
        while left:
            here = os.path.join(done, left.pop())  # noqa: PTH118 - a Path would be looked up
            if _REMOTE.match(self._kinds.get(here, b"")):
                return here
            target = ""
            with suppress(OSError):  # what is no link, or not there
                target = os.readlink(here)  # noqa: PTH115
            if target and links < _MOST_LINKS:
                links += 1
                left += [part for part in target.split("/") if part][::-1]
                done = "/" if target.startswith("/") else done
            elif here.endswith("/.."):
                done = os.path.dirname(done)  # noqa: PTH120
            else:
                done = here
        return ""

    def is_fuse(self, mount: str) -> bool:
        """Whether a process of this machine serves the mount: who waits for it cannot be ended."""
        return self._kinds.get(mount, b"").startswith(b"fuse")


class Question:
    """Whether some paths can be looked at, asked by a child that is left behind if it hangs."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.began_s = time.monotonic()
        self._child = os.fork()
        if self._child == 0:
            try:
                for path in paths:
                    with suppress(OSError):  # which is an answer
                        os.stat(path)  # noqa: PTH116
                    with suppress(OSError), os.scandir(path) as entries:
                        next(entries, None)
            finally:
                os._exit(0)

    def is_answered(self) -> bool:
        """Whether it has been by now."""
        if self._child and os.waitpid(self._child, os.WNOHANG)[0]:
            self._child = 0
        return not self._child

    @property
    def is_overdue(self) -> bool:
        """Whether storage that lives would have answered long ago."""
        return time.monotonic() - self.began_s > ANSWER_S and not self.is_answered()

    def leave(self) -> None:
        """Asks no longer. A child that hangs ends when its storage answers, or is taken away."""
        if self._child:
            os.kill(self._child, signal.SIGKILL)


def ask(work: Callable[[Callable[[], None]], bytes]) -> bytes | None:
    """What work returns in a child, a few bytes; None where storage does not let it go on.

    It is given what to call now and then while it goes on. It may raise nothing but OSError.

    Raises:
        OSError: what work raised.
    """
    from_child, to_parent = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = work(partial(_tell, to_parent))
            os.write(to_parent, b"!" + answer)
        except OSError as error:
            os.write(to_parent, b"?%d" % (error.errno or 0))
        finally:
            os._exit(0)
    os.close(to_parent)
    said = b""
    try:
        while select.select([from_child], [], [], ANSWER_S)[0]:
            more = os.read(from_child, 1 << 16)
            if not more:
                break
            said = (said + more).lstrip(b".")
        else:
            os.kill(child, signal.SIGKILL)  # it ends when its storage answers, or is taken away
            return None
    finally:
        os.close(from_child)
    os.waitpid(child, 0)
    if said[:1] != b"!":
        number = int(said[1:] or b"0") or errno.EIO
        raise OSError(number, os.strerror(number))
    return said[1:]


def _tell(to_parent: int) -> None:
    os.write(to_parent, b".")


def waits_for_storage(processes: Iterable[int]) -> bool:
    """Whether a thread of some processes is in a call that only storage can end."""
    for pid in processes:
        for task in _listed(f"/proc/{pid}/task"):
            with suppress(OSError, ValueError):
                where = Path(f"/proc/{pid}/task/{task}/wchan").read_text("ascii", "replace")
                state = Path(f"/proc/{pid}/task/{task}/stat").read_text().rpartition(") ")[2][0]
                if state == "D" or where.startswith(("request_wait", "rpc_wait", "fuse_")):
                    return True
    return False


def descendants(pid: int) -> list[int]:
    """A process and all that it started, and these did."""
    found = [pid]
    for one in found:
        for task in _listed(f"/proc/{one}/task"):
            with suppress(OSError):
                found += map(int, Path(f"/proc/{one}/task/{task}/children").read_text().split())
    return found


def processor_ticks(processes: Iterable[int]) -> int:
    """Ticks of processor time that some processes have taken so far."""
    ticks = 0
    for pid in processes:
        with suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []
