"""What the tracer itself took: its calls, and what the recorder saw one of them cost.

Before the command starts the recorder times reads of a byte in a process of its own, with the
tracer and without; the fastest of many. In a training caches are colder, and calls of other kinds
cost a little more or less: a call is taken to cost half to twice of that. What a call cost was
felt by whoever made it: the training thread where it called, a wait where its batch's fetch did.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from vanidl.breakdown.input_wait import fetch_of_waits
from vanidl.breakdown.windows import Tiles
from vanidl.model.trace import Trace

Int64Array = NDArray[np.int64]

_AT_LEAST, _AT_MOST = 0.5, 2.0
TRAINING_THREAD = 0  # its code, where threads were recorded


def bound_tracing(
    trace: Trace, position: int, tiles: Tiles, *, whole: bool = True
) -> tuple[Int64Array, Int64Array]:
    """What the tracer took of every tile of a rank, at least and at most, ns.

    Nothing of either where the recorder did not time a call; anything where logs may lack traced
    calls, which are not `whole`.
    """
    low, high = np.zeros((2, len(tiles.start)), np.int64)
    if not trace.tracer_call_ns or not len(tiles.start):
        return low, high
    if not whole:
        return low, tiles.length
    trainer = trace.ranks[position]
    members = np.flatnonzero(trace.family == position).tolist()
    calls: dict[int, list[Int64Array]] = {process: [] for process in members}
    by_its_thread = True  # whether all calls of the training process are of the thread that trains
    for part in trace.io:
        if part.process in calls:
            calls[part.process].append(part.start)
            if part.process == trainer:
                by_its_thread &= bool((part.thread == TRAINING_THREAD).all())

    # Outside of waits the calls of the training process: perhaps of another thread of it.
    outside = tiles.wait < 0
    made = _count_between(calls[trainer], tiles.start[outside], tiles.end[outside])
    cost_ns = made * trace.tracer_call_ns
    low[outside] = _AT_LEAST * cost_ns * by_its_thread
    high[outside] = np.ceil(_AT_MOST * cost_ns)

    # In waits those of the fetch; of all processes where it is not known, and since they began.
    if len(tiles.wait_start):
        fetches = trace.fetches.pick(trace.fetches.trainer == trainer)
        fetch = fetch_of_waits(fetches, tiles.wait_start, tiles.wait_end)
        known = fetch >= 0
        since = np.full(len(fetch), tiles.start[0])
        since[known] = np.minimum(fetches.begin[fetch[known]], tiles.wait_start[known])
        by = np.full(len(fetch), -1)
        by[known] = np.where(
            fetches.worker[fetch[known]] < 0, trainer, fetches.process[fetch[known]]
        )
        made = np.zeros(len(fetch), np.int64)
        for process in np.unique(by).tolist():
            mine = by == process
            parts = calls[process] if process >= 0 else [*chain.from_iterable(calls.values())]
            made[mine] = _count_between(parts, since[mine], tiles.wait_end[mine])
        cost_ns = made * trace.tracer_call_ns

        # At least what the fetch cannot have spent outside of its wait.
        least = np.zeros(len(fetch))
        begun, ended = fetches.begin[fetch[known]], fetches.end[fetch[known]]
        within = np.minimum(ended, tiles.wait_end[known])
        within -= np.maximum(begun, tiles.wait_start[known])
        least[known] = _AT_LEAST * cost_ns[known] - (ended - begun - within.clip(0))
        least[(by == trainer) & (not by_its_thread)] = 0
        waiting = np.flatnonzero(~outside)
        low[waiting] = least.clip(0)[tiles.wait[waiting]]
        high[waiting] = np.ceil(_AT_MOST * cost_ns)[tiles.wait[waiting]]
    high = np.minimum(high, tiles.length)
    return np.minimum(low, high), high


def _count_between(parts: Iterable[Int64Array], start: Int64Array, end: Int64Array) -> Int64Array:
    """How many calls begin in each of some windows; those of a part are in order of start."""
    count = np.zeros(len(start), np.int64)
    for begun in parts:
        count += np.searchsorted(begun, end) - np.searchsorted(begun, start)
    return count
