"""What devices did: plain loops over the events of a trace, beside the account of it.

`python -m tests.breakdown.device_loops TRACE...` prints both for each trace of one process.
Own sums, moment by moment: no interval algebra, no reader. Shares no line with vanidl but the table
of names of collectives, which is data.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import vanidl
from vanidl.readers.names import COLLECTIVES

KINDS = ("compute", "communication", "copy", "idle")
_DEVICE = {"kernel", "mtia_ccp_events", "hpu_op", "collective_comm"}
_COPIES = {"gpu_memcpy", "gpu_memset", "memcpy", "memset"}
_BLIT = "memcpy|memset|__amd_rocclr_(fill|copy)Buffer"
_STEP = re.compile(r"ProfilerStep#\d+")
_COLLECTIVE = re.compile("|".join(COLLECTIVES), re.IGNORECASE)


def by_loops(path: Path) -> dict[str, float] | None:
    """Seconds of each kind in the marked steps, outside of input waits; None without steps.

    A moment counts for the first kind that any device event of it has, in the order of KINDS.
    """
    raw = path.read_bytes()
    content = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    events = content.get("traceEvents", []) if isinstance(content, dict) else []
    complete = [e for e in events if e.get("ph") == "X" and float(e.get("dur", 0)) > 0]
    steps = [e for e in complete if _STEP.fullmatch(str(e["name"])) and not _on_device(e)]
    steps = [e for e in steps if not str(e.get("cat")).startswith("gpu_")]
    if not steps:
        return None
    begin = min(float(e["ts"]) for e in steps)
    end = max(float(e["ts"]) + float(e["dur"]) for e in steps)
    edges: list[tuple[float, int, int]] = []
    for event in complete:
        lane = _lane(event)
        if lane >= 0:
            low = max(float(event["ts"]), begin)
            high = min(float(event["ts"]) + float(event["dur"]), end)
            if low < high:
                edges += [(low, 1, lane), (high, -1, lane)]
    edges.sort()
    open_of, spent, here = [0, 0, 0, 0], [0.0, 0.0, 0.0, 0.0], begin
    for at, change, lane in [*edges, (end, 0, 0)]:
        busy = next((kind for kind in range(3) if open_of[kind]), None)
        waiting = open_of[3] > 0
        if busy is not None and not waiting:
            spent[busy] += at - here
        elif busy is None and not waiting:
            spent[3] += at - here
        open_of[lane] += change
        here = at
    return dict(zip(KINDS, (us / 1e6 for us in spent), strict=True))


def _on_device(event: dict[str, Any]) -> bool:
    return str(event.get("cat")).lower() in _DEVICE | _COPIES


def _lane(event: dict[str, Any]) -> int:
    """The kind of an event by its place in KINDS, 3 for an input wait; -1 for none."""
    category, name = str(event.get("cat")).lower(), str(event["name"])
    if category in _COPIES or (category in _DEVICE and re.match(_BLIT, name, re.I)):
        return 2
    if category == "collective_comm":
        return 1
    if category in _DEVICE:
        return 1 if _COLLECTIVE.search(name) else 0
    host = category in {"cpu_op", "user_annotation", "operator"}
    return 3 if host and "DataLoader" in name and "__next__" in name else -1


def by_account(path: Path) -> dict[str, float]:
    """The same from the account: cells of the mean step times steps, less those of the waits."""
    account = vanidl.open_run(str(path)).breakdown
    steps = float(account.steps.sum())

    def outside(cause: str) -> float:
        step, wait = (account.cell(f"mean/{w}/{cause}") for w in ("step", "input_wait"))
        return (step.low_ns * steps - wait.low_ns) / 1e9

    spent = {kind: outside(kind) for kind in KINDS[:-1]}
    spent["idle"] = (account.steps_ns - account.length_ns("input_wait")) / 1e9 - sum(spent.values())
    return spent


def main(paths: Sequence[str]) -> int:
    worst = 0.0
    for path in map(Path, paths):
        loops = by_loops(path)
        if loops is None or not sum(loops[kind] for kind in KINDS[:-1]):
            sys.stdout.write(f"{path.name}: no steps, or no device" + "\n")
            continue
        ours, whole = by_account(path), sum(loops.values())
        off = max(abs(ours[kind] - loops[kind]) for kind in KINDS) / whole
        worst = max(worst, off)
        words = ", ".join(f"{k} {loops[k] * 1e3:.3f} {ours[k] * 1e3:.3f}" for k in KINDS)
        sys.stdout.write(
            f"{path.name}: {words} ms, off by {off:.4%} of {whole * 1e3:.1f} ms" + "\n"
        )
    sys.stdout.write(f"worst {worst:.4%}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
