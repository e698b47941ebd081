"""The range of I/O in waits holds it at every offset that the clocks leave open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vanidl
from vanidl.analyses.profiled_steps import group_rank_spans
from vanidl.breakdown.overlap import bound_by_clocks
from vanidl.cli import main
from vanidl.formatting.units import change, seconds
from vanidl.model import intervals
from vanidl.model.intervals import Intervals, intersect
from vanidl.model.trace import POSIX

DATA = Path(__file__).parents[1] / "data/torch_late_workers"
MS = 1_000_000


@pytest.fixture(scope="module")
def trace():
    return vanidl.open_run(DATA).trace


def busy(trace, worker: int) -> Intervals:
    mine = [p for p in trace.io if p.layer == POSIX and p.process == worker]
    return intervals.union(
        *(np.concatenate([getattr(p, n) for p in mine]) for n in ("start", "end"))
    )


@pytest.mark.parametrize("low", [0, -3 * MS, -40 * MS])
@pytest.mark.parametrize("high", [0, 1 * MS, 25 * MS])
def test_every_offset_that_is_open_keeps_the_reads_in_the_range(trace, low, high):
    worker = next(i for i, p in enumerate(trace.processes) if p.role == "worker")
    open_to = {"clock_offset_ns": 0, "clock_low_ns": low, "clock_high_ns": high}
    rows = [replace(p, clock_evidence=()) for p in trace.processes]
    rows[worker] = replace(trace.processes[worker], **open_to)
    exact = replace(trace.profiles[0], clock_low_ns=0, clock_high_ns=0)
    one = replace(trace, processes=tuple(rows), profiles=(exact,))
    reads, waits = busy(trace, worker), group_rank_spans(trace)[0].waits
    at_least_s, at_most_s = bound_by_clocks(one, 0, reads, waits)
    at = np.linspace(low, high, 23).astype(np.int64).tolist()
    in_wait = [intersect(Intervals(reads.start + a, reads.end + a), waits).length / 1e9 for a in at]
    assert at_least_s <= min(in_wait)
    assert max(in_wait) <= at_most_s <= waits.length / 1e9
    if low == high == 0:
        assert at_least_s == at_most_s == in_wait[0]


def test_a_clock_that_is_open_by_far_leaves_no_more_io_in_waits_than_they_last(trace):
    waits = group_rank_spans(trace)[0].waits
    always = intervals.union(waits.start[:1] - 10**12, waits.end[-1:] + 10**12)
    _, at_most_s = bound_by_clocks(trace, 0, always, waits)
    assert at_most_s == waits.length / 1e9


def test_every_output_says_how_closely_the_least_certain_log_is_known(capsys):
    assert main(["summary", str(DATA), "--full"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    run = vanidl.open_run(DATA)
    mean = run.overlap.mean
    least = max(clock.uncertainty_s for clock in run.steps.log_clocks)
    assert f"{seconds(least)}" in said
    low, high = mean.in_wait_at_least_s, mean.in_wait_at_most_s
    assert f"in waits by what the clocks leave open: {change(low, high)} per rank" in said
    (unsure,) = (found for found in run.findings if found.code == "clock_unverified")
    assert "DFTracer" in unsure.advice
    assert "Record both in one run" not in unsure.advice
