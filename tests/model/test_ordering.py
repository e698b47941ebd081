"""The order of whole numbers of any width and range is that of Python's own stable sort."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanidl.model import ordering
from vanidl.model.ordering import sort_within, stable_order

KINDS = (np.uint8, np.int16, np.int32, np.int64, np.uint64)


def lists_of(kind: type[np.integer[Any]]) -> st.SearchStrategy[list[int]]:
    """Few different numbers, numbers near each other, and any at all."""
    low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    near = st.integers(low, high - 100).flatmap(lambda a: st.lists(st.integers(a, a + 100)))
    return (
        st.lists(st.sampled_from([low, low + 1, 0, 1, high]))
        | near
        | st.lists(st.integers(low, high))
    )


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_equal_numbers_keep_their_order(kind: type[np.integer[Any]], data: st.DataObject) -> None:
    values = data.draw(lists_of(kind))
    wanted = sorted(range(len(values)), key=values.__getitem__)
    for few in (1, 16):  # so that short lists, too, are no few runs
        with patch.object(ordering, "_FEW", few):
            assert stable_order(np.array(values, kind)).tolist() == wanted


@pytest.mark.parametrize("bits", [3, 15, 16, 17, 31, 32, 45, 46, 47, 62])
def test_many_numbers_are_ordered_whatever_their_span(bits: int) -> None:
    rng = np.random.default_rng(bits)
    values = rng.integers(-(1 << bits), 1 << bits, 1 << 17)
    values[::3] = values[1::3].tolist() + [0] * (len(values[::3]) - len(values[1::3]))
    before = values.copy()
    assert np.array_equal(stable_order(values), np.argsort(values, kind="stable"))
    assert np.array_equal(values, before)


@pytest.mark.parametrize("bits", [3, 47, 60, 62])
@given(data=st.data())
def test_values_are_sorted_within_their_groups(bits: int, data: st.DataObject) -> None:
    """Whether both fit one number or not, and whatever the sign."""
    least = data.draw(st.sampled_from([0, -5]))
    pair = st.tuples(st.integers(0, 7), st.integers(least, (1 << bits) - 1))
    pairs = data.draw(st.lists(pair))
    group, values = np.array(pairs, np.int64).reshape(-1, 2).T
    assert sort_within(group, values).tolist() == [value for _, value in sorted(pairs)]
