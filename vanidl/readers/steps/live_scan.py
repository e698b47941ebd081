"""One pass over the events of a journal, in portions, with what is known of its loaders."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from vanidl.readers.steps import spans
from vanidl.readers.steps.journal import FETCH, ITER, Events, Int64Array
from vanidl.readers.steps.loaders import Along, Loaders, Tally, is_call
from vanidl.readers.steps.spans import Spans, Thread

_MOST_HELD = 1 << 20  # events: 56 MiB
_CLASSES_OF_A_DOUBLING = 8
_NEVER = np.iinfo(np.int64).max
_NONE = Events(*(np.zeros(0, np.int64) for _ in Events.__slots__))


@dataclass(frozen=True, slots=True)
class LoopTotals:
    """Steps and input waits of one process, in nanoseconds.

    The window is what its spans cover, from the first to the last; start 0 where there is none.
    """

    steps: int = 0
    step_ns: int = 0
    other_steps: int = 0  # that the program marks as no training
    wait_ns: int = 0
    start_ns: int = 0
    end_ns: int = 0
    by_loader: Mapping[int, tuple[int, int]] = field(default_factory=dict)  # waits, ns
    step_classes: Mapping[int, int] = field(default_factory=dict)  # class of duration -> steps

    @property
    def window_ns(self) -> int:
        """How long the loop was seen."""
        return self.end_ns - self.start_ns

    def step_quantile_ns(self, share: float) -> float | None:
        """What that share of the steps took at most, to a tenth of it; None without steps.

        The rest is at least one step, where there are two: the first, or one amid which the clock
        jumped.
        """
        left = max(math.floor(share * sum(self.step_classes.values())), 1)
        for number in sorted(self.step_classes):
            left -= self.step_classes[number]
            if left <= 0:
                return float(2 ** ((number + 1) / _CLASSES_OF_A_DOUBLING))
        return None

    def plus(self, other: LoopTotals) -> LoopTotals:
        """Both."""
        by_loader = dict(self.by_loader)
        for loader, (waits, ns) in other.by_loader.items():
            before = by_loader.get(loader, (0, 0))
            by_loader[loader] = before[0] + waits, before[1] + ns
        classes = dict(self.step_classes)
        for number, steps in other.step_classes.items():
            classes[number] = classes.get(number, 0) + steps
        starts = [total.start_ns for total in (self, other) if total.start_ns]
        return LoopTotals(
            self.steps + other.steps,
            self.step_ns + other.step_ns,
            self.other_steps + other.other_steps,
            self.wait_ns + other.wait_ns,
            min(starts, default=0),
            max(self.end_ns, other.end_ns),
            by_loader,
            classes,
        )


@dataclass(frozen=True, slots=True)
class Fetched:
    """Batches that one process made."""

    batches: int = 0
    ns: int = 0
    end_ns: int = 0

    def plus(self, events: Events) -> Fetched:
        """With those of further events."""
        mine = events.kind == FETCH
        if not mine.any():
            return self
        begin, end = events.begin[mine], events.end[mine]
        return Fetched(
            self.batches + len(begin),
            self.ns + int((end - begin).sum()),
            max(self.end_ns, int(end.max())),
        )


@dataclass(frozen=True, slots=True)
class Known:
    """What a pass rests on."""

    thread: Thread
    loaders: Loaders


NOTHING = Known(Thread(-1, False), Loaders(-1, frozenset(), frozenset(), False, False, {}))


class Scan:
    """Events in, totals out.

    Attributes:
        hold_ns: how long events are held at least: as long as one may lie within a later one.
        reached_back_ns: how far an event reached back into what was settled; 0: none did.
        is_exact: False once more had to be held than is allowed.
    """

    def __init__(self, known: Known, hold_ns: int) -> None:
        self.known, self.hold_ns = known, hold_ns
        self.reached_back_ns, self.is_exact = 0, True
        self.counts = spans.count_threads(_NONE)
        self.fetched = Fetched()
        self.tally, self.along = Tally(), Along(known.loaders.main)
        self._settled = LoopTotals()
        self._settled_begin = self._settled_end = 0  # the latest of what was settled
        self._held = _NONE
        self._context = 0  # that many of these are settled: what came before the others

    def add(self, events: Events) -> None:
        """Takes further events."""
        if not len(events):
            return
        for kind, counts in spans.count_threads(events).items():
            self.counts[kind] += counts
        self.fetched = self.fetched.plus(events)
        if self.known.thread.number < 0:
            return
        mine = self._in_reach(spans.of_training(events, self.known.thread))
        if not len(mine) or self.reached_back_ns:
            return
        both = _joined(self._held, mine)
        self._held = spans.outermost(both.pick(np.argsort(both.end, kind="stable")))
        steps = spans.find_steps(self._held, self.known.loaders, self._context)
        cut = self._cut(steps)
        if cut > self._context:
            self._settle(steps, cut)

    def totals(self) -> LoopTotals:
        """Of everything until now; the last step goes on until the last event."""
        steps = spans.find_steps(self._held, self.known.loaders, self._context)
        return self._settled.plus(self._between(steps, len(self._held)))

    def rest(self) -> Events:
        """Events that are not settled, and not in `tally` and `along`."""
        return self._held.pick(np.arange(self._context, len(self._held)))

    def _in_reach(self, events: Events) -> Events:
        """The events, or those that do not reach back where what is held was cut by its bound."""
        back = is_call(events) & (events.begin <= self._settled_begin)
        back |= events.end < self._settled_end
        if not back.any():
            return events
        if not self.is_exact:  # holding for longer would meet the bound again
            return events.pick(~back)
        first = int(np.minimum(events.begin, events.end)[back].min())
        self.reached_back_ns = max(self.hold_ns, int(events.end.max()) - first, 1)
        return events

    def _cut(self, steps: Spans) -> int:
        """The row before which everything is settled."""
        events = self._held
        rows = steps.row[:-1]  # the last step, and the one before, may end otherwise yet
        if self.known.loaders.main >= 0 or self.known.loaders.is_marked:
            rows = np.append(rows, self._after_stops(steps))
        until = int(events.end[-1]) - self.hold_ns
        rows = rows[rows > self._context]
        rows = rows[events.end[rows - 1] <= until]
        calls = np.flatnonzero(is_call(events))
        if len(calls) and events.kind[calls[-1]] == ITER:  # the batch that is one wait with it
            rows = rows[rows <= calls[-1]]
        if not len(rows) and len(events) > _MOST_HELD:
            self.is_exact = False
            return len(events) - _MOST_HELD // 2
        return int(rows.max(initial=0))

    def _after_stops(self, steps: Spans) -> Int64Array:
        """Rows after those that ended the last step; the last row may turn out to end none."""
        events = self._held
        stops = spans.find_stops(events, self.known.loaders)
        stops = stops[(stops < len(events) - 1) & (events.kind[stops] != ITER)]
        if len(steps.row) and not self.known.loaders.is_marked:
            begun = np.flatnonzero(events.kind != ITER)
            stops = stops[stops > begun[np.searchsorted(begun, steps.row[-1])]]
        after: Int64Array = stops[-1:] + 1
        return after

    def _settle(self, steps: Spans, cut: int) -> None:
        events = self._held
        self._settled = self._settled.plus(self._between(steps, cut))
        settled = events.pick(np.arange(self._context, cut))
        self.tally.add(settled)
        self.along.add(settled)
        calls = np.flatnonzero(is_call(events)[:cut])
        self._settled_end = int(events.end[cut - 1])
        ends = [self._settled_begin, *events.begin[calls].tolist()]
        self._settled_begin = max(*ends, int(events.begin[cut]) - 1)  # a step may end there
        latest = {int(events.loader[row]): row for row in calls.tolist()}
        context = sorted({*latest.values(), cut - 1})
        self._held = events.pick(np.append(context, np.arange(cut, len(events))).astype(np.int64))
        self._context = len(context)

    def _between(self, steps: Spans, cut: int) -> LoopTotals:
        """Totals of what begins in the rows that are not settled, before that one."""

        def mine(found: Spans) -> Spans:
            return found.pick((found.row >= self._context) & (found.row < cut))

        events = self._held
        steps, waits = mine(steps), mine(spans.find_waits(events))
        others = mine(spans.find_other_steps(events))
        start = np.concatenate([found.start for found in (steps, waits, others)])
        end = np.concatenate([found.end for found in (steps, waits, others)])
        taken = waits.end - waits.start
        loader = events.loader[waits.row]
        lasted = steps.end - steps.start
        return LoopTotals(
            len(steps.row),
            int(lasted.sum()),
            len(others.row),
            int(taken.sum()),
            int(start.min(initial=_NEVER)) if len(start) else 0,
            int(end.max(initial=0)),
            {
                int(k): (int((loader == k).sum()), int(taken[loader == k].sum()))
                for k in np.unique(loader).tolist()
            },
            _count_classes(lasted),
        )


def learned(scan: Scan, roles: Mapping[int, str]) -> Known:
    """What is known after a pass."""
    rest = scan.rest()
    tally, along = scan.tally.with_more(rest), scan.along.with_more(rest)
    loaders = Loaders.told(tally, along, dict(roles))
    return Known(spans.training_thread(scan.counts), loaders)


def _count_classes(durations_ns: Int64Array) -> dict[int, int]:
    """How many durations there are of each class: eight classes for each doubling."""
    number = np.floor(_CLASSES_OF_A_DOUBLING * np.log2(np.maximum(durations_ns, 1)))
    known, counts = np.unique(number.astype(np.int64), return_counts=True)
    return dict(zip(known.tolist(), counts.tolist(), strict=True))


def _joined(a: Events, b: Events) -> Events:
    return Events(
        *(np.concatenate([getattr(a, name), getattr(b, name)]) for name in Events.__slots__)
    )
