"""Recorded waits and steps against what the programs of benchmarks/programs/loops measured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.model.intervals import covered_within, union
from vanidl.model.trace import SpanKind, Trace

PROGRAMS = Path(__file__).parents[2] / "benchmarks" / "programs" / "loops"
LIMIT_NS, LIMIT_SHARE = 1_000_000, 0.01
FIGURES = (np.median, np.max)

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
    before: Int64Array  # until just before the reading
    after: Int64Array

    @classmethod
    def of(cls, rows: list[Any]) -> Readings:
        """From what `Truth` saves."""
        at, before, after = in_order(rows, 3).T
        return cls(at, before, after)

    def delay(self, begin: Int64Array, end: Int64Array) -> Int64Array:
        """How long it was kept from running from one reading to another."""
        last = len(self.at) - 1
        first = np.searchsorted(self.at, begin)
        return self.after[np.minimum(np.searchsorted(self.at, end), last)] - self.before[first]

    def around(self, at: Int64Array) -> Int64Array:
        """The same from the reading before one of these to the one after it."""
        k = np.searchsorted(self.at, at)
        following = np.minimum(k + 1, len(self.at) - 1)
        return self.after[following] - self.before[np.maximum(k - 1, 0)]


def of_waits(truth: Spans, found: Spans, readings: Readings) -> Compared:
    """How much of each true wait was recorded as one; a framework may ask twice within one.

    What was recorded outside of all of them counts as an error of the last one before it.
    """
    inside = covered_within(union(*found.T), *truth.T)
    edges = np.append(truth[:, 0], np.iinfo(np.int64).max)
    until_next = covered_within(union(*found.T), edges[:-1], edges[1:])
    length = truth[:, 1] - truth[:, 0]
    missing, more = length - inside, until_next - inside
    left = np.maximum(
        missing - readings.delay(*truth.T), more - readings.delay(truth[:, 1], edges[1:])
    )
    return Compared(len(truth), len(found), np.maximum(missing, more), left, length)


def of_steps(truth: Spans, found: Spans, readings: Readings) -> Compared:
    """Where each step begins and ends; there must be as many."""
    length = truth[:, 1] - truth[:, 0]
    if len(truth) != len(found):
        none = np.zeros(0, np.int64)
        return Compared(len(truth), len(found), none, none, none)
    error = np.abs(found - truth)
    left = error - readings.around(truth)
    return Compared(len(truth), len(found), error.max(axis=1), left.max(axis=1), length)


def joined(each: list[Compared]) -> Compared:
    """Those of several processes."""
    return Compared(
        sum(one.expected for one in each),
        sum(one.found for one in each),
        np.concatenate([one.error_ns for one in each]),
        np.concatenate([one.left_ns for one in each]),
        np.concatenate([one.length_ns for one in each]),
    )


@dataclass(frozen=True)
class Process:
    """One process of a recorded run."""

    loop: str
    pid: int
    rank: int
    waits: Compared
    steps: Compared


def against(trace: Trace, folder: Path) -> list[Process]:
    """A trace against the times that its processes left in a folder."""
    pids = np.array([p.pid for p in trace.processes])[trace.spans.process]

    def spans(kind: SpanKind, pid: int) -> Spans:
        mine = (trace.spans.kind == kind) & (pids == pid)
        return np.stack([trace.spans.start[mine], trace.spans.end[mine]], axis=1)

    return [
        Process(
            truth["loop"],
            truth["pid"],
            truth["rank"],
            of_waits(
                in_order([wait[1:] for wait in truth["waits"]]),
                spans(SpanKind.INPUT_WAIT, truth["pid"]),
                Readings.of(truth["readings"]),
            ),
            of_steps(
                in_order(truth["steps"]),
                spans(SpanKind.STEP, truth["pid"]),
                Readings.of(truth["readings"]),
            ),
        )
        for truth in truths(folder)
    ]


def truths(folder: Path) -> Iterator[dict[str, Any]]:
    """What each process measured."""
    paths = sorted(folder.glob("truth-*"))
    if not paths:
        raise RuntimeError("the program left no times")
    return (json.loads(path.read_text()) for path in paths)


def in_order(rows: list[Any], columns: int = 2) -> Int64Array:
    """Rows by their first column, as spans by their begin."""
    return np.array(sorted(map(tuple, rows)), np.int64).reshape(-1, columns)
