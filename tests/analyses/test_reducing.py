"""Parts laid together in any way give the bits that part by part gives."""

from __future__ import annotations

import gc
import weakref
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
from vanidl.analyses import REDUCTIONS, analyse, coverage, reducing, reductions_of, timeline
from vanidl.analyses.rows import rows_of, small_parts_together
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble
from vanidl.model import intervals
from vanidl.model.selection import Selection, select
from vanidl.model.trace import SpanKind
from vanidl.report.json import summary_object
from vanidl.run import Run

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
    monkeypatch.setattr(reducing, "small_parts_together", lambda parts: ([part] for part in parts))


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
    for name, reduction in (REDUCTIONS | reductions_of(trace) | {"coverage": coverage}).items():
        one_by_one, together = (
            reduce(reduction.combine, (reduction.partial(rows_of(some, trace), trace)
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
    (some,) = small_parts_together(parts)
    assert [id(part) for part in some] == [id(part) for part in parts]
    rows = rows_of(some, trace)
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
    rows = rows_of(list(trace.io), trace)
    held = [weakref.ref(each) for each in (rows, rows.reads, rows.writes)]
    gc.disable()
    try:
        for reduction in (REDUCTIONS | reductions_of(trace)).values():
            reduction.partial(rows, trace)
        del rows
        assert [each() for each in held] == [None, None, None]
    finally:
        gc.enable()
