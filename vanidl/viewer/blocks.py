"""Slices of lanes, block by block: spans and operations in one form, laid into rows.

Where slices are too many, what is shown is how much of each bin of time was busy, by fate
(`BusyBins`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from vanidl.breakdown.overlap import NEVER_OBSERVED, Fate, RankFates, busy_by_fate
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.selection import SelectedParts
from vanidl.model.trace import WRITE, SpanKind, Spans, Trace
from vanidl.viewer.lanes import IO, SPAN_LANES, FlatLanes, Lanes

Int64Array = NDArray[np.int64]

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
    of_kind = cache(lambda kind: np.isin(trace.spans.kind, SPAN_LANES[kind][1]))
    families = trace.family[trace.spans.process]
    for (rank, kind), lane in lanes.of_spans.items():
        mine = trace.spans.pick(of_kind(kind) & (families == rank))
        yield _of_spans(mine, kind, lane)
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


def _of_spans(mine: Spans, kind: str, lane: int) -> Block:
    if kind == "operators":
        mine = mine.pick(_outermost(mine))
    row = np.minimum(FlatLanes().place(mine.start, mine.end), MOST_ROWS - 1)
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


def _outermost(spans: Spans) -> Int64Array:
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
    first = fates.at(block.start)
    last = np.maximum(fates.at(block.end - 1), first)
    count = last - first + 1
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
    yield from busy_by_fate(intervals.union(start, end), fates).items()
