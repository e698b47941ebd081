"""The plan: the baseline's samples, the provable minimum of loads, balance."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the baseline's order needs PyTorch")

from torch.utils.data import DistributedSampler

from benchmarks.loaders.policies import POLICIES
from vanidl_loaders.cli import main
from vanidl_loaders.data.coalesce import StorageSpeed, find_runs
from vanidl_loaders.errors import InputError, UsageError
from vanidl_loaders.scheduled import steps
from vanidl_loaders.scheduled.plan import (
    BALANCES,
    EPOCH_ORDERS,
    FREE,
    ORDERS,
    PlanSettings,
    compute_transition_costs,
    divide_within_nodes,
    load_plan,
    make_plan,
    measure_costs,
    share_misses,
    sum_path_cost,
)
from vanidl_loaders.scheduled.steps import StepsAhead, rank_steps


@st.composite
def plans(draw) -> PlanSettings:
    ranks = draw(st.integers(1, 5))
    samples = draw(st.integers(ranks, 120))
    return PlanSettings(
        samples=samples,
        ranks=ranks,
        batch=draw(st.integers(1, 9)),
        epochs=draw(st.integers(1, 4)),
        buffer=draw(st.integers(0, samples + 3)),
        seed=draw(st.integers(0, 50)),
        drop_last=draw(st.booleans()),
        balance=draw(st.sampled_from(BALANCES)),
        epoch_order=draw(st.sampled_from(["shuffle", "greedy"])),
        node_ranks=draw(st.sampled_from([each for each in range(1, 6) if ranks % each == 0])),
    )


def global_batches(chosen: PlanSettings, epoch: int) -> list[list[int]]:
    """The baseline's global batches, from PyTorch's own sampler."""
    of_rank = []
    for rank in range(chosen.ranks):
        sampler = DistributedSampler(
            range(chosen.samples), chosen.ranks, rank, seed=chosen.seed, drop_last=False
        )
        sampler.set_epoch(epoch)
        of_rank.append(list(sampler))
    steps = -(-len(of_rank[0]) // chosen.batch)
    batches = [
        sorted(i for ids in of_rank for i in ids[t * chosen.batch : (t + 1) * chosen.batch])
        for t in range(steps)
    ]
    full = chosen.samples // chosen.global_batch
    return batches[:full] if chosen.drop_last else batches


@settings(deadline=None)
@given(plans())
def test_every_global_batch_holds_the_baselines_samples(chosen):
    plan = make_plan(chosen)
    for epoch in range(chosen.epochs):
        steps = [sorted(step.ids.tolist()) for step in plan.steps(epoch)]
        assert steps == global_batches(chosen, int(plan.order[epoch]))


@settings(deadline=None)
@given(plans())
def test_a_hit_is_where_the_sample_is_held_and_nothing_is_held_over_the_bound(chosen):
    """An independent replay of the buffers, from what the steps alone say."""
    plan = make_plan(chosen)
    held = [set() for _ in range(chosen.nodes)]
    for epoch in range(chosen.epochs):
        kept = set(plan.kept(epoch).tolist())
        staged = [set() for _ in range(chosen.ranks)]
        for step in plan.steps(epoch):
            for rank in range(chosen.ranks):
                node, (ids, load) = chosen.node(rank), step.of_rank(rank)
                read = set(ids[load].tolist())  # padding may repeat it in the same step
                for sample in set(ids[~load].tolist()) - read:
                    assert sample in held[node] or sample in staged[rank]
                for sample in ids[load].tolist():
                    if plan.owner[sample] == node:
                        held[node].add(sample)
                    elif sample in kept:
                        staged[rank].add(sample)
                assert len(held[node]) <= chosen.capacity(node)
            assert sum(map(len, staged)) < chosen.ranks


@settings(deadline=None)
@given(plans())
def test_loads_are_the_provable_minimum(chosen):
    counts = measure_costs(make_plan(chosen))
    if chosen.drop_last:
        used = chosen.samples // chosen.global_batch * chosen.global_batch
        assert counts.loads_first_epoch == used
        return
    assert counts.loads_first_epoch == chosen.samples
    if chosen.epochs > 1:
        assert counts.loads_per_epoch == counts.bound == max(chosen.samples - chosen.buffer, 0)


@pytest.mark.parametrize(("nodes", "node_ranks"), [(2, 2), (3, 2), (2, 3), (2, 4)])
def test_every_small_plan_reads_the_minimum_whatever_nodes_and_ranks_divide(nodes, node_ranks):
    ranks = nodes * node_ranks
    for samples in range(ranks, 2 * ranks + 2):
        for buffer in range(samples + 2):
            chosen = PlanSettings(samples, ranks, 1, 2, buffer, node_ranks=node_ranks)
            plan = make_plan(chosen)
            read = [sum(int(step.load.sum()) for step in plan.steps(epoch)) for epoch in (0, 1)]
            assert read == [samples, max(samples - buffer, 0)], chosen
            held = np.bincount(plan.owner[plan.owner != FREE], minlength=nodes)
            assert np.ptp(held) <= 1, chosen  # nodes have equally much memory


@settings(deadline=None)
@given(plans())
def test_loads_are_level_over_ranks(chosen):
    plan = make_plan(chosen)
    for epoch in range(chosen.epochs):
        for step in plan.steps(epoch):
            weights = [step.weight(rank) for rank in range(chosen.ranks)]
            assert sum(weights) == pytest.approx(chosen.ranks)
            if chosen.balance == "load":
                assert step.loads.max() - step.loads.min() <= 1


@settings(deadline=None)
@given(plans())
def test_batches_on_one_node_are_as_large_as_distributed_samplers(chosen):
    """But for the last, where padding goes to whoever has the samples that it repeats."""
    chosen = replace(chosen, node_ranks=chosen.ranks)
    plan = make_plan(chosen)
    for epoch in range(chosen.epochs):
        *most, last = plan.steps(epoch) if chosen.samples >= chosen.global_batch else [None]
        assert all(step.sizes.tolist() == [chosen.batch] * chosen.ranks for step in most)
        if last is not None and not chosen.padding:
            assert last.sizes.max() - last.sizes.min() == 0
    if chosen.epochs > 1 and chosen.samples % chosen.global_batch == 0:
        assert measure_costs(plan).batch_spread == 1


@settings(deadline=None)
@given(plans())
def test_ranks_of_a_node_have_batches_of_one_size_and_share_its_loads(chosen):
    plan = make_plan(chosen)
    for epoch in range(1, chosen.epochs):
        for step in plan.steps(epoch):
            of_nodes = (chosen.nodes, chosen.node_ranks)
            spread = np.ptp(step.loads.reshape(of_nodes), axis=1)
            assert spread.max() <= 1
            if not chosen.padding:
                assert np.ptp(step.sizes.reshape(of_nodes), axis=1).max() <= 1


def test_which_rank_of_a_node_has_one_load_more_changes_from_step_to_step():
    """Over many steps none reads more than the others, though each step has a load left over."""
    chosen = PlanSettings(8000, ranks=4, batch=10, epochs=2, buffer=4400, node_ranks=4)
    loads = np.array([step.loads for step in make_plan(chosen).steps(1)])
    left_over = loads.sum(axis=1) % 4 > 0
    assert left_over.mean() > 0.5
    assert np.ptp(loads.sum(axis=0)) < 0.2 * left_over.sum()


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=4),
    st.integers(1, 5),
)
def test_loads_within_nodes_go_round_with_the_turn(nodes, ranks):
    """Over all turns the ranks of a node whose batch divides evenly read equally much."""
    held, loads = np.array(nodes, np.int64).T
    turns = [divide_within_nodes(held, loads, ranks, turn) for turn in range(ranks)]
    even = (held + loads) % ranks == 0
    for kept, read in turns:
        assert (kept.reshape(-1, ranks).sum(axis=1) == held).all()
        assert (read.reshape(-1, ranks).sum(axis=1) == loads).all()
        sizes = (kept + read).reshape(-1, ranks)
        assert (np.diff(sizes, axis=1) <= 0).all()  # the first ranks have the larger
        assert (np.ptp(sizes, axis=1) <= 1).all()
        assert ranks == 1 or (np.ptp(read.reshape(-1, ranks), axis=1) <= 1).all()
    summed = np.sum([read for _, read in turns], axis=0).reshape(-1, ranks)
    assert (np.ptp(summed[even], axis=1) == 0).all()


@pytest.mark.parametrize(("nodes", "node_ranks"), [(2, 2), (2, 3), (3, 2)])
@pytest.mark.parametrize("exchange", [False, True])
def test_what_a_node_is_to_hold_is_read_by_it_in_the_first_epoch(nodes, node_ranks, exchange):
    """The samples that make no whole turn of the ranks, too: they go round the nodes."""
    ranks = nodes * node_ranks
    for samples in range(ranks, 3 * ranks):
        chosen = PlanSettings(
            samples, ranks, 1, 2, samples, node_ranks=node_ranks, exchange=exchange
        )
        plan = make_plan(chosen)
        for step in plan.steps(0):
            for rank in range(ranks):
                ids, load = step.of_rank(rank)
                source = step.source_of_rank(rank)
                by = np.full(len(ids), chosen.node(rank)) if source is None else source
                assert (plan.owner[ids[load]] == by[load]).all(), chosen
        assert np.ptp(np.bincount(plan.owner, minlength=nodes)) <= 1


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=8), st.integers(0, 60),
    st.sampled_from([(1.0, 0.0), (0.0, 1.0), (3.0, 1.0), (0.25, 2.0)]),
)  # fmt: skip
def test_shares_are_as_good_as_filling_one_by_one(held, misses, cost):
    array = np.array(held, np.int64)
    got = share_misses(array, misses, *cost)
    assert got.sum() == misses
    assert (got >= 0).all()
    plain = np.zeros(len(held), np.int64)
    for _ in range(misses):
        then = cost[0] * (plain + 1) + cost[1] * (array + plain + 1)
        plain[np.lexsort((np.arange(len(held)), array + plain, then))[0]] += 1
    load, compute = cost

    def worst(count):
        return (load * count + compute * (array + count))[count > 0].max(initial=0)

    assert worst(got) == pytest.approx(worst(plain))


def test_the_posters_figure():
    """6.7 times fewer loads at C / N = 0.851 on 87,632 samples and batches of 512."""
    chosen = PlanSettings(87_632, ranks=16, batch=512, epochs=3, buffer=round(0.851 * 87_632))
    counts = measure_costs(make_plan(chosen))
    assert counts.times_fewer == pytest.approx(6.7, rel=0.01)
    assert counts.loads_per_epoch == counts.bound
    assert counts.max_imbalance <= 1


@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_beats_the_bound(name):
    chosen = PlanSettings(600, ranks=4, batch=10, epochs=5, buffer=300)
    loads = POLICIES[name](chosen)
    assert loads[0] == 600
    if name != "nopfs":  # its first epoch is not part of the model
        assert (loads[1:] >= 300).all()
    if name in ("planned", "belady"):
        assert (loads[1:] == 300).all()


def test_every_order_that_settings_take_exists():
    assert tuple(ORDERS) == EPOCH_ORDERS


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_is_a_permutation_and_no_worse_than_drawn(name):
    chosen = PlanSettings(200, ranks=2, batch=5, epochs=8, buffer=100, epoch_order=name)
    order = ORDERS[name](chosen)
    assert sorted(order.tolist()) == list(range(8))
    cost = compute_transition_costs(chosen)
    assert sum_path_cost(cost, order) <= sum_path_cost(cost, np.arange(8))


def test_the_order_of_epochs_is_worth_nothing_under_the_plan():
    counts = {
        name: measure_costs(make_plan(PlanSettings(300, ranks=3, batch=5, epochs=6, buffer=150,
                                            epoch_order=name))).loads_per_epoch
        for name in ORDERS
    }  # fmt: skip
    assert set(counts.values()) == {150.0}


def test_a_plan_is_the_same_everywhere_and_survives_saving(tmp_path):
    chosen = PlanSettings(100, ranks=3, batch=4, epochs=3, buffer=40, epoch_order="greedy")
    plan = make_plan(chosen)
    plan.save(tmp_path / "plan.npz")
    for other in (make_plan(chosen), load_plan(tmp_path / "plan.npz")):
        assert other.settings == chosen
        assert (other.order == plan.order).all()
        assert (other.owner == plan.owner).all()
    assert np.count_nonzero(plan.owner != FREE) == plan.pinned == 40
    (tmp_path / "bad.npz").write_bytes((tmp_path / "plan.npz").read_bytes()[:100])
    for name in ("bad.npz", "missing.npz"):
        with pytest.raises(InputError, match=name):
            load_plan(tmp_path / name)


@given(st.sets(st.integers(0, 80)), st.integers(0, 10))
def test_runs_cover_every_row_and_read_through_small_gaps_only(wanted, gap):
    rows = np.array(sorted(wanted), np.int64)
    start, stop = find_runs(rows, gap)
    covered = [r for a, b in zip(start.tolist(), stop.tolist(), strict=True) for r in range(a, b)]
    assert set(rows.tolist()) <= set(covered)
    assert len(covered) == len(set(covered))
    assert all(b - a > gap for a, b in zip(stop.tolist(), start.tolist()[1:], strict=False))
    for a, b in zip(start.tolist(), stop.tolist(), strict=True):
        inside = rows[(rows >= a) & (rows < b)]
        assert inside[0] == a
        assert inside[-1] == b - 1
        assert (np.diff(inside) <= gap + 1).all()


def test_a_gap_is_read_through_only_where_that_is_faster():
    speed = StorageSpeed(latency_s=0.002, bytes_per_s=200e6)
    gap = speed.most_gap_rows(196_608)
    assert gap * 196_608 / 200e6 < 0.002 <= (gap + 1) * 196_608 / 200e6


@pytest.mark.parametrize(
    "change", ["owner", "below", "too many", "one too many", "length", "order"]
)
def test_a_plan_that_was_tampered_with_is_refused(change, tmp_path):
    """Samples of a rank that does not exist would be trained on by nobody."""
    plan = make_plan(PlanSettings(40, ranks=2, batch=4, epochs=3, buffer=20))
    owner, order = plan.owner.copy(), plan.order.copy()
    if change == "length":
        owner = owner[:-1]
    elif change == "order":
        order[0] = order[1]
    elif change == "one too many":
        owner[np.flatnonzero(owner == FREE)[0]] = 1
    else:
        owner[:] = {"owner": 2, "below": -2, "too many": 1}[change]
    replace(plan, owner=owner, order=order).save(tmp_path / "plan.npz")
    with pytest.raises(InputError, match=r"plan\.npz: expected"):
        load_plan(tmp_path / "plan.npz")


@pytest.mark.parametrize(
    "wrong",
    [{"samples": 0}, {"ranks": 0}, {"balance": "x"}, {"epoch_order": "x"}, {"buffer": -1},
     {"samples": 2, "ranks": 3}],
)  # fmt: skip
def test_settings_that_make_no_sense(wrong):
    with pytest.raises(UsageError):
        PlanSettings(**({"samples": 10} | wrong))


def test_the_command_prints_the_contract(capsys):
    line = "plan --samples 1000 --ranks 3 --batch 7 --epochs 4 --buffer 500 --json"
    assert main(line.split()) == 0
    counts = json.loads(capsys.readouterr().out)
    assert counts["loads_first_epoch"] == 1000
    assert counts["loads_per_epoch"] == counts["bound"] == 500
    assert counts["max_imbalance"] <= 1
    assert counts["requests_per_epoch"] <= 500
    assert counts["batch_spread"] > 1


@pytest.mark.parametrize("large", [0, 102])
def test_steps_made_ahead_are_those_of_the_epoch_and_a_ranks_own(monkeypatch, large):
    """In any order of epochs the same; of no rank more than its own ids is kept."""
    monkeypatch.setattr(steps, "LARGE", large)
    plan = make_plan(PlanSettings(samples=101, ranks=3, batch=4, epochs=4, buffer=50, seed=2))
    ahead = StepsAhead(plan, 1)
    for epoch, start in ((0, 0), (1, 2), (1, 0), (3, 0), (2, 5)):
        found = ahead.of(epoch, start)
        wanted = rank_steps(plan, 1, epoch=epoch, start=start)
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert one.ids.tolist() == other.ids.tolist()
            assert one.load.tolist() == other.load.tolist()
            assert one.weight == other.weight
            assert one.ids.base is None
            assert one.load.base is None
        assert bool(ahead._made) == (large == 0 and epoch < 3)
    with pytest.raises(UsageError, match="plan more"):
        ahead.of(4)
