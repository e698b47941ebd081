"""Work in threads gives what a loop gives, and holds only a few items at a time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanidl.parallel.threads import in_threads, thread_count


@given(st.lists(st.integers(), max_size=30))
def test_results_come_in_the_order_of_the_items(items):
    assert list(in_threads(lambda item: item * 3, iter(items))) == [item * 3 for item in items]


def test_no_more_items_are_taken_than_are_under_way():
    taken = []
    results = in_threads(str, (taken.append(i) or i for i in range(100)))
    for used, result in enumerate(results):
        assert result == str(used)
        assert len(taken) <= used + thread_count() + 1


def test_an_error_is_raised_where_its_result_is_asked_for():
    results = in_threads(lambda item: 1 // item, [1, 0, 1])
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores of a process: Linux")
def test_only_cores_that_this_process_may_use_count():
    code = (
        "import os; from vanidl.parallel.threads import core_count\n"
        "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); print(core_count())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
