"""Writer of DFTracer traces as text, in the dialects that are about."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

EPOCH_US = 1_700_000_000_000_000
TYPES = {"dftracer": 1, "POSIX": 3, "STDIO": 3, "MPIIO": 10, "collective": 10, "h5d": 5, "h5f": 5}
"""The layer that a category belongs to, as newer versions number them."""


class Summed(NamedTuple):
    """One of the calls that are summed up."""

    name: str
    at: int
    duration: int
    tid: int
    arguments: Mapping[str, int]


class PfwTrace:
    """The lines of one trace file. Times are microseconds (or `metric`) after `base`.

    `dialect`: "today" (numbers), "letters" (`ph` M and X, lines in brackets), "typed" (numbers,
    each line with the `type` of its layer, the settings in the event that ends the process).
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
        self.settings = {"time_metric": metric}
        self.meta("HH", host, self.host)
        if dialect != "typed":
            self.meta("CM", "time_metric", metric)
        cwd = self.define(folder)
        words = command if ";" in command else command.replace(" ", ";")
        self.meta("SH", words, f"s-{command}")
        self.event("start", "dftracer", 0, 0, ppid=parent, cmd_hash=f"s-{command}", cwd=cwd,
                   version=20003)  # fmt: skip

    def define(self, name: str, hashed: str = "") -> str:
        """The hash of a file name, defined in this file where it is new."""
        if name not in self.known:
            self.known[name] = hashed or f"{zlib.crc32(name.encode()):016x}"
            self.meta("FH", name, self.known[name])
        return self.known[name]

    def meta(self, kind: str, name: str, value: str) -> None:
        ph: Any = "M" if self.dialect == "letters" else 4
        arguments = {"hhash": self.host, "name": name, "value": value}
        self._add({"name": kind, "cat": "dftracer", "pid": self.pid, "tid": self.pid, "ph": ph,
                   "args": arguments})  # fmt: skip

    def event(self, name: str, category: str, at: int, duration: int, **arguments: Any) -> None:
        ph: Any = "X" if self.dialect == "letters" else 1
        self.events += 1
        kind = arguments.pop("type", TYPES.get(category, 6))
        typed = {"type": kind} if self.dialect == "typed" else {}
        self._add({"id": self.events, "name": name, "cat": category, **typed, "pid": self.pid,
                   "tid": arguments.pop("tid", self.pid), "ts": self.base + at, "dur": duration,
                   "ph": ph, "args": {"hhash": self.host, **arguments}})  # fmt: skip

    def io(self, name: str, path: str, at: int, duration: int, **arguments: Any) -> None:
        """A call of POSIX, or of STDIO where its name begins with f and it is no sync."""
        category = "STDIO" if name.startswith("f") and "sync" not in name else "POSIX"
        self.event(name, category, at, duration, fhash=self.define(path), **arguments)

    def sums(self, calls: Sequence[Summed], **options: Any) -> None:
        """The calls as lines that sum them up: one for each name, thread and interval.

        `options`: `interval`, and `pid` of who writes a copy of sums that are not its own.
        """
        interval = options.get("interval", 1000)
        groups: dict[tuple[str, int, int], list[Summed]] = {}
        for call in calls:
            ts = (self.base + call.at) // interval * interval
            groups.setdefault((call.name, call.tid, ts), []).append(call)
        for (name, tid, ts), some in groups.items():
            values = [{"dur": call.duration, **call.arguments} for call in some]
            found = {k: v for key in values[0] for k, v in _summary(key, values).items()}
            category = "STDIO" if name.startswith("f") else "POSIX"
            ph: Any = "C" if self.dialect == "letters" else 3
            self._add({"name": name, "cat": category, "ts": ts, "ph": ph,
                       "pid": options.get("pid", self.pid), "tid": tid,
                       "args": {"hhash": self.host, **found, "dft_cnt": len(some)}})  # fmt: skip

    def sample(self, name: str, at: int, **values: float) -> None:
        """What the telemetry service of DFTracer says of its host at one moment."""
        self._add({"name": name, "cat": "sys", "type": 7, "ts": self.base + at, "ph": 2,
                   "pid": 0, "tid": 0, "args": {"hhash": self.host, **values}})  # fmt: skip

    def end(self, at: int, **settings: Any) -> None:
        stated = {"cfg": {**self.settings, **settings}} if self.dialect == "typed" else {}
        self.event("end", "dftracer", at, 0, num_events=self.events, **stated)

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


def _summary(key: str, values: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """How one number of several calls is summed up; that of one call stays as it is."""
    found = [value[key] for value in values]
    if len(found) == 1:
        return {key: found[0]}
    return {f"{key}_min": min(found), f"{key}_max": max(found), f"{key}_sum": sum(found)}
