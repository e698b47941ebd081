"""Who sent a request: the process behind a thread, and the client (node) it stands for."""

from __future__ import annotations

import time
from pathlib import Path

TRUSTED_S = 1.0
"""How long an answer is kept: numbers of dead threads come back only much later."""


class Clients:
    """Looks up the client of a thread.

    A client is a process, or, with `variable`, all processes whose environment (at their start)
    holds the same value of it: `RANK` makes a torchrun rank and its forked DataLoader workers
    one client, any other name an emulated node of several ranks.
    """

    def __init__(self, variable: str | None = None) -> None:
        self._variable = variable
        self._known: dict[int, tuple[float, int, str]] = {}

    def find(self, thread: int) -> tuple[int, str]:
        """Process number and name of the client of a thread number."""
        now = time.monotonic()
        known = self._known.get(thread)
        if known is None or now - known[0] > TRUSTED_S:
            process = _process(thread)
            known = self._known[thread] = (now, process, self._client(process))
        return known[1], known[2]

    def _client(self, process: int) -> str:
        if self._variable is None:
            return str(process)
        prefix = f"{self._variable}=".encode()
        for entry in _read(Path(f"/proc/{process}/environ")).split(b"\0"):
            if entry.startswith(prefix):
                return entry.decode(errors="replace")
        return str(process)


def _process(thread: int) -> int:
    for line in _read(Path(f"/proc/{thread}/status")).splitlines():
        if line.startswith(b"Tgid:"):
            return int(line.split()[1])
    return thread


def _read(path: Path) -> bytes:
    """Content, or nothing where the process is gone or not ours to see."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
