from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyses.test_laws import GRID, US, operations, trace_of
from vanidl.analyses.results import analyse
from vanidl.errors import UsageError
from vanidl.model.counter_tables import Heatmap
from vanidl.model.selection import Selection, select
from vanidl.model.trace import MPIIO, SpanKind


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


def test_windows_that_touch_share_no_operation_and_no_step():
    """What starts at the border is of the window behind it."""
    ios = [(0, _io(start, start + 9)) for start in (0, 10, 10, 20)]
    trace = trace_of(ios, [])
    starts = trace.spans.start[trace.spans.kind == SpanKind.STEP] - trace.job.start_ns
    for border in (10 * US, int(starts[0]), int(starts[-1])):
        windows = [Selection(to_s=border / 1e9), Selection(from_s=border / 1e9)]
        before, after = (select(trace, one) for one in windows)
        assert [sum(map(len, one.io)) for one in (before, after)] == [
            sum(io.start < border for _, io in ios),
            sum(io.start >= border for _, io in ios),
        ]
        kept = [int((one.spans.kind == SpanKind.STEP).sum()) for one in (before, after)]
        assert kept == [int((starts < border).sum()), int((starts >= border).sum())]


@pytest.mark.parametrize(
    ("low", "high", "kept"), [(0, 40, 4), (10, 30, 2), (9, 31, 3), (11, 30, 1), (40, 50, 0)]
)
def test_bins_of_a_heat_map_count_where_they_start_in_the_window(low, high, kept):
    trace = trace_of([(0, _io(0, 60))], None)
    start = trace.job.start_ns
    moved = np.arange(1, 5)
    heatmap = Heatmap(0, "POSIX", start, 10 * US, moved, moved)
    chosen = Selection(from_s=low * US / 1e9, to_s=high * US / 1e9)
    (found,) = select(replace(trace, heatmaps=(heatmap,)), chosen).heatmaps
    assert len(found.bytes_read) == len(found.bytes_written) == kept
    if kept:
        first = -(-low // 10)
        assert found.start_ns == start + first * 10 * US
        assert found.bytes_read.tolist() == moved[first : first + kept].tolist()


def test_a_run_without_the_usual_layer_has_no_operation_of_it():
    """POSIX is what is asked for where nothing is: no mistake of whoever asks."""
    trace = replace(trace_of([(0, _io(0, 5))], None), layers_traced=(MPIIO,))
    parts = [replace(part, layer=MPIIO) for part in trace.io]
    trace = replace(trace, io=parts)
    assert sum(map(len, select(trace, Selection()).io)) == 0
    assert sum(map(len, select(trace, Selection(layer=MPIIO)).io)) == 1


@pytest.mark.parametrize(
    ("from_ns", "to_ns", "inside"),
    [(-1, 0, False), (-1, 1, True), (5, 5, False), (4, 5, True), (0, 1, True), (1, 0, False)],
)
def test_a_window_has_a_moment_of_the_job_in_it(from_ns, to_ns, inside):
    """In ns since the job's start; then the same from its end on."""
    trace = trace_of([(0, _io(0, 5))], None)
    length = trace.job.end_ns - trace.job.start_ns
    last = {(-1, 1): True, (-1, 0): True}.get((from_ns, to_ns), False)
    for since, wanted in ((0, inside), (length, last)):
        chosen = Selection(from_s=(since + from_ns) / 1e9, to_s=(since + to_ns) / 1e9)
        if wanted:
            select(trace, chosen)
        else:
            with pytest.raises(UsageError, match="expected a window inside"):
                select(trace, chosen)
