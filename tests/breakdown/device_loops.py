"""What devices did: plain loops over the events of a trace, beside the account of it.

`python -m tests.breakdown.device_loops TRACE...` prints both for each PyTorch trace of one process.
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
from vanidl.errors import InputError
from vanidl.readers.names import COLLECTIVES

KINDS = ("compute", "communication", "copy", "idle")
_DEVICE = {"kernel", "mtia_ccp_events", "hpu_op", "collective_comm"}
_COPIES = {"gpu_memcpy", "gpu_memset", "memcpy", "memset"}
_BLIT = "memcpy|memset|__amd_rocclr_(fill|copy)Buffer"
_STEP = re.compile(r"ProfilerStep#\d+")
_SAMPLING = re.compile(
    r"aten::(empty|random|item|_local_scalar|randperm|multinomial|randint|scalar_tensor|to\b|_to_copy"
    r"|copy_|resize|set_|select|as_strided|unbind|detach|resolve_)|detach"
)
_COLLECTIVE = re.compile("|".join(COLLECTIVES), re.IGNORECASE)


def by_loops(path: Path) -> dict[str, float] | None:
    """Seconds of each kind in the marked steps, outside of input waits; without steps, in the run.

    A moment counts for the first kind that any device event of it has, in the order of KINDS. Of
    a run without steps idle time is left out: where the run begins and ends is another question.
    None where no device worked.
    """
    raw = path.read_bytes()
    content = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    events = content.get("traceEvents", []) if isinstance(content, dict) else content
    complete = [e for e in events if e.get("ph") == "X" and float(e.get("dur", 0)) > 0]
    steps = [e for e in complete if _STEP.fullmatch(str(e["name"])) and not _on_device(e)]
    steps = [e for e in steps if not str(e.get("cat")).startswith("gpu_")]
    # Beside steps with a backward pass one without is no training, as the empty one at the end.
    steps = [e for e in steps if _has_backward(e, complete)] or steps
    marked = steps or [e for e in complete if _on_device(e)]
    if not any(map(_on_device, complete)):
        return None
    begin = min(float(e["ts"]) for e in marked)
    end = max(float(e["ts"]) + float(e["dur"]) for e in marked)
    created = _creations(complete) if steps else {}
    edges: list[tuple[float, int, int]] = []
    for event in complete:
        lane = _lane(event)
        if lane >= 0 and (steps or lane < 3):
            low = max(created.get(id(event), float(event["ts"])), begin)
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
    kinds = KINDS if steps else KINDS[:-1]
    return {kind: us / 1e6 for kind, us in zip(kinds, spent, strict=False)}


def _has_backward(step: dict[str, Any], events: Sequence[dict[str, Any]]) -> bool:
    begin, end = float(step["ts"]), float(step["ts"]) + float(step["dur"])
    return any(
        begin <= float(e["ts"]) < end and str(e["name"]).startswith("autograd::engine")
        for e in events
    )


def _creations(events: Sequence[dict[str, Any]]) -> dict[int, float]:
    """Of the first wait of each loader when its seed was drawn: its creation is waiting, too.

    A loader draws a seed (`aten::random_`) and reads it (`aten::item`), and its first `__next__`
    follows with nothing computed in between.
    """
    created: dict[int, float] = {}
    by_thread: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        if str(event.get("cat")).lower() in {"cpu_op", "user_annotation", "operator"}:
            by_thread.setdefault(f"{event.get('pid')}/{event.get('tid')}", []).append(event)
    for its in by_thread.values():
        seed, read, ended = None, False, float("-inf")
        for event in sorted(its, key=lambda e: float(e["ts"])):
            name, at = str(event["name"]), float(event["ts"])
            if _lane(event) == 3:
                if seed is not None and read:
                    created[id(event)] = seed
                seed, read, ended = None, False, at + float(event["dur"])
            elif at < ended or "#" in name:
                continue
            elif name == "aten::random_":
                seed = at if seed is None else seed
            elif name == "aten::item":
                read = True
            elif str(event.get("cat")).lower() != "user_annotation" and not _SAMPLING.match(name):
                seed, read = None, False
    return created


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
    if not steps:
        return {kind: account.cell(f"mean/run/{kind}").low_ns / 1e9 for kind in KINDS[:-1]}

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
            sys.stdout.write(f"{path.name}: no device" + "\n")
            continue
        try:
            ours, whole = by_account(path), sum(loops.values())
        except InputError as error:
            sys.stdout.write(f"{path.name}: {error}" + "\n")
            continue
        off = max(abs(ours[kind] - loops[kind]) for kind in loops) / whole
        worst = max(worst, off)
        words = ", ".join(f"{k} {loops[k] * 1e3:.3f} {ours[k] * 1e3:.3f}" for k in loops)
        sys.stdout.write(
            f"{path.name}: {words} ms, off by {off:.4%} of {whole * 1e3:.1f} ms" + "\n"
        )
    sys.stdout.write(f"worst {worst:.4%}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
