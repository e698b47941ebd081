"""Durations: against numpy over all operations, and however the parts are cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.advice.labeled import RECIPES
from tests.makers.training_jobs import trace_of
from vanidl.analyses import durations
from vanidl.analyses.durations import DATA_READS, SLOW_FACTOR, _count_classes, _summarize_group
from vanidl.analyses.reducing import reduce_parts
from vanidl.model.trace import READ


@given(st.lists(st.integers(0, 10**13), min_size=1, max_size=400))
def test_statistics_are_those_of_all_operations_to_one_per_cent(values):
    found = _summarize_group(*_count_classes(np.array(values, np.int64)))
    seconds = np.sort(np.array(values) / 1e9)
    assert found.count == len(values)
    middle = seconds[(len(values) - 1) // 2]
    late = seconds[min(int(len(values) * 0.99), len(values) - 1)]
    for mine, theirs in ((found.median_s, middle), (found.p99_s, late)):
        assert mine == pytest.approx(theirs, rel=0.01, abs=1e-9)
    assert found.longest_s == pytest.approx(seconds[-1], rel=0.01, abs=1e-9)


def test_slow_operations_are_counted_and_added_up():
    trace = trace_of(RECIPES["stuck_reads"])
    found = durations.finish(
        reduce_parts({"d": durations}, trace.io, trace)["d"]
    ).groups[DATA_READS]  # fmt: skip
    is_data = trace.files.is_data
    of_data = [
        (p.end - p.start)[is_data[p.file] & (p.op == READ) & (p.nbytes > 0)] for p in trace.io
    ]
    seconds = np.concatenate(of_data) / 1e9
    slow = seconds[seconds >= SLOW_FACTOR * np.median(seconds)]
    assert found.slow == len(slow) > 0
    assert found.excess_s == pytest.approx((slow - np.median(seconds)).sum(), rel=0.02)


def test_no_operation_has_no_duration():
    assert durations.finish(durations.NOTHING) is None
