"""Waits and steps that programs timed themselves, for recorded ones to be held against."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import vanidl
from vanidl.model.trace import SpanKind

MS = 1_000_000
SAME_TIME = 0.25  # of the calls at least: a busy machine stops a process between two clocks
MOST_SPLIT = 2  # waits in which that stop came between two of their calls


@dataclass(frozen=True)
class OwnTimes:
    """A recorded run, and what its processes measured themselves, by rank."""

    run: vanidl.Run
    truth: dict[int, dict]

    def spans(self, kind: SpanKind, rank: int) -> np.ndarray:
        trace = self.run.trace
        pids = np.array([p.pid for p in trace.processes])
        mine = (trace.spans.kind == kind) & (pids[trace.spans.process] == self.truth[rank]["pid"])
        return np.stack([trace.spans.start[mine], trace.spans.end[mine]], axis=1)

    def waits(self, rank: int) -> np.ndarray:
        return np.array([wait[1:] for wait in self.truth[rank]["waits"]])


def own_times(folder: Path, run: vanidl.Run) -> OwnTimes:
    truths = folder.glob("waits-*")
    return OwnTimes(run, {int(p.name.split("-")[1]): json.loads(p.read_text()) for p in truths})


def assert_same_times(found: np.ndarray, truth: np.ndarray) -> None:
    """Every recorded span lies inside the one that was measured around it, and fills it.

    A loop that loses its core between `__iter__` and `__next__` has two waits, and measured one.
    """
    place = np.searchsorted(truth[:, 0], found[:, 0], side="right") - 1
    assert np.array_equal(np.unique(place), np.arange(len(truth)))
    first = np.flatnonzero(np.diff(place, prepend=-1))
    assert len(found) - len(first) <= MOST_SPLIT
    found = np.stack([found[first, 0], np.append(found[first[1:] - 1, 1], found[-1, 1])], axis=1)
    assert (truth[:, 0] <= found[:, 0]).all()
    assert (found[:, 1] <= truth[:, 1]).all()
    length = truth[:, 1] - truth[:, 0]
    near = length - (found[:, 1] - found[:, 0]) <= np.maximum(MS, length // 100)
    assert near.mean() >= SAME_TIME


def assert_steps(timed: OwnTimes, rank: int, epochs: int) -> None:
    """Each begins with its first wait, and ends with the next one's, but for an epoch's last."""
    found, truth = timed.spans(SpanKind.STEP, rank), np.array(timed.truth[rank]["steps"])
    assert len(found) == len(truth)
    assert (truth[:, 0] <= found[:, 0]).all()
    assert (found[:, 0] < truth[:, 1]).all()
    assert (found[:, 0] - truth[:, 0] <= MS).mean() >= SAME_TIME
    a_pass = len(found) // epochs
    inside = np.arange(len(found)) % a_pass != a_pass - 1
    assert (found[inside, 1] == found[np.flatnonzero(inside) + 1, 0]).all()
