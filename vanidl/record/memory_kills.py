"""How many processes the kernel has killed in our control group as memory had run out.

Only their own number tells of such an end: the exit status is that of any SIGKILL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_GROUPS = Path("/proc/self/cgroup")
_ROOT = Path("/sys/fs/cgroup")
_COUNT = re.compile(r"^oom_kill (\d{1,18})$", re.M)


def memory_kills() -> int | None:
    """How many so far; None where nothing counts them.

    A process counts in its own group, whichever limit above it was met.
    """
    for folder in control_group_folders():
        for name in ("memory.events", "memory.oom_control"):
            try:
                count = _COUNT.search((folder / name).read_text("ascii", "replace"))
            except OSError:
                continue
            if count:
                return int(count[1])
    return None


def control_group_folders() -> Iterator[Path]:
    """Where the files of our control group of memory may be, the likeliest first.

    In a container the group may be named by its place outside: then the files are those of the
    root here.
    """
    try:
        lines = _GROUPS.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, place = rest.partition(":")
        if number == "0":
            yield _ROOT / place.lstrip("/")
            yield _ROOT
        elif "memory" in controllers.split(","):
            yield _ROOT / "memory" / place.lstrip("/")
            yield _ROOT / "memory"
