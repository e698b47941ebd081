from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.makers.examples import OFTEN
from vanidl.model import intervals
from vanidl.model.intervals import EMPTY, Intervals

GRID = 60
MIN, MAX = (getattr(np.iinfo(np.int64), end) for end in ("min", "max"))
pairs = st.lists(
    st.tuples(st.integers(0, GRID), st.integers(0, 12)).map(
        lambda t: (t[0], min(t[0] + t[1], GRID))
    ),
    max_size=12,
)


def on_grid(bounds: list[tuple[int, int]]) -> np.ndarray:
    """The oracle: which unit cells the intervals cover."""
    cells = np.zeros(GRID, bool)
    for start, end in bounds:
        cells[start:end] = True
    return cells


def union(bounds: list[tuple[int, int]]) -> Intervals:
    array = np.array(bounds, np.int64).reshape(-1, 2)
    return intervals.union(array[:, 0], array[:, 1])


def cells_of(spans: Intervals) -> np.ndarray:
    return on_grid(list(zip(spans.start.tolist(), spans.end.tolist(), strict=True)))


def assert_canonical(spans: Intervals) -> None:
    assert (spans.end > spans.start).all()
    assert (spans.start[1:] > spans.end[:-1]).all()


@OFTEN
@given(pairs)
def test_union_covers_what_the_grid_covers(bounds):
    spans = union(bounds)
    assert_canonical(spans)
    assert (cells_of(spans) == on_grid(bounds)).all()
    assert spans.length == on_grid(bounds).sum()


@OFTEN
@given(pairs)
def test_union_is_at_most_the_sum(bounds):
    assert union(bounds).length <= sum(end - start for start, end in bounds)


@pytest.mark.parametrize(
    ("function", "on_cells"),
    [
        (intervals.merge, np.logical_or),
        (intervals.intersect, np.logical_and),
        (intervals.subtract, lambda a, b: a & ~b),
    ],
)
def test_set_operations_agree_with_the_grid(function, on_cells):
    @OFTEN
    @given(pairs, pairs)
    def check(a, b):
        result = function(union(a), union(b))
        assert_canonical(result)
        assert (cells_of(result) == on_cells(on_grid(a), on_grid(b))).all()
        assert result.length == on_cells(on_grid(a), on_grid(b)).sum()

    check()


@OFTEN
@given(pairs, pairs, st.sampled_from([0, intervals._LONG]))
def test_covered_within_counts_the_cells_of_each_window(a, windows, long):
    array = np.array(windows, np.int64).reshape(-1, 2)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(intervals, "_LONG", long)  # few instants of many intervals, or not
        got = intervals.covered_within(union(a), array[:, 0], array[:, 1])
    assert got.tolist() == [on_grid(a)[start:end].sum() for start, end in windows]


@OFTEN
@given(st.lists(pairs, max_size=5))
def test_lengths_are_those_of_the_sets(sets):
    lengths = [int(on_grid(a).sum()) for a in sets]
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(intervals, "_WINDOW", 3)  # so that several batches are needed
        assert intervals.lengths(map(union, sets)) == lengths


@OFTEN
@given(pairs, st.lists(st.integers(0, GRID), min_size=2, max_size=6).map(sorted))
def test_covered_between_counts_the_cells_between_edges(a, edges):
    cells = on_grid(a)
    expected = [int(cells[low:high].sum()) for low, high in pairwise(edges)]
    assert intervals.covered_between(union(a), np.array(edges)).tolist() == expected


@pytest.mark.parametrize("window", [1, 3, 1 << 18])
@pytest.mark.parametrize("far", [0, 2**60])
@pytest.mark.parametrize("few", [0, 16])
def test_covered_within_all_adds_up_the_sets(window, far, few, monkeypatch):
    monkeypatch.setattr(intervals, "_WINDOW", window)
    monkeypatch.setattr(intervals, "_FEW", few)

    @given(st.lists(pairs, max_size=4), pairs)
    def check(sets, windows):
        wide = np.array([(0, far)] * bool(far) + windows, np.int64).reshape(-1, 2)
        got = intervals.covered_within_all(map(union, sets), wide[:, 0], wide[:, 1])
        cells = [on_grid(bounds) for bounds in sets]
        wanted = [sum(int(c[a:b].sum()) for c in cells) for a, b in wide.tolist()]
        assert got.tolist() == wanted

    check()


@pytest.mark.parametrize("window", [1, 3, 1 << 18])
@pytest.mark.parametrize("few", [0, 16])
def test_most_covered_within_is_that_of_the_set_with_most(window, few, monkeypatch):
    monkeypatch.setattr(intervals, "_WINDOW", window)
    monkeypatch.setattr(intervals, "_FEW", few)

    @given(st.lists(pairs, max_size=4), pairs)
    def check(sets, windows):
        wide = np.array(windows, np.int64).reshape(-1, 2)
        got = intervals.most_covered_within(map(union, sets), wide[:, 0], wide[:, 1])
        cells = [on_grid(bounds) for bounds in sets]
        wanted = [max((int(c[a:b].sum()) for c in cells), default=0) for a, b in windows]
        assert got.tolist() == wanted

    check()


@OFTEN
@given(pairs, pairs)
def test_split_is_exact(a, b):
    both = intervals.intersect(union(a), union(b)).length
    assert both + intervals.subtract(union(a), union(b)).length == union(a).length


@OFTEN
@given(pairs, st.integers(-2, GRID + 2), st.integers(-2, GRID + 2))
@example([(0, 9)], 5, 5)
@example([(0, 9)], 5, 4)
def test_clipped_is_what_lies_between_and_nothing_where_nothing_does(a, low, high):
    found = intervals.clipped(union(a), low, high)
    assert_canonical(found)
    inside = (np.arange(GRID) >= low) & (np.arange(GRID) < high)
    assert (cells_of(found) == on_grid(a) & inside).all()


far = st.sampled_from([MIN, MIN + 1, -1, 0, 7, MAX - 1, MAX])


@OFTEN
@given(st.lists(st.tuples(far, far), max_size=4))
def test_a_complement_is_all_the_rest_of_time(bounds):
    """Of intervals that reach to the ends of time, too: none is empty, and none is left out."""
    a = union(bounds)
    rest = intervals.complement(a)
    assert_canonical(rest)
    edges = [*a.start.tolist(), *a.end.tolist(), *rest.start.tolist(), *rest.end.tolist()]
    assert {edge: edges.count(edge) for edge in set(edges) - {MIN, MAX}} == dict.fromkeys(
        set(edges) - {MIN, MAX}, 2
    )
    assert (edges.count(MIN), edges.count(MAX)) == (1, 1)
    lengths = (int(end) - int(start) for one in (a, rest) for start, end in zip(*one, strict=True))
    assert sum(lengths) == MAX - MIN


@OFTEN
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 4)), max_size=12))
def test_the_union_of_each_group_is_that_of_its_own_intervals(rows):
    group, start, length = np.array(rows, np.int64).reshape(-1, 3).T
    found = intervals.union_by_group(group, start, start + length, 4)
    assert len(found) == 4
    for i, one in enumerate(found):
        alone = intervals.union(start[group == i], (start + length)[group == i])
        assert [bound.tolist() for bound in one] == [bound.tolist() for bound in alone]


@OFTEN
@given(*[st.dictionaries(st.sampled_from("abc"), pairs)] * 2)
def test_merging_by_key_is_merging_under_each_key(a, b):
    merged = intervals.merge_by_key(*({k: union(v) for k, v in one.items()} for one in (a, b)))
    assert merged.keys() == a.keys() | b.keys()
    for key, found in merged.items():
        assert_canonical(found)
        assert (cells_of(found) == on_grid(a.get(key, []) + b.get(key, []))).all()


@pytest.mark.parametrize(("gap", "count"), [(-1, 1), (0, 1), (1, 2)])
@pytest.mark.parametrize("order", [1, -1])
def test_intervals_that_touch_are_one(gap, count, order):
    bounds = [(2, 5), (5 + gap, 9)]
    by_union = union(bounds[::order])
    by_merge = intervals.merge(*(union([one]) for one in bounds[::order]))
    for found in (by_union, by_merge):
        assert len(found.start) == count
        assert (found.start[0], found.end[-1]) == (2, 9)


def test_intervals_that_only_touch_have_nothing_in_common():
    a, b = union([(2, 5), (9, 12)]), union([(0, 2), (5, 9), (12, 20)])
    assert len(intervals.intersect(a, b).start) == 0
    assert [bound.tolist() for bound in intervals.subtract(a, b)] == [[2, 9], [5, 12]]


def test_nothing_covers_nothing():
    assert intervals.union(EMPTY.start, EMPTY.end) is EMPTY
    assert intervals.intersect(EMPTY, union([(0, 5)])).length == 0
    assert intervals.subtract(union([(0, 5)]), EMPTY).length == 5


def test_a_zero_length_interval_stays_zero_long():
    assert union([(3, 3)]).length == 0
    assert union([(3, 3), (3, 5)]).length == 2


SPANS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 30), st.integers(0, 8)), min_size=1
)


@OFTEN
@given(SPANS)
def test_a_gap_is_where_no_span_of_any_key_lies(rows):
    spans = intervals.span_each((key, start, start + length) for key, start, length in rows)
    for key, (start, end) in spans.items():
        assert start == min(s for k, s, _ in rows if k == key)
        assert end == max(s + length for k, s, length in rows if k == key)
    # Half units, so that what lies between two numbers next to each other counts as well.
    covered = {x for start, end in spans.values() for x in range(2 * start, 2 * end + 1)}
    free = [x for x in range(min(covered), max(covered)) if x not in covered]
    gap = intervals.find_gap(spans)
    assert (gap is not None) == bool(free)
    if gap is not None:
        before, after, length = gap
        assert length > 0
        assert 2 * (spans[after][0] - length) in covered
        assert not covered & set(range(2 * (spans[after][0] - length) + 1, 2 * spans[after][0]))
        assert spans[before][0] <= spans[after][0] - length
