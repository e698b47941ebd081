"""What the Trace Event Format asks of a file, checked event by event; shares no code."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

METADATA = {
    "process_name": str,
    "thread_name": str,
    "process_sort_index": int,
    "thread_sort_index": int,
}


def load(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


def problems(document: Any) -> list[str]:
    """Everything that breaks the format, or that a viewer would drop; empty for a good file."""
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        return ["no object with a list of events"]
    events = document["traceEvents"]
    found = [f"{why}: {e}" for e in events for why in _event(e)]
    return [*found, *_unnamed(events), *_crossing(events), *_loose_arrows(events)]


def _event(e: dict[str, Any]) -> list[str]:
    phase = e.get("ph")
    if phase not in _PHASES:
        return ["unknown phase"]
    wrong = [f"{key} is missing" for key in ("name", "pid", "tid") if key not in e]
    wrong += [f"{key} is no whole number" for key in ("pid", "tid") if type(e.get(key)) is not int]
    return [*wrong, *_PHASES[phase](e)]


def _complete(e: dict[str, Any]) -> list[str]:
    wrong = [f"{k} is no time" for k in ("ts", "dur") if not _is_time(e.get(k))]
    return wrong + ([] if e.get("cat") else ["no category"])


def _counter(e: dict[str, Any]) -> list[str]:
    values = e.get("args", {}).values()
    good = values and all(type(v) in (int, float) and v >= 0 for v in values)
    return [*([] if good else ["no values"]), *([] if _is_time(e.get("ts")) else ["no time"])]


def _metadata(e: dict[str, Any]) -> list[str]:
    kind = METADATA.get(e["name"])
    key = "name" if kind is str else "sort_index"
    return [] if kind and type(e.get("args", {}).get(key)) is kind else ["odd metadata"]


def _arrow(e: dict[str, Any]) -> list[str]:
    good = "id" in e and _is_time(e.get("ts")) and (e["ph"] == "s" or e.get("bp") == "e")
    return [] if good else ["odd arrow"]


_PHASES = {"X": _complete, "C": _counter, "M": _metadata, "s": _arrow, "f": _arrow}


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and value >= 0


def _unnamed(events: list[dict[str, Any]]) -> list[str]:
    names = {kind: Counter() for kind in ("process_name", "thread_name")}
    for e in events:
        if e["ph"] == "M" and e["name"] in names:
            key = e["pid"] if e["name"] == "process_name" else (e["pid"], e["tid"])
            names[e["name"]][key] += 1
    used = {(e["pid"], e["tid"]) for e in events if e["ph"] in "Xsf"}
    lost = [f"track {track} has no name" for track in used if names["thread_name"][track] != 1]
    pids = {e["pid"] for e in events if e["ph"] != "M"}
    return lost + [f"process {pid} has no name" for pid in pids if names["process_name"][pid] != 1]


def ns(us: float) -> int:
    return round(us * 1000)


def _crossing(events: list[dict[str, Any]]) -> list[str]:
    """Slices of one track that overlap and do not contain each other."""
    tracks = defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            tracks[e["pid"], e["tid"]].append((ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])))
    found = []
    for track, slices in tracks.items():
        around: list[int] = []
        for start, end in sorted(slices, key=lambda s: (s[0], -s[1])):
            while around and around[-1] <= start:
                around.pop()
            if around and end > around[-1]:
                found.append(f"slices of {track} cross at {start} ns")
            around.append(end)
    return found


def _loose_arrows(events: list[dict[str, Any]]) -> list[str]:
    ends: dict[Any, dict[str, dict[str, Any]]] = defaultdict(dict)
    slices = defaultdict(list)
    for e in events:
        if e["ph"] in "sf":
            ends[e["cat"], e["id"]][e["ph"]] = e
        elif e["ph"] == "X":
            slices[e["pid"], e["tid"]].append((ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])))
    found = [f"arrow {key} has no end after its start" for key, pair in ends.items() if _odd(pair)]
    for key, pair in ends.items():
        for e in pair.values():
            around = slices[e["pid"], e["tid"]]
            if not any(low <= ns(e["ts"]) <= high for low, high in around):
                found.append(f"arrow {key} ends outside every slice")
    return found


def _odd(pair: dict[str, dict[str, Any]]) -> bool:
    return set(pair) != {"s", "f"} or ns(pair["s"]["ts"]) > ns(pair["f"]["ts"])
