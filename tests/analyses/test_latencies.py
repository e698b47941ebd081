"""Single operations by duration: against numpy over all rows, and however the parts are cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.analyses.test_laws import operations, trace_of
from tests.makers.records import Io
from vanidl.analyses import latencies
from vanidl.analyses.latencies import EDGES_NS, finish
from vanidl.analyses.reducing import reduce_parts
from vanidl.model.trace import READ


def rows_of(trace):
    """Every operation: duration, start, process, path, op, offset, nbytes."""
    for part in trace.io:
        for i in range(len(part)):
            yield (
                int(part.end[i] - part.start[i]), int(part.start[i]), part.process,
                trace.files.path[part.file[i]], int(part.op[i]), int(part.offset[i]),
                int(part.nbytes[i]),
            )  # fmt: skip


def result(trace, parts=None):
    reduced = reduce_parts({"l": latencies}, trace.io if parts is None else parts, trace)["l"]
    return finish(reduced, trace)


@given(operations())
def test_every_operation_is_in_the_bin_of_its_duration(ios):
    trace = trace_of(ios)
    found, rows = result(trace), list(rows_of(trace))
    if not rows:
        assert found is None
        return
    assert sum(b.reads for b in found.histogram) == sum(r[4] == READ for r in rows)
    assert sum(b.writes for b in found.histogram) == sum(r[4] != READ for r in rows)
    for each in found.histogram:
        low, high = round(each.low_s * 1e9), round((each.high_s or 1e9) * 1e9)
        mine = [r for r in rows if low <= r[0] < high]
        assert each.reads == sum(r[4] == READ for r in mine)
        assert each.read_s == pytest.approx(sum(r[0] for r in mine if r[4] == READ) / 1e9)
        assert each.write_s == pytest.approx(sum(r[0] for r in mine if r[4] != READ) / 1e9)
    ends = (found.histogram[0], found.histogram[-1])
    assert all(b.reads + b.writes for b in ends)
    bounds = [b.low_s for b in found.histogram[1:]]
    assert bounds == [b.high_s for b in found.histogram[:-1]]


@given(operations())
def test_the_slowest_are_those_that_took_longest(ios):
    trace = trace_of(ios)
    found, rows = result(trace), list(rows_of(trace))
    longest = sorted((r[0] for r in rows), reverse=True)[:10]
    slowest = found.slowest if found else ()
    assert [round(s.duration_s * 1e9) for s in slowest] == longest
    known = {(r[0], r[1], r[3], ("read", "write")[r[4]], r[5], r[6]) for r in rows}
    since = trace.job.start_ns
    for each in slowest:
        start = since + round(each.start_s * 1e9)
        row = (round(each.duration_s * 1e9), start, each.path, each.op, each.offset, each.nbytes)
        assert row in known


@settings(max_examples=25)
@given(operations())
def test_the_sample_is_of_reads_that_took_place_however_parts_are_cut(ios):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(latencies, "SAMPLED", 5)
        trace = trace_of(ios)
        found = result(trace)
        cut = [p.rows(slice(i, i + 1)) for p in trace.io for i in range(len(p))]
        again = result(trace, cut[::-1])
    sample, other = found and found.sample, again and again.sample
    if sample is None:
        assert other is None
        return
    data = [path for path, is_data in zip(trace.files.path, trace.files.is_data, strict=True)
            if is_data]  # fmt: skip
    reads = [r for r in rows_of(trace) if r[3] == sample.path and r[4] == READ]
    assert sample.path in data
    assert sample.reads == len(reads) >= len(sample.offset) > 0
    starts = np.round(sample.start_s * 1e9).astype(np.int64) + trace.job.start_ns
    assert {(int(s), int(o), int(n)) for s, o, n in zip(starts, sample.offset, sample.nbytes,
            strict=True)} <= {(r[1], r[5], r[6]) for r in reads}  # fmt: skip
    assert (np.diff(sample.start_s) >= 0).all()
    for name in ("start_s", "offset", "nbytes", "position"):
        assert np.array_equal(getattr(sample, name), getattr(other, name))
    of_data = sum(r[3] in data and r[4] == READ for r in rows_of(trace))
    if of_data <= 5:
        assert len(sample.offset) == len(reads)


@given(operations())
def test_reads_of_nothing_are_counted_by_file(ios):
    trace = trace_of(ios)
    found = result(trace)
    reads = [row for row in rows_of(trace) if row[4] == READ]
    paths = {row[3] for row in reads}
    counts = {path: sum(row[3] == path and row[6] == 0 for row in reads) for path in paths}
    assert (found.empty_reads if found else {}) == counts


def test_bounds_belong_to_the_bin_above_them():
    known = EDGES_NS[EDGES_NS < 2**51].tolist()
    lengths = sorted({max(edge + near, 0) for edge in known for near in (-1, 0, 1)})
    trace = trace_of([(0, Io(start, start + n)) for start, n in enumerate(lengths)], None)
    found = reduce_parts({"l": latencies}, trace.io, trace)["l"].bins
    for low, high, count, spent in zip(known, [*known[1:], 2**51], found[0], found[2], strict=True):
        mine = [n for n in lengths if low <= n < high]
        assert (len(mine), sum(mine)) == (count, spent)


def test_bounds_grow_by_one_two_five():
    assert EDGES_NS.tolist()[:8] == [0, 1, 2, 5, 10, 20, 50, 100]
    assert (np.diff(EDGES_NS) > 0).all()


def test_pages_text_and_contract_show_them(opened):
    from tests import DATA
    from vanidl.sections import requests
    from vanidl.sections.registry import json_object

    run = opened(DATA / "torch_pfs_workers0")
    contract = json_object(run)["io"]["durations"]
    table = requests.draw_durations(run).table
    assert sum(row[2] for row in table.rows) == run.summary.reads
    assert sum(b["reads"] for b in contract["histogram"]) == run.summary.reads
    assert sum(b["read_s"] + b["write_s"] for b in contract["histogram"]) == pytest.approx(
        run.summary.time.sum_s
    )
    assert len(contract["slowest"]) == len(requests.draw_slowest(run).table.rows) == 10
    offsets = requests.draw_offsets(run)
    assert len(offsets.spec["data"][0]["x"]) == min(4000, run.results.latencies.sample.reads)
    assert "dataset reads" in requests.DURATIONS.text(run)
    assert len(run.frame("durations")) == len(table.rows)
    assert run.frame("slowest")["duration_s"].is_monotonic_decreasing


def test_files_say_how_often_they_were_opened(opened):
    from tests import DATA
    from vanidl.sections import files

    run = opened(DATA / "torch_pfs_workers0")
    table = files.draw_files(run).table
    column = [c.title for c in table.columns].index("opens")
    opens = sum(row[column] or 0 for row in table.rows)
    counted = 0
    for layer in ("POSIX", "STDIO"):
        counters = run.trace.counters[layer]
        counts = counters.counters[f"{layer}_OPENS"]
        shown = {row.path for row in run.files.rows}
        mine = [run.trace.files.path[f] in shown for f in counters.file.tolist()]
        counted += int(counts[mine][counts[mine] > 0].sum())
    assert opens == counted > 0
    times = [row[6] or 0 for row in table.rows]
    assert times == sorted(times, reverse=True)
