"""The lanes of a run: of each rank its steps, waits, compute, collectives and I/O; its workers.

Within a lane operations are laid into rows in which no two overlap in time (`FlatLanes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from vanidl.breakdown.overlap import NEVER_OBSERVED, Fate, RankFates, split_busy_by_fate
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.selection import SelectedParts
from vanidl.model.trace import WRITE, Process, SpanKind, Spans, Trace
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]

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
    # (rank, kind of lane) of all spans that belong to a rank.
    marked: set[tuple[int, str]] = set()
    if len(trace.spans):
        kinds = {kind: name for name, (_, held) in SPAN_LANES.items() for kind in held}
        ranks_of_spans = trace.family[trace.spans.process].astype(np.int64)
        for pair in np.unique(ranks_of_spans * len(SpanKind) + trace.spans.kind).tolist():
            position, kind_code = divmod(pair, len(SpanKind))
            if position >= 0:
                marked.add((position, kinds[SpanKind(kind_code)]))
    ranks = sorted({rank for rank, _ in marked} | set(by_rank), key=lambda r: (r < 0, r))
    lanes: list[Lane] = []
    for rank in ranks:
        lanes += [Lane(SPAN_LANES[kind][0], kind, rank) for kind in SPAN_LANES
                  if (rank, kind) in marked]  # fmt: skip
        lanes += _build_io_lanes(trace, rank, by_rank.get(rank, []))
    return Lanes.of(lanes)


def _build_io_lanes(trace: Trace, rank: int, processes: Sequence[int]) -> list[Lane]:
    """The training process first, then workers, as many lanes as lived at a time."""
    own = trace.ranks[rank] if rank >= 0 else -1
    lanes = [Lane("reads and writes", IO, rank, (own,))] if own in processes else []
    if len(lanes) == len(processes):
        return lanes
    # Workers that did not live at the same time share a lane.
    others = sorted(
        (p for p in processes if p != own), key=lambda p: _get_lifetime(trace.processes[p])
    )
    lives = np.array([_get_lifetime(trace.processes[p]) for p in others], np.int64).reshape(-1, 2)
    slots = FlatLanes().place(lives[:, 0], lives[:, 1]).tolist()
    for slot in range(max(slots, default=-1) + 1):
        mine = tuple(p for p, at in zip(others, slots, strict=True) if at == slot)
        label = f"worker {slot + 1}"
        if rank < 0 or any(trace.processes[p].role != "worker" for p in mine):
            first = trace.processes[mine[0]].label
            label = first if len(mine) == 1 else f"{first} and {len(mine) - 1} more"
        lanes.append(Lane(label, IO, rank, mine))
    return lanes


def _get_lifetime(process: Process) -> tuple[int, int]:
    if process.start_ns is None or process.end_ns is None:
        return _UNKNOWN_LIFE
    return process.start_ns, max(process.end_ns, process.start_ns + 1)


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
        # Most operations overlap none: these are in the first lane, and only the others need the
        # heap.
        before = np.maximum.accumulate(np.concatenate([[self._latest], end]))
        free = start >= before[:-1]
        alone = free & np.append(free[1:], True)
        lane[~alone] = self._take_lanes(start[~alone].tolist(), end[~alone].tolist())
        self._latest = int(before[-1])
        if alone[-1]:
            self._busy, self._free = [(int(end[-1]), 0)], list(range(1, self._count))
        return lane

    def _take_lanes(self, start: list[int], end: list[int]) -> list[int]:
        taken = []
        for begin, finish in zip(start, end, strict=True):
            # Lanes whose operation is over are free again; the lowest free one is taken.
            while self._busy and self._busy[0][0] <= begin:
                heappush(self._free, heappop(self._busy)[1])
            if not self._free:
                heappush(self._free, self._count)
                self._count += 1
            lane = heappop(self._free)
            heappush(self._busy, (finish, lane))
            taken.append(lane)
        return taken


# Slices of lanes, block by block: spans and operations in one form, laid into rows.
#
# Where slices are too many, what is shown is how much of each bin of time was busy, by fate
# (`BusyBins`).

MOST_ROWS = 6
"""Operations of a process that overlap lie in rows below each other, at most so many."""

COLUMNS = ("start", "end", "offset", "nbytes", "name", "thread", "process", "row", "write")


@dataclass(frozen=True, slots=True)
class Block:
    """Slices of one lane that follow each other, sorted by start; all arrays of one length."""

    lane: int
    start: Int64Array  # ns since the epoch
    end: Int64Array
    offset: Int64Array  # of an operation; of a step or epoch its number, else -1
    nbytes: Int64Array  # 0 for spans
    name: NDArray[np.int32]  # index into Trace.files, or into Spans.names
    thread: NDArray[np.int32]
    process: NDArray[np.int32]  # index into Trace.processes, -1 for spans
    row: NDArray[np.uint8]
    write: NDArray[np.uint8]  # 1 for a write

    def __len__(self) -> int:
        return len(self.start)

    def pick(self, rows: NDArray[np.bool_] | Int64Array | slice) -> Block:
        """The slices that a mask, an index array or a slice picks."""
        columns = {name: getattr(self, name)[rows] for name in COLUMNS}
        return Block(self.lane, **columns)


def joined_blocks(blocks: Sequence[Block]) -> Block:
    """The slices of blocks of one lane, block by block."""
    if len(blocks) == 1:
        return blocks[0]
    columns = {name: np.concatenate([getattr(b, name) for b in blocks]) for name in COLUMNS}
    return Block(blocks[0].lane, **columns)


@dataclass(frozen=True, slots=True)
class Pieces:
    """Slices cut where their fate changes; of `owner` the first piece has `first`."""

    owner: Int64Array  # index into the block
    start: Int64Array
    end: Int64Array
    fate: NDArray[np.uint8]
    first: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.start)


def io_processes(trace: Trace) -> set[int]:
    """Processes with operations; reads no part from disk."""
    if isinstance(trace.io, SelectedParts):
        return set(trace.io.processes)
    return {part.process for part in trace.io}


def blocks(trace: Trace, lanes: Lanes) -> Iterator[Block]:
    """All slices of the lanes: spans first, then the operations part by part."""
    # Spans of a rank's family of processes: what its workers did belongs to its lanes.
    of_kind = cache(lambda kind: np.isin(trace.spans.kind, SPAN_LANES[kind][1]))
    families = trace.family[trace.spans.process]
    for (rank, kind), lane in lanes.of_spans.items():
        mine = trace.spans.pick(of_kind(kind) & (families == rank))
        yield _build_span_block(mine, kind, lane)
    # Operations of a process that go on at once lie in rows beneath each other.
    rows: dict[int, FlatLanes] = {}
    for part in trace.io:
        if part.process not in lanes.of_process or not len(part):
            continue
        place = rows.setdefault(part.process, FlatLanes()).place(part.start, part.end)
        yield Block(
            lanes.of_process[part.process],
            part.start,
            part.end,
            part.offset,
            part.nbytes,
            part.file,
            part.thread,
            np.broadcast_to(np.int32(part.process), len(part)),
            np.minimum(place, MOST_ROWS - 1).astype(np.uint8),
            (part.op == WRITE).astype(np.uint8),
        )


def _build_span_block(mine: Spans, kind: str, lane: int) -> Block:
    if kind == "operators":
        mine = mine.pick(_find_outermost(mine))
    row = np.minimum(FlatLanes().place(mine.start, mine.end), MOST_ROWS - 1)
    # The number of a step or an epoch is of use; of anything else the name is.
    numbered = np.isin(mine.kind, (SpanKind.STEP, SpanKind.EPOCH, SpanKind.EVALUATION))
    return Block(
        lane,
        mine.start,
        mine.end,
        np.where(numbered, mine.step, -1).astype(np.int64),
        np.zeros(len(mine), np.int64),
        mine.name,
        mine.thread,
        np.full(len(mine), -1, np.int32),
        row.astype(np.uint8),
        np.zeros(len(mine), np.uint8),
    )


def _find_outermost(spans: Spans) -> Int64Array:
    """Spans that no other of their thread contains, in order of start."""
    order = np.lexsort((-spans.end, spans.start, spans.thread))
    thread, end = spans.thread[order], spans.end[order]
    rank = np.searchsorted(np.unique(thread), thread)
    since = int(spans.start.min(initial=0))
    stretch = int(end.max(initial=since)) - since + 1
    reach = np.maximum.accumulate(end - since + rank * stretch)  # threads behind one another
    inner = np.append(False, (end - since + rank * stretch)[1:] <= reach[:-1])
    return np.sort(order[~inner])


def cut(block: Block, fates: RankFates) -> Pieces:
    """The slices of a block in pieces of one fate each."""
    # The cells of fate from the begin of each slice to its last nanosecond.
    first = fates.at(block.start)
    last = np.maximum(fates.at(block.end - 1), first)
    count = last - first + 1
    # A piece for each slice and cell, which ends with whichever of the two ends first.
    owner = np.repeat(np.arange(len(block)), count)
    begin = np.cumsum(count) - count
    cell = np.arange(len(owner)) - begin[owner] + first[owner]
    bounds = np.append(fates.start, np.iinfo(np.int64).max)
    is_first = np.zeros(len(owner), bool)
    is_first[begin] = True
    return Pieces(
        owner,
        np.maximum(block.start[owner], bounds[cell]),
        np.minimum(block.end[owner], bounds[cell + 1]),
        fates.fate[cell],
        is_first,
    )


def fates_of(lanes: Lanes, lane: int, fates: Mapping[int, RankFates]) -> RankFates:
    """What cuts the slices of a lane: spans have one fate, as if never observed."""
    found = lanes.lanes[lane]
    return fates.get(found.rank, NEVER_OBSERVED) if found.kind == IO else NEVER_OBSERVED


def equal_edges(low_ns: int, high_ns: int, count: int) -> Int64Array:
    """Bounds of bins that differ by at most a nanosecond, shape (count + 1,)."""
    index = np.arange(count + 1, dtype=np.int64)
    whole, rest = divmod(high_ns - low_ns, count)
    edges: Int64Array = low_ns + index * whole + index * rest // count
    return edges


@dataclass(frozen=True)
class BusyBins:
    """Busy nanoseconds of rows in bins: exact, operations side by side in a row count once."""

    edges: Int64Array
    amounts: dict[tuple[int, int, int], Int64Array]  # (lane, row, fate) -> (bins,)

    def add(self, block: Block, fates: RankFates) -> None:
        """Counts the slices of a block; those of a row follow the ones that came before."""
        rows = np.unique(block.row).tolist()
        for row in rows:
            of_row: NDArray[np.bool_] | slice = block.row == row if len(rows) > 1 else slice(None)
            for fate, busy in _divide_by_fate(block.start[of_row], block.end[of_row], fates):
                amount = intervals.covered_between(busy, self.edges)
                key = (block.lane, row, int(fate))
                self.amounts[key] = self.amounts[key] + amount if key in self.amounts else amount


def _divide_by_fate(
    start: Int64Array, end: Int64Array, fates: RankFates
) -> Iterator[tuple[Fate, Intervals]]:
    """The busy time of some slices by what became of it; what is empty is left out."""
    if len(fates.fate) == 1 and (start[1:] >= end[:-1]).all():
        # Apart already, as in most rows: slices of no length among them cover nothing.
        if (end > start).any():
            yield Fate(fates.fate[0]), Intervals(start, end)
        return
    yield from split_busy_by_fate(intervals.union(start, end), fates).items()
