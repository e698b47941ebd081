"""What the tracer itself took is a cause of its own, and may be missing from every other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.makers.training_jobs import Recipe, trace_of
from vanidl.analyses.results import analyse
from vanidl.breakdown import Breakdown, assumptions, attribute_time, windows
from vanidl.breakdown.causes import CAUSES, STORAGE, TRACING
from vanidl.breakdown.sources.tracer import bound_tracing
from vanidl.model.trace import Trace
from vanidl.wording.headline import make_headline

ALONE = Recipe(workers=0, read_us=20_000, delivery_us=0)
CALL_US = 500  # more of each read, with the tracer


def account_of(trace: Trace) -> Breakdown:
    return attribute_time(trace, analyse(trace))


@pytest.mark.parametrize("told", [0.5, 1.0, 2.0])
def test_reads_that_the_tracer_made_longer_hold_what_they_were_without_it(told: float) -> None:
    """However the timing and the training differ, up to twice."""
    without = account_of(trace_of(ALONE))
    traced = trace_of(replace(ALONE, read_us=ALONE.read_us + CALL_US))
    found = account_of(replace(traced, tracer_call_ns=CALL_US * 1000 / told))
    steps = int(found.steps[0])
    reads_ns = steps * ALONE.batch * CALL_US * 1000
    tracing, storage = (found.cell(f"mean/input_wait/{c}") for c in (TRACING, STORAGE))
    assert tracing.low_ns <= reads_ns <= tracing.high_ns
    true = without.cell(f"mean/input_wait/{STORAGE}")
    assert true.high_ns - true.low_ns < 1_000_000
    assert storage.low_ns <= true.low_ns <= storage.high_ns
    assert account_of(traced).cell(f"mean/input_wait/{STORAGE}").low_ns > true.low_ns
    assert "timing" in tracing.evidence[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_every_cause_is_open_by_what_the_tracer_took_and_windows_are_filled(workers: int) -> None:
    trace = trace_of(Recipe(workers=workers, delivery_us=2_000 if workers else 0))
    before, after = account_of(trace), account_of(replace(trace, tracer_call_ns=50_000.0))
    for window in ("run", "step", "input_wait"):
        cells = {c: after.cell(f"mean/{window}/{c}") for c in CAUSES}
        took_ns = cells[TRACING].high_ns
        for cause in set(CAUSES) - {TRACING}:
            had = before.cell(f"mean/{window}/{cause}")
            assert had.low_ns - took_ns - 1 <= cells[cause].low_ns <= had.low_ns + 1
            assert had.high_ns - took_ns - 1 <= cells[cause].high_ns <= had.high_ns + took_ns + 1
        length_ns = sum(before.cell(f"mean/{window}/{c}").low_ns for c in CAUSES)
        assert sum(cell.high_ns for cell in cells.values()) >= length_ns - len(cells)


@pytest.mark.parametrize("workers", [1, 3])
def test_the_tracer_takes_of_each_window_what_its_calls_cost(workers: int) -> None:
    """Counted call by call; of a wait those of its fetch, of which a part lay before it."""
    trace = replace(trace_of(Recipe(workers=workers, delivery_us=2_000)), tracer_call_ns=10_000.0)
    tiles = windows.tile_rank(trace, 0)
    assert tiles is not None
    low, high, _ = bound_tracing(trace, 0, tiles)
    assert (low <= high).all()
    assert (high <= tiles.length).all()
    trainer, fetches = trace.ranks[0], trace.fetches
    starts = {
        process: np.array([ns for p in trace.io if p.process == process for ns in p.start.tolist()])
        for process in range(len(trace.processes))
    }
    for i in np.flatnonzero(tiles.wait < 0)[:40]:
        begun = starts[trainer]
        count = int(((begun >= tiles.start[i]) & (begun < tiles.end[i])).sum())
        assert high[i] == min(2 * 10_000 * count, tiles.length[i])
    for row in range(0, len(fetches), 5):
        (i,) = np.flatnonzero(
            (tiles.wait >= 0) & (tiles.start <= fetches.wait_begin[row])
            & (tiles.end >= fetches.wait_end[row])
        )  # fmt: skip
        begun = starts[trainer if fetches.worker[row] < 0 else fetches.process[row]]
        count = int(((begun >= fetches.begin[row]) & (begun < fetches.end[row])).sum())
        before_ns = max(int(fetches.wait_begin[row] - fetches.begin[row]), 0)
        assert high[i] >= min(2 * 10_000 * count, tiles.length[i])
        assert low[i] <= max(10_000 * count, 0)
        assert low[i] >= min(10_000 * count // 2 - before_ns - 2_000_000, tiles.length[i])


def make_loop(calls_each: int) -> tuple[Trace, windows.Tiles]:
    """20 waits of 10 ms, each behind 10 ms of a step, that no fetch is known of.

    5 ms before each and 5 ms within it are calls of the training process. The wait at 18 is short.
    """
    traced = trace_of(ALONE)
    tiles = windows.tile_rank(traced, 0)
    assert tiles is not None
    start = 1_000_000_000 + 20_000_000 * np.arange(20)
    end = start + 10_000_000
    end[18] = start[18] + 50_000
    edges = np.sort(np.concatenate([start, end, [0]]))
    wait = np.full(len(edges) - 1, -1)
    wait[1::2] = np.arange(20)
    zeros = np.zeros(len(wait), np.int64)
    tiles = replace(
        tiles, start=edges[:-1], end=edges[1:], wait=wait, wait_start=start, wait_end=end,
        phase=zeros, part=zeros, step=zeros, follows=zeros > 0,
    )  # fmt: skip
    each = np.arange(calls_each) * 1000
    calls = np.sort(
        np.concatenate([(start[:, None] + at + each).ravel() for at in (-5_000_000, 0)])
    )
    part = next(iter(traced.io))
    part = part.rows(np.resize(np.arange(len(part.start)), len(calls)))
    part = replace(part, start=calls, end=calls + 500)
    fetches = traced.fetches.pick(np.zeros(0, np.int64))
    return replace(traced, io=(part,), fetches=fetches, tracer_call_ns=1000.0), tiles


def test_a_wait_of_unknown_fetch_has_felt_the_calls_within_it_or_before_it() -> None:
    """Within it where only the training thread called; else those since it had last waited."""
    trace, tiles = make_loop(3)
    waiting = tiles.wait >= 0
    _, alone, assumed = bound_tracing(trace, 0, tiles, threaded=False)
    assert alone[waiting].tolist() == [2 * 1000 * 3] * 20
    assert not assumed.any()
    _, ahead, assumed = bound_tracing(trace, 0, tiles, threaded=True)
    usual = [2 * 1000 * 6] * 20
    usual[19] = 2 * 1000 * 12  # the short one before it took what was there
    assert ahead[waiting].tolist() == usual
    assert assumed.tolist() == waiting.tolist()


@pytest.mark.parametrize("of_worker", [False, True])
def test_what_the_tracer_took_of_others_is_felt_once_or_in_any_later_wait(of_worker: bool) -> None:
    trace, tiles = make_loop(3)
    (part,) = trace.io
    if of_worker:
        own = trace.processes[part.process]
        worker = replace(own, pid=1, role="worker", trainer=part.process)
        trace = replace(
            trace,
            processes=(*trace.processes, worker),
            io=(replace(part, process=len(trace.processes)),),
        )
    waiting = tiles.wait >= 0
    high = bound_tracing(trace, 0, tiles, threaded=not of_worker)[1][waiting]
    # 120 calls, and 6 twice: before and in the wait of 50 us, which may have felt them or not.
    assert high.sum() == 2 * 1000 * (120 + 6)
    any_later = bound_tracing(trace, 0, tiles, threaded=not of_worker, delays_next=False)[1]
    every = [2 * 1000 * 6 * (k + 1) for k in range(20)]
    assert any_later[waiting].tolist() == [
        min(ns, 50_000 if k == 18 else ns) for k, ns in enumerate(every)
    ]


def test_without_a_timing_nothing_is_said() -> None:
    trace = trace_of(ALONE)
    tiles = windows.tile_rank(trace, 0)
    assert tiles is not None
    assert not any(each.any() for each in bound_tracing(trace, 0, tiles))
    assert account_of(trace).cell(f"mean/step/{TRACING}").high_ns == 0


@pytest.mark.parametrize(("call_ns", "said"), [(2_000_000.0, False), (4_000_000.0, True)])
def test_much_of_it_is_said_with_the_answer(call_ns: float, said: bool) -> None:
    """Two calls a step of 120 ms lie outside of its wait, in its thread: 2 ms at least, or 4."""
    trace = trace_of(ALONE)
    later = [part.shifted(80_000_000) for part in trace.io]
    later = [replace(part, thread=np.zeros_like(part.thread)) for part in later]
    trace = replace(trace, io=later, tracer_call_ns=call_ns)
    results = analyse(trace)
    answer = make_headline(trace, results, attribute_time(trace, results))
    sentences = " ".join([answer.title, *answer.support])
    assert ("The tracer itself took" in sentences) == said


def test_logs_that_may_lack_calls_say_all_of_it_only_where_that_is_assumed() -> None:
    trace = trace_of(replace(ALONE, traced=0.5))
    trace = replace(trace, tracer_call_ns=10_000.0)
    results = analyse(trace)
    given = attribute_time(trace, results).cell(f"mean/step/{TRACING}")
    assert assumptions.ALL_TRACED_THERE in given.assumed
    strict = attribute_time(trace, results, assumptions.ALL - {assumptions.ALL_TRACED_THERE})
    assert given.high_ns < strict.cell(f"mean/step/{TRACING}").high_ns
    assert strict.cell(f"mean/step/{STORAGE}").low_ns == 0
