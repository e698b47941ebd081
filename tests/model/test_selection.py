from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyses.test_laws import GRID, US, operations, trace_of
from vanidl.analyses import analyse
from vanidl.errors import UsageError
from vanidl.model.selection import Selection, select
from vanidl.model.trace import MPIIO


@given(operations(), st.integers(0, GRID - 2), st.integers(1, GRID))
def test_a_window_keeps_what_starts_in_it(ios, low, length):
    high = min(low + length, GRID)
    trace = trace_of(ios, None)
    chosen = select(trace, Selection(from_s=low * US / 1e9, to_s=high * US / 1e9))
    kept = sum(len(part) for part in chosen.io)
    assert kept == sum(low * US <= io.start < high * US for _, io in ios)


@given(operations(), st.sampled_from([1, 2, 3]))
def test_include_and_exclude_are_complements(ios, file):
    trace = trace_of(ios, None)
    glob = (f"*part-{file}.h5",)
    inside, outside = (
        analyse(trace, s).summary for s in (Selection(include=glob), Selection(exclude=glob))
    )
    whole = analyse(trace).summary
    assert (inside.ops or 0) + (outside.ops or 0) == (whole.ops or 0)
    assert (inside.bytes_read or 0) == sum(
        io.nbytes for _, io in ios if io.file == file and not io.op
    )


def test_selecting_does_not_touch_the_trace():
    ios = [(0, _io(0, 5)), (0, _io(10, 20))]
    trace = trace_of(ios, None)
    before = [part.start.copy() for part in trace.io]
    list(select(trace, Selection(to_s=5 * US / 1e9)).io)
    assert all(np.array_equal(a, p.start) for a, p in zip(before, trace.io, strict=True))


def test_coverage_is_that_of_the_whole_trace():
    trace = trace_of([(0, _io(0, 5)), (0, _io(10, 20))], None)
    cut = analyse(trace, Selection(to_s=5 * US / 1e9))
    assert cut.summary.ops == 1
    assert cut.coverage.layers[0].traced_ops == 2


def test_a_layer_that_is_not_there_is_named():
    with pytest.raises(UsageError, match="POSIX"):
        select(trace_of([(0, _io(0, 5))], None), Selection(layer=MPIIO))


def _io(start, end):
    from tests.makers.records import Io

    return Io(start * US, end * US, 0, 10)
