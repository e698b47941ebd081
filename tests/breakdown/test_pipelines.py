"""Recorded runs without their reads, against the same runs that read nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import vanidl
from tests import ROOT
from tests.advice.labeled import made
from tests.breakdown.test_states import with_worker
from tests.makers.training_jobs import Recipe, trace_of
from vanidl.analyses.results import analyse
from vanidl.breakdown.attribution import open_gains
from vanidl.breakdown.causes import DELIVERY, INPUT_CPU, STORAGE, TOO_FEW_CORES, WORKERS
from vanidl.breakdown.pipelines import LOST, OWN, Gains
from vanidl.breakdown.without import Where
from vanidl.model import states
from vanidl.model.states import States
from vanidl.model.trace import NO_FETCHES

RECORDED = Recipe(read_us=20_000, delivery_us=500)
"""Fetches of workers were recorded."""


def opened(recipe: Recipe, fetches: bool = True) -> Gains:
    trace = trace_of(recipe)
    trace = trace if fetches else replace(trace, fetches=NO_FETCHES)
    found = open_gains(trace, analyse(trace))
    assert found is not None
    return found


def length_s(recipe: Recipe) -> float:
    trace = trace_of(recipe)
    steps = trace.spans.pick(trace.spans.kind == 0)
    waits = trace.spans.pick(trace.spans.kind == 1)
    return (int(steps.end.max()) - int(waits.start.min())) / 1e9


@pytest.mark.parametrize(
    "changes",
    [
        {"workers": 1},
        {"workers": 2},
        {"workers": 4, "read_us": 60_000},
        {"workers": 1, "ranks": 2},
        {"workers": 2, "ranks": 2, "slow_rank": 2.0},
        {"workers": 0, "delivery_us": 0},
        {"workers": 0, "delivery_us": 0, "decode_us": 2_000},
    ],
)
def test_without_storage_a_run_takes_as_long_as_one_that_reads_nothing(changes):
    recipe = replace(RECORDED, **changes)
    truth_s = length_s(recipe) - length_s(replace(recipe, read_us=1))
    gain = opened(recipe).without(STORAGE)
    assert gain.trusted
    assert gain.low_ns / 1e9 == pytest.approx(truth_s, rel=0.005)
    assert gain.high_ns >= gain.low_ns
    assert gain.high_ns <= gain.touchable_ns


def test_loaders_of_a_rank_are_told_apart():
    found = opened(replace(RECORDED, ranks=2))
    assert [p.fetched.rank for p in found.pipelines] == [0, 1]
    assert all(p.name >= 0 and (p.row >= 0).all() for p in found.pipelines)
    assert {p.name for p in opened(Recipe(workers=0)).pipelines} == {OWN}
    assert {p.name for p in opened(RECORDED, fetches=False).pipelines} == {LOST}


def test_where_no_fetch_was_recorded_all_that_is_touchable_may_be_gained():
    gain = opened(RECORDED, fetches=False).without(STORAGE)
    assert (gain.low_ns, gain.high_ns) == (0, gain.touchable_ns)
    assert gain.high_ns >= opened(RECORDED).without(STORAGE).high_ns


def test_what_is_no_storage_is_not_gained_by_it():
    """Between them the causes of a fetch take no more than it; delivery is apart."""
    found = opened(RECORDED)
    share = found.shares[0]
    fetched = found.pipelines[0].fetched
    length = fetched.end_ns - fetched.begin_ns
    assert (share[STORAGE].low_ns + share[INPUT_CPU].high_ns == length).all()
    assert found.without(DELIVERY).low_ns <= 0.0005e9 * len(fetched)
    assert found.without(WORKERS).high_ns == pytest.approx(0, abs=1e6)


def test_workers_that_start_late_are_what_would_be_gained():
    """In each of three epochs training waits for two workers to be started."""
    found = vanidl.open_run(ROOT / "tests/data/torch_fetches").gains
    first = found.pipelines[0].fetched
    begins = np.flatnonzero(np.diff(first.epoch, prepend=-1))
    waited = first.begin_ns[begins] - first.wait_begin_ns[begins]
    gain = found.without(WORKERS)
    assert gain.trusted
    assert gain.high_ns <= waited.sum() + gain.missed_ns
    by_epoch = [found.without(WORKERS, Where(epochs=frozenset({e}))).high_ns for e in range(3)]
    assert sum(by_epoch) == pytest.approx(gain.high_ns, rel=0.02)


def test_a_part_of_a_run_gains_what_is_in_it():
    run = vanidl.open_run(ROOT / "tests/data/torch_fetches")
    whole = run.gains.without(WORKERS)
    until_s = float(run.steps.table.end_s[24])
    part = run.select(vanidl.Selection(to_s=until_s)).gains
    assert part is not None
    assert 0 < len(part.pipelines[0].fetched) < len(run.gains.pipelines[0].fetched)
    assert part.without(WORKERS).high_ns < whole.low_ns


def test_a_run_without_steps_is_not_run_again():
    trace = trace_of(Recipe(profiled=False))
    assert open_gains(trace, analyse(trace)) is None
    trace = trace_of(Recipe(wait_spans=False))
    assert open_gains(trace, analyse(trace)) is None


@pytest.mark.parametrize(
    "name", ["small_reads", "open_for_each_sample_slow", "reading_and_decoding"]
)
def test_gains_of_a_run_are_those_of_its_trace(name):
    """The account hands on the calls that it knows: none of them gets lost on the way."""
    run = made(name)
    anew = open_gains(run.trace, run.results)
    for cause in ("storage", "storage.read", "storage.metadata", "input_cpu"):
        gain, expected = run.gains.without(cause), anew.without(cause)
        assert (gain.low_ns, gain.high_ns) == (expected.low_ns, expected.high_ns)
    assert run.gains.without("storage.read").high_ns > 0


def test_what_uses_cores_may_take_along_what_others_wait_for_one():
    """As far as the kernel counted it; the least gain, and those of other causes, stay."""
    trace, _, _ = with_worker(1, (0.5, 0.5), (states.RUNNING, states.READ))
    trainer, worker = trace.states.threads
    # The training thread waits for a core for a twentieth of its time.
    samples = trainer.samples
    delayed = replace(samples, delay_us=(samples.time // 20_000).astype(np.uint32))
    busy = States((replace(trainer, samples=delayed), worker))
    plain, queued = (
        open_gains(each, analyse(each)) for each in (trace, replace(trace, states=busy))
    )
    assert plain is not None
    assert queued is not None
    queued_ns = 1.1 * (int(samples.time[-1]) - int(samples.time[0])) / 20
    for cause in (INPUT_CPU, TOO_FEW_CORES):
        before, after = plain.without(cause), queued.without(cause)
        assert before.low_ns == after.low_ns
        assert before.high_ns + queued_ns / 4 < after.high_ns <= before.high_ns + 2 * queued_ns
        assert after.high_ns <= after.touchable_ns
    for cause in (STORAGE, DELIVERY):
        assert plain.without(cause) == queued.without(cause)
