"""Recorded waits and steps against what the loops of this folder measured of themselves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.model.intervals import covered_within, union
from vanidl.model.trace import SpanKind, Trace

LIMIT_NS, LIMIT_SHARE = 1_000_000, 0.01
FIGURES = (np.median, np.max)
WAITS = ("wait", "evaluation", "second")

Int64Array = NDArray[np.int64]
Spans = Int64Array  # begin, end


@dataclass(frozen=True)
class Compared:
    """Recorded times against true ones.

    `left_ns` is what is left of an error when the time is taken off that the thread was kept from
    running between the two clocks, as the kernel counted it.
    """

    expected: int
    found: int
    error_ns: Int64Array  # of each true one
    left_ns: Int64Array
    length_ns: Int64Array

    @property
    def outside(self) -> int:
        """How many of the true ones are not within the limit."""
        return int((self.error_ns > self._limit_ns).sum())

    @property
    def unexplained(self) -> int:
        """Those of them that are not explained by a thread that was kept from running."""
        return int((self.left_ns > self._limit_ns).sum())

    @property
    def agrees(self) -> bool:
        """Whether as many were recorded, each within the limit or explained."""
        return self.found == self.expected == len(self.error_ns) > 0 and not self.unexplained

    @property
    def _limit_ns(self) -> NDArray[np.float64]:
        return np.maximum(LIMIT_NS, LIMIT_SHARE * self.length_ns)

    def __str__(self) -> str:
        median, worst = (f(self.error_ns) / 1e6 if len(self.error_ns) else np.nan for f in FIGURES)
        stopped = self.outside - self.unexplained
        return (
            f"{self.found:5} of {self.expected:<5}{self.outside:6}{stopped:8}{self.unexplained:8}"
            f"{median:8.3f}{worst:8.3f}"
        )


@dataclass(frozen=True)
class Readings:
    """When a process read its clock, and how long its thread had been kept from running."""

    at: Int64Array
    delay: Int64Array  # until then

    @classmethod
    def of(cls, rows: list[Any]) -> Readings:
        """From what `Timers` writes."""
        at, delay = order_spans(rows).T
        return cls(at, delay)

    def delay_within(self, begin: Int64Array, end: Int64Array) -> Int64Array:
        """How long it was kept from running from one reading to another."""
        last = len(self.at) - 1
        until = self.delay[np.minimum(np.searchsorted(self.at, end), last)]
        return until - self.delay[np.searchsorted(self.at, begin)]

    def delay_around(self, at: Int64Array) -> Int64Array:
        """The same from the reading before one of these to the one after it."""
        k = np.searchsorted(self.at, at)
        following = np.minimum(k + 1, len(self.at) - 1)
        return self.delay[following] - self.delay[np.maximum(k - 1, 0)]


def compare_waits(truth: Spans, found: Spans, readings: Readings) -> Compared:
    """How much of each true wait was recorded as one; a framework may ask twice within one.

    What was recorded outside of all of them counts as an error of the last one before it.
    """
    inside = covered_within(union(*found.T), *truth.T)
    edges = np.append(truth[:, 0], np.iinfo(np.int64).max)
    until_next = covered_within(union(*found.T), edges[:-1], edges[1:])
    length = truth[:, 1] - truth[:, 0]
    missing, more = length - inside, until_next - inside
    left = np.maximum(
        missing - readings.delay_within(*truth.T),
        more - readings.delay_within(truth[:, 1], edges[1:]),
    )
    return Compared(len(truth), len(found), np.maximum(missing, more), left, length)


def compare_steps(truth: Spans, found: Spans, readings: Readings) -> Compared:
    """Where each step begins and ends; there must be as many."""
    length = truth[:, 1] - truth[:, 0]
    if len(truth) != len(found):
        none = np.zeros(0, np.int64)
        return Compared(len(truth), len(found), none, none, none)
    error = np.abs(found - truth)
    left = error - readings.delay_around(truth)
    return Compared(len(truth), len(found), error.max(axis=1), left.max(axis=1), length)


def join(each: list[Compared]) -> Compared:
    """Those of several processes."""
    return Compared(
        sum(one.expected for one in each),
        sum(one.found for one in each),
        np.concatenate([one.error_ns for one in each]),
        np.concatenate([one.left_ns for one in each]),
        np.concatenate([one.length_ns for one in each]),
    )


def count_waits_out_of_order(truth: Spans, found: Spans) -> int:
    """How many of these do not lie as they must, however late anybody's clock is read.

    A program's timer goes around the call that the recorder's is around: each recorded wait lies
    within one of the program's. One of those may hold none, where a loader asks ahead.
    """
    if not len(truth) or not len(found):
        return len(truth) + len(found)
    held = truth[np.maximum(np.searchsorted(truth[:, 0], found[:, 0], side="right") - 1, 0)]
    return int(((found[:, 0] < held[:, 0]) | (held[:, 1] < found[:, 1])).sum())


def count_steps_out_of_order(truth: Spans, found: Spans, readings: Readings) -> int:
    """The same of steps: each border lies within two of the program's readings from its own.

    All of them where there are not as many.
    """
    if len(truth) != len(found):
        return max(len(truth), len(found))
    place = np.searchsorted(readings.at, truth)
    low = readings.at[np.maximum(place - 2, 0)]
    high = readings.at[np.minimum(place + 2, len(readings.at) - 1)]
    return int(((found < low) | (found > high)).any(axis=1).sum())


@dataclass(frozen=True)
class Process:
    """One process of a recorded run, or one thread of it that trains."""

    loop: str
    pid: int
    rank: int
    counted_steps: int  # by the program
    waits: Compared
    steps: Compared
    out_of_order: int  # waits and, where the program tells of their borders, steps
    behind_ns: int  # waits that began after the program took its last time


def compare_processes(trace: Trace, folder: Path) -> list[Process]:
    """A trace against the times that its processes left in a folder, in order of their ends.

    Threads of one process are taken together. What begins behind the last time that a process took
    (workers that are stopped as it exits) is compared with nothing.
    """
    pids = np.array([p.pid for p in trace.processes])[trace.spans.process]
    by_pid: dict[int, list[dict[str, Any]]] = {}
    for measured in read_measured(folder):
        by_pid.setdefault(measured["pid"], []).append(measured)

    def recorded(kind: SpanKind, pid: int) -> Spans:
        mine = (trace.spans.kind == kind) & (pids == pid)
        return np.stack([trace.spans.start[mine], trace.spans.end[mine]], axis=1)

    processes = []
    for pid, threads in by_pid.items():
        readings = Readings.of([row for one in threads for row in one["readings"]])
        waits = order_spans([s for one in threads for n in WAITS for s in one["spans"][n]])
        steps = order_spans([span for one in threads for span in one["spans"]["step"]])
        found, found_steps = recorded(SpanKind.INPUT_WAIT, pid), recorded(SpanKind.STEP, pid)
        is_behind = np.zeros(len(found), bool)
        if len(readings.at):
            is_behind = found[:, 0] > readings.at[-1]
        behind, found = found[is_behind], found[~is_behind]
        out_of_order = count_waits_out_of_order(waits, found)
        if len(steps):
            out_of_order += count_steps_out_of_order(steps, found_steps, readings)
        processes.append(
            Process(
                threads[0]["loop"],
                pid,
                threads[0]["rank"],
                sum(one["counts"]["steps"] + one["counts"]["inference"] for one in threads),
                compare_waits(waits, found, readings),
                compare_steps(steps, found_steps, readings),
                out_of_order,
                int((behind[:, 1] - behind[:, 0]).sum()),
            )
        )
    return processes


def read_measured(folder: Path) -> list[dict[str, Any]]:
    """What each process measured, in the order in which they ended.

    Raises:
        RuntimeError: none left anything.
    """
    paths = sorted(folder.glob("own-*-*"), key=lambda path: path.stat().st_mtime_ns)
    if not paths:
        raise RuntimeError("the program left no times")
    return [json.loads(path.read_text()) for path in paths]


def order_spans(rows: list[Any]) -> Spans:
    """Pairs by their first number, as spans by their begin."""
    return np.array(sorted(map(tuple, rows)), np.int64).reshape(-1, 2)
