"""Memory of the command's processes over time, looked at from outside: nothing happens in them.

A file of JSON lines in RUN, one line a look. `statm` is read every second; `smaps_rollup`, for
which the kernel walks all pages of a process, when one is new, and so rarely that it takes `SHARE`
of a core. Only that tells a page that is shared with the parent from a copy of it, as reference
counts in forked workers make.

Lines get rarer as a run gets longer: of the looks between two of them the largest sizes stay.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from vanidl.record.processes import PROC, Seen

FOLDER = "memory"
SUFFIX = ".memory"
SCHEMA = "vanidl-memory/1"
LOOK_S = 1.0
SHARE = 0.003
_RARELY_S = 2.0
_LOOKS_A_LINE = 600  # a line stands for 1 / 600 of the time until it, a second at least
_MOST_PROCESSES = 512
_SHM = "/dev/shm"
_ROLLUP = re.compile(rb"^(Pss|Pss_Shmem|Private_Clean|Private_Dirty|Swap): +(\d+) kB$", re.M)
_STAT = re.compile(r"^(anon|rss|file|cache|shmem) (\d+)$", re.M)


class MemoryLooks:
    """Writes what the processes of a run take, as long as `look` is called."""

    def __init__(self, run: Path) -> None:
        self._path = run / FOLDER / f"{os.uname().nodename}-{os.getpid()}{SUFFIX}"
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._begin_s = self._look_s = self._line_s = self._walk_s = 0.0
        self._walked_s = -_RARELY_S
        self._sizes: dict[int, list[int]] = {}
        self._known: set[int] = set()
        self._unwalked = False  # a process is new since the last walk
        self._groups: tuple[Path, ...] = tuple(list_control_group_folders())
        self._descriptor = -1
        self._stopped = False

    def look(self, seen: Iterable[Seen]) -> None:
        """Looks at the processes that live, if it is time to; a full disk ends it."""
        now_s = time.monotonic()
        if now_s < self._look_s or self._stopped:
            return
        self._look_s = now_s + LOOK_S
        living = [one for one in seen if not one.gone][:_MOST_PROCESSES]
        for one in living:
            sizes = self._read_sizes(one.pid)
            if sizes is not None:
                # The largest sizes since the last line.
                before = self._sizes.get(one.pid, sizes)
                self._sizes[one.pid] = [max(pair) for pair in zip(before, sizes, strict=True)]
        with suppress(OSError):
            if self._descriptor < 0:
                self._open(now_s)
            if now_s >= self._line_s and not self._stopped:
                self._write(now_s, living)

    def stop(self) -> None:
        """Looks no more; of any thread."""
        self._stopped = True

    def close(self) -> None:
        """The same, for the thread that looked."""
        self._stopped = True
        if self._descriptor >= 0:
            with suppress(OSError):  # what was not written by now is lost
                os.close(self._descriptor)
            self._descriptor = -1

    def _open(self, now_s: float) -> None:
        self._begin_s = now_s
        self._path.parent.mkdir(exist_ok=True)
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        limit, of = find_memory_limit(self._groups)
        try:
            self._add(
                {"schema": SCHEMA, "host": os.uname().nodename, "limit": limit, "limit_of": of}
            )
        except OSError:  # no room: an empty file would only be damaged
            self._path.unlink()
            self.close()

    def _write(self, now_s: float, living: list[Seen]) -> None:
        line: dict[str, Any] = {"t": time.time_ns()}
        new = [one for one in living if one.pid not in self._known]
        if new:
            line["new"] = {str(one.pid): one.parent_pid for one in new}
            self._known.update(one.pid for one in new)
            self._unwalked = True
        line["p"] = {str(pid): sizes for pid, sizes in self._sizes.items()}
        # Who is new shares pages that were another's alone: all sizes change at once.
        if now_s >= (self._walked_s + _RARELY_S if self._unwalked else self._walk_s):
            before_s = time.thread_time()
            sizes = {str(one.pid): _walk_pages(one.pid) for one in living}
            line["s"] = {pid: each for pid, each in sizes.items() if each}
            spent_s = time.thread_time() - before_s
            self._walked_s, self._unwalked = now_s, False
            self._walk_s = max(self._walk_s, now_s) + max(_RARELY_S, spent_s / SHARE)
        # Bytes that the machine can still give; -1: unknown.
        available = _read_meminfo("MemAvailable")
        line["m"] = [_measure_shared_memory(), available]
        if group := _read_control_group(self._groups):
            line["c"] = group
        self._add(line)
        self._sizes = {}
        self._line_s = now_s + max(0.0, (now_s - self._begin_s) / _LOOKS_A_LINE - LOOK_S / 2)

    def _add(self, line: Mapping[str, Any]) -> None:
        os.write(self._descriptor, orjson.dumps(line) + b"\n")

    def _read_sizes(self, pid: int) -> list[int] | None:
        """Resident bytes, and those of them that are of files or of shared memory."""
        try:
            words = Path(PROC, str(pid), "statm").read_bytes().split()
            return [int(words[1]) * self._page, int(words[2]) * self._page]
        except (OSError, IndexError, ValueError):
            return None


def _walk_pages(pid: int) -> list[int] | None:
    """Proportional bytes, private ones, proportional ones of shared memory, swapped ones."""
    try:
        content = Path(PROC, str(pid), "smaps_rollup").read_bytes()
    except OSError:  # gone, or another user's
        return None
    sizes = {name: int(kib) << 10 for name, kib in _ROLLUP.findall(content)}
    if b"Pss" not in sizes:
        return None
    private = sizes.get(b"Private_Clean", 0) + sizes.get(b"Private_Dirty", 0)
    return [sizes[b"Pss"], private, sizes.get(b"Pss_Shmem", 0), sizes.get(b"Swap", 0)]


def _measure_shared_memory() -> int:
    """Bytes in /dev/shm, where loaders hand batches over: of all that use it; -1: unknown."""
    try:
        status = os.statvfs(_SHM)
    except OSError:
        return -1
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def _read_meminfo(name: str) -> int:
    try:
        text = Path(PROC, "meminfo").read_text("ascii", "replace")
    except OSError:
        return -1
    match = re.search(rf"^{name}: +(\d+) kB$", text, re.M)
    return int(match[1]) << 10 if match else -1


def _read_control_group(folders: Iterable[Path]) -> list[int] | None:
    """Bytes of our control group, page cache included: all, anonymous, of files, of shared memory.

    None where it does not say. It may hold more than the command.
    """
    for folder in folders:
        for name in ("memory.current", "memory.usage_in_bytes"):
            with suppress(OSError, ValueError):
                current = int((folder / name).read_text())
                text = (folder / "memory.stat").read_text("ascii", "replace")
                stat = {key: int(value) for key, value in _STAT.findall(text)}
                return [
                    current, stat.get("anon", stat.get("rss", -1)),
                    stat.get("file", stat.get("cache", -1)), stat.get("shmem", -1),
                ]  # fmt: skip
    return None


def find_memory_limit(folders: Iterable[Path]) -> tuple[int, str]:
    """The least that the control groups above us and the machine allow, and which of both it is."""
    machine = _read_meminfo("MemTotal")
    limits = []
    for folder in folders:
        for above in (folder, *folder.parents):
            for name in ("memory.max", "memory.limit_in_bytes"):
                with suppress(OSError, ValueError):
                    limits.append(int((above / name).read_text()))
    least = min(limits, default=machine)
    if limits and (machine < 0 or least < machine):
        return least, "control group"
    return machine, "machine"


# How many processes the kernel has killed in our control group as memory had run out.
#
# Only their own number tells of such an end: the exit status is that of any SIGKILL.

_GROUPS_FILE = Path("/proc/self/cgroup")
_GROUPS_ROOT = Path("/sys/fs/cgroup")
_KILLS = re.compile(r"^oom_kill (\d{1,18})$", re.M)


def count_memory_kills() -> int | None:
    """How many so far; None where nothing counts them.

    A process counts in its own group, whichever limit above it was met.
    """
    for folder in list_control_group_folders():
        for name in ("memory.events", "memory.oom_control"):
            try:
                count = _KILLS.search((folder / name).read_text("ascii", "replace"))
            except OSError:
                continue
            if count:
                return int(count[1])
    return None


def list_control_group_folders(controller: str = "memory") -> Iterator[Path]:
    """Where the files of our control group may be, of memory or another one, the likeliest first.

    In a container the group may be named by its place outside: then the files are those of the
    root here.
    """
    try:
        lines = _GROUPS_FILE.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, place = rest.partition(":")
        if number == "0":
            yield _GROUPS_ROOT / place.lstrip("/")
            yield _GROUPS_ROOT
        elif controller in controllers.split(","):
            yield _GROUPS_ROOT / controller / place.lstrip("/")
            yield _GROUPS_ROOT / controller
