"""What storage served to this process and its workers, by the kernel's count, no loader's."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


def served_nbytes() -> int | None:
    """Bytes that read calls returned so far, of this process, its children, and those that ended.

    From the page cache or not; pages of mapped files are not in it. None: this kernel does not
    count.
    """
    try:
        own = _read_nbytes(_PROC / "self")
    except (OSError, ValueError):
        return None
    return own + sum(map(_of_child, _children()))


def forget_cached(folder: Path) -> bool:
    """Has the kernel forget the cached pages of all files in a folder; False where it may not."""
    if not hasattr(os, "posix_fadvise"):
        return False
    try:
        for path in folder.rglob("*"):
            if path.is_file():
                _forget(path)
    except OSError:
        return False
    return True


def _forget(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


def _children() -> list[str]:
    with suppress(OSError):
        lists = [path.read_text() for path in (_PROC / "self/task").glob("*/children")]
        return [pid for each in lists for pid in each.split()]
    return []


def _of_child(pid: str) -> int:
    with suppress(OSError, ValueError):
        return _read_nbytes(_PROC / pid)
    return 0


def _read_nbytes(process: Path) -> int:
    """`rchar`: what read, pread and their like returned."""
    fields = (line.partition(":") for line in (process / "io").read_text().splitlines())
    return int({name: value for name, _, value in fields}["rchar"])
