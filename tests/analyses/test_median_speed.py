"""The median bandwidth of single operations against statistics.median."""

from __future__ import annotations

from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.makers.records import Io, darshan_log
from vanidl.analyses.results import analyse
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble

OPERATIONS = st.lists(st.tuples(st.integers(0, 1 << 24), st.integers(1, 10**7)), min_size=1)


@given(OPERATIONS)
def test_it_is_the_middle_or_the_mean_of_both(made):
    rows, at = [], 0
    for nbytes, took in made:
        rows.append(Io(at, at + took, 0, nbytes))
        at += took
    log = darshan_log(rows, length_ns=at + 1)
    found = analyse(assemble(Group((log,), ()), {})).summary.per_op_median_bytes_per_s
    assert found == pytest.approx(median(n / took * 1e9 for n, took in made), rel=2e-3)


def test_two_speeds_have_their_mean():
    rows = [Io(0, 1000, 0, 1000), Io(2000, 3000, 0, 3000)]
    found = analyse(assemble(Group((darshan_log(rows),), ()), {})).summary
    assert found.per_op_median_bytes_per_s == pytest.approx(2e9, rel=2e-3)
