"""A plan that ranks of a node share is the plan that each of them would make."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings

pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.loaders.ranks.threads import on_ranks, outcomes_on_ranks
from tests.loaders.scheduled.test_plan import plans
from vanidl_loaders.errors import InputError
from vanidl_loaders.scheduled.plan import Plan, PlanSettings, make_plan
from vanidl_loaders.scheduled.shared_plan import NodeSteps, share_plan
from vanidl_loaders.scheduled.steps import rank_steps


@settings(deadline=None)
@given(plans())
def test_the_steps_of_a_few_nodes_are_those_of_all(chosen):
    plan = make_plan(chosen)
    for epoch in range(chosen.epochs):
        whole = list(plan.steps(epoch))
        for node in range(chosen.nodes):
            part = list(plan.steps(epoch, range(node, node + 1)))
            for one, every in zip(part, whole, strict=True):
                for rank in range(node * chosen.node_ranks, (node + 1) * chosen.node_ranks):
                    for mine, theirs in zip(one.of_rank(rank), every.of_rank(rank), strict=True):
                        assert mine.tolist() == theirs.tolist()
                    assert one.weight(rank) == every.weight(rank)


def same(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        assert one.load.tolist() == other.load.tolist()
        assert one.weight == other.weight


@pytest.fixture
def counted(monkeypatch):
    """How often the steps of (epoch, nodes) were made."""
    made, steps = Counter(), Plan.steps

    def count(self, epoch, nodes=None):
        made[epoch, nodes] += 1
        return steps(self, epoch, nodes)

    monkeypatch.setattr(Plan, "steps", count)
    return made


CHOSEN = PlanSettings(203, ranks=6, batch=4, epochs=4, buffer=100, seed=2, node_ranks=3)


def test_a_node_makes_its_plan_and_the_steps_of_an_epoch_once(counted):
    makers = []

    def make():
        makers.append(None)
        return make_plan(CHOSEN)

    def work(transport):
        shared, epochs = share_plan(transport, CHOSEN.node_ranks, make), []
        for epoch in range(4):
            epochs.append(shared.steps.of(transport.world.rank, epoch))
            transport.gather(None)  # training keeps ranks in step
        return epochs, shared

    found, _ = on_ranks(6, work)
    assert len(makers) == 2
    assert set(counted.values()) == {1}
    assert len(counted) == 2 * 4
    plan = make_plan(CHOSEN)
    for rank, (epochs, shared) in enumerate(found):
        assert shared.plan.owner.tolist() == plan.owner.tolist()
        held = np.flatnonzero(plan.owner == CHOSEN.node(rank))
        assert shared.place[held].tolist() == list(range(len(held)))
        assert (shared.place == -1).sum() == 203 - len(held)
        for epoch, steps in enumerate(epochs):
            same(steps, rank_steps(plan, rank, epoch=epoch))
        with pytest.raises(ValueError, match="read-only"):
            shared.place[0] = 1


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_lags_or_jumps_gets_its_own_epoch(rank):
    plan = make_plan(CHOSEN)
    files = [os.memfd_create("steps") for _ in range(2)]
    steps = NodeSteps(plan, 0, files)
    for epoch in (2, 0, 2, 1, 3, 3, 0):
        same(steps.of(rank, epoch), rank_steps(plan, rank, epoch=epoch))
    wanted = rank_steps(plan, rank, epoch=1)
    os.truncate(f"/proc/self/fd/{files[1]}", 0)  # a rank was killed as it began to write
    same(steps.of(rank, 1), wanted)


def test_threads_of_a_rank_wait_for_each_other():
    """The next epoch but one has the place of this one."""
    plan = make_plan(CHOSEN)
    steps = NodeSteps(plan, 1, [os.memfd_create("steps") for _ in range(2)])
    epochs = [0, 2, 1, 3] * 8
    with ThreadPoolExecutor(8) as pool:
        for epoch, found in zip(epochs, pool.map(lambda e: steps.of(4, e), epochs), strict=True):
            same(found, rank_steps(plan, 4, epoch=epoch))


def test_a_plan_that_cannot_be_made_fails_alike_on_all_ranks():
    def make():
        raise InputError("expected a plan, found none")

    outcomes = outcomes_on_ranks(4, lambda transport: share_plan(transport, 2, make))
    assert [str(each) for each in outcomes] == ["expected a plan, found none"] * 4
    assert {type(each) for each in outcomes} == {InputError}
