"""Writers of TensorFlow and JAX profiles, from the formats' descriptions; they share no code."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.makers.event_files import message, varint

HOST = "node01"
START_NS = 1_795_219_356_495_801_370
SESSION = "2026_11_21_00_02_36"


class Event(NamedTuple):
    """One event; times in nanoseconds since the start of the profile."""

    name: str
    start: int
    end: int
    step: int | None = None
    hlo_op: str = ""
    line: str = "python"
    plane: str = "/host:CPU"
    title: str = ""
    correlation: int = 0  # of a call and what it handed to a device


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def xspace(
    events: Sequence[Event], *, start_ns: int | None = START_NS, base_ns: int = 0, more: bytes = b""
) -> bytes:
    """A profile; `base_ns` is what every line counts from, `more` is put before the end."""
    planes = list(dict.fromkeys(e.plane for e in events))
    content = b"".join(message(1, _plane(p, events, base_ns)) for p in planes)
    if start_ns is not None:
        content += message(1, environment(start_ns))
    return content + more + message(4, HOST.encode())


def environment(start_ns: int) -> bytes:
    stat = number(1, 7) + number(3, start_ns)
    entry = number(1, 7) + message(2, number(1, 7) + message(2, b"profile_start_time"))
    return message(2, b"Task Environment") + message(5, entry) + message(6, stat)


def _plane(plane: str, events: Sequence[Event], base_ns: int) -> bytes:
    mine = [e for e in events if e.plane == plane]
    names = list(dict.fromkeys((e.name, e.title) for e in mine))
    texts = list(dict.fromkeys(e.hlo_op for e in mine if e.hlo_op))
    stats = ["step_num", "hlo_op", "other", "correlation_id", *texts]
    lines = [
        message(3, _line(line, [e for e in mine if e.line == line], names, stats, base_ns))
        for line in dict.fromkeys(e.line for e in mine)
    ]
    entries = [
        message(4, number(1, i + 1) + message(2, _name(i + 1, name, title)))
        for i, (name, title) in enumerate(names)
    ]
    stat_entries = [
        message(5, number(1, i + 1) + message(2, number(1, i + 1) + message(2, text.encode())))
        for i, text in enumerate(stats)
    ]
    return message(2, plane.encode()) + b"".join([*lines, *entries, *stat_entries])


def _name(code: int, name: str, title: str) -> bytes:
    return number(1, code) + message(2, name.encode()) + (message(4, title.encode()) * bool(title))


def _line(line: str, events: Sequence[Event], names: list, stats: list[str], base_ns: int) -> bytes:
    body = number(1, 5) + message(2, line.encode()) + number(3, base_ns)
    return body + b"".join(message(4, _event(e, names, stats)) for e in events)


def _event(e: Event, names: list, stats: list[str]) -> bytes:
    body = number(1, names.index((e.name, e.title)) + 1) + number(2, e.start * 1000)
    if e.end > e.start:  # a duration of 0 is left out, as every 0 is
        body += number(3, (e.end - e.start) * 1000)
    body += message(4, number(1, 3) + b"\x11" + bytes(8))  # a float of no interest
    if e.step is not None:
        body += message(4, number(1, 1) + number(4, e.step))
    if e.hlo_op:
        body += message(4, number(1, 2) + number(7, stats.index(e.hlo_op) + 1))
    if e.correlation:
        body += message(4, number(1, 4) + number(3, e.correlation))
    return body


def viewer_trace(events: Sequence[Event]) -> dict:
    """The same as the trace viewer's JSON: microseconds, arguments as text."""
    pids = {plane: 700 + i for i, plane in enumerate(dict.fromkeys(e.plane for e in events))}
    lanes = {lane: i + 1 for i, lane in enumerate(dict.fromkeys((e.plane, e.line) for e in events))}
    rows = [
        {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": plane}}
        for plane, pid in pids.items()
    ]
    rows += [
        {"ph": "M", "pid": pids[p], "tid": t, "name": "thread_name", "args": {"name": line}}
        for (p, line), t in lanes.items()
    ]
    for e in events:
        row = {"ph": "X", "pid": pids[e.plane], "tid": lanes[e.plane, e.line], "name": e.name}
        row |= {"ts": e.start / 1000, "dur": (e.end - e.start) / 1000, "args": {}}
        if e.title:
            row |= {"name": e.title, "args": {"long_name": e.name}}
        if e.step is not None:
            row["args"]["step_num"] = str(e.step)
        if e.hlo_op:
            row["args"]["hlo_op"] = e.hlo_op
        rows.append(row)
    return {"displayTimeUnit": "ns", "metadata": {}, "traceEvents": [*rows, {}]}


def session(root: Path, session: str = SESSION) -> Path:
    folder = root / "plugins" / "profile" / session
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_xplane(root: Path, content: bytes, *, host: str = HOST) -> Path:
    path = session(root) / f"{host}.xplane.pb"
    path.write_bytes(content)
    return path


def write_viewer(root: Path, events: Sequence[Event], *, host: str = HOST) -> Path:
    path = session(root) / f"{host}.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(viewer_trace(events)).encode()))
    return path
