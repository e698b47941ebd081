"""`without` and its machine against an independent simulator of pipelines, and laws of queues."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.breakdown.cases import CAUSE, check_cases, exact, wait_ns
from tests.breakdown.simulator import (
    Case,
    draw,
    pipelines,
    simulate,
    stage_of,
    without_stage_ns,
)
from vanidl.breakdown.rerun import Change, Fetched, Settings, measure, replay, rerun
from vanidl.breakdown.without import (
    Gain,
    Share,
    Sum,
    Where,
    Without,
    bound_gain,
)


def test_without_is_the_run_without_the_stage():
    found = check_cases(range(60))
    assert found.within_1_percent == found.touchable == 1
    assert found.share_inside >= 0.98
    assert found.median_width <= 0.2


@given(st.integers(0, 1 << 32))
def test_blocks_of_batches_play_as_each_of_them_does(seed):
    case = replace(draw(seed), in_order=True)
    machine = measure(pipelines(case, simulate(case)))
    shorter = Change({"fetch": [chain.fetch * 0.3 for chain in machine.chains]})
    first = machine.chains[0].queues[0]
    asked = tuple(np.flatnonzero(machine.chains[0].queue_of == 0).tolist())
    queues = (replace(first, asked=asked), *machine.chains[0].queues[1:])
    slowly = replace(
        machine, chains=(replace(machine.chains[0], queues=queues), *machine.chains[1:])
    )
    in_turn, stepwise = (replay(which, [Change(), shorter]) for which in (machine, slowly))
    in_blocks = replay(machine, [Change(), shorter] * 21)
    assert in_turn == pytest.approx(stepwise)
    assert in_blocks == pytest.approx(np.tile(in_turn, 21))
    assert replay(machine, [Change()])[0] == pytest.approx(machine.recorded_ns, rel=1e-6)


def simple(workers: int, stages, compute: float, prefetch: int = 2, batches: int = 40) -> Case:
    """Batches of equal stages, in ms."""
    shape = 1, 1, batches
    nothing = np.zeros(shape)
    return Case(
        ranks=1, workers=workers, prefetch=prefetch, in_order=True, epochs=1, batches=batches,
        stages=np.full((*shape, 2), np.array(stages) * 1e6), compute=nothing + compute * 1e6,
        delivery=nothing, hold=nothing, lag=nothing, start=nothing[..., 0], pause=nothing,
    )  # fmt: skip


def gain_of(case: Case, stage: int, where: Where = Where()) -> tuple[Gain, list[Fetched]]:  # noqa: B008
    recorded = simulate(case)
    run = pipelines(case, recorded)
    return bound_gain(run, exact(case, recorded, stage), CAUSE, where), run


def test_each_of_two_stages_gains_nearly_the_whole_wait():
    """A worker that reads 250 ms, then decodes 250 ms for steps of 400 ms."""
    for stage in (0, 1):
        gain, run = gain_of(simple(1, (250, 250), 400), stage)
        assert gain.low_ns == gain.high_ns
        assert gain.high_ns >= 0.9 * (wait_ns(run) - 250e6)


def test_without_workers_the_gain_is_what_is_taken_away():
    gain, _ = gain_of(simple(0, (30, 50), 400), 1)
    assert (gain.low_ns, gain.high_ns) == pytest.approx((40 * 50e6,) * 2)


def test_input_that_keeps_up_gains_nothing_but_its_first_batch():
    gain, run = gain_of(simple(2, (30, 50), 400), 0)
    assert gain.high_ns == pytest.approx(30e6)
    assert gain.touchable_ns == pytest.approx(wait_ns(run))


def test_gains_are_of_the_batches_that_are_asked_about():
    case = replace(simple(0, (30, 50), 100), epochs=2)
    case = replace(
        case,
        **{
            name: np.concatenate([getattr(case, name)] * 2, axis=1)
            for name in ("stages", "compute", "delivery", "hold", "lag", "pause")
        },
        start=np.zeros((1, 2)),
    )
    whole, run = gain_of(case, 0)
    assert gain_of(case, 0, Where(epochs=frozenset({1})))[0].high_ns == whole.high_ns / 2
    assert gain_of(case, 0, Where(ranks=frozenset({1})))[0].high_ns == 0
    end = int(run[0].wait_end_ns[9]) + 1
    assert gain_of(case, 0, Where(window_ns=(0, end)))[0].high_ns == pytest.approx(10 * 30e6)


def test_the_slowest_fetches_come_down_to_the_median():
    case = simple(0, (30, 50), 100)
    case.stages[0, 0, 7, 0] = 930e6
    gain, _ = gain_of(case, 0, Where(slowest=1 / 40))
    assert (gain.low_ns, gain.high_ns) == pytest.approx((900e6,) * 2)


def test_a_sum_bounds_what_its_terms_do_not():
    case = simple(0, (30, 50), 100)
    run = pipelines(case, simulate(case))
    length = (run[0].end_ns - run[0].begin_ns).astype(float)
    of_all = Sum(slice(None), 1.1e9, 1.3e9)
    gain = bound_gain(run, [{CAUSE: Share(length * 0, length, sums=[of_all])}], CAUSE)
    assert (gain.low_ns, gain.high_ns) == pytest.approx((1.1e9, 1.3e9))


def test_a_rank_that_waits_for_others_gains_with_them():
    """Rank 1 fetches 50 ms a step, rank 0 fetches 10; both compute as long."""
    shape = 2, 1, 40
    case = replace(
        simple(0, (0, 0), 100), ranks=2, stages=np.full((*shape, 2), 5e6),
        start=np.zeros((2, 1)),
        **{name: np.zeros(shape) for name in ("delivery", "hold", "lag", "pause")},
        compute=np.full(shape, 100e6),
    )  # fmt: skip
    case.stages[1] = 25e6
    recorded = simulate(case)
    for knows_peers in (True, False):
        run = pipelines(case, recorded, knows_peers=knows_peers)
        without = Without(run)
        shares = [Share(own, own) for own in stage_of(case, recorded, 0)]
        assert without.gain(shares).high_ns == pytest.approx(40 * 25e6)
        assert without.gain([shares[0], None]).high_ns == 0
        assert without.gain([None, shares[1]]).low_ns == pytest.approx(40 * 25e6)


def test_what_may_go_along_is_in_the_upper_end_alone():
    case = simple(0, (30, 50), 100)
    recorded = simulate(case)
    run, own = pipelines(case, recorded), stage_of(case, recorded, 0)[0]
    share = Share(own, own, along_ns=np.full(40, 5e6), beside_ns=np.full(40, 10e6))
    gain = bound_gain(run, [{CAUSE: share}], CAUSE)
    assert (gain.low_ns, gain.high_ns) == pytest.approx((40 * 30e6, 40 * 45e6))
    assert gain.touchable_ns == pytest.approx(40 * 90e6)


def test_delivery_and_the_start_of_workers_are_taken_away_too():
    case = simple(1, (30, 50), 20)
    case = replace(case, delivery=case.delivery + 4e6, hold=case.hold + 2e6, lag=case.lag + 3e6)
    recorded = simulate(case)
    run = pipelines(case, recorded)
    for part, truth in (
        ("delivery", replace(case, delivery=case.delivery * 0, hold=case.hold * 0)),
        ("start", replace(case, lag=case.lag * 0)),
    ):
        all_of_it = np.full(40, 10e6)
        gain = bound_gain(run, [{CAUSE: Share(all_of_it, all_of_it, part=part)}], CAUSE)
        assert gain.high_ns == pytest.approx(recorded.end - simulate(truth).end, rel=1e-3)


def test_delivery_that_may_go_with_a_cause_is_in_the_upper_end_alone():
    case = simple(1, (30, 50), 20)
    case = replace(case, delivery=case.delivery + 4e6)
    recorded = simulate(case)
    run, nothing = pipelines(case, recorded), np.zeros(40)
    share = Share(nothing, nothing, delivery_ns=np.full(40, 4e6))
    gain = bound_gain(run, [{CAUSE: share}], CAUSE)
    truth = recorded.end - simulate(replace(case, delivery=case.delivery * 0)).end
    assert (gain.low_ns, gain.high_ns) == (0, pytest.approx(truth))


@pytest.mark.parametrize("seed", range(20))
def test_when_batches_were_asked_for_and_ready_follows_from_the_rest(seed):
    """Known or not, the answer is within 1 % of the waits: of loaders that keep the order."""
    case = replace(draw(seed), in_order=True, evaluation=None)
    recorded, unknown = simulate(case), -np.ones(1, np.int64)
    run = [
        replace(p, asked_ns=unknown.repeat(len(p)), ready_ns=unknown.repeat(len(p)))
        for p in pipelines(case, recorded)
    ]
    gain = bound_gain(run, exact(case, recorded, 0), CAUSE)
    truth = without_stage_ns(case, recorded, 0)
    assert gain.trusted
    assert [gain.low_ns, gain.high_ns] == pytest.approx([truth] * 2, abs=0.01 * wait_ns(run))


def test_what_rests_on_equal_steps_says_so():
    case = replace(draw(7), evaluation=None)
    assert case.ranks > 1
    recorded = simulate(case)
    for knows_peers in (True, False):
        run = pipelines(case, recorded, knows_peers=knows_peers)
        assert bound_gain(run, exact(case, recorded, 0), CAUSE).assumed != knows_peers


def test_a_replay_that_misses_the_run_says_what_is_touchable():
    case = simple(2, (30, 50), 20)
    run = pipelines(case, simulate(case))
    wrong = replace(run[0], prefetch=1, asked_ns=np.full(40, -1), begin_ns=run[0].begin_ns // 2)
    gain = bound_gain([wrong], [{CAUSE: Share(np.zeros(40), np.full(40, 1e6))}], CAUSE)
    assert not gain.trusted
    assert (gain.low_ns, gain.high_ns) == (0, gain.touchable_ns)
    assert gain.touchable_ns == wait_ns([wrong])


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("prefetch", [1, 4])
def test_other_settings_are_the_run_with_them(workers, prefetch):
    before = simple(2, (30, 50), 20)
    found = rerun(pipelines(before, simulate(before)), Settings(workers, prefetch))
    after = pipelines(*(lambda case: (case, simulate(case)))(
        replace(before, workers=workers, prefetch=prefetch)
    ))[0]  # fmt: skip
    since = after.wait_begin_ns[0]
    assert found.wait_begin_ns[0] == pytest.approx(after.wait_begin_ns - since)
    assert found.wait_end_ns[0] == pytest.approx(after.wait_end_ns - since)
    assert found.total_ns == pytest.approx(after.last_end_ns - since)


def test_other_lengths_of_fetches_are_the_run_with_them():
    before, after = simple(2, (30, 50), 20), simple(2, (10, 50), 20)
    run, other = (pipelines(case, simulate(case)) for case in (before, after))
    found = rerun(run, Settings(fetch_ns=[np.full(40, 60e6)]))
    assert found.wait_ns == pytest.approx(wait_ns(other))


def test_an_evaluation_keeps_its_place_and_workers_go_on_meanwhile():
    case = simple(1, (60, 60), 100)
    case.pause[0, 0, 19] = 2e9
    recorded = simulate(case)
    gain, run = gain_of(case, 0)
    truth = simulate(case.less(0))
    assert gain.high_ns == pytest.approx(recorded.end - truth.end)
    assert (run[0].wait_end_ns - run[0].wait_begin_ns)[20:23].max() < 100e6
