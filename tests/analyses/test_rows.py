"""What is derived from rows once agrees with plain loops over its rows."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyses.test_laws import operations, trace_of
from tests.makers.records import Io
from tests.makers.sameness import same
from vanidl.analyses import byte_ranges
from vanidl.analyses.rows import rows_of
from vanidl.analyses.sorting import counted, sorted_rows
from vanidl.model import intervals

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
        rows = rows_of(parts, trace)
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
    rows = rows_of(parts, trace)
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
        rows = rows_of(parts, trace)
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
        rows = rows_of(parts, trace)
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
    assert sorted_rows(rows).tolist() == [list(row) for row in wanted]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 9)), max_size=12))
def test_byte_ranges_of_owners_are_those_of_their_groups(groups):
    """A group of each owner and key: the same bytes as where they are united one by one."""
    number = np.arange(len(groups))
    owner, key, end = np.array(groups, np.int64).reshape(-1, 3).T
    every = byte_ranges.union_by_key(number, end - 1, end)
    found = dict(byte_ranges.by_owner(every, owner, key))
    assert list(found) == sorted(set(owner.tolist()))
    for each, ranges in found.items():
        mine = owner == each
        assert same(ranges, byte_ranges.union_by_key(key[mine], (end - 1)[mine], end[mine]))


@given(st.lists(st.sampled_from([-3, 0, 1, 2, 10**12]), max_size=30))
def test_values_are_counted(values):
    found, counts = counted(np.array(values, np.int64))
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
    monkeypatch.setattr(byte_ranges, "_BLOCK", block)

    @given(st.lists(ranges, max_size=4))
    def check(sets):
        covers, cells = [], defaultdict(set)
        for rows in sets:
            key, start, length = np.array(rows, np.int64).reshape(-1, 3).T
            covers.append(byte_ranges.union_by_key(key, start + far, start + far + length))
            for k, at, n in rows:
                cells[k].update(range(at, at + n))
        wanted = {k: (len(c), far + max(c) + 1) for k, c in sorted(cells.items()) if c}
        keys, lengths, ends = (column.tolist() for column in byte_ranges.together(covers))
        assert dict(zip(keys, zip(lengths, ends, strict=True), strict=True)) == wanted
        assert keys == list(wanted)

    check()
