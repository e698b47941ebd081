"""Laws that every analysis obeys, against an oracle on a 1 microsecond grid.

They hold whatever the operations and spans were read from: `ways` writes them as files of
every source and reads them back.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vanidl.readers
from tests.makers.records import JOB_START_NS, Io, Span, darshan_log, profile
from tests.makers.runs import analysed
from tests.makers.sameness import same
from tests.makers.sources_matrix import IO_WAYS, PAIRS, SPAN_WAYS, Made, Way
from vanidl.analyses import coverage, timeline
from vanidl.analyses.reducing import collect_rows, reduce_parts
from vanidl.analyses.results import analyse, finish, list_reductions
from vanidl.breakdown import attribute_time
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import Options, assemble
from vanidl.model.intervals import Intervals
from vanidl.model.trace import SpanKind
from vanidl.report.summary import summary_object
from vanidl.run import Run

BUILT = Way("pieces", "pieces", Path())
US = 1_000
GRID = 400  # microseconds of a synthetic run
LATEST_START = 14  # of its processes: none does I/O before it is there
REPEATED = 8 if settings.default.derandomize else 100  # for each pair of sources


def bounds(longest: int = 60, first: int = 0) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(first, GRID - 1), st.integers(0, longest)).map(
        lambda t: (t[0] * US, min(t[0] + t[1], GRID) * US)
    )


def operations(process_count: int = 3) -> st.SearchStrategy[list[tuple[int, Io]]]:
    one = st.tuples(
        st.integers(0, process_count - 1), bounds(first=LATEST_START), st.integers(0, 5000),
        st.integers(0, 70_000), st.integers(1, 3), st.integers(0, 1),
    )  # fmt: skip
    return st.lists(
        one.map(lambda t: (t[0], Io(*t[1], offset=t[2], nbytes=t[3], file=t[4], op=t[5]))),
        max_size=25,
    )


kinds = st.sampled_from([SpanKind.INPUT_WAIT, SpanKind.OP, SpanKind.KERNEL, SpanKind.COMMUNICATION])
spans = st.lists(st.tuples(kinds, bounds(100)).map(lambda t: Span(t[0], *t[1])), max_size=15)


def steps(first_us: int = 50, length_us: int = 60, count: int = 4) -> list[Span]:
    return [
        Span(
            SpanKind.STEP, (first_us + k * length_us) * US, (first_us + (k + 1) * length_us) * US, k
        )
        for k in range(count)
    ]


def logs_of(ios: list[tuple[int, Io]], way: Way, *, shift_ns: int = 0):
    """A trainer (pid 100) and its forked workers, each with a start of its own."""
    logs = []
    for process in range(3):
        late = process * 7 * US
        mine = [
            io._replace(start=io.start - late, end=io.end - late) for p, io in ios if p == process
        ]
        start_ns = JOB_START_NS + late + shift_ns
        parent = 100 if process else None
        logs.append(way.log(Made(mine, 100 + process, parent, start_ns, GRID * US - late)))
    return logs


def trace_of(ios, seen=(), way=BUILT, *, order=(0, 1, 2), max_part_rows=8_000_000, shift_ns=0):
    logs = logs_of(ios, way, shift_ns=shift_ns)
    profiles = ()
    if seen is not None:
        spans = sorted([*steps(), *seen], key=lambda s: (s.start, -s.end))
        profiles = (way.profile(spans, JOB_START_NS + shift_ns),)
    group = Group(tuple(logs[i] for i in order), profiles)
    return assemble(group, {}, (), Options(max_part_rows=max_part_rows))


@pytest.fixture(scope="module", params=PAIRS, ids=" + ".join)
def way(request, tmp_path_factory) -> Way:
    """Operations through one source, spans through another; their files are written again."""
    return Way(*request.param, tmp_path_factory.mktemp("way"))


def test_every_source_is_a_way():
    """A module that makes operations or spans cannot go untested here."""
    root = Path(vanidl.readers.__file__).parent
    named = {
        name
        for module in root.rglob("*.py")
        for name in re.findall(r'^\w*SOURCE = "(.*)"', module.read_text(), re.MULTILINE)
    }
    # The first knows no times; of the others steps follow from waits, so that no two may be chosen
    # freely: tests/analyses/test_loop.py and tests/readers/dlio have splits by construction.
    sources = named - {"tensorboard-input-pipeline", "vanidl-record", "dlio"}
    assert sources | {"pieces"} == set(SPAN_WAYS) == {spans for _, spans in PAIRS}
    assert set(IO_WAYS) == {io for io, _ in PAIRS}


def cells(intervals) -> np.ndarray:
    """The oracle: which microseconds are covered."""
    grid = np.zeros(GRID, bool)
    for start, end in intervals:
        grid[start // US : end // US] = True
    return grid


def ends_empty(seen: list[Span]) -> bool:
    """Whether the last mark holds next to no compute where the others do: it is no step then."""
    when = {k: cells((s.start, s.end) for s in seen if s.kind == k) for k in SpanKind}
    computed = when[SpanKind.KERNEL]
    if not computed.any():
        computed = when[SpanKind.OP] & ~when[SpanKind.INPUT_WAIT]
    each = [int((computed & cells([(s.start, s.end)])).sum()) for s in steps()]
    usual = 0.1 * np.median(each[:-1])
    return bool(each[-1] < usual <= each[-2])  # after one as empty the device's times end early


@settings(max_examples=REPEATED)
@given(operations(), spans, st.data())
def test_overlap_order_and_clock(way, ios, seen, data):
    """Three laws of the same operations and spans, which are read and analysed once."""
    seen = way.holds(seen, steps())
    trace = trace_of(ios, seen, way)
    here = analyse(trace)
    account = attribute_time(trace, here)
    _overlap_agrees_with_the_grid_and_splits_exactly(account, ios, seen)
    _any_order_and_part_size_give_the_same_bits(here, ios, seen, way, data)
    _a_shift_of_all_clocks_changes_nothing_but_the_clock(here, account, ios, seen, way, data)


def _overlap_agrees_with_the_grid_and_splits_exactly(account, ios, seen):
    assert account.overlap is not None
    rank = account.overlap.per_rank[0]
    if not ios:
        assert rank.io_s is None
        return
    busy = cells((io.start, io.end) for _, io in ios)
    marked = steps()[:-1] if ends_empty(seen) else steps()
    window = cells((s.start, s.end) for s in marked)
    kind = {k: cells((s.start, s.end) for s in seen if s.kind == k) & window for k in SpanKind}
    has_kernel = any(s.kind == SpanKind.KERNEL for s in seen)
    has_ops = any(s.kind == SpanKind.OP for s in seen)
    waits_known = any(s.kind == SpanKind.INPUT_WAIT for s in seen)
    wait = kind[SpanKind.INPUT_WAIT]
    compute = kind[SpanKind.KERNEL] if has_kernel else kind[SpanKind.OP] & ~wait
    starving = wait & ~compute
    left = busy & window
    expected = {"io_s": busy.sum(), "unobserved_s": (busy & ~window).sum()}
    if waits_known:
        expected["in_wait_s"] = (left & starving).sum()
        expected["input_wait_s"] = wait.sum()
    left = left & ~starving
    if has_kernel or (has_ops and waits_known):
        expected["hidden_s"] = (left & compute).sum()
        left = left & ~compute
        communication = kind[SpanKind.COMMUNICATION]
        expected["behind_communication_s"] = (left & communication).sum()
        if waits_known:
            expected["other_s"] = (left & ~communication).sum()
    for name in ("io_s", "unobserved_s", "in_wait_s", "hidden_s", "behind_communication_s",
                 "other_s", "input_wait_s"):  # fmt: skip
        value = getattr(rank, name)
        assert (None if value is None else round(value * 1e6, 6)) == expected.get(name), name
    if waits_known:
        ends = rank.input_wait_io_s, rank.input_wait_io_at_most_s, rank.input_wait_s
        assert list(ends) == sorted(ends)
    if "other_s" in expected:
        names = ("unobserved_s", "in_wait_s", "hidden_s", "behind_communication_s", "other_s")
        assert round(sum(getattr(rank, n) for n in names) * 1e9) == busy.sum() * US


@settings(max_examples=REPEATED)
@given(operations())
def test_time_bins_and_access_are_those_of_the_operations(way, ios):
    """Three laws of the same operations, which are read and analysed once."""
    trace = trace_of(ios, None, way)
    results = analyse(trace)
    _busy_time_agrees_with_the_grid_and_is_at_most_the_sum(results, ios)
    _bins_sum_to_totals(results, ios)
    _access_agrees_with_a_plain_loop(trace, results)


def _busy_time_agrees_with_the_grid_and_is_at_most_the_sum(results, ios):
    time = results.summary.time
    busy = cells((io.start, io.end) for _, io in ios).sum()
    if time is None:
        assert not ios
        return
    assert round(time.any_rank_s * 1e6) == busy
    assert round(time.per_rank_mean_s * 1e6) == busy  # one rank
    assert time.any_rank_s <= time.sum_s + 1e-12
    assert time.per_rank_mean_s <= time.per_rank_max_s + 1e-12


def _bins_sum_to_totals(results, ios):
    read = sum(io.nbytes for _, io in ios if io.op == 0)
    written = sum(io.nbytes for _, io in ios if io.op == 1)
    reads = sum(io.op == 0 for _, io in ios)
    if results.timeline is not None:
        line = results.timeline
        assert (line.bytes_read.sum(), line.bytes_written.sum()) == (read, written)
        assert (line.reads.sum(), line.writes.sum()) == (reads, len(ios) - reads)
        assert (np.stack([line.bytes_read, line.bytes_written]) >= 0).all()
        _every_level_has_the_same_sums(line)
        _rows_of_files_are_those_of_the_table(results)
    for bins in (results.sizes.histogram, results.sizes.darshan_histogram):
        assert sum(b.reads for b in bins) == reads
        assert sum(b.bytes_read for b in bins) == (read if bins else 0)
        assert sum(b.bytes_written for b in bins) == (written if bins else 0)
    assert sum(r.bytes_read for r in results.files.rows) == read
    assert sum(g.bytes_written for g in results.files.by_kind) == written
    assert sum(g.bytes_written for g in results.files.by_mount) == written
    if results.access is not None:
        for counts in (results.access.read, results.access.write):
            parts = (counts.first, counts.consecutive, counts.forward, counts.backward)
            assert sum(parts) == counts.ops
        assert results.access.read.ops == reads


def _every_level_has_the_same_sums(line):
    for name in ("bytes_read", "bytes_written", "reads", "writes"):
        finest, rows = getattr(line.finest, name), getattr(line, name)
        assert finest.shape == (16_384,)
        levels = timeline.build_pyramid(finest, 256)
        assert [len(level) for level in levels] == [16_384 >> k for k in range(7)]
        assert {int(level.sum()) for level in levels} == {int(rows.sum())}
        assert (levels[2] == rows.sum(axis=0)).all()
    assert (line.finest.edges_s[::4] == line.edges_s).all()


def _rows_of_files_are_those_of_the_table(results):
    table = {row.path: row for row in results.files.rows}
    files = results.filetimeline
    assert files.files == len(files.paths) == len(table)
    for path, read, written in zip(files.paths, files.bytes_read, files.bytes_written, strict=True):
        assert (read.sum(), written.sum()) == (table[path].bytes_read, table[path].bytes_written)
    fine = timeline.sum_neighbouring_bins(results.timeline.finest.bytes_read, 512)
    assert (files.bytes_read.sum(axis=0) - fine).sum() == 0
    assert abs(files.bytes_read.sum(axis=0) - fine).max() == 0


def _access_agrees_with_a_plain_loop(trace, results):
    last: dict[tuple[int, int, int], int] = {}
    got = {0: [0, 0, 0, 0], 1: [0, 0, 0, 0]}
    for part in trace.io:
        for i in range(len(part)):
            key = (part.process, int(part.file[i]), int(part.op[i]))
            offset, end = int(part.offset[i]), last.get(key)
            kind = 0 if end is None else 1 if offset == end else 2 if offset > end else 3
            got[key[2]][kind] += 1
            last[key] = offset + int(part.nbytes[i])
    access = results.access
    if access is None:
        assert not last
        return
    for op, counts in enumerate((access.read, access.write)):
        assert [counts.first, counts.consecutive, counts.forward, counts.backward] == got[op]


def _any_order_and_part_size_give_the_same_bits(here, ios, seen, way, data):
    order, rows = data.draw(st.permutations([0, 1, 2])), data.draw(st.integers(1, 7))
    assert same(here, analyse(trace_of(ios, seen, way, order=order, max_part_rows=rows)))


@settings(max_examples=30)
@given(operations(), st.randoms(use_true_random=False))
def test_combine_is_commutative_and_associative_in_what_comes_of_it(ios, random):
    trace = trace_of(ios, None, max_part_rows=3)
    parts = list(trace.io)
    reductions = list_reductions(trace)
    whole = reduce_parts(reductions, parts, trace)
    random.shuffle(parts)
    shuffled = {name: reduction.NOTHING for name, reduction in reductions.items()}
    for part in parts:
        rows = collect_rows([part], trace)
        for name, reduction in reductions.items():
            shuffled[name] = reduction.combine(reduction.partial(rows, trace), shuffled[name])
    one, other = (
        finish(each, coverage.NOTHING, trace, trace, "POSIX") for each in (whole, shuffled)
    )
    assert same(one, other)


def _a_shift_of_all_clocks_changes_nothing_but_the_clock(here, account, ios, seen, way, data):
    shift = data.draw(st.integers(-(10**15), 10**15)) // way.tick_ns * way.tick_ns
    moved = trace_of(ios, seen, way, shift_ns=shift)
    there = analyse(moved)
    times = {
        name: _later(getattr(there.calls, name), -shift)
        for name in ("reads", "writes", "elsewhere")
    }
    calls = replace(there.calls, **times)
    of_ranks = there.operations
    times = {name: _later(getattr(of_ranks, name), -shift) for name in ("busy", "own_busy")}
    in_time = {
        "operations": replace(of_ranks, **times),
        "saves": tuple(
            replace(s, start_ns=s.start_ns - shift, end_ns=s.end_ns - shift) for s in there.saves
        ),
        "busy": _later(there.busy, -shift),
    }
    assert same(replace(there, calls=calls, **in_time), here)
    of_moved = attribute_time(moved, there)
    # Calls, which the account hands on as they were, are absolute as well.
    of_moved = replace(of_moved, fates=_moved(of_moved.fates, -shift), served={})
    assert same(of_moved, replace(account, served={}))


def _later(times, shift):
    return {key: Intervals(each.start + shift, each.end + shift) for key, each in times.items()}


def _moved(fates, by_ns):
    """The same fates, whose times are absolute, that much later; the first cell has no start."""
    return {
        rank: replace(found, start=np.append(found.start[:1], found.start[1:] + by_ns))
        for rank, found in fates.items()
    }


@settings(max_examples=REPEATED)
@given(operations(process_count=1), st.lists(bounds(40), min_size=1, max_size=6))
def test_without_concurrency_nothing_is_hidden(way, ios, waits):
    """One thread reads in its waits or between operators: compute never covers I/O."""
    wait_cells = cells(waits)
    io_cells = cells((io.start, io.end) for _, io in ios)
    free = ~(wait_cells | io_cells)
    ops = [Span(SpanKind.OP, i * US, (i + 1) * US) for i in np.flatnonzero(free).tolist()]
    seen = [*ops, *(Span(SpanKind.INPUT_WAIT, *w) for w in waits)]
    seen = way.holds(seen, steps())
    rank = analysed(trace_of(ios, seen, way)).overlap.per_rank[0]
    assert rank.hidden_s in (0, None)
    if ios and any(s.kind == SpanKind.OP for s in seen):
        assert rank.hidden_s == 0


def test_lost_to_input_takes_the_longest_wait_of_each_step():
    profiles = [
        profile(
            [
                Span(SpanKind.STEP, 0, 100, 1), Span(SpanKind.STEP, 100, 200, 2),
                Span(SpanKind.INPUT_WAIT, 0, first), Span(SpanKind.INPUT_WAIT, 100, 100 + second),
            ],
            pid=100 + rank, rank=rank, world_size=2,
        )
        for rank, (first, second) in enumerate([(10, 40), (30, 5)])
    ]  # fmt: skip
    results = analysed(assemble(Group((), tuple(profiles)), {}))
    assert results.overlap.lost_to_input_s == pytest.approx(70e-9)


def test_a_wait_that_was_never_marked_is_unknown_and_not_zero():
    results = analysed(trace_of([(0, Io(60 * US, 80 * US, 0, 10))], [Span(SpanKind.OP, 0, 9 * US)]))
    rank = results.overlap.per_rank[0]
    assert (rank.input_wait_s, rank.in_wait_s, rank.hidden_s) == (None, None, None)
    assert results.overlap.lost_to_input_s is None
    assert rank.unobserved_s == 0


def test_silent_ranks_count_as_zero():
    log = darshan_log([Io(0, 400, 0, 10, rank=0)], nprocs=4, pid=None)
    results = analyse(assemble(Group((log,), ()), {}))
    assert results.summary.time.per_rank_mean_s == pytest.approx(100e-9)
    assert results.balance.silent_ranks == 3
    assert results.balance.busy_spread == pytest.approx(4.0)


def test_a_huge_slow_operation_does_not_overflow_the_timeline():
    huge = replace(darshan_log([Io(0, 9_000_000_000, 0, 2**50)]))
    line = analyse(assemble(Group((huge,), ()), {})).timeline
    assert line.bytes_read.sum() == 2**50
    inside = line.bytes_read[0, : 4096 * 9 // 10 - 1]
    assert inside.max() - inside.min() <= 2**50 // 10**9 * 2


any_steps = st.lists(bounds(3).map(lambda t: Span(SpanKind.STEP, *t)), min_size=1, max_size=4)


@given(operations(), any_steps, spans)
@settings(max_examples=15)
def test_steps_of_any_lengths_have_a_summary(ios, chosen, seen):
    """Of no length, too, and one inside the other: damaged profiles hold such."""
    numbered = [step._replace(step=k) for k, step in enumerate(chosen)]
    marked = profile(sorted([*numbered, *seen], key=lambda s: (s.start, -s.end)))
    trace = assemble(Group(tuple(logs_of(ios, BUILT)), (marked,)), {}, (), Options())
    results = analyse(trace)
    assert len(numbered) - 1 <= results.steps.per_rank_max <= len(numbered)  # the last: a stub
    json.dumps(summary_object(Run(trace, results)), allow_nan=False)
