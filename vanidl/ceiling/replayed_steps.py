"""The steps of one process, and which of them had all their batches from memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.model.trace import SpanKind
from vanidl.readers.steps.journal import REPLAY, WAIT, Journal
from vanidl.readers.steps.loop import build_profile

Int64Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RankSteps:
    """One entry per step in every array.

    `replayed`: with batches from memory alone; `profiled`: under the profiler of `--profile`, or
    just after it. `begins`: which pass and which place in it its first batch has, -1 without one.
    """

    rank: int
    length_s: NDArray[np.float64]
    copying_s: NDArray[np.float64]
    replayed: NDArray[np.bool_]
    profiled: NDArray[np.bool_]
    begins: Int64Array  # of shape (steps, 2)


def steps_of(journal: Journal) -> RankSteps:
    """The steps of a journal, in order; none where no loop was recorded."""
    spans = build_profile(journal)
    mine = spans.kind == SpanKind.STEP
    start, end = spans.start_ns[mine], spans.end_ns[mine]
    events = journal.events
    handed = events.pick(events.kind == REPLAY)
    of_step = _step_of(handed.begin, start, end)
    copying = np.bincount(of_step + 1, handed.end - handed.begin, len(start) + 1)[1:]
    asked_for = events.pick(events.kind == WAIT)
    waits = _step_of(asked_for.begin, start, end)
    many = np.bincount(of_step + 1, minlength=len(start) + 1)[1:]
    asked = np.bincount(waits + 1, minlength=len(start) + 1)[1:]
    return RankSteps(
        spans.rank or 0,
        (end - start) / 1e9,
        copying / 1e9,
        (many > 0) & (many >= asked),
        _profiled(journal, len(start)),
        _first(waits, np.column_stack((asked_for.epoch, asked_for.place)), len(start)),
    )


def _first(step: Int64Array, batches: Int64Array, count: int) -> Int64Array:
    """The first batch of each step."""
    found = np.full((count, 2), -1)
    of_step, rows = np.unique(step, return_index=True)
    inside = of_step >= 0
    found[of_step[inside]] = batches[rows[inside]]
    return found


def _step_of(at: Int64Array, start: Int64Array, end: Int64Array) -> Int64Array:
    """For each time its step, -1 for none."""
    if not len(start):
        return np.full(len(at), -1)
    step = np.searchsorted(start, at, side="right") - 1
    inside: Int64Array = np.where((step >= 0) & (at < end[step]), step, -1)
    return inside


def _profiled(journal: Journal, count: int) -> NDArray[np.bool_]:
    found = np.zeros(count, bool)
    for text in journal.profiled:
        first, steps = text.get("first"), text.get("steps")
        if type(first) is type(steps) is int and 0 <= first <= count and 0 <= steps <= count:
            found[max(first - 1, 0) : first + steps + 2] = True
    return found
