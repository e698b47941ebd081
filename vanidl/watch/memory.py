"""Memory of a run that is being recorded: how much it takes now, and whether it is running out."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vanidl.analyses.memory import totals, trend
from vanidl.errors import InputError
from vanidl.readers.memory_looks import FOLDER, memory_of

EVERY_S = 5.0
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
        self._folder = run / FOLDER
        self._lines: dict[Path, tuple[int, list[bytes]]] = {}
        self._next_s = 0.0
        self._latest: MemoryState | None = None

    def look(self, now_s: float) -> MemoryState | None:
        """The state at that time of a clock that does not jump; None before the first look."""
        if now_s >= self._next_s:
            self._next_s = now_s + EVERY_S
            found = [state for path in self._paths() if (state := self._state(path)) is not None]
            self._latest = max(found, key=_fullness, default=None)
        return self._latest

    def _paths(self) -> list[Path]:
        with suppress(OSError):
            return sorted(self._folder.glob("*.memory"))[:_MOST_FILES]
        return []

    def _state(self, path: Path) -> MemoryState | None:
        offset, lines = self._lines.get(path, (0, []))
        with suppress(OSError), path.open("rb") as file:
            file.seek(offset)
            whole, end, _ = file.read(_MOST_NBYTES).rpartition(b"\n")
            lines = [*lines, *whole.splitlines()]
            self._lines[path] = offset + len(whole) + len(end), lines
        try:
            host = memory_of(lines, str(path))
        except InputError:
            return None
        at_s, nbytes = totals(host)
        if not len(at_s):
            return None
        slope = trend(at_s, nbytes)
        limit = host.limit if host.limit > 0 else None
        left = None if limit is None else limit - float(nbytes[-1])
        if left is not None and host.limit_of != "control group" and host.available[-1] >= 0:
            left = min(left, float(host.available[-1]))
        out = max(left, 0.0) / slope if slope is not None and left is not None else None
        return MemoryState(host.host, int(nbytes[-1]), limit, out)


def _fullness(state: MemoryState) -> float:
    return state.nbytes / state.limit_nbytes if state.limit_nbytes else 0.0
