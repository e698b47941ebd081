"""What the tracer itself took: its calls, and what the recorder saw one of them cost.

Before the command starts the recorder times reads of a byte in a process of its own, with the
tracer and without; the fastest of many. In a training caches are colder, and calls of other kinds
cost a little more or less: a call is taken to cost half to twice of that. What a call cost was
felt by whoever made it: the training thread where it called, a wait where its batch's fetch did.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vanidl.breakdown.input_wait import fetch_of_waits, find_shift
from vanidl.breakdown.windows import Tiles
from vanidl.model.trace import Fetches, Trace

Int64Array = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_AT_LEAST, _AT_MOST = 0.5, 2.0
_WAITED_NS = 100_000  # a batch that is there is taken sooner
TRAINING_THREAD = 0  # its code, where threads were recorded


def bound_tracing(
    trace: Trace,
    position: int,
    tiles: Tiles,
    *,
    whole: bool = True,
    as_one: bool = True,
    threaded: bool = True,
    delays_next: bool = True,
) -> tuple[Int64Array, Int64Array, Mask]:
    """What the tracer took of every tile of a rank, at least and at most, ns.

    Last come the tiles of which that holds only as `delays_next` is assumed: TRACED_DELAYS_NEXT.

    Nothing of either where the recorder did not time a call; anything where logs may lack traced
    calls, which are not `whole`. `as_one`: clocks known to a millisecond are one. `threaded`: calls
    of the training process may be of other threads than the one that trains.
    """
    low, high = np.zeros((2, len(tiles.start)), np.int64)
    assumed = np.zeros(len(tiles.start), bool)
    if not trace.tracer_call_ns or not len(tiles.start):
        return low, high, assumed
    if not whole:
        return low, tiles.length, assumed
    trainer = trace.ranks[position]
    calls = _Calls(trace, position, as_one)

    # Outside of waits the calls of the training process: perhaps of another thread of it.
    outside = tiles.wait < 0
    least, most = calls.count([trainer], tiles.start[outside], tiles.end[outside])
    low[outside] = _AT_LEAST * least * trace.tracer_call_ns * calls.by_training_thread
    high[outside] = np.ceil(_AT_MOST * most * trace.tracer_call_ns)

    # In waits those of the fetch.
    if len(tiles.wait_start):
        alone = not threaded and calls.are_only_of(trainer)
        fetches = trace.fetches.pick(trace.fetches.trainer == trainer)
        fetch = fetch_of_waits(fetches, tiles.wait_start, tiles.wait_end)
        least_ns, most_ns = _bound_waits(
            calls, trainer, tiles, fetches, fetch, trace.tracer_call_ns, alone, delays_next
        )
        waiting = np.flatnonzero(~outside)
        low[waiting] = least_ns[tiles.wait[waiting]]
        high[waiting] = most_ns[tiles.wait[waiting]]
        if delays_next and not alone:
            assumed[waiting] = fetch[tiles.wait[waiting]] < 0
    high = np.minimum(high, tiles.length)
    return np.minimum(low, high), high, assumed


def _bound_waits(
    calls: _Calls,
    trainer: int,
    tiles: Tiles,
    fetches: Fetches,
    fetch: Int64Array,
    call_ns: float,
    alone: bool,
    delays_next: bool,
) -> tuple[Floats, Floats]:
    """The same of every input wait, whose fetch is a row of `fetches`, -1 where it is not known.

    Then it is of the calls of the wait itself, if only the training thread called (`alone`). What
    others were delayed by in all is felt in waits once; in which of them is assumed, or it may be
    any later one.
    """
    known = fetch >= 0
    since: Int64Array = np.full(len(fetch), tiles.start[0])
    if alone:
        since = calls.find_begun(trainer, tiles.wait_start)
    elif delays_next:
        # When the last wait before each ended in which the loop truly waited, or when all began.
        place = np.arange(len(tiles.wait_start))
        waited = np.where(tiles.wait_end - tiles.wait_start > _WAITED_NS, place, -1)
        before = np.append(-1, np.maximum.accumulate(waited)[:-1])
        since = np.where(before >= 0, tiles.wait_end[before], tiles.start[0])
    since[known] = np.minimum(fetches.begin[fetch[known]], tiles.wait_start[known])
    by = np.full(len(fetch), -1)
    by[known] = np.where(fetches.worker[fetch[known]] < 0, trainer, fetches.process[fetch[known]])
    least, most = np.zeros((2, len(fetch)), np.int64)
    for process in np.unique(by).tolist():
        mine = by == process
        who = [process] if process >= 0 else calls.members
        least[mine], most[mine] = calls.count(who, since[mine], tiles.wait_end[mine])

    # At least what the fetch cannot have spent outside of its wait.
    sure = np.zeros(len(fetch))
    begun, ended = fetches.begin[fetch[known]], fetches.end[fetch[known]]
    within = np.minimum(ended, tiles.wait_end[known])
    within -= np.maximum(begun, tiles.wait_start[known])
    cost_ns = _AT_LEAST * least[known] * call_ns
    sure[known] = cost_ns - (ended - begun - within.clip(0))
    sure[(by == trainer) & (not calls.by_training_thread)] = 0
    return sure.clip(0), np.ceil(_AT_MOST * most * call_ns)


class _Calls:
    """When calls of the processes of a rank began, and by how much that may be elsewhere."""

    def __init__(self, trace: Trace, position: int, as_one: bool) -> None:
        self.members = np.flatnonzero(trace.family == position).tolist()
        self._starts: dict[int, list[Int64Array]] = {process: [] for process in self.members}
        self._ends: dict[int, list[Int64Array]] = {process: [] for process in self.members}
        self._shift = {p: find_shift(trace, p, as_one=as_one) for p in self.members}
        self.by_training_thread = True  # all of the training process, where threads are known
        for part in trace.io:
            if part.process in self._starts:
                self._starts[part.process].append(part.start)
                self._ends[part.process].append(part.end)
                if part.process == trace.ranks[position]:
                    self.by_training_thread &= bool((part.thread == TRAINING_THREAD).all())

    def are_only_of(self, process: int) -> bool:
        """Whether no other process called."""
        return not any(begun for each, begun in self._starts.items() if each != process)

    def find_begun(self, process: int, at: Int64Array) -> Int64Array:
        """Of some times when the call that a process was in began, or the times themselves."""
        begun = at.copy()
        for start, end in zip(self._starts[process], self._ends[process], strict=True):
            last = np.searchsorted(start, at) - 1
            inside = (last >= 0) & (end[last] > at)
            begun[inside] = np.minimum(begun, start[last])[inside]
        return begun

    def count(
        self, processes: Sequence[int], start: Int64Array, end: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """How many calls of processes begin in each of some windows, at least and at most."""
        least, most = np.zeros((2, len(start)), np.int64)
        for process in processes:
            earlier, later = self._shift.get(process, (0, 0))
            for begun in self._starts.get(process, ()):  # in order of start
                sure = np.searchsorted(begun, end - later) - np.searchsorted(begun, start - earlier)
                least += sure.clip(0)
                most += np.searchsorted(begun, end - earlier)
                most -= np.searchsorted(begun, start - later)
        return least, most
