"""Ranks of which only marks are known: divided together they are what each is for itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.vanidl.account_scale import made_run
from vanidl.analyses.results import Results
from vanidl.breakdown import Breakdown, attribute_time, rank_accounts, windows
from vanidl.model.trace import SpanKind, Trace, concatenate_spans

RANKS, STEPS = 7, 40


def marked_runs() -> tuple[Trace, Results]:
    """Plain loops, and beside them one with a pause, one with a validation, one short of a step."""
    trace, results = made_run(RANKS, STEPS)
    spans = trace.spans
    end = spans.end.copy()
    steps = np.flatnonzero((spans.kind == SpanKind.STEP) & (spans.process == 1))
    end[steps[7]] -= 1_000_003  # a pause between two steps
    kept = ~((spans.process == 3) & (spans.step == 5))
    spans = replace(spans, end=end).pick(np.flatnonzero(kept))
    one = spans.pick(np.flatnonzero((spans.kind == SpanKind.STEP) & (spans.process == 2)))
    inside = one.pick(slice(11, 12))
    inside = replace(
        inside,
        start=inside.start + 30_000_000,
        end=inside.end - 1_000_000,
        kind=np.array([SpanKind.VALIDATION], np.uint8),
    )
    every = concatenate_spans([spans, inside], spans.names)
    every = every.pick(np.argsort(every.start, kind="stable"))
    return replace(trace, spans=every), results


def columns_of(of: Breakdown) -> dict[str, tuple[object, ...]]:
    return {
        name: (column.low.tolist(), column.high.tolist(), column.mean_low, column.mean_high,
               column.evidence, sorted(column.assumed))
        for name, column in of.columns.items()
    }  # fmt: skip


def test_ranks_divided_together_are_what_each_is_for_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace, results = marked_runs()
    together = attribute_time(trace, results)
    monkeypatch.setattr(rank_accounts, "_tells_none_apart", lambda *_: False)
    monkeypatch.setattr(windows, "_is_plain_loop", lambda *_: False)
    each = attribute_time(trace, results)
    assert columns_of(together) == columns_of(each)
    assert together.overlap == each.overlap
    assert together.phases == each.phases
    assert together.step_records is not None
    assert each.step_records is not None
    waits = [of.input_wait_s.tolist() for of in (together.step_records, each.step_records)]
    assert waits[0] == waits[1]
    assert int(together.columns["phase/validation"].low[2]) > 0


def test_tiles_of_a_plain_loop_are_those_of_any_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, _ = made_run(1, STEPS)
    plain = windows.tile_rank(trace, 0)
    monkeypatch.setattr(windows, "_is_plain_loop", lambda *_: False)
    found = windows.tile_rank(trace, 0)
    assert plain is not None
    assert found is not None
    assert plain.is_plain
    assert not found.is_plain
    merged = [windows.merge_tiles_of_a_kind(tiles) for tiles in (plain, found)]
    for one, other in ((plain, found), merged):
        for name in set(windows.Tiles.__slots__) - {"is_plain"}:
            assert np.array_equal(getattr(one, name), getattr(other, name)), name
        assert np.array_equal(one.measure_waits_ns(), other.measure_waits_ns())
