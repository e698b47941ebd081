"""The wall time of a rank's training thread as tiles: phases, steps and parts of steps.

Tiles fill the run exactly. A step reaches from the end of the step before to its own end; a save,
a load or a validation inside it is cut out, as a tile of its own phase. Waits that took no batch
(an iterator is set up or taken down, the end of the data is found) are ends of epochs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.sorting import distinct
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.trace import SpanKind, Spans, Trace

Int64Array = NDArray[np.int64]

START_UP, TRAINING, VALIDATION, CHECKPOINT, LOAD, OTHER, TAIL, UNOBSERVED = range(8)
PHASE_NAMES = ("start_up", "training", "validation", "checkpoint", "load", "other", "tail", "")
"""By code; of unobserved time nobody knows which phase it belongs to."""

NO_PART, INPUT_WAIT, WORK, EPOCH_END = range(4)
PART_NAMES = ("", "input_wait", "prepare+forward+backward+optimizer+rest", "epoch_end")
"""By code. Where the parts between two waits cannot be told they are one."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """Consecutive windows [start, end) of one rank's training thread, ns since the epoch.

    `step` is the row of the step that a tile belongs to, by start, -1 for none; its number is
    `number[step]`. `wait` is the row of the input wait that it is part of, -1 for none.
    """

    start: Int64Array
    end: Int64Array
    phase: Int64Array
    part: Int64Array
    step: Int64Array
    wait: Int64Array
    number: Int64Array
    wait_start: Int64Array
    wait_end: Int64Array
    waits_known: bool

    @property
    def length(self) -> Int64Array:
        """Of each tile, ns."""
        return self.end - self.start

    @property
    def steps(self) -> int:
        """How many training steps there are."""
        return len(self.number)


class SpansByRank:
    """What profilers saw of each rank: looked up once for all of them."""

    def __init__(self, trace: Trace) -> None:
        family = trace.family[trace.spans.process]
        self._spans = trace.spans
        self._rows = np.argsort(family, kind="stable")
        self._first = np.searchsorted(family[self._rows], np.arange(len(trace.ranks) + 1))

    def of(self, position: int) -> Spans:
        """Those of one rank and its family, by start."""
        return self._spans.pick(self._rows[self._first[position] : self._first[position + 1]])


def tile_rank(trace: Trace, position: int, spans: Spans | None = None) -> Tiles | None:
    """The tiles of one rank; None where no step of it was recorded.

    Args:
        trace: the run.
        position: of the rank in Trace.ranks.
        spans: what profilers saw of it, where that was looked up.
    """
    if spans is None:
        spans = SpansByRank(trace).of(position)
    steps = spans.pick(spans.kind == SpanKind.STEP)
    low, high = trace.job.start_ns, trace.job.end_ns
    if not len(steps) or high <= low:
        return None
    sources = distinct(steps.source.astype(np.int64)).tolist()
    whole = all(trace.profiles[source].marks_loop for source in sources)
    waits_known = all(trace.profiles[source].has_wait_spans for source in sources)

    # Where steps begin and end; what lies between two of one loop belongs to the second.
    order = np.argsort(steps.start, kind="stable")
    begin = np.clip(steps.start[order], low, high)
    end = np.maximum.accumulate(np.clip(steps.end[order], low, high))
    begin = np.maximum(begin, np.concatenate([[low], end[:-1]]))
    waits = _picked(spans, SpanKind.INPUT_WAIT, low, high)
    validation = _covered(spans, SpanKind.EVALUATION, low, high)
    saves = _covered(spans, SpanKind.CHECKPOINT, low, high)
    loads = _covered(spans, SpanKind.LOAD, low, high)

    bounds = [np.array([low, high], np.int64), begin, end]
    for spans_of in (waits, validation, saves, loads):
        bounds += [spans_of.start, spans_of.end]
    edges = distinct(np.concatenate(bounds))
    start, stop = edges[:-1], edges[1:]
    step = np.searchsorted(begin, start, side="right") - 1
    inside = (step >= 0) & (start < end[step])
    wait = np.searchsorted(waits.start, start, side="right") - 1
    waiting = np.zeros(len(start), bool)
    if len(waits.start):
        waiting = (wait >= 0) & (start < waits.end[np.maximum(wait, 0)])

    # Gaps: before the first step, behind the last, and between steps that do not follow at once.
    phase = np.full(len(start), TRAINING)
    before, behind = start < begin[0], start >= end[-1]
    between = ~inside & ~before & ~behind
    follows = _follows_at_once(trace, spans, steps, order, begin, end)
    given = between & follows[np.minimum(step + 1, len(begin) - 1)] & ~waiting
    step = np.where(inside, step, np.where(given, step + 1, -1))
    part = np.where(waiting, INPUT_WAIT, WORK)
    ends_epoch = ~inside & ~given & waiting
    part = np.where(ends_epoch, EPOCH_END, np.where(inside | given, part, NO_PART))
    if whole:
        phase[before] = START_UP
        phase[behind] = TAIL
        phase[between & ~given] = OTHER
    else:
        phase[~inside & ~given] = UNOBSERVED
    phase[ends_epoch] = TRAINING
    _cut(phase, part, step, start, validation, VALIDATION)
    _cut(phase, part, step, start, saves, CHECKPOINT)
    _cut(phase, part, step, start, loads, LOAD)
    return Tiles(
        start=start,
        end=stop,
        phase=phase,
        part=part,
        step=step,
        wait=np.where(waiting, wait, -1),
        number=steps.step[order].astype(np.int64),
        wait_start=waits.start,
        wait_end=waits.end,
        waits_known=waits_known,
    )


def _cut(
    phase: Int64Array,
    part: Int64Array,
    step: Int64Array,
    start: Int64Array,
    cut: Intervals,
    to: int,
) -> None:
    """Makes the tiles inside of some intervals a phase of their own, outside of any step."""
    if len(cut.start):
        place = np.searchsorted(cut.start, start, side="right") - 1
        mine = (place >= 0) & (start < cut.end[np.maximum(place, 0)])
        phase[mine], part[mine], step[mine] = to, NO_PART, -1


def _follows_at_once(
    trace: Trace,
    spans: Spans,
    steps: Spans,
    order: Int64Array,
    begin: Int64Array,
    end: Int64Array,
) -> NDArray[np.bool_]:
    """Of each step whether the time since the end of the one before is its own.

    It is where both come from one source with numbers that follow, and no epoch begins between.
    """
    source, number = steps.source[order], steps.step[order]
    same = np.append(False, (source[1:] == source[:-1]) & (number[1:] == number[:-1] + 1))
    epochs = np.sort(spans.start[spans.kind == SpanKind.EPOCH])
    if len(epochs):
        begun = np.searchsorted(epochs, begin, side="right")
        same &= np.append(False, begun[1:] == begun[:-1])
    # A profiler that pauses between windows leaves gaps as long as steps: nothing is known there.
    usual = float(np.median(end - begin))
    gap = np.append(0, begin[1:] - end[:-1])
    marked = np.array([profile.marks_loop for profile in trace.profiles], bool)
    return same & (marked[source] | (gap < usual))


def _picked(spans: Spans, kind: SpanKind, low: int, high: int) -> Intervals:
    """The spans of one kind, disjoint: one that begins inside another begins at its end."""
    mine = np.flatnonzero(spans.kind == kind)
    mine = mine[np.argsort(spans.start[mine], kind="stable")]
    start = np.clip(spans.start[mine], low, high)
    end = np.maximum.accumulate(np.clip(spans.end[mine], low, high)) if len(mine) else start
    start = np.maximum(start, np.concatenate([[low], end[:-1]])) if len(mine) else start
    kept = start < end
    return Intervals(start[kept], end[kept])


def _covered(spans: Spans, kind: SpanKind, low: int, high: int) -> Intervals:
    mine = spans.kind == kind
    union = intervals.union(spans.start[mine], spans.end[mine])
    return intervals.clipped(union, low, high)
