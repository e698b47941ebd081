"""Small PyTorch profiler traces in both dialects, for tests and benchmarks."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

BASE_NS = 1_790_857_026_000_000_000
HOST = "node01"
PID = 8342
WAIT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def event(name: str, start_us: float, duration_us: float, category: str = "cpu_op", **more: Any):
    """One complete event; `more` replaces or adds fields."""
    fields = {"ph": "X", "cat": category, "name": name, "pid": PID, "tid": PID}
    return {**fields, "ts": start_us, "dur": duration_us, "args": {"External id": 1}, **more}


def kernel(name: str, start_us: float, duration_us: float, device: int = 0, **more: Any):
    """One kernel of today's dialect on stream 7."""
    own = {"pid": device, "tid": 7, "args": {"device": device, "stream": 7}}
    return event(name, start_us, duration_us, "kernel", **{**own, **more})


def steps(count: int, start_us: float = 1000.125, first: int = 3) -> list[dict[str, Any]]:
    """Steps of 100 us without gaps; in each 40 us of waiting and 50 us of one operator."""
    events = []
    for i in range(count):
        at = start_us + 100 * i
        events.append(event(f"ProfilerStep#{first + i}", at, 100, "user_annotation"))
        events.append(event(WAIT, at + 5, 40, "user_annotation"))
        events.append(event("aten::conv2d", at + 45, 50))
    return events


def trace(events: list[Any], **members: Any) -> dict[str, Any]:
    """A whole trace of today's dialect."""
    head = {"schemaVersion": 1, "deviceProperties": [], "host_name": HOST}
    head = {**head, "baseTimeNanoseconds": BASE_NS, **members}
    return {**head, "traceEvents": events, "traceName": "/tmp/trace.json"}


def old_trace(events: list[Any], **members: Any) -> dict[str, Any]:
    """The same in the old dialect: absolute whole microseconds, its own categories."""
    names = {"cpu_op": "Operator", "user_annotation": "Operator", "kernel": "Kernel"}
    events = [
        {**e, "cat": names.get(e["cat"], e["cat"]), "ts": int(e["ts"]) + BASE_NS // 1000}
        for e in events
    ]
    return {"schemaVersion": 1, "deviceProperties": [], **members, "traceEvents": events}


def pretty(content: dict[str, Any]) -> str:
    """Text laid out as the profiler writes it: an event begins on a line of its own."""
    return json.dumps(content, indent=2)


def write(path: Path, content: dict[str, Any] | str | bytes) -> Path:
    """Write a trace, as gzip where the name says so."""
    text = pretty(content) if isinstance(content, dict) else content
    data = text.encode() if isinstance(text, str) else text
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path
