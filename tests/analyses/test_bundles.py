"""Many small parts reduced at once give the bits that part by part gives."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analyses.test_laws import operations, trace_of
from tests.makers.sameness import same
from vanidl.analyses import REDUCTIONS, analyse, bundles, coverage, timeline
from vanidl.analyses.bundles import Bundle, unions
from vanidl.model import intervals
from vanidl.model.selection import Selection, select

KNOWN = bundles._BUNDLED.keys() | bundles._ANY_PROCESS


def alike(a: Any, b: Any) -> bool:
    """`same`, also inside dictionaries and what holds them."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    if is_dataclass(a):
        return all(alike(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    return same(a, b)


def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on every part is reduced alone."""
    monkeypatch.setattr(bundles, "bundled", lambda parts: ([part] for part in parts))


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
    trace = select(trace_of(ios, (), max_part_rows=max_part_rows), Selection())
    parts = list(trace.io)
    if not parts:
        return
    some = data.draw(st.permutations(parts))
    bundle = Bundle(some, trace)
    for name, reduction in (REDUCTIONS | {"coverage": coverage}).items():
        value = reduction.NOTHING
        for part in some:
            value = reduction.combine(value, reduction.partial(part, trace))
        found = bundles.partial(name, reduction, bundle)
        if name in ("access", "dataset"):  # in the order of the parts until `finish`
            continue
        if name == "files":  # the busy time of what took no time is left out
            pairs = ((value.busy[key], spans) for key, spans in found.busy.items())
            assert all(same(a, b) for a, b in pairs)
            value, found = replace(value, busy={}), replace(found, busy={})
        assert alike(value, found), name


def test_every_reduction_is_known_by_its_name() -> None:
    """One that is not goes part by part, which thousands of logs would feel."""
    assert REDUCTIONS.keys() <= KNOWN


def test_rows_of_many_ranks_share_a_row_of_the_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MAX_ROWS", 2)
    ios = [(p, io) for p in range(3) for io in _three(p)]
    trace = trace_of(ios, ())
    found = analyse(trace).timeline
    one_by_one(monkeypatch)
    assert same(analyse(trace).timeline, found)


def _three(process: int):
    from tests.makers.records import Io

    for i in range(3):
        start = (20 + 7 * process + i) * 1_000
        yield Io(start, start + 90_000, offset=i, nbytes=4096 + i, file=1 + i % 2, op=i % 2)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(-50, 50), st.integers(0, 30)), max_size=30),
    st.sampled_from([0, 2**60]),
)
def test_unions_by_place(rows, far) -> None:
    place, start, length = (np.array(c, np.int64) for c in zip(*rows, strict=True)) if rows else (
        np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))  # fmt: skip
    start = start + far * (place % 2)
    found = unions(place, start, start + length, 5)
    for i in range(5):
        mine = place == i
        assert same(found[i], intervals.union(start[mine], (start + length)[mine]))


def test_small_parts_are_bundled_by_layer() -> None:
    trace = trace_of([(p, io) for p in range(3) for io in _three(p)], (), max_part_rows=1)
    parts = list(trace.io)
    (bundle,) = bundles.bundled(parts)
    assert [id(part) for part in bundle] == [id(part) for part in parts]
    joined = bundles.Bundle(bundle, trace).rows
    assert (np.diff(joined.start) >= 0).all()
    assert sorted(joined.nbytes.tolist()) == sorted(int(p.nbytes[0]) for p in parts)
