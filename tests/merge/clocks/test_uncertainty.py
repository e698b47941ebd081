"""What is said of a clock holds: the truth lies no further off than the stated uncertainty."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.makers.clock_cases import (
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
from tests.makers.records import Io, Span, darshan_log, profile
from vanidl.merge.clocks import align, late_logs
from vanidl.merge.clocks.align import Clock
from vanidl.merge.clocks.evidence import Evidence, make_interval
from vanidl.merge.clocks.log_clock import LogClock
from vanidl.merge.clocks.reads_in_waits import find_reads_in_waits
from vanidl.model import intervals
from vanidl.model.trace import SpanKind

ns = st.integers(-(2**40), 2**40)


@OFTEN
@given(st.lists(ns, min_size=3, max_size=3).map(sorted), ns)
def test_wherever_the_truth_lies_in_the_interval_it_is_no_further_off_than_stated(bounds, other):
    low, offset, high = bounds
    for clock in (Clock("", offset, low, high, ()), LogClock(offset, low, high)):
        assert all(abs(offset - truth) <= clock.uncertainty_ns for truth in (low, high))
        assert abs(offset - min(max(other, low), high)) <= clock.uncertainty_ns
        assert clock.uncertainty_ns in (high - offset, offset - low)  # and no more than it must


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
        placed = late_logs.find_by_order(
            inputs, Clock("known", laid, laid - early, laid + late, ())
        )
        for (i, _), number in processes.of_log.items():
            if number in placed:
                found += 1
                clock, known = placed[number], draw.of_logs_ns[draw.logs[i].path]
                assert clock.low_ns <= known <= clock.high_ns
                assert abs(clock.offset_ns - known) <= clock.uncertainty_ns
    assert found >= 30  # what is not known of the profile makes no log unknown


def seen_at(*places: tuple[int, int], unit: int = MS) -> Evidence:
    low, high = np.array(places, np.int64).T * unit
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
    claimed = align.find_absolute(inputs)
    assert claimed is not None
    clock = align.align_profile(inputs)
    assert clock.method == method
    assert [notice.code for notice in clock.notices] == ([code] if code else [])
    if method == "seen":  # intervals are half open, and the ends of a clock are not
        assert (clock.low_ns, clock.high_ns) == (300 * MS, 301 * MS - 1)


@pytest.mark.parametrize("more", [0, 1])
def test_a_clock_is_coarse_where_more_than_a_step_is_open_and_none_beyond_two_seconds(
    more, monkeypatch
):
    draw = drawn(np.random.default_rng(5), alone(np.random.default_rng(5)))
    (inputs,) = inputs_of(draw.logs, draw.profiles)
    start, end = inputs.kind(SpanKind.STEP)
    step = int(np.median(end - start))
    for open_ns, codes in (
        (step + more, ["clock_coarse"] if more else []),
        (2_020_000_000 - 1 + more, ["clock_unverified"] if more else ["clock_coarse"]),
    ):
        evidence = seen_at((draw.truth_ns[0], draw.truth_ns[0] + open_ns + 1), unit=1)
        module = sys.modules["vanidl.merge.clocks.align"]
        monkeypatch.setattr(module, "EVIDENCE", (lambda inputs, within, e=evidence: e,))
        clock = align.align_profile(inputs)
        assert [notice.code for notice in clock.notices] == codes
        assert clock.aligned == (codes != ["clock_unverified"])


@pytest.mark.parametrize("own_ns", [0, 5 * MS])
def test_what_a_profile_says_of_its_own_start_widens_both_sides(own_ns):
    draw = drawn(np.random.default_rng(5), alone(np.random.default_rng(5)), hidden=False)
    (inputs,) = inputs_of(draw.logs, draw.profiles)
    rough = replace(inputs, profile=replace(inputs.profile, clock_uncertainty_ns=own_ns))
    found = align.find_absolute(rough)
    assert found is not None
    assert found.offsets == make_interval(-MS - own_ns, MS + own_ns)


STARTS = np.cumsum(np.random.default_rng(2).integers(80, 120, 40)) * MS
WAITS = [Span(SpanKind.INPUT_WAIT, int(a), int(a) + 20 * MS) for a in STARTS]


def reads_in_waits(count: int, nbytes: int, more: int = 0) -> list[Io]:
    """One read in each of the first waits; `more` bytes in the last."""
    return [
        Io(int(a) + 2 * MS, int(a) + 18 * MS, 0, nbytes + more * (i == count - 1))
        for i, a in enumerate(STARTS[:count])
    ]


@pytest.mark.parametrize(("used", "tells"), [(40, True), (20, True), (19, False)])
def test_reads_tell_where_half_of_the_waits_hold_one(used, tells):
    (inputs,) = inputs_of((darshan_log(reads_in_waits(used, 9)),), (profile(WAITS),))
    found = find_reads_in_waits(inputs, make_interval(-30 * MS, 30 * MS))
    assert (found is not None) == tells


@pytest.mark.parametrize(("more", "tells"), [(0, True), (1, False)])
def test_reads_tell_nothing_where_workers_read_more_than_a_twentieth(more, tells):
    own = darshan_log(reads_in_waits(38, 100))
    worker = darshan_log(reads_in_waits(2, 100, more), pid=101, parent=100)
    (inputs,) = inputs_of((own, worker), (profile(WAITS),))
    assert len(inputs.workers) == 1
    found = find_reads_in_waits(inputs, make_interval(-30 * MS, 30 * MS))
    assert (found is not None) == tells
