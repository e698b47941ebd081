"""What a page holds of a run's slices: all of them, or levels and the windows that matter.

Among these are the steps that are worth a look first: those that waited longest for input
(`find_worst_steps`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.profiled_steps import Steps
from vanidl.breakdown.overlap import RankFates
from vanidl.figures.downsample import pick_spread
from vanidl.model.selection import select
from vanidl.model.trace import SpanKind, Trace
from vanidl.parallel.threads import batches
from vanidl.run import Run
from vanidl.schema.dataclass import dataclass
from vanidl.viewer.lanes import (
    SPAN_LANES,
    Block,
    BusyBins,
    Lanes,
    blocks,
    equal_edges,
    fates_of,
    io_processes,
    lanes_of,
)

Int64Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Room:
    """How much of a run a page may hold; `served`: it is asked for the rest."""

    slices: int = 120_000
    lanes: int = 192
    served: bool = False


SERVED = Room(lanes=4096, served=True)
"""A page that `vanidl view` serves."""

_MOST_WINDOWS = 200
_CELLS = 1 << 16  # bins of all lanes together
_FEWEST_BINS, _MOST_BINS = 256, 8192
_MARGIN = 0.1  # of a step, before and after it
_TOGETHER_ROWS = 1 << 16  # slices near windows that are looked at at once
_FIRST = ("steps", "waits", "epochs", "checkpoints", "validation", "communication")


@dataclass(frozen=True)
class Content:
    """Slices that a page holds, and bins for those that it does not."""

    trace: Trace  # as the selection sees it
    lanes: Lanes
    low_ns: int  # the time that is shown, from here
    high_ns: int
    total: dict[tuple[int, int], int]  # (lane, row) -> slices of the run
    held: tuple[Block, ...]
    windows: tuple[tuple[int, int], ...]  # in which lanes that are not whole hold every slice
    whole: frozenset[int]  # lanes of which every slice is held
    bins: BusyBins  # of the other lanes
    ranks_cut: str  # "64 of 1,024 ranks", "" where all are shown
    worst: tuple[WorstStep, ...]
    fates: dict[int, RankFates]

    @cached_property
    def held_count(self) -> int:
        """How many slices the page holds."""
        return sum(map(len, self.held))

    @property
    def total_count(self) -> int:
        """How many slices the lanes have."""
        return sum(self.total.values())


_USUAL_ROOM = Room()


def content_of(run: Run, room: Room = _USUAL_ROOM) -> Content:
    """The slices of a run, chosen so that they have room."""
    return Slices(run).content(room)


class Slices:
    """The slices of a run: one pass over them serves every page that has no more room."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._gathered: _Gathered | None = None

    def content(self, room: Room) -> Content:
        """Chosen so that they have room."""
        if self._gathered is None or not self._gathered.serves(room):
            self._gathered = _Gathered.of(self.run, room)
        return self._gathered.content(room.slices)


@dataclass(frozen=True)
class _Gathered:
    """What a pass over the slices of a run found: content for its room, or for less."""

    run: Run
    room: Room
    trace: Trace  # as the selection sees it
    lanes: Lanes
    ranks_cut: str
    whole: frozenset[int]
    chosen: _Chosen
    bounds_ns: tuple[int, int]

    @classmethod
    def of(cls, run: Run, room: Room) -> _Gathered:
        """Goes over all slices once; parts may have to be read from disk."""
        trace = select(run.trace, run.selection)
        lanes, cut_words = shown_lanes(trace, room)
        # The time that is shown: that of the job, and of what lies outside it.
        low, high = trace.job.start_ns, trace.job.end_ns
        if len(trace.spans):
            low = min(low, int(trace.spans.start[0]))
            high = max(high, int(trace.spans.end.max()))
        if run.timeline is not None:
            last_s = float(run.timeline.edges_s[-1])
            high = max(high, trace.job.start_ns + round(last_s * 1e9))
        high = max(high, low + 1)
        # The more lanes, the fewer bins each of them has.
        bins = _MOST_BINS
        while bins > _FEWEST_BINS and bins * len(lanes.lanes) > _CELLS:
            bins //= 2
        edges = equal_edges(low, high, bins)
        whole = _choose_whole_lanes(trace, lanes, run.summary.ops or 0, room.slices)
        wanted = _choose_windows(trace, run, room.slices)
        chosen = _Chosen(BusyBins(edges, {}), wanted, room.slices)
        # Once over all slices: bins are filled and windows cut out as they pass by.
        for block in blocks(trace, lanes):
            fates = fates_of(lanes, block.lane, run.breakdown.fates)
            chosen.add(block, fates, whole=block.lane in whole)
        return cls(run, room, trace, lanes, cut_words, whole, chosen, (low, high))

    def serves(self, room: Room) -> bool:
        """Whether content for that room takes no other pass."""
        if room.lanes != self.room.lanes or room.slices > self.room.slices:
            return False
        operations = self.run.summary.ops or 0
        return self.whole == _choose_whole_lanes(self.trace, self.lanes, operations, room.slices)

    def content(self, most: int) -> Content:
        """At most so many slices."""
        run, trace, chosen = self.run, self.trace, self.chosen
        windows, parts = chosen.fitting(most, _choose_windows(trace, run, most))
        return Content(
            trace, self.lanes, *self.bounds_ns, dict(chosen.total), (*chosen.whole, *parts),
            windows, self.whole, chosen.bins, self.ranks_cut, find_worst_steps(run.steps),
            dict(run.breakdown.fates),
        )  # fmt: skip


_Part = tuple[int, int, int]  # a block that `_Chosen` holds, and which of its slices


class _Chosen:
    """Collects what is held, block by block."""

    def __init__(self, bins: BusyBins, wanted: Sequence[tuple[int, int]], most: int) -> None:
        self.bins, self._wanted, self._most = bins, wanted, most
        self._low, self._high = np.array(wanted, np.int64).reshape(-1, 2).T
        self.total: Counter[tuple[int, int]] = Counter()
        self.whole: list[Block] = []
        self._inside: list[Block] = []  # of each block what lies in windows, one behind the other
        self._parts: list[list[_Part]] = [[] for _ in wanted]
        self._counts = [0] * len(wanted)

    def add(self, block: Block, fates: RankFates, *, whole: bool) -> None:
        """Takes note of a block: all of it, or its bins and what lies in a window."""
        rows, counts = np.unique(block.row, return_counts=True)
        for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
            self.total[block.lane, row] += count
        if whole:
            self.whole.append(block)
            return
        self.bins.add(block, fates)
        held, low = [], 0
        for windows, found, inside in self._find_in_windows(block):
            held.append(inside)
            for i, count in zip(windows, found, strict=True):
                if not count:
                    continue
                self._counts[i] += count
                self._parts[i].append((len(self._inside), low, low + count))
                low += count
                if self._counts[i] > self._most:  # more than a page holds: not to be looked at
                    self._parts[i] = []
        if low:  # at once: there are thousands of windows and blocks
            self._inside.append(block.pick(np.concatenate(held)))

    def _find_in_windows(self, block: Block) -> Iterator[tuple[list[int], list[int], Int64Array]]:
        """Windows [low, high), how many slices overlap each, and these, window after window.

        Windows of which more was found already than fits are left out.
        """
        # Slices are sorted by start: none that begins earlier than the longest lasts can reach a
        # window.
        longest = (block.end - block.start).max(initial=0)
        first = np.searchsorted(block.start, self._low - longest)
        counts = np.searchsorted(block.start, self._high) - first
        near = np.flatnonzero((counts > 0) & (np.array(self._counts) <= self._most))
        for some in batches(near.tolist(), lambda i: int(counts[i]), _TOGETHER_ROWS):
            # The rows of several windows in one array, one window after another.
            begin = np.cumsum(counts[some]) - counts[some]
            rows = np.repeat(first[some] - begin, counts[some])
            rows += np.arange(len(rows))
            inside = block.end[rows] > np.repeat(self._low[some], counts[some])
            yield some, np.add.reduceat(inside, begin, dtype=np.int64).tolist(), rows[inside]

    def fitting(
        self, most: int, wanted: Sequence[tuple[int, int]]
    ) -> tuple[tuple[tuple[int, int], ...], list[Block]]:
        """Windows in turn, as long as all slices in them still fit; and these slices, once each.

        `wanted` are some of the windows that were looked at.
        """
        left = most - sum(map(len, self.whole))
        windows: list[tuple[int, int]] = []
        keep = [np.zeros(len(block), bool) for block in self._inside]
        place = {window: i for i, window in enumerate(self._wanted)}
        for window in wanted:
            count = self._counts[place[window]]
            # A window is taken whole or not at all; what an earlier one holds is not held twice.
            if count <= left:
                left -= count
                taken = np.array(windows, np.int64).reshape(-1, 2)
                self._mark_outside(self._parts[place[window]], taken, keep)
                windows.append(window)
        found = zip(self._inside, keep, strict=True)
        return tuple(windows), [block.pick(mine) for block, mine in found if mine.any()]

    def _mark_outside(
        self, parts: Sequence[_Part], windows: Int64Array, keep: Sequence[NDArray[np.bool_]]
    ) -> None:
        """Marks the slices that lie in none of the windows that were taken before."""
        if not parts:
            return
        start = np.concatenate([self._inside[i].start[low:high] for i, low, high in parts])
        end = np.concatenate([self._inside[i].end[low:high] for i, low, high in parts])
        outside = np.ones(len(start), bool)
        # Only windows that these slices could touch.
        near = (start.min() < windows[:, 1]) & (end.max() > windows[:, 0])
        for low, high in windows[near]:
            outside &= ~((start < high) & (end > low))
        at = 0
        for i, low, high in parts:
            keep[i][low:high] = outside[at : at + high - low]
            at += high - low


def shown_lanes(trace: Trace, room: Room) -> tuple[Lanes, str]:
    """The lanes of as many ranks, spread over the job, as fit; in words what was left out."""
    lanes, most = lanes_of(trace, io_processes(trace)), room.lanes
    ranks = sorted({lane.rank for lane in lanes.lanes})
    if len(lanes.lanes) <= most:
        return lanes, ""
    per_rank = -(-len(lanes.lanes) // len(ranks))
    kept = {ranks[i] for i in pick_spread(len(ranks), max(most // per_rank, 1)).tolist()}
    kept_lanes = [lane for lane in lanes.lanes if lane.rank in kept][:most]
    return Lanes.of(kept_lanes), f"{len(kept):,} of {len(ranks):,} ranks"


def _choose_whole_lanes(trace: Trace, lanes: Lanes, operations: int, most: int) -> frozenset[int]:
    """Lanes that are held with all their slices: of spans the most telling first, then all I/O."""
    # How many spans each lane has, counted by rank and kind at once.
    counts = dict.fromkeys(lanes.of_spans.values(), 0)
    if len(trace.spans):
        kinds = max(SpanKind) + 1
        rank = trace.family[trace.spans.process].astype(np.int64) + 1  # -1: of no rank
        cells = (len(trace.ranks) + 1) * kinds
        table = np.bincount(rank * kinds + trace.spans.kind, minlength=cells)
        for (position, kind), lane in lanes.of_spans.items():
            held = SPAN_LANES[kind][1]
            counts[lane] = int(sum(table[(position + 1) * kinds + each] for each in held))
    whole: set[int] = set()
    left = most
    order = sorted(lanes.of_spans.items(), key=lambda item: (item[0][1] not in _FIRST, item[1]))
    for _, lane in order:
        # Where all operations fit, a lane of spans may take what is left, else half of it.
        if counts[lane] <= left * (1 if operations <= left else 0.5):
            whole.add(lane)
            left -= counts[lane]
    if operations <= left:
        whole |= set(lanes.of_process.values())
    return frozenset(whole)


def _choose_windows(trace: Trace, run: Run, most: int) -> list[tuple[int, int]]:
    """Times of which every slice should be held, the most wanted first."""
    since, io = trace.job.start_ns, run.timeline
    windows = []
    # Around the steps that waited longest.
    for step in find_worst_steps(run.steps, _MOST_WINDOWS):
        margin = _MARGIN * (step.end_s - step.start_s)
        times = (step.start_s - margin, step.end_s + margin)
        low, high = (since + round(at * 1e9) for at in times)
        windows.append((low, high))
    if windows or io is None or io.job.reads is None or io.job.writes is None:
        return windows
    # Without steps the busiest pieces of the timeline, as far as they fit.
    counts = io.job.reads + io.job.writes
    edges = since + np.round(io.job.edges_s * 1e9).astype(np.int64)
    bounds = list(pairwise(edges.tolist()))
    busiest = np.argsort(-counts, kind="stable")[:_MOST_WINDOWS].tolist()
    return [bounds[i] for i in busiest if 0 < counts[i] <= most]


MOST = 12


@dataclass(frozen=True, slots=True)
class WorstStep:
    """A step, of the rank that it was worst on; times in seconds since the start of the job."""

    rank: int  # position in Trace.ranks
    step: int
    start_s: float
    end_s: float
    wait_s: float | None  # None where input waits were not recorded


def find_worst_steps(steps: Steps | None, most: int = MOST) -> tuple[WorstStep, ...]:
    """The worst first: by input wait, by duration where waits were not recorded."""
    if steps is None or steps.table.undated_s is not None:
        return ()
    table = steps.table
    waits = table.input_wait_s
    # Of a step the rank that waited longest stands for all.
    badness = table.duration_s if np.isnan(waits).any() else waits
    order = np.lexsort((table.start_s, table.rank, -table.duration_s, -badness))
    _, first = np.unique(table.step[order], return_index=True)
    rows = order[np.sort(first)[:most]]
    return tuple(
        WorstStep(
            int(table.rank[i]),
            int(table.step[i]),
            float(table.start_s[i]),
            float(table.end_s[i]),
            None if np.isnan(waits[i]) else float(waits[i]),
        )
        for i in rows.tolist()
    )
