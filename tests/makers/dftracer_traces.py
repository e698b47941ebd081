"""Writer of DFTracer traces as text, in the dialects that are about."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

EPOCH_US = 1_700_000_000_000_000


class PfwTrace:
    """The lines of one trace file. Times are microseconds (or `metric`) after `base`.

    `dialect`: "today" (numbers), "letters" (`ph` M and X, lines in brackets).
    """

    def __init__(
        self,
        pid: int = 100,
        parent: int = 1,
        *,
        host: str = "node01",
        folder: str = "/job",
        command: str = "python train.py",
        metric: str = "US",
        dialect: str = "today",
        base: int = EPOCH_US,
    ) -> None:
        self.pid, self.base, self.dialect = pid, base, dialect
        self.lines: list[str] = []
        self.events = 0
        self.known: dict[str, str] = {}
        self.host = f"h-{host}"
        self.meta("HH", host, self.host)
        self.meta("CM", "time_metric", metric)
        cwd = self.define(folder)
        self.meta("SH", command.replace(" ", ";"), f"s-{command}")
        self.event("start", "dftracer", 0, 0, ppid=parent, cmd_hash=f"s-{command}", cwd=cwd,
                   version=20003)  # fmt: skip

    def define(self, name: str) -> str:
        """The hash of a file name, defined in this file where it is new."""
        if name not in self.known:
            self.known[name] = f"{zlib.crc32(name.encode()):016x}"
            self.meta("FH", name, self.known[name])
        return self.known[name]

    def meta(self, kind: str, name: str, value: str) -> None:
        ph: Any = 4 if self.dialect == "today" else "M"
        arguments = {"hhash": self.host, "name": name, "value": value}
        self._add({"name": kind, "cat": "dftracer", "pid": self.pid, "tid": self.pid, "ph": ph,
                   "args": arguments})  # fmt: skip

    def event(self, name: str, category: str, at: int, duration: int, **arguments: Any) -> None:
        ph: Any = 1 if self.dialect == "today" else "X"
        self.events += 1
        self._add({"id": self.events, "name": name, "cat": category, "pid": self.pid,
                   "tid": arguments.pop("tid", self.pid), "ts": self.base + at, "dur": duration,
                   "ph": ph, "args": {"hhash": self.host, **arguments}})  # fmt: skip

    def io(self, name: str, path: str, at: int, duration: int, **arguments: Any) -> None:
        """A call of POSIX, or of STDIO where its name begins with f."""
        category = "STDIO" if name.startswith("f") else "POSIX"
        self.event(name, category, at, duration, fhash=self.define(path), **arguments)

    def end(self, at: int) -> None:
        self.event("end", "dftracer", at, 0, num_events=self.events)

    def text(self) -> bytes:
        lines = [*self.lines]
        if self.dialect == "letters":
            lines = ["[", *lines, "]"]
        return "".join(f"{line}\n" for line in lines).encode()

    def write(self, path: Path, members: int = 1) -> Path:
        """The file, in that many gzip members where its name ends with .gz."""
        text = self.text()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(compressed(text, members) if path.suffix == ".gz" else text)
        return path

    def _add(self, event: Mapping[str, Any]) -> None:
        self.lines.append(json.dumps(event, separators=(",", ":")))


def compressed(text: bytes, members: int) -> bytes:
    """The text in several gzip members, cut anywhere."""
    step = -(-len(text) // members) or 1
    return b"".join(
        gzip.compress(text[at : at + step], mtime=0) for at in range(0, len(text), step)
    )
