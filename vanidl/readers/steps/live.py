"""Totals of a journal that is being written: those of `loop.profile`, without holding its events.

Rows are read once, in portions. Of the events only the last step or two are held: what lies before
a step is settled. What this rests on can turn out otherwise as more is read: which thread
trains, which loaders give the batches of steps, or that calls lay within a longer one. Then the
file is read again from its beginning. That happens while it is small, and again once it has
doubled, so reading stays in proportion to its size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from vanidl.encoding.budget import bounded_name
from vanidl.readers.recorded_rows import Follower
from vanidl.readers.steps import spans
from vanidl.readers.steps.journal import (
    END,
    FETCH,
    ITER,
    KIND,
    MAGICS,
    OPTIMIZER,
    OTHER_STEP,
    STEP,
    TEXT,
    WAIT,
    Events,
    Int64Array,
    describes_loader,
    keep_sound_events,
    split_texts,
)
from vanidl.readers.steps.spans import (
    Along,
    Loaders,
    Spans,
    Tally,
    Thread,
    get_roles,
    is_call,
    name_loader,
)
from vanidl.schema.dataclass import dataclass

# One pass over the events of a journal, in portions, with what is known of its loaders.

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
    step_wait_ns: int = 0  # of them, within steps: not at the ends of epochs, nor in validation
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
            self.step_wait_ns + other.step_wait_ns,
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
        is_fetch = events.kind == FETCH
        if not is_fetch.any():
            return self
        begin, end = events.begin[is_fetch], events.end[is_fetch]
        return Fetched(
            self.batches + len(begin),
            self.ns + int((end - begin).sum()),
            max(self.end_ns, int(end.max())),
        )


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What a pass rests on."""

    thread: Thread
    loaders: Loaders


NO_ASSUMPTIONS = Assumptions(
    Thread(-1, False), Loaders(-1, frozenset(), frozenset(), False, False, {})
)


class Scan:
    """Events in, totals out.

    Attributes:
        hold_ns: how long events are held at least: as long as one may lie within a later one.
        reached_back_ns: how far an event reached back into what was settled; 0: none did.
        is_exact: False once more had to be held than is allowed.
    """

    def __init__(self, known: Assumptions, hold_ns: int) -> None:
        self.known, self.hold_ns = known, hold_ns
        self.reached_back_ns, self.is_exact = 0, True
        self.counts = spans.count_threads(_NONE)
        self.fetched = Fetched()
        self.tally, self.along = Tally(), Along(known.loaders.main)
        self._settled = LoopTotals()
        self._settled_begin = self._settled_end = 0  # the latest of what was settled
        self._step_end = 0  # the latest of steps that were
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
        fresh = self._keep_in_reach(spans.select_training(events, self.known.thread))
        if not len(fresh) or self.reached_back_ns:
            return
        # With what is held, in order of their ends; steps that nothing can change any more are
        # settled.
        both = Events(
            *(
                np.concatenate([getattr(self._held, name), getattr(fresh, name)])
                for name in Events.__slots__
            )
        )
        self._held = spans.keep_outermost(both.pick(np.argsort(both.end, kind="stable")))
        steps = spans.find_steps(self._held, self.known.loaders, self._context)
        cut = self._find_cut(steps)
        if cut > self._context:
            self._settle(steps, cut)

    def totals(self) -> LoopTotals:
        """Of everything until now; the last step goes on until the last event."""
        steps = spans.find_steps(self._held, self.known.loaders, self._context)
        return self._settled.plus(self._sum_between(steps, len(self._held)))

    def rest(self) -> Events:
        """Events that are not settled, and not in `tally` and `along`."""
        return self._held.pick(np.arange(self._context, len(self._held)))

    def _keep_in_reach(self, events: Events) -> Events:
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

    def _find_cut(self, steps: Spans) -> int:
        """The row before which everything is settled."""
        events = self._held
        rows = steps.row[:-1]  # the last step, and the one before, may end otherwise yet
        if self.known.loaders.main >= 0 or self.known.loaders.is_marked:
            rows = np.append(rows, self._find_rows_after_stops(steps))
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

    def _find_rows_after_stops(self, steps: Spans) -> Int64Array:
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
        self._settled = self._settled.plus(self._sum_between(steps, cut))
        self._step_end = max(self._step_end, int(steps.end[steps.row < cut].max(initial=0)))
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

    def _sum_between(self, steps: Spans, cut: int) -> LoopTotals:
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
        # A wait is of a step that began before it and ends behind it, maybe one that was settled.
        order = np.argsort(steps.start, kind="stable")
        latest = np.maximum.accumulate(np.append(self._step_end, steps.end[order]))
        begun = np.searchsorted(steps.start[order], waits.start, side="right")
        in_steps = waits.end <= latest[begun]
        return LoopTotals(
            len(steps.row),
            int(lasted.sum()),
            len(others.row),
            int(taken.sum()),
            int(taken[in_steps].sum()),
            int(start.min(initial=_NEVER)) if len(start) else 0,
            int(end.max(initial=0)),
            {
                int(k): (int((loader == k).sum()), int(taken[loader == k].sum()))
                for k in np.unique(loader).tolist()
            },
            _count_classes(lasted),
        )


def infer_assumptions(scan: Scan, roles: Mapping[int, str]) -> Assumptions:
    """What is known after a pass."""
    rest = scan.rest()
    tally, along = scan.tally.with_more(rest), scan.along.with_more(rest)
    loaders = Loaders.infer(tally, along, dict(roles))
    return Assumptions(spans.find_training_thread(scan.counts), loaders)


def _count_classes(durations_ns: Int64Array) -> dict[int, int]:
    """How many durations there are of each class: eight classes for each doubling."""
    number = np.floor(_CLASSES_OF_A_DOUBLING * np.log2(np.maximum(durations_ns, 1)))
    classes, counts = np.unique(number.astype(np.int64), return_counts=True)
    return dict(zip(classes.tolist(), counts.tolist(), strict=True))


MOST_ROWS = 32_768
"""Of a portion: a megabyte."""
_MOST_TEXT_ROWS = 4_096
_MOST_LOADERS = 1_000
_SMALL_BYTES = 4 << 20
_OF_LOOP = (WAIT, END, ITER, OPTIMIZER, STEP, OTHER_STEP)
_WORDS = ("loader", "class", "dataset", "role")


class LiveJournal:
    """What one process has recorded of its loop so far.

    Attributes:
        path: its file.
        process: host, pid, rank and so on; None until that has been read.
        totals: of all that was read, when it was last read to its end.
        fetched: the same of the batches that this process fetched.
        last: code of the last event of the loop, as it stands in the file; 0: none yet.
        has_ended: whether the process has written that it ends.
        has_stopped: whether it goes on and writes no more.
        is_behind: whether more is written than was read.
        is_exact: False where a bound on memory made totals approximate.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._follower = Follower(path, MAGICS, "steps")
        self._restarts = 0
        self._forget()

    def _forget(self) -> None:
        self.process: Mapping[str, Any] | None = None
        self.totals, self.fetched = LoopTotals(), Fetched()
        self.last, self.has_ended, self.has_stopped = 0, False, False
        self.is_behind, self.is_exact = True, True
        self._loaders: dict[int, dict[str, Any]] = {}
        self._known: Assumptions = NO_ASSUMPTIONS
        self._scan = Scan(self._known, 0)
        self._skipped = 0  # rows of a text that is too long to be one
        self._again_at = 0

    def read(self, most_rows: int, *, ended: bool = False) -> int:
        """Reads what has been written; how many rows, which may be rows of before.

        Args:
            most_rows: to read now.
            ended: whether nothing more will be written: totals are settled, whatever it takes.

        Raises:
            InputError: it cannot be read, or is something else.
        """
        read = 0
        while read < most_rows or ended:
            rows = self._read_portion()
            read += rows
            if self._scan.reached_back_ns:
                self._scan_again(self._known, 2 * self._scan.reached_back_ns)
                continue
            if rows >= MOST_ROWS:
                continue

            # At the end of what is written: from the beginning where it is understood otherwise by
            # now; a large file only once it has doubled.
            assumptions = infer_assumptions(self._scan, get_roles(self._loaders))
            nbytes = self._follower.nbytes
            may_read_again = ended or nbytes < _SMALL_BYTES or nbytes >= 2 * self._again_at
            if assumptions != self._known and may_read_again:
                self._scan_again(assumptions, self._scan.hold_ns)
                continue
            self.totals, self.fetched = self._scan.totals(), self._scan.fetched
            self.is_exact = self._scan.is_exact
            self.is_behind = False
            break
        return read

    def name(self, loader: int) -> str:
        """`DataLoader 0 (Images, training)`."""
        return name_loader(loader, self._loaders.get(loader, {}), self.role(loader))

    def role(self, loader: int) -> str:
        """What its batches are for, "" where nothing tells yet."""
        return self._known.loaders.role(loader)

    def _read_portion(self) -> int:
        """Reads some rows; how many are there, less than `MOST_ROWS` at their end."""
        rows = self._follower.peek(MOST_ROWS)
        there = len(rows)
        # The file was begun anew, and so are its totals.
        if self._follower.restarts != self._restarts:
            self._restarts = self._follower.restarts
            self._forget()
        # What is left of a text that is too long to be one, then whole texts and events.
        skipped = min(self._skipped, len(rows))
        self._skipped -= skipped
        rows = rows[skipped : skipped + self._count_whole_rows(rows[skipped:])]
        self._follower.advance(skipped + len(rows))
        texts, is_event = split_texts(rows)
        # What texts tell of the process, its end and its loaders, of which the number is bounded.
        for text in texts:
            if "pid" in text and self.process is None:
                self.process = text
            self.has_stopped |= "stopped" in text
            self.has_ended |= "ended" in text and not self.has_stopped
            if describes_loader(text) and (
                text["loader"] in self._loaders or len(self._loaders) < _MOST_LOADERS
            ):
                words = {word: text[word] for word in _WORDS if word in text}
                self._loaders[text["loader"]] = {
                    word: bounded_name(value) if isinstance(value, str) else value
                    for word, value in words.items()
                }

        # The last event of the loop, and what all of them add up to.
        codes = rows[is_event, 0]
        of_loop = codes[np.isin(codes & KIND, _OF_LOOP)]
        self.last = int(of_loop[-1]) if len(of_loop) else self.last
        self._scan.add(keep_sound_events(rows[is_event])[0])
        return there

    def _count_whole_rows(self, rows: Int64Array) -> int:
        """How many rows there are before a text that is not there as a whole."""
        after = 0
        for row in np.flatnonzero(rows[:, 0] == TEXT).tolist():
            if row < after:
                continue
            length = max(int(rows[row, 1]), 0)
            after = row + 1 + length
            if after > len(rows):
                if length <= _MOST_TEXT_ROWS:
                    return int(row)
                self._skipped = after - len(rows)
        return len(rows)

    def _scan_again(self, known: Assumptions, hold_ns: int) -> None:
        self._again_at = self._follower.nbytes
        self._known = deepcopy(known)
        self._scan = Scan(self._known, hold_ns)
        self._skipped = 0
        self._follower.rewind()
        self.is_behind = True
