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
from dataclasses import field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.formatting.from_logs import clean_text
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
from vanidl.schema.dataclass import dataclass

# Which loaders give the batches of steps, from what the events of the training thread tell.
#
# Events are added in any portions: a whole journal at once, or what a running job has written.

Int64Array = NDArray[np.int64]

TRAINING, EVALUATION, SETUP, SKIPPED = "training", "evaluation", "setup", "skipped"
"""What loaders are for: of setup, Keras takes a batch to see its shape; skipped: see `windows`."""


@dataclass(slots=True)
class Tally:
    """Counts of one thread's events.

    Attributes:
        batches: loader -> how many it gave.
        trained: those that gave the last batch before a step of an optimizer, or a marked one.
        has_steps: whether there was such a step.
        is_marked: whether the program marks them.
        last: the loader of the latest batch, -1 for none.
    """

    batches: dict[int, int] = field(default_factory=dict)
    trained: set[int] = field(default_factory=set)
    has_steps: bool = False
    is_marked: bool = False
    last: int = -1

    def add(self, events: Events) -> None:
        """Counts further events."""
        waits = np.flatnonzero(events.kind == WAIT)
        steps = np.flatnonzero(closes_step(events))
        loader = np.append(np.int64(self.last), events.loader[waits])
        before = np.unique(loader[np.searchsorted(waits, steps)])
        self.trained |= set(before[before >= 0].tolist())
        self.has_steps |= len(steps) > 0
        self.is_marked |= bool((events.kind == STEP).any())
        self.last = int(loader[-1])
        for each, count in zip(*np.unique(loader[1:], return_counts=True), strict=True):
            self.batches[int(each)] = self.batches.get(int(each), 0) + int(count)

    def with_more(self, events: Events) -> Tally:
        """Another one, which counts these as well."""
        more = replace(self, batches=dict(self.batches), trained=set(self.trained))
        more.add(events)
        return more

    def usable(self, roles: Mapping[int, str]) -> set[int]:
        """Loaders that may give the batches of steps."""
        return {k for k in self.batches if roles.get(k) not in (SETUP, SKIPPED)}

    def training(self, roles: Mapping[int, str]) -> set[int]:
        """Loaders that are known to train: as frameworks say, else as the order tells."""
        usable = self.usable(roles)
        training = {k for k in usable if roles.get(k) == TRAINING}
        return training or usable & self.trained

    def main(self, roles: Mapping[int, str]) -> int:
        """The loader with most batches among those that train, -1 for none."""
        known = self.training(roles) or self.usable(roles)
        return max(known, key=lambda each: (self.batches[each], -each), default=-1)


@dataclass(slots=True)
class Along:
    """How many batches of a main loader are followed by batches of each other one."""

    main: int
    borders: int = 0
    followed: dict[int, tuple[int, int]] = field(default_factory=dict)  # number, the latest

    def add(self, events: Events) -> None:
        """Counts further events."""
        loader = events.loader[events.kind == WAIT]
        borders = np.flatnonzero(loader == self.main)
        for other in set(np.unique(loader).tolist()) - {self.main}:
            place = np.searchsorted(borders, np.flatnonzero(loader == other)) + self.borders
            number, latest = self.followed.get(other, (0, -1))
            number += len(np.unique(place)) - int(place[0] == latest)
            self.followed[other] = number, int(place[-1])
        self.borders += len(borders)

    def with_more(self, events: Events) -> Along:
        """Another one, which counts these as well."""
        more = replace(self, followed=dict(self.followed))
        more.add(events)
        return more

    def most(self, other: int) -> bool:
        """Whether a batch of another loader comes with most of those of the main one."""
        return 2 * self.followed.get(other, (0, -1))[0] > self.borders


@dataclass(frozen=True, slots=True)
class Loaders:
    """Which loaders give the batches of steps.

    Attributes:
        main: the one with most batches among these, -1 for none.
        of_steps: those whose batches are of steps.
        beginning: those of whose batches each can begin a step.
        has_steps: whether steps of optimizers, or marked ones, were recorded.
        is_marked: whether the program marks its steps.
        roles: what frameworks say that loaders are for.
    """

    main: int
    of_steps: frozenset[int]
    beginning: frozenset[int]
    has_steps: bool
    is_marked: bool
    roles: Mapping[int, str]

    @classmethod
    def infer(cls, tally: Tally, along: Along, roles: Mapping[int, str]) -> Loaders:
        """What counts tell; `along` is of the main loader."""
        main, trained = tally.main(roles), tally.training(roles)
        if main < 0:
            return cls(-1, frozenset(), frozenset(), tally.has_steps, tally.is_marked, roles)
        other = {k for k in tally.usable(roles) - {main} if not roles.get(k)}
        beside = {each for each in other if along.most(each)}
        of_steps = frozenset(trained | beside if trained else tally.usable(roles))
        beginning = of_steps if tally.has_steps else of_steps - beside
        return cls(main, of_steps, beginning, tally.has_steps, tally.is_marked, roles)

    @classmethod
    def of(cls, events: Events, roles: Mapping[int, str]) -> Loaders:
        """What all events of the training thread tell."""
        tally = Tally()
        tally.add(events)
        along = Along(tally.main(roles))
        along.add(events)
        return cls.infer(tally, along, roles)

    @property
    def of_training(self) -> bool:
        """Whether it is known which loaders train."""
        return self.has_steps or TRAINING in self.roles.values()

    def role(self, loader: int) -> str:
        """What a loader's batches are for, "" where nothing tells."""
        if self.roles.get(loader) or not self.of_training or self.main < 0:
            return self.roles.get(loader, "")
        return TRAINING if loader in self.of_steps else EVALUATION


def closes_step(events: Events) -> NDArray[np.bool_]:
    """Which events end the batches of a step: an optimizer's steps, or those that are marked."""
    closes: NDArray[np.bool_] = (events.kind == OPTIMIZER) | (events.kind == STEP)
    return closes


def is_call(events: Events) -> NDArray[np.bool_]:
    """Which events are calls of loaders."""
    calls: NDArray[np.bool_] = (events.kind >= WAIT) & (events.kind <= ITER)  # WAIT, END, ITER
    return calls


def get_roles(loaders: Mapping[int, Mapping[str, Any]]) -> dict[int, str]:
    """What frameworks say that loaders are for, by number."""
    return {k: str(loader.get("role", "")) for k, loader in loaders.items()}


SPLIT_OFF = 1 << 40
"""Numbers from here on are those of loaders that `passes` tells apart from one that trains."""


def name_loader(number: int, loader: Mapping[str, Any], role: str) -> str:
    """`DataLoader 0 (Images, training)`."""
    number %= SPLIT_OFF
    details = ", ".join(word for word in (str(loader.get("dataset", "")), role) if word)
    return clean_text(
        f"{loader.get('class', 'loader')} {number}{f' ({details})' if details else ''}"
    )


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


def find_training_thread(counts: ThreadCounts) -> Thread:
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


def select_training(events: Events, thread: Thread) -> Events:
    """Those of the loop in the thread that trains, the calls of loaders by others among them.

    Where the program marks its steps, those of optimizers are left out: no step counts twice.
    """
    kinds: tuple[int, ...] = _MARKED if thread.is_marked else _UNMARKED
    if thread.by_gradients:
        kinds = (*kinds, BACKWARD)
    if thread.is_bare:
        kinds = (*kinds, FORWARD, BACKWARD)
    selected = events.pick((events.thread == thread.number) & np.isin(events.kind, kinds))
    if thread.by_gradients:
        selected = replace(
            selected, kind=np.where(selected.kind == BACKWARD, OPTIMIZER, selected.kind)
        )
    return selected


def keep_outermost(events: Events) -> Events:
    """Without the calls that one loader makes of another while it is asked itself.

    Events of a thread are in the order of their ends: what lies in a later one lies within it.
    """
    calls = is_call(events)
    begin = np.where(calls, events.begin, np.iinfo(np.int64).max)
    later = np.append(begin[1:], np.iinfo(np.int64).max)
    within = np.minimum.accumulate(later[::-1])[::-1] <= events.begin
    return events.pick(~within | ~calls)


def find_within_calls(events: Events, of: Events) -> Mask:
    """Which events lie within a call of a loader in the same thread, of all events of a process."""
    within = np.zeros(len(events), bool)
    for thread in np.unique(events.thread).tolist():
        of_thread = events.thread == thread
        calls = of.pick(is_call(of) & (of.thread == thread))
        if len(calls):
            # Calls that end later begin later, but for those that lie in one another.
            begin = np.minimum.accumulate(calls.begin[::-1])[::-1]
            place = np.searchsorted(calls.end, events.end[of_thread])
            inside = place < len(calls)
            inside[inside] = begin[place[inside]] <= events.begin[of_thread][inside]
            within[of_thread] = inside
    return within


def find_steps(events: Events, loaders: Loaders, since: int = 0) -> Spans:
    """The steps that begin at the row `since` or later; those before are what came before them."""
    if loaders.is_marked:
        return _find_marked_steps(events, loaders, since)
    if loaders.main >= 0:
        return _find_steps_by_waits(events, loaders, since)
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
    waits = events.pick(rows)
    start, keep = waits.begin.copy(), np.ones(len(waits), bool)
    pairs = np.flatnonzero(
        (waits.kind[:-1] == ITER)
        & (waits.kind[1:] != ITER)
        & (waits.loader[:-1] == waits.loader[1:])
        & (waits.begin[1:] - waits.end[:-1] <= _ADJACENT_NS)
    )
    start[pairs + 1], keep[pairs] = waits.begin[pairs], False
    return Spans(rows[keep], start[keep], waits.end[keep])


def find_other_steps(events: Events) -> Spans:
    """Steps that the program marks as something else than training."""
    rows = np.flatnonzero(events.kind == OTHER_STEP)
    return Spans(rows, events.begin[rows], events.end[rows])


def _find_steps_by_waits(events: Events, loaders: Loaders, since: int) -> Spans:
    closes = closes_step(events)
    own, ahead, breaks = _find_breaks(events, loaders)
    begins = np.isin(events.loader, list(loaders.beginning)) & (events.kind == WAIT) | ahead
    waits = np.flatnonzero(begins)
    waits = waits[waits >= since]
    if loaders.has_steps and len(waits):
        closed = np.cumsum(closes | breaks)[waits]
        waits = waits[np.append(True, closed[1:] != closed[:-1])]
    if not len(waits):
        return Spans(waits, waits, waits)
    first = _find_first_iter(events, own, waits)
    start = events.begin[first]

    # Each ends at the next one's start, at a break, or with its last event.
    following = np.append(waits[1:], len(events))
    end = np.append(start[1:], np.int64(0))
    end[-1] = events.end[waits[-1] :].max()
    stops = np.flatnonzero(breaks)
    at = np.searchsorted(stops, waits)
    broken = at < len(stops)
    broken[broken] = stops[at[broken]] < following[broken]
    end[broken] = events.begin[stops[at[broken]]]
    return Spans(first, start, np.maximum(end, start))


def _find_marked_steps(events: Events, loaders: Loaders, since: int) -> Spans:
    """Each from the first batch that is asked for after the one before, to the end of its mark."""
    own, _, breaks = _find_breaks(events, loaders)
    rows = np.arange(len(events))

    # Behind which row each marked step begins: a break, or the mark of another one.
    stops = breaks | np.isin(events.kind, (STEP, OTHER_STEP))
    stop = np.maximum.accumulate(np.where(stops, rows, -1))
    marks = np.flatnonzero(events.kind == STEP)
    marks = marks[marks >= since]
    before = np.append(np.int64(-1), stop[:-1])[marks]

    # It begins as its first batch is asked for; without a batch, with its mark.
    batches = np.flatnonzero(own & (events.kind == WAIT))
    batches = batches[batches >= since]
    at = np.searchsorted(batches, before, side="right")
    first = np.append(batches, len(events))[at]
    asked = first < marks
    first = np.where(asked, first, marks)
    first[asked] = _find_first_iter(events, own, first[asked])
    start = np.where(
        asked, np.minimum(events.begin[first], events.begin[marks]), events.begin[marks]
    )
    return Spans(first, start, events.end[marks])


def find_stops(events: Events, loaders: Loaders) -> Int64Array:
    """Rows after which no step goes on."""
    breaks = _find_breaks(events, loaders)[2]
    marks = np.isin(events.kind, (STEP, OTHER_STEP)) & loaders.is_marked
    return np.flatnonzero(breaks | marks)


def _find_breaks(events: Events, loaders: Loaders) -> tuple[Mask, Mask, Mask]:
    """Calls of the loaders of steps; ends of a pass before a step; events that end a step."""
    calls = is_call(events)
    own = np.isin(events.loader, list(loaders.of_steps)) & calls
    # Who asks for a batch before it gives the last one, as accelerate does, is at the end before
    # it gives the last; so is a loop that makes a step of what is left over.
    closes_next = np.append(closes_step(events)[1:], False)[: len(events)]
    ahead = own & (events.kind == END) & closes_next
    breaks = calls & (~own | _find_ends_of_passes(events, loaders)) & ~ahead
    return own, ahead, breaks


def _find_ends_of_passes(events: Events, loaders: Loaders) -> Mask:
    """Where a loader is at its end, or is begun again: it may have given all that it has.

    One that is at its end once another has given its batch of the same step ends nothing.
    """
    begun_again = np.zeros(len(events), bool)
    calls = is_call(events)
    for loader in np.unique(events.loader[calls]).tolist():
        own_calls = np.flatnonzero((events.loader == loader) & calls)
        kind = events.kind[own_calls]
        begun_again[own_calls[1:]] = (kind[1:] == ITER) & (kind[:-1] == WAIT)
    amid = np.append(False, (events.kind[:-1] == WAIT) & (events.loader[1:] != events.loader[:-1]))
    if not loaders.has_steps:
        amid &= events.loader != loaders.main
    ends: Mask = (begun_again | (events.kind == END)) & ~amid[: len(events)]
    return ends


def _find_first_iter(events: Events, own: Mask, waits: Int64Array) -> Int64Array:
    """For each wait the row of the first `__iter__` that comes soon before it, else its own.

    Those of loaders that are not of steps (a next pass of validation that is begun at its end, as
    Keras does on TensorFlow) belong to no step.
    """
    rows = np.arange(len(events))
    soon = np.append(False, events.begin[1:] - events.end[:-1] <= _SOON_NS)
    follows = np.append(False, (events.kind[:-1] == ITER) & own[:-1]) & soon  # the row before it
    chain = np.maximum.accumulate(np.where(follows[: len(events)], -1, rows))
    return chain[waits]
