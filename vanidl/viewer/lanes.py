"""The lanes of a run: of each rank its steps, waits, compute, collectives and I/O; its workers.

Within a lane operations are laid into rows in which no two overlap in time (`FlatLanes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from vanidl.model.trace import Process, SpanKind, Trace

IO = "io"
SPAN_LANES: dict[str, tuple[str, tuple[SpanKind, ...]]] = {
    "epochs": ("epochs", (SpanKind.EPOCH,)),
    "steps": ("steps", (SpanKind.STEP,)),
    "validation": ("validation", (SpanKind.EVALUATION, SpanKind.VALIDATION)),
    "waits": ("input waits", (SpanKind.INPUT_WAIT,)),
    "kernels": ("kernels", (SpanKind.KERNEL,)),
    "copies": ("copies", (SpanKind.COPY,)),
    "operators": ("operators", (SpanKind.OP,)),
    "communication": ("collectives", (SpanKind.COMMUNICATION,)),
    "workers": ("workers start, stop", (SpanKind.WORKERS,)),
    "checkpoints": ("checkpoints", (SpanKind.CHECKPOINT, SpanKind.LOAD)),
    "model": (
        "forward, backward, optimizer",
        (SpanKind.FORWARD, SpanKind.BACKWARD, SpanKind.OPTIMIZER),
    ),
    "phases": ("other phases", (SpanKind.PHASE,)),
    "preprocessing": ("preprocessing", (SpanKind.PREPROCESS,)),
}
"""Kind of a lane -> its label and the spans in it, in the order in which a rank shows them."""

_UNKNOWN_LIFE = (0, 2**62)


@dataclass(frozen=True, slots=True)
class Lane:
    """What lies side by side in time: spans of a kind of one rank, or operations.

    `processes` are indices into Trace.processes; of I/O more than one where they lived one after
    the other, as the workers that a loader starts again for each epoch.
    """

    label: str
    kind: str  # one of SPAN_LANES, or IO
    rank: int  # position in Trace.ranks, -1 for none
    processes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Lanes:
    """All lanes, and which one a span or the operations of a process lie in."""

    lanes: tuple[Lane, ...]
    of_spans: dict[tuple[int, str], int] = field(default_factory=dict)  # (rank, kind) -> lane
    of_process: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, lanes: Sequence[Lane]) -> Lanes:
        """These lanes, in this order."""
        return cls(
            tuple(lanes),
            {(lane.rank, lane.kind): i for i, lane in enumerate(lanes) if lane.kind != IO},
            {process: i for i, lane in enumerate(lanes) for process in lane.processes},
        )


def lanes_of(trace: Trace, processes: Iterable[int]) -> Lanes:
    """The lanes of a trace; `processes` are those with operations."""
    by_rank: dict[int, list[int]] = {}
    for process in sorted(processes):
        by_rank.setdefault(int(trace.family[process]), []).append(process)
    marked = _marked(trace)
    ranks = sorted({rank for rank, _ in marked} | set(by_rank), key=lambda r: (r < 0, r))
    found: list[Lane] = []
    for rank in ranks:
        found += [Lane(SPAN_LANES[kind][0], kind, rank) for kind in SPAN_LANES
                  if (rank, kind) in marked]  # fmt: skip
        found += _io_lanes(trace, rank, by_rank.get(rank, []))
    return Lanes.of(found)


def _marked(trace: Trace) -> set[tuple[int, str]]:
    """(rank, kind of lane) of all spans that belong to a rank."""
    spans = trace.spans
    if not len(spans):
        return set()
    rank = trace.family[spans.process]
    kinds = {kind: name for name, (_, held) in SPAN_LANES.items() for kind in held}
    pairs = np.unique(rank.astype(np.int64) * len(SpanKind) + spans.kind)
    found = [divmod(pair, len(SpanKind)) for pair in pairs.tolist()]
    return {(position, kinds[SpanKind(kind)]) for position, kind in found if position >= 0}


def _io_lanes(trace: Trace, rank: int, processes: Sequence[int]) -> list[Lane]:
    """The training process first, then workers, as many lanes as lived at a time."""
    own = trace.ranks[rank] if rank >= 0 else -1
    found = [Lane("reads and writes", IO, rank, (own,))] if own in processes else []
    if len(found) == len(processes):
        return found
    others = sorted((p for p in processes if p != own), key=lambda p: _life(trace.processes[p]))
    lives = np.array([_life(trace.processes[p]) for p in others], np.int64).reshape(-1, 2)
    slots = FlatLanes().place(lives[:, 0], lives[:, 1]).tolist()
    for slot in range(max(slots, default=-1) + 1):
        mine = tuple(p for p, at in zip(others, slots, strict=True) if at == slot)
        found.append(Lane(_label(trace, rank, mine, slot), IO, rank, mine))
    return found


def _label(trace: Trace, rank: int, processes: Sequence[int], slot: int) -> str:
    if rank < 0 or any(trace.processes[p].role != "worker" for p in processes):
        first = trace.processes[processes[0]].label
        return first if len(processes) == 1 else f"{first} and {len(processes) - 1} more"
    return f"worker {slot + 1}"


def _life(process: Process) -> tuple[int, int]:
    if process.start_ns is None or process.end_ns is None:
        return _UNKNOWN_LIFE
    return process.start_ns, max(process.end_ns, process.start_ns + 1)


Int64Array = NDArray[np.int64]

_EVER = np.iinfo(np.int64).min


class FlatLanes:
    """Lanes for operations that do not contain each other; blocks come in order of start."""

    def __init__(self) -> None:
        self._count = 1
        self._latest = _EVER  # end of all operations
        self._busy: list[tuple[int, int]] = []  # heap of (end, lane)
        self._free = [0]  # heap

    def place(self, start: Int64Array, end: Int64Array) -> Int64Array:
        """Lane of each operation, the lowest that is free; sorted by start."""
        lane = np.zeros(len(start), np.int64)
        if not len(start):
            return lane
        before = np.maximum.accumulate(np.concatenate([[self._latest], end]))
        free = start >= before[:-1]
        alone = free & np.append(free[1:], True)
        lane[~alone] = self._taken(start[~alone].tolist(), end[~alone].tolist())
        self._latest = int(before[-1])
        if alone[-1]:
            self._busy, self._free = [(int(end[-1]), 0)], list(range(1, self._count))
        return lane

    def _taken(self, start: list[int], end: list[int]) -> list[int]:
        found = []
        for begin, finish in zip(start, end, strict=True):
            while self._busy and self._busy[0][0] <= begin:
                heappush(self._free, heappop(self._busy)[1])
            if not self._free:
                heappush(self._free, self._count)
                self._count += 1
            lane = heappop(self._free)
            heappush(self._busy, (finish, lane))
            found.append(lane)
        return found
