"""Parts laid together in any way give the bits that part by part gives."""

from __future__ import annotations

import gc
import weakref
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import DATA
from tests.analyses.test_laws import operations, trace_of
from tests.makers.records import Io, Span, darshan_log
from tests.makers.sameness import same
from vanidl.analyses import coverage, dataset, reducing, timeline
from vanidl.analyses.reducing import batch_small_parts, collect_rows
from vanidl.analyses.results import analyse, list_reductions
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble
from vanidl.model import intervals
from vanidl.model.ordering import count_distinct, sort_rows
from vanidl.model.selection import Selection, select
from vanidl.model.trace import SpanKind
from vanidl.report.summary import summary_object
from vanidl.run import Run

# What is derived from rows once agrees with plain loops over its rows.

codes = st.lists(
    st.sampled_from([0, 1, 2, 65_535, 65_536, 65_537, 131_072, 2**31 - 1]), max_size=40
)
ranges = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 40), st.integers(0, 9)), max_size=25)


def parts_and_trace(ios, max_part_rows):
    """The parts one by one, then all of them together."""
    trace = trace_of(ios, None, max_part_rows=max_part_rows)
    parts = list(trace.io)
    return [*([part] for part in parts), *([parts] if parts else [])], trace


@given(operations(), st.integers(1, 30))
def test_groups_hold_the_rows_of_a_part_and_file_by_start(ios, max_part_rows):
    lists, trace = parts_and_trace(ios, max_part_rows)
    for parts in lists:
        wanted = ({}, {})
        for at, part in enumerate(parts):
            for i in range(len(part)):
                row = (part.start[i], part.end[i], part.offset[i], part.nbytes[i])
                group = wanted[part.op[i]].setdefault((at, int(part.file[i])), [])
                group.append(tuple(map(int, row)))
        rows = collect_rows(parts, trace)
        for groups, of_op in zip((rows.reads, rows.writes), wanted, strict=True):
            order = sorted(of_op)
            assert groups.file.tolist() == [file for _, file in order]
            assert groups.process.tolist() == [parts[at].process for at, _ in order]
            assert groups.position.tolist() == [trace.family[p] for p in groups.process.tolist()]
            _groups_are(groups, [of_op[key] for key in order])


@given(ranges.filter(len), st.integers(0, 20), st.integers(0, 20))
def test_busy_time_of_neighbours_is_that_of_their_union(spans, first, count):
    ios = [(0, Io(start, start + length)) for _, start, length in spans]
    (parts, *_), trace = parts_and_trace(ios, 100)
    rows = collect_rows(parts, trace)
    mine = np.zeros(len(rows), bool)
    mine[first % len(rows) :][:count] = True
    assert same(rows.busy_of_neighbours(mine), rows.busy_of(mine))


def _groups_are(groups, wanted):
    columns = (groups.start, groups.end, groups.offset, groups.nbytes)
    for i, group in enumerate(wanted):
        mine = slice(int(groups.first[i]), int(groups.first[i + 1]))
        assert list(zip(*(c[mine].tolist() for c in columns), strict=True)) == group
        assert groups.group_nbytes[i] == sum(r[3] for r in group)
        assert groups.group_duration[i] == sum(r[1] - r[0] for r in group)
        assert groups.group_start[i] == min(r[0] for r in group)
        assert groups.group_end[i] == max(r[1] for r in group)
    assert len(groups) == sum(map(len, wanted))


@given(operations(), st.integers(1, 30), st.sets(st.integers(0, 3)), st.integers(0, 70_000))
def test_some_groups_and_some_rows(ios, max_part_rows, files, least):
    lists, trace = parts_and_trace(ios, max_part_rows)
    for parts in lists:
        rows = collect_rows(parts, trace)
        chosen = rows.reads.groups(np.isin(rows.reads.file, list(files)))
        wanted = (rows.op == 0) & np.isin(rows.file, list(files))
        assert set(chosen.file.tolist()) == set(rows.file[wanted].tolist())
        assert sorted(chosen.start.tolist()) == sorted(rows.start[wanted].tolist())
        if len(chosen):
            large = chosen.rows(chosen.nbytes >= least)
            wanted &= rows.nbytes >= least
            assert set(large.file.tolist()) == set(rows.file[wanted].tolist())
            assert sorted(large.start.tolist()) == sorted(rows.start[wanted].tolist())
            assert large.first[-1] == len(large) == wanted.sum()


@given(operations(), st.integers(1, 30))
def test_busy_time_and_rows_by_position(ios, max_part_rows):
    lists, trace = parts_and_trace(ios, max_part_rows)
    for parts in lists:
        rows = collect_rows(parts, trace)
        position = trace.family[[part.process for part in parts]][rows.part]
        for at, busy in rows.busy.items():
            mine = position == at
            assert same(busy, intervals.union(rows.start[mine], rows.end[mine]))
        for at, own in rows.by_position({0, 1, 2}):
            assert own.start.tolist() == rows.start[position == at].tolist()
            assert own.file.tolist() == rows.file[position == at].tolist()


@given(st.lists(st.tuples(*[st.integers(0, 2)] * 3), max_size=12), st.booleans())
def test_rows_are_sorted_by_all_columns(values, in_order):
    wanted = sorted(values)
    rows = np.array(wanted if in_order else values, np.int64).reshape(-1, 3)
    assert sort_rows(rows).tolist() == [list(row) for row in wanted]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 9)), max_size=12))
def test_byte_ranges_of_owners_are_those_of_their_groups(groups):
    """A group of each owner and key: the same bytes as where they are united one by one."""
    number = np.arange(len(groups))
    owner, key, end = np.array(groups, np.int64).reshape(-1, 3).T
    every = dataset.union_by_key(number, end - 1, end)
    found = dict(dataset.split_by_owner(every, owner, key))
    assert list(found) == sorted(set(owner.tolist()))
    for each, ranges in found.items():
        mine = owner == each
        assert same(ranges, dataset.union_by_key(key[mine], (end - 1)[mine], end[mine]))


@given(st.lists(st.sampled_from([-3, 0, 1, 2, 10**12]), max_size=30))
def test_values_are_counted(values):
    found, counts = count_distinct(np.array(values, np.int64))
    wanted = {v: values.count(v) for v in sorted(set(values))}
    assert dict(zip(found.tolist(), counts.tolist(), strict=True)) == wanted
    assert found.tolist() == list(wanted)


@pytest.mark.parametrize("window", [1, 3, 1 << 18])
@pytest.mark.parametrize("cell_bits", [1, 2, 3, 14])
@pytest.mark.parametrize("scale", [1, 10**9])
def test_the_length_of_all_sets_is_that_of_their_union(window, cell_bits, scale, monkeypatch):
    monkeypatch.setattr(intervals, "_WINDOW", window)
    monkeypatch.setattr(intervals, "_CELL_BITS", cell_bits)

    @given(st.lists(ranges, max_size=4))
    def check(sets):
        unions = [
            intervals.union(*(scale * np.array([[at, at + n] for _, at, n in rows], np.int64).T))
            for rows in sets
            if rows
        ]
        cells = {cell for rows in sets for _, at, n in rows for cell in range(at, at + n)}
        assert intervals.length_of_all(unions) == scale * len(cells)

    check()


@pytest.mark.parametrize("block", [1, 3, 1 << 18])
@pytest.mark.parametrize("far", [0, 2**61])
def test_the_bytes_of_all_covers_are_those_of_their_union(block, far, monkeypatch):
    monkeypatch.setattr(dataset, "_BLOCK", block)

    @given(st.lists(ranges, max_size=4))
    def check(sets):
        covers, cells = [], defaultdict(set)
        for rows in sets:
            key, start, length = np.array(rows, np.int64).reshape(-1, 3).T
            covers.append(dataset.union_by_key(key, start + far, start + far + length))
            for k, at, n in rows:
                cells[k].update(range(at, at + n))
        wanted = {k: (len(c), far + max(c) + 1) for k, c in sorted(cells.items()) if c}
        keys, lengths, ends = (column.tolist() for column in dataset.measure_unions(covers))
        assert dict(zip(keys, zip(lengths, ends, strict=True), strict=True)) == wanted
        assert keys == list(wanted)

    check()


ORDERED_LATER = ("access", "dataset", "checkpoints")
"""Values in the order of the parts, which `finish` puts in order."""


def alike(a: Any, b: Any) -> bool:
    """`same`, also inside dictionaries and what holds them."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    if is_dataclass(a):
        return all(alike(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    return same(a, b)


def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on every part is reduced alone."""
    monkeypatch.setattr(reducing, "batch_small_parts", lambda parts: ([part] for part in parts))


@settings(max_examples=10)
@given(operations(), st.integers(1, 9))
def test_results_are_those_of_single_parts(ios, max_part_rows) -> None:
    trace = trace_of(ios, (), max_part_rows=max_part_rows)
    together = analyse(trace)
    with pytest.MonkeyPatch.context() as monkeypatch:
        one_by_one(monkeypatch)
        assert same(analyse(trace), together)


@settings(max_examples=10)
@given(operations(), st.integers(1, 9), st.data())
def test_values_are_those_of_single_parts(ios, max_part_rows, data) -> None:
    waits = [Span(SpanKind.INPUT_WAIT, 60_000, 90_000)]
    trace = select(trace_of(ios, waits, max_part_rows=max_part_rows), Selection())
    parts = data.draw(st.permutations(list(trace.io)))
    if not parts:
        return
    borders = sorted(data.draw(st.sets(st.integers(1, len(parts)))) | {0, len(parts)})
    lists = [parts[low:high] for low, high in pairwise(borders)]
    for name, reduction in (list_reductions(trace) | {"coverage": coverage}).items():
        one_by_one, together = (
            reduce(reduction.combine, (reduction.partial(collect_rows(some, trace), trace)
                                       for some in split), reduction.NOTHING)
            for split in ([[part] for part in parts], lists)
        )  # fmt: skip
        if name not in ORDERED_LATER:
            assert alike(one_by_one, together), name


@pytest.mark.parametrize("most_rows", [2, 256])
def test_ranks_laid_together_have_the_timeline_of_each(
    most_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "MAX_ROWS", most_rows)
    trace = _trace_of_ranks(3)
    found = analyse(trace).timeline
    assert len(found.row_labels) == min(most_rows, 3)
    one_by_one(monkeypatch)
    assert same(analyse(trace).timeline, found)


def _trace_of_ranks(ranks: int):
    """Operations that last between none and dozens of bins, some beyond the end of the job."""
    rng = np.random.default_rng(0)
    ios = [
        Io(
            start := int(rng.integers(0, 10_000_000_000)),
            start + int(rng.choice([0, 50_000, 700_000, 20_000_000]) * rng.random()),
            offset=i,
            nbytes=int(rng.choice([0, 1, 4097, 1 << 50])),
            file=1 + i % 2,
            op=int(rng.random() < 0.3),
            rank=i % ranks,
        )
        for i in range(900)
    ]
    log = darshan_log(ios, pid=None, nprocs=ranks)
    return assemble(Group((log,), ()), {})


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(-50, 50), st.integers(0, 30)), max_size=30),
    st.sampled_from([0, 2**60]),
)
def test_unions_by_group(rows, far) -> None:
    place, start, length = (np.array(c, np.int64) for c in zip(*rows, strict=True)) if rows else (
        np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))  # fmt: skip
    start = start + far * (place % 2)
    found = intervals.union_by_group(place, start, start + length, 5)
    for i in range(5):
        mine = place == i
        assert same(found[i], intervals.union(start[mine], (start + length)[mine]))


def _three(process: int):
    for i in range(3):
        start = (20 + 7 * process + i) * 1_000
        yield Io(start, start + 90_000, offset=i, nbytes=4096 + i, file=1 + i % 2, op=i % 2)


def test_small_parts_are_laid_together_by_layer() -> None:
    trace = trace_of([(p, io) for p in range(3) for io in _three(p)], (), max_part_rows=1)
    parts = list(trace.io)
    (some,) = batch_small_parts(parts)
    assert [id(part) for part in some] == [id(part) for part in parts]
    rows = collect_rows(some, trace)
    assert (np.diff(rows.start) >= 0).all()
    assert sorted(rows.nbytes.tolist()) == sorted(int(p.nbytes[0]) for p in parts)
    assert [parts[i].nbytes[0] for i in rows.part] == rows.nbytes.tolist()


@pytest.mark.parametrize("name", ["torch_fetches", "torch_late_workers"])
def test_workers_know_all_that_a_partial_looks_at(name: str, opened) -> None:
    """A recorded loop and a profile: what the run is must reach the workers with its rows."""
    run = opened(DATA / name)
    with ThreadPoolExecutor(1) as executor:
        folded = Run(run.trace, analyse(run.trace, run.selection, executor), run.selection)
    assert summary_object(folded) == summary_object(Run(run.trace, run.results, run.selection))


@pytest.mark.parametrize(
    ("rows", "parts", "threaded"), [(50, 1600, 0), (200, 400, 1), (80_000, 1, 1)]
)
def test_threads_fold_what_is_worth_it(rows: int, parts: int, threaded: int) -> None:
    trace = trace_of([(0, Io(i, i + 1, nbytes=1, file=1)) for i in range(2)], ())
    part = trace.io[0].rows(np.zeros(rows, np.intp))
    given_to = []

    class Counting(ThreadPoolExecutor):
        def submit(self, *call: Any, **named: Any) -> Any:
            given_to.append(call)
            return super().submit(*call, **named)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(reducing, "ThreadPoolExecutor", Counting)
        reducing.reduce_parts({}, [part] * parts, trace)
    assert len(given_to) == threaded


def test_the_columns_of_a_part_go_with_it() -> None:
    """A cycle of references would hold all parts until Python looks for garbage, which it rarely
    does: half of the memory of a large run."""
    trace = trace_of([(0, Io(i, i + 1, offset=8 * i, nbytes=8)) for i in range(0, 40, 2)])
    rows = collect_rows(list(trace.io), trace)
    held = [weakref.ref(each) for each in (rows, rows.reads, rows.writes)]
    gc.disable()
    try:
        for reduction in list_reductions(trace).values():
            reduction.partial(rows, trace)
        del rows
        assert [each() for each in held] == [None, None, None]
    finally:
        gc.enable()
