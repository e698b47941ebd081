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
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from vanidl.schema.dataclass import dataclass

ANSWER_S = 8.0
"""How long storage is waited for before it counts as dead."""

_MOUNTS = Path("/proc/self/mountinfo")
_REMOTE = re.compile(
    rb"fuse|nfs|lustre|gpfs|beegfs|ceph|cifs|smb|9p|afs|pvfs|orangefs|panfs|wekafs|gluster|virtiofs"
)
_ESCAPED = re.compile(rb"\\([0-7]{3})")
_MOST_LINKS = 40  # as Linux follows


@dataclass(frozen=True, slots=True)
class Mount:
    """What is mounted at a place: the kind of its file system, and which folder of that."""

    kind: bytes
    root: str
    options: bytes  # of the file system, as "lowerdir=/a,upperdir=/b,workdir=/c"


def read_mounts() -> dict[str, Mount]:
    """Place -> what is mounted there last; looking it up touches no storage."""
    mounts: dict[str, Mount] = {}
    with suppress(OSError):  # elsewhere than on Linux nobody says
        for line in _MOUNTS.read_bytes().splitlines():
            # "36 35 98:0 / /mnt/point rw,noatime shared:1 - ext3 /dev/root rw"
            head, _, tail = line.partition(b" - ")
            _, _, _, root, point, *_ = (_unescape(word) for word in head.split(b" "))
            kind, _, source_and_options = tail.partition(b" ")
            options = source_and_options.rpartition(b" ")[2]
            mounts[os.fsdecode(point)] = Mount(kind, os.fsdecode(root), options)
    return mounts


def _unescape(word: bytes) -> bytes:
    return _ESCAPED.sub(lambda escaped: bytes([int(escaped[1], 8)]), word)


def find_upper_kind(folder: Path) -> bytes:
    """The kind of file system that the upper layer is on of the overlay that a folder lies on.

    Empty where it is on no overlay, or where the upper layer cannot be seen from here: in a
    container it is usually a folder of the host.
    """
    mounts = read_mounts()
    place = folder.resolve()
    point = _find_mount_point(place, mounts)
    if not point or mounts[point].kind != b"overlay":
        return b""
    options = mounts[point].options.split(b",")
    upper = next((o.partition(b"=")[2] for o in options if o.startswith(b"upperdir=")), b"")
    if not upper:
        return b""
    inside = Path(mounts[point].root, place.relative_to(point))
    same = Path(os.fsdecode(_unescape(upper)), inside.relative_to("/"))
    # Another folder may have that name here: a container sees the host's names, not its folders.
    try:
        is_same = same.stat().st_mtime_ns == place.stat().st_mtime_ns
    except OSError:
        return b""
    above = _find_mount_point(same.resolve(), mounts)
    return mounts[above].kind if is_same and above else b""


def _find_mount_point(place: Path, mounts: Mapping[str, Mount]) -> str:
    return next((str(each) for each in (place, *place.parents) if str(each) in mounts), "")


class RemoteMounts:
    """Mounts whose storage another process or machine serves; looking them up touches none."""

    def __init__(self) -> None:
        self._kinds = {point: mount.kind for point, mount in read_mounts().items()}

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
    # A dot for each sign of life, then the answer; silence means that storage does not answer.
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
        for task in _list_folder(f"/proc/{pid}/task"):
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
        for task in _list_folder(f"/proc/{one}/task"):
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


def _list_folder(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []
