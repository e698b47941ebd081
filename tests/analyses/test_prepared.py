"""What is derived from a part once agrees with plain loops over its rows."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyses.test_laws import operations, trace_of
from vanidl.analyses import cover, timebins
from vanidl.analyses.prepared import prepared
from vanidl.analyses.sorting import counted, stable_order
from vanidl.model import intervals

codes = st.lists(
    st.sampled_from([0, 1, 2, 65_535, 65_536, 65_537, 131_072, 2**31 - 1]), max_size=40
)
ranges = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 40), st.integers(0, 9)), max_size=25)


@given(operations())
def test_groups_hold_the_rows_of_a_file_by_start(ios):
    for part in trace_of(ios, None).io:
        groups = defaultdict(list)
        for i in range(len(part)):
            row = (part.start[i], part.end[i], part.offset[i], part.nbytes[i])
            groups[int(part.op[i]), int(part.file[i])].append(tuple(map(int, row)))
        ready = prepared(part)
        for op, rows in enumerate((ready.reads, ready.writes)):
            wanted = {file: group for (o, file), group in groups.items() if o == op}
            assert rows.file.tolist() == sorted(wanted)
            columns = (rows.start, rows.end, rows.offset, rows.nbytes)
            for i, file in enumerate(rows.file.tolist()):
                mine = slice(int(rows.first[i]), int(rows.first[i + 1]))
                found = list(zip(*(c[mine].tolist() for c in columns), strict=True))
                assert found == wanted[file]
                assert rows.nbytes_of_file[i] == sum(r[3] for r in found)
                assert rows.spent_of_file[i] == sum(r[1] - r[0] for r in found)
                assert rows.last_of_file[i] == max(r[1] for r in found)


@given(operations(), st.sets(st.integers(0, 3)), st.integers(0, 70_000))
def test_some_groups_and_some_rows(ios, files, least):
    for part in trace_of(ios, None).io:
        rows = prepared(part).reads
        chosen = rows.groups(np.isin(rows.file, list(files)))
        in_part = (part.op == 0) & np.isin(part.file, list(files))
        assert set(chosen.file.tolist()) == set(part.file[in_part].tolist())
        assert sorted(chosen.start.tolist()) == part.start[in_part].tolist()
        if len(chosen):
            large = chosen.rows(chosen.nbytes >= least)
            in_part &= part.nbytes >= least
            assert set(large.file.tolist()) == set(part.file[in_part].tolist())
            assert sorted(large.start.tolist()) == part.start[in_part].tolist()
            assert large.first[-1] == len(large) == in_part.sum()


@given(codes)
def test_the_order_of_codes_is_stable(values):
    for kind in (np.int32, np.int64):
        order = stable_order(np.array(values, kind))
        assert order.tolist() == sorted(range(len(values)), key=values.__getitem__)


def test_codes_beyond_32_bits_are_ordered():
    assert stable_order(np.array([2**40, 5, 2**40, 1])).tolist() == [3, 1, 0, 2]


@given(st.lists(st.sampled_from([-3, 0, 1, 2, 10**12]), max_size=30))
def test_values_are_counted(values):
    found, counts = counted(np.array(values, np.int64))
    wanted = {v: values.count(v) for v in sorted(set(values))}
    assert dict(zip(found.tolist(), counts.tolist(), strict=True)) == wanted
    assert found.tolist() == list(wanted)


@given(st.lists(st.integers(-50, 250), max_size=60), st.integers(1, 12))
def test_rows_begin_in_the_bins_of_their_starts(starts, bins):
    start = np.sort(np.array(starts, np.int64))
    bounds = np.arange(bins + 1) * 17
    begin = timebins.begin(start, bounds)
    wanted = timebins.bin_of(start, bounds)
    assert np.repeat(np.arange(bins), np.diff(begin)).tolist() == wanted.tolist()


@pytest.mark.parametrize("window", [1, 3, 1 << 18])
def test_the_length_of_all_sets_is_that_of_their_union(window, monkeypatch):
    monkeypatch.setattr(intervals, "_WINDOW", window)

    @given(st.lists(ranges, max_size=4))
    def check(sets):
        unions = [
            intervals.union(np.array([r[1] for r in rows]), np.array([r[1] + r[2] for r in rows]))
            for rows in sets
            if rows
        ]
        cells = {cell for rows in sets for _, at, n in rows for cell in range(at, at + n)}
        assert intervals.length_of_all(unions) == len(cells)

    check()


@pytest.mark.parametrize("block", [1, 3, 1 << 18])
@pytest.mark.parametrize("far", [0, 2**61])
def test_the_bytes_of_all_covers_are_those_of_their_union(block, far, monkeypatch):
    monkeypatch.setattr(cover, "_BLOCK", block)

    @given(st.lists(ranges, max_size=4))
    def check(sets):
        covers, cells = [], defaultdict(set)
        for rows in sets:
            key, start, length = np.array(rows, np.int64).reshape(-1, 3).T
            covers.append(cover.covered(key, start + far, start + far + length))
            for k, at, n in rows:
                cells[k].update(range(at, at + n))
        wanted = {k: (len(c), far + max(c) + 1) for k, c in sorted(cells.items()) if c}
        keys, lengths, ends = (column.tolist() for column in cover.together(covers))
        assert dict(zip(keys, zip(lengths, ends, strict=True), strict=True)) == wanted
        assert keys == list(wanted)

    check()
