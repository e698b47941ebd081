"""What comes out of a packed pickle is what went in, bit for bit, its arrays read-only."""

from __future__ import annotations

import gc
import io
import pickle
import weakref
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.makers.sameness import same
from vanidl.parallel.executors import dump, load

DTYPES = st.sampled_from(["<i8", "<u8", "<i4", "<f8", ">i8", "|u1", "?", "<M8[ns]"])
ARRAYS = arrays.arrays(DTYPES, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))


@dataclass(frozen=True, slots=True)
class Inner:
    """A record of several fields."""

    name: str
    values: np.ndarray


@dataclass(frozen=True)
class Outer:
    """A record whose constructor does not take all that it holds."""

    inner: Inner
    more: tuple[object, ...]
    derived: int = field(init=False, default=3)


def back(value: object) -> object:
    """The value after a journey."""
    file = io.BytesIO()
    dump(value, file)
    file.seek(0)
    return load(file)


@given(st.lists(ARRAYS, max_size=6), st.text(max_size=3))
def test_records_come_back_the_same(values: list[np.ndarray], name: str) -> None:
    sent = [Outer(Inner(name, value), (value, name, None)) for value in values]
    assert same(back(sent), sent)


def test_arrays_that_lie_in_no_row_come_back_the_same() -> None:
    table = np.arange(24).reshape(4, 6)
    sent = [table.T, table[:, ::2], np.array(["a", "bc"])]
    assert same(back(sent), sent)
    assert back(np.array([{}, 1], object)).tolist() == [{}, 1]
    structured = np.zeros(2, [("a", "i4"), ("b", "f8")])
    assert back(structured).dtype == structured.dtype


def test_arrays_come_back_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        back([np.arange(3)])[0][0] = 1


def test_a_cut_message_is_an_error() -> None:
    file = io.BytesIO()
    dump([np.arange(3)], file)
    with pytest.raises((EOFError, pickle.UnpicklingError)):
        load(io.BytesIO(file.getvalue()[:-5]))


def test_what_came_back_is_freed_without_a_search_for_garbage() -> None:
    gc.disable()
    try:
        found = back([np.arange(3), np.arange(5)])
        joined = weakref.ref(found[0].base)
        del found
        assert joined() is None
    finally:
        gc.enable()
