"""Packed parts are the same parts, in less memory."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.makers.sameness import same
from vanidl.model.packed import PackedPart, packed
from vanidl.model.spill import Store
from vanidl.model.trace import COLUMNS, POSIX, Part

CODES = {"thread": np.int32, "file": np.int32, "op": np.uint8}
BORDERS = [-1, 0, 1, 2**32 - 1, 2**32, 2**62]


@st.composite
def parts(draw: st.DrawFn) -> Part:
    rows = draw(st.integers(0, 40))
    columns = {}
    for name in COLUMNS:
        if name in CODES:
            longest = draw(st.sampled_from([1, 3, 40]))
            values = draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows))
            columns[name] = np.repeat(values, longest)[:rows].astype(CODES[name])
        else:
            some = draw(st.sampled_from([st.integers(0, 9), st.sampled_from(BORDERS)]))
            values = draw(st.lists(some, min_size=rows, max_size=rows))
            columns[name] = np.array(values, np.int64)
        columns[name].flags.writeable = False
    return Part(3, POSIX, **columns)


@given(parts())
def test_unpacked_parts_have_the_same_bits(part):
    held = PackedPart.of(3, POSIX, {name: getattr(part, name) for name in COLUMNS})
    assert same(held.unpacked(), part)
    assert len(held) == len(part)
    assert not any(getattr(held.unpacked(), name).flags.writeable for name in COLUMNS)


@given(parts(), st.integers(-5, 5))
def test_small_parts_are_kept_as_they_are_and_shifted_once(part, shift):
    store = Store.for_rows(len(part), spilled=False)
    store.add(packed(3, POSIX, {name: getattr(part, name).copy() for name in COLUMNS}))
    kept = store.finished().shifted({3: shift})
    assert same(kept[0], part.shifted(shift))
    assert kept[0] is kept[0]


def test_usual_operations_take_half_of_the_memory():
    rows = np.arange(1000, dtype=np.int64)
    zeros = {name: np.zeros(1000, kind) for name, kind in CODES.items()}
    columns = dict.fromkeys(COLUMNS, rows) | zeros
    kept = PackedPart.of(0, POSIX, columns).columns
    held = sum(c.nbytes for c in kept.values() if isinstance(c, np.ndarray))
    assert held == 1000 * (8 + 8 + 4 + 4)
