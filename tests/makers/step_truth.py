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
    """Recorded times against true ones."""

    expected: int
    found: int
    error_ns: Int64Array  # of each true one
    length_ns: Int64Array

    @property
    def inside(self) -> float:
        """Share of the true ones that are within the limit."""
        limit = np.maximum(LIMIT_NS, LIMIT_SHARE * self.length_ns)
        return float((self.error_ns <= limit).mean()) if len(limit) else 0.0

    def __str__(self) -> str:
        median, worst = (f(self.error_ns) / 1e6 if len(self.error_ns) else np.nan for f in FIGURES)
        return f"{self.found:5} of {self.expected:<5} {self.inside:6.1%} {median:7.3f} {worst:8.3f}"


def of_waits(truth: Spans, found: Spans, *, at_least: bool) -> Compared:
    """How much of each true wait was recorded as one; a framework may ask twice within one.

    What was recorded outside of all of them counts as an error of the last one before it, unless
    the true ones are known to be too short.
    """
    inside = covered_within(union(*found.T), *truth.T)
    edges = np.append(truth[:, 0], np.iinfo(np.int64).max)
    until_next = covered_within(union(*found.T), edges[:-1], edges[1:])
    length = truth[:, 1] - truth[:, 0]
    missing, more = length - inside, until_next - inside
    error = missing if at_least else np.maximum(missing, more)
    return Compared(len(truth), len(found), error, length)


def of_steps(truth: Spans, found: Spans, *, at_least: bool) -> Compared:
    """Where each step begins and ends; there must be as many.

    They may begin earlier where the true waits are known to be too short.
    """
    length = truth[:, 1] - truth[:, 0]
    if len(truth) != len(found):
        return Compared(len(truth), len(found), np.zeros(0, np.int64), np.zeros(0, np.int64))
    late = found - truth
    error = (np.maximum(late, 0) if at_least else np.abs(late)).max(axis=1)
    return Compared(len(truth), len(found), error, length)


def joined(each: list[Compared]) -> Compared:
    """Those of several processes."""
    return Compared(
        sum(one.expected for one in each),
        sum(one.found for one in each),
        np.concatenate([one.error_ns for one in each]),
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


def against(trace: Trace, folder: Path, *, at_least: bool = False) -> list[Process]:
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
                at_least=at_least,
            ),
            of_steps(
                in_order(truth["steps"]),
                spans(SpanKind.STEP, truth["pid"]),
                at_least=at_least,
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


def in_order(spans: list[Any]) -> Spans:
    """Spans by their begin."""
    return np.array(sorted(map(tuple, spans)), np.int64).reshape(-1, 2)
