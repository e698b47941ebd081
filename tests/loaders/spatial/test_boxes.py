"""Geometry, beside NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
pytest.importorskip("torch", reason="PyTorch is not installed")

from vanidl_loaders.errors import UsageError
from vanidl_loaders.spatial.grid import (
    EDGES,
    Division,
    count_elements,
    count_extent,
    divide_evenly,
    index_slices,
    run_length,
    run_starts,
    split_range_into_boxes,
)
from vanidl_loaders.spatial.reading import plan_level_shares, plan_one_reader

PAD = {"zero": "constant", "clamp": "edge", "periodic": "wrap"}


@st.composite
def boxed(draw):
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    starts = [draw(st.integers(0, n - 1)) for n in shape]
    return shape, tuple(
        (a, draw(st.integers(a + 1, n))) for a, n in zip(starts, shape, strict=True)
    )


@given(boxed())
def test_runs_are_the_box_in_the_order_of_the_file(given_box):
    shape, box = given_box
    numbered = np.arange(np.prod(shape)).reshape(shape)[index_slices(box)].ravel()
    length, starts = run_length(shape, box), run_starts(shape, box)
    runs = (starts[:, None] + np.arange(length)).ravel()
    np.testing.assert_array_equal(runs, numbered)
    if len(starts) > 1:  # no two could be one
        assert (np.diff(starts) > length).all()


@given(boxed(), st.data())
def test_a_range_of_elements_is_boxes_in_order(given_box, data):
    shape, _ = given_box
    total = int(np.prod(shape))
    start = data.draw(st.integers(0, total))
    stop = data.draw(st.integers(start, total))
    boxes = list(split_range_into_boxes(shape, start, stop))
    numbered = np.arange(total).reshape(shape)
    parts = [numbered[index_slices(box)].ravel() for box in boxes]
    found = np.concatenate(parts) if parts else np.empty(0, int)
    np.testing.assert_array_equal(found, np.arange(start, stop))
    assert len(boxes) <= 2 * len(shape) - 1


def test_borders_of_5_over_512_are_the_poster_s_uneven_ones():
    assert np.diff(divide_evenly(512, 5)).tolist() == [103, 103, 102, 102, 102]


GRIDS = [(1, 1), (3, 1), (1, 4), (2, 3), (5, 7)]


@pytest.mark.parametrize("grid", GRIDS)
def test_blocks_tile_the_array(grid):
    seen = np.zeros((5, 7), int)
    for part in range(Division(grid).parts):
        seen[index_slices(Division(grid).block((5, 7), part))] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize("edges", EDGES)
@pytest.mark.parametrize("halo", [0, 1, 3, (2, 0), (0, 9), (11, 23)])
@pytest.mark.parametrize("grid", GRIDS)
def test_windows_are_cut_from_the_padded_array(grid, halo, edges):
    shape = (5, 7)
    array = np.arange(1.0, 36).reshape(shape)
    division = Division(grid, halo, edges)
    wide = [(n, n) for n in division.widths]
    padded = np.pad(array, wide, mode=PAD[edges])
    for part in range(division.parts):
        window, block = division.window(shape, part), division.block(shape, part)
        read, seen = np.full(window.shape, np.nan), np.zeros(window.shape, int)
        for piece in window.pieces:
            read[index_slices(piece.target)] = array[index_slices(piece.source)]
            seen[index_slices(piece.target)] += 1
        assert (seen == 1).all()
        assert sum(count_elements(p.source) for p in window.pieces) <= array.size  # nothing twice
        pairs = zip(block, division.widths, strict=True)
        expected = padded[tuple(slice(a, b + 2 * w) for (a, b), w in pairs)]
        found = window.finish(read)
        np.testing.assert_array_equal(found, expected)
        assert found.shape == window.full_shape
        assert window.plain == (found is read)


def test_halo_by_one_number_is_for_divided_axes():
    assert Division((1, 3, 2, 1), 2).widths == (0, 2, 2, 0)


@pytest.mark.parametrize("shares", [plan_level_shares, plan_one_reader])
@pytest.mark.parametrize("edges", EDGES)
@pytest.mark.parametrize("halo", [0, 2])
@pytest.mark.parametrize("grid", GRIDS)
def test_transfers_fill_every_window_once(grid, halo, edges, shares):
    shape = (5, 7)
    array, division = np.arange(35), Division(grid, halo, edges)
    joint = shares(shape, division)
    assert sum(b - a for a, b in joint.shares) == 35
    for part in range(division.parts):
        window = division.window(shape, part)
        seen = np.zeros(window.shape, int)
        for each in (*joint.kept(part), *joint.received(part)):
            start, stop = joint.shares[each.sender]
            sent = each.take(array[start:stop])
            assert sent.shape == each.shape == count_extent(each.target)
            seen[index_slices(each.target)] += 1
        assert (seen == 1).all()
    if shares is plan_level_shares:
        blocks = [count_elements(division.block(shape, part)) for part in range(division.parts)]
        assert [b - a for a, b in joint.shares] == blocks


@pytest.mark.parametrize(
    ("wrong", "shape"),
    [
        ({"grid": (0, 1)}, (5, 7)),
        ({"grid": (1, 1), "halo": -1}, (5, 7)),
        ({"grid": (1, 1), "halo": (1,)}, (5, 7)),
        ({"grid": (1, 1), "edges": "mirror"}, (5, 7)),
        ({"grid": (6, 1)}, (5, 7)),
        ({"grid": (1, 1, 1)}, (5, 7)),
    ],
)
def test_divisions_that_make_no_sense_are_refused(wrong, shape):
    with pytest.raises(UsageError, match="expected"):
        Division(**wrong).window(shape, 0)
