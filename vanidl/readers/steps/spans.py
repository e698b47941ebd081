"""Events of the thread that trains -> steps and input waits.

A step begins when training asks for its first batch (with the making of the iterator, where that
comes just before) and ends when it asks for the next step's. An optimizer step closes the batches
before it, so that accumulated gradients and several optimizers make one step. Without optimizer
steps every batch is one. The loaders of steps are those with a batch before an optimizer step, and
those that run along with them; what the others give (validation) is waited for between steps.
The end of an epoch, and the first call of another loader, end a step as well.

Where the program marks its steps (`vanidl.step()`), only these are steps: from the first wait for
a batch of theirs, before the mark or in it, to the end of the mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vanidl.readers.steps.journal import (
    BACKWARD,
    END,
    FORWARD,
    ITER,
    OPTIMIZER,
    OTHER_STEP,
    STEP,
    WAIT,
    Events,
)
from vanidl.readers.steps.loaders import Int64Array, Loaders, closes_step, is_call

Mask = NDArray[np.bool_]
ThreadCounts = Mapping[int, Int64Array]

MAIN_THREAD = 0
THREADS = 256
_UNMARKED = (WAIT, END, ITER, OPTIMIZER, OTHER_STEP)
_MARKED = (WAIT, END, ITER, STEP, OTHER_STEP)
_ADJACENT_NS = 1_000_000
"""A loop calls `__next__` at once after `__iter__`, so that both are one wait.

What lies between them is no wait, so it may be no longer than an error may be. Frameworks do more
there (Keras calls back and makes graphs), and one that has forked workers may lose its core.
"""
_SOON_NS = 1_000_000_000
"""What a framework does between the two (Lightning collects garbage) is of the first step."""


@dataclass(frozen=True, slots=True)
class Spans:
    """Steps or waits, each with the row of the event at which it begins, or that tells of it."""

    row: Int64Array
    start: Int64Array
    end: Int64Array

    def pick(self, which: Mask) -> Spans:
        """Those of a mask."""
        return Spans(self.row[which], self.start[which], self.end[which])


def count_threads(events: Events) -> dict[int, Int64Array]:
    """For each kind that tells of training how many events each thread has."""
    return {
        kind: np.bincount(events.thread[events.kind == kind], minlength=THREADS)
        for kind in (WAIT, OPTIMIZER, STEP, BACKWARD)
    }


@dataclass(frozen=True, slots=True)
class Thread:
    """The thread of the loop, -1 for none, and what tells of its steps.

    Attributes:
        number: -1 for none.
        is_marked: the program marks them.
        by_gradients: no optimizer was seen: a step is what ends with a gradient.
        is_bare: it asks no loader: its first step begins with its model.
    """

    number: int
    is_marked: bool
    by_gradients: bool = False
    is_bare: bool = False


def training_thread(counts: ThreadCounts) -> Thread:
    """The thread of the loop: that of marked steps, else that of an optimizer's, or of gradients.

    Else the main one, or another that asks for twice as many batches: a thread that fetches ahead
    for the main one asks for as many, or a few more.
    """
    for kind in (STEP, OPTIMIZER, BACKWARD):
        if counts[kind].any():
            number = int(counts[kind].argmax())
            is_bare = kind == OPTIMIZER and not counts[WAIT][number]
            return Thread(number, kind == STEP, kind == BACKWARD, is_bare)
    asked = counts[WAIT]
    most = int(asked.argmax())
    if not asked.any():
        return Thread(-1, False)
    return Thread(MAIN_THREAD if 2 * asked[MAIN_THREAD] >= asked[most] else most, False)


def of_training(events: Events, thread: Thread) -> Events:
    """Those of the loop in the thread that trains, the calls of loaders by others among them.

    Where the program marks its steps, those of optimizers are left out: no step counts twice.
    """
    kinds: tuple[int, ...] = _MARKED if thread.is_marked else _UNMARKED
    if thread.by_gradients:
        kinds = (*kinds, BACKWARD)
    if thread.is_bare:
        kinds = (*kinds, FORWARD, BACKWARD)
    mine = events.pick((events.thread == thread.number) & np.isin(events.kind, kinds))
    if thread.by_gradients:
        mine = replace(mine, kind=np.where(mine.kind == BACKWARD, OPTIMIZER, mine.kind))
    return mine


def outermost(events: Events) -> Events:
    """Without the calls that one loader makes of another while it is asked itself.

    Events of a thread are in the order of their ends: what lies in a later one lies within it.
    """
    calls = is_call(events)
    begin = np.where(calls, events.begin, np.iinfo(np.int64).max)
    later = np.append(begin[1:], np.iinfo(np.int64).max)
    within = np.minimum.accumulate(later[::-1])[::-1] <= events.begin
    return events.pick(~within | ~calls)


def within_calls(events: Events, of: Events) -> Mask:
    """Which events lie within a call of a loader in the same thread, of all events of a process."""
    found = np.zeros(len(events), bool)
    for thread in np.unique(events.thread).tolist():
        mine = events.thread == thread
        calls = of.pick(is_call(of) & (of.thread == thread))
        if len(calls):
            # Calls that end later begin later, but for those that lie in one another.
            begin = np.minimum.accumulate(calls.begin[::-1])[::-1]
            place = np.searchsorted(calls.end, events.end[mine])
            inside = place < len(calls)
            inside[inside] = begin[place[inside]] <= events.begin[mine][inside]
            found[mine] = inside
    return found


def find_steps(events: Events, loaders: Loaders, since: int = 0) -> Spans:
    """The steps that begin at the row `since` or later; those before are what came before them."""
    if loaders.is_marked:
        return _marked(events, loaders, since)
    if loaders.main >= 0:
        return _by_waits(events, loaders, since)
    rows = np.flatnonzero(events.kind == OPTIMIZER)
    rows = rows[rows >= since]
    at, start = events.end[rows], events.end[rows[:-1]]
    first = np.flatnonzero(np.isin(events.kind, (FORWARD, BACKWARD)))[:1]
    if len(rows) and len(first) and since <= first[0] < rows[0]:
        return Spans(np.append(first, rows[:-1]), np.append(events.begin[first], start), at)
    if len(rows) and not since and events.begin[rows[0]] < at[0]:  # that of a compiled function
        return Spans(rows, np.append(events.begin[rows[:1]], start), at)
    return Spans(rows[:-1], start, at[1:])  # nothing tells where the first one begins


def find_waits(events: Events) -> Spans:
    """Each call of a loader; `__iter__` and the `__next__` just after it are one wait."""
    rows = np.flatnonzero(is_call(events))
    mine = events.pick(rows)
    start, keep = mine.begin.copy(), np.ones(len(mine), bool)
    pairs = np.flatnonzero(
        (mine.kind[:-1] == ITER)
        & (mine.kind[1:] != ITER)
        & (mine.loader[:-1] == mine.loader[1:])
        & (mine.begin[1:] - mine.end[:-1] <= _ADJACENT_NS)
    )
    start[pairs + 1], keep[pairs] = mine.begin[pairs], False
    return Spans(rows[keep], start[keep], mine.end[keep])


def find_other_steps(events: Events) -> Spans:
    """Steps that the program marks as something else than training."""
    rows = np.flatnonzero(events.kind == OTHER_STEP)
    return Spans(rows, events.begin[rows], events.end[rows])


def _by_waits(events: Events, loaders: Loaders, since: int) -> Spans:
    closes = closes_step(events)
    own, ahead, breaks = _own_and_breaks(events, loaders)
    begins = np.isin(events.loader, list(loaders.beginning)) & (events.kind == WAIT) | ahead
    waits = np.flatnonzero(begins)
    waits = waits[waits >= since]
    if loaders.has_steps and len(waits):
        closed = np.cumsum(closes | breaks)[waits]
        waits = waits[np.append(True, closed[1:] != closed[:-1])]
    if not len(waits):
        return Spans(waits, waits, waits)
    first = _with_iter(events, own, waits)
    start = events.begin[first]
    return Spans(first, start, _step_ends(events, waits, start, np.flatnonzero(breaks)))


def _marked(events: Events, loaders: Loaders, since: int) -> Spans:
    """Each from the first batch that is asked for after the one before, to the end of its mark."""
    own, _, breaks = _own_and_breaks(events, loaders)
    rows = np.arange(len(events))
    stops = breaks | np.isin(events.kind, (STEP, OTHER_STEP))
    stop = np.maximum.accumulate(np.where(stops, rows, -1))
    marks = np.flatnonzero(events.kind == STEP)
    marks = marks[marks >= since]
    before = np.append(np.int64(-1), stop[:-1])[marks]
    batches = np.flatnonzero(own & (events.kind == WAIT))
    batches = batches[batches >= since]
    at = np.searchsorted(batches, before, side="right")
    first = np.append(batches, len(events))[at]
    asked = first < marks
    first = np.where(asked, first, marks)
    first[asked] = _with_iter(events, own, first[asked])
    start = np.where(
        asked, np.minimum(events.begin[first], events.begin[marks]), events.begin[marks]
    )
    return Spans(first, start, events.end[marks])


def find_stops(events: Events, loaders: Loaders) -> Int64Array:
    """Rows after which no step goes on."""
    breaks = _own_and_breaks(events, loaders)[2]
    marks = np.isin(events.kind, (STEP, OTHER_STEP)) & loaders.is_marked
    return np.flatnonzero(breaks | marks)


def _own_and_breaks(events: Events, loaders: Loaders) -> tuple[Mask, Mask, Mask]:
    """Calls of the loaders of steps; ends of a pass before a step; events that end a step."""
    calls = is_call(events)
    own = np.isin(events.loader, list(loaders.of_steps)) & calls
    ahead = own & _before_a_step(events)
    breaks = calls & (~own | _ends_of_passes(events, loaders)) & ~ahead
    return own, ahead, breaks


def _ends_of_passes(events: Events, loaders: Loaders) -> Mask:
    """Where a loader is at its end, or is begun again: it may have given all that it has.

    One that is at its end once another has given its batch of the same step ends nothing.
    """
    begun_again = np.zeros(len(events), bool)
    calls = is_call(events)
    for loader in np.unique(events.loader[calls]).tolist():
        mine = np.flatnonzero((events.loader == loader) & calls)
        kind = events.kind[mine]
        begun_again[mine[1:]] = (kind[1:] == ITER) & (kind[:-1] == WAIT)
    amid = np.append(False, (events.kind[:-1] == WAIT) & (events.loader[1:] != events.loader[:-1]))
    if not loaders.has_steps:
        amid &= events.loader != loaders.main
    ends: Mask = (begun_again | (events.kind == END)) & ~amid[: len(events)]
    return ends


def _before_a_step(events: Events) -> Mask:
    """Ends of a pass that are followed by an optimizer's step.

    Who asks for a batch before it gives the last one, as accelerate does, is at the end before it
    gives the last; so is a loop that makes a step of what is left over.
    """
    ahead: Mask = (events.kind == END) & np.append(closes_step(events)[1:], False)[: len(events)]
    return ahead


def _with_iter(events: Events, own: Mask, waits: Int64Array) -> Int64Array:
    """For each wait the row of the first `__iter__` that comes soon before it, else its own.

    Those of loaders that are not of steps (a next pass of validation that is begun at its end, as
    Keras does on TensorFlow) belong to no step.
    """
    rows = np.arange(len(events))
    soon = np.append(False, events.begin[1:] - events.end[:-1] <= _SOON_NS)
    follows = np.append(False, (events.kind[:-1] == ITER) & own[:-1]) & soon  # the row before it
    chain = np.maximum.accumulate(np.where(follows[: len(events)], -1, rows))
    return chain[waits]


def _step_ends(
    events: Events, waits: Int64Array, start: Int64Array, breaks: Int64Array
) -> Int64Array:
    """Where each step ends: at the next one's start, at a break, or with its last event."""
    following = np.append(waits[1:], len(events))
    end = np.append(start[1:], np.int64(0))
    end[-1] = events.end[waits[-1] :].max()
    at = np.searchsorted(breaks, waits)
    broken = at < len(breaks)
    broken[broken] = breaks[at[broken]] < following[broken]
    end[broken] = events.begin[breaks[at[broken]]]
    return np.maximum(end, start)
