"""What is said of a clock holds: the truth lies no further off than the stated uncertainty."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.makers.clock_cases import (
    CASES,
    MS,
    Draw,
    alone,
    drawn,
    inputs_of,
    merged,
    one,
    with_workers,
)
from tests.makers.examples import OFTEN
from vanidl.merge.clocks import absolute, align, log_order
from vanidl.merge.clocks.align import Clock
from vanidl.merge.clocks.evidence import Evidence
from vanidl.merge.clocks.log_clock import LogClock
from vanidl.model import intervals

ns = st.integers(-(2**40), 2**40)


@OFTEN
@given(st.lists(ns, min_size=3, max_size=3).map(sorted), ns)
def test_wherever_the_truth_lies_in_the_interval_it_is_no_further_off_than_stated(bounds, other):
    low, offset, high = bounds
    for clock in (Clock("", offset, low, high, ()), LogClock(offset, low, high)):
        assert all(abs(offset - truth) <= clock.uncertainty_ns for truth in (low, high))
        assert abs(offset - min(max(other, low), high)) <= clock.uncertainty_ns
        assert clock.uncertainty_ns in (high - offset, offset - low)  # and no more than it must


@pytest.mark.parametrize("case", CASES)
def test_generated_clocks_are_off_by_no_more_than_is_stated(case):
    known = held = 0
    for seed in range(12):
        draw = CASES[case](np.random.default_rng([23, sorted(CASES).index(case), seed]))
        for inputs, truth in zip(inputs_of(draw.logs, draw.profiles), draw.truth_ns, strict=True):
            clock = align(inputs)
            known += clock.aligned
            held += clock.aligned and abs(clock.offset_ns - truth) <= clock.uncertainty_ns
    assert known >= 6
    assert held >= 0.9 * known


@pytest.mark.parametrize("off", [-20, 0, 20])
def test_workers_logs_are_placed_right_by_a_profile_that_is_itself_uncertain(off):
    """The profile is laid so many ms beside its true place, as far as its clock leaves open."""
    found = 0
    for seed in range(6):
        draw: Draw = one(with_workers, hidden=False)(np.random.default_rng([29, seed]))
        processes, _, (inputs,) = merged(draw.logs, draw.profiles)
        (truth,) = draw.truth_ns
        early, late = max(off, 0) * MS, max(-off, 0) * MS
        laid = truth + off * MS
        placed = log_order.find(inputs, Clock("known", laid, laid - early, laid + late, ()))
        for (i, _), number in processes.of_log.items():
            if number in placed:
                found += 1
                clock, known = placed[number], draw.of_logs_ns[draw.logs[i].path]
                assert clock.low_ns <= known <= clock.high_ns
                assert abs(clock.offset_ns - known) <= clock.uncertainty_ns
    assert found >= 6


def seen_at(*places: tuple[int, int]) -> Evidence:
    low, high = np.array(places, np.int64).T * MS
    return Evidence("seen", intervals.union(low, high), "it was made up")


@pytest.mark.parametrize(
    ("places", "method", "code"),
    [
        ([(-50, 50)], "absolute + seen", None),
        ([(-50, 50), (300, 301)], "absolute + seen", None),  # one of two is what clocks claim
        ([(300, 301)], "seen", "clock_contradiction"),  # clear enough to contradict them
        ([(300, 301), (400, 401)], "absolute", None),  # two places: that tells nothing
    ],
)
def test_only_evidence_of_a_single_place_contradicts_the_clocks(places, method, code, monkeypatch):
    module = sys.modules["vanidl.merge.clocks.align"]
    monkeypatch.setattr(module, "EVIDENCE", (lambda inputs, within: seen_at(*places),))
    draw = drawn(np.random.default_rng(5), alone(np.random.default_rng(5)), hidden=False)
    (inputs,) = inputs_of(draw.logs, draw.profiles)
    assert inputs.identified
    assert inputs.one_axis
    claimed = absolute.find(inputs)
    assert claimed is not None
    clock = align(inputs)
    assert clock.method == method
    assert [notice.code for notice in clock.notices] == ([code] if code else [])
