"""Plans of nodes that exchange samples: the batches, who reads and who holds."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.utils.data import DistributedSampler

from tests.loaders.scheduled.test_node import same
from tests.loaders.scheduled.test_plan import plans
from vanidl_loaders.scheduled.node import NodeSteps
from vanidl_loaders.scheduled.plan import PlanSettings, _level_reads, make_plan, measure_costs
from vanidl_loaders.scheduled.steps import rank_steps

CHOSEN = PlanSettings(960, ranks=12, batch=8, epochs=3, buffer=600, node_ranks=3)


def batches(chosen, rank, epoch):
    """DistributedSampler's, with PyTorch's own code."""
    sampler = DistributedSampler(range(chosen.samples), chosen.ranks, rank, seed=chosen.seed)
    sampler.set_epoch(epoch)
    ids = list(sampler)
    found = [ids[at : at + chosen.batch] for at in range(0, len(ids), chosen.batch)]
    return found[: chosen.samples // chosen.global_batch] if chosen.drop_last else found


@settings(deadline=None)
@given(plans())
def test_every_rank_has_distributed_samplers_own_batches_in_its_order(chosen):
    plan = make_plan(replace(chosen, exchange=True))
    for epoch in range(chosen.epochs):
        for rank in range(chosen.ranks):
            steps = rank_steps(plan, rank, epoch=epoch)
            assert [each.ids.tolist() for each in steps] == batches(
                chosen, rank, int(plan.order[epoch])
            )
            assert {each.weight for each in steps} <= {1.0}


@settings(deadline=None)
@given(plans())
def test_nodes_read_the_minimum_level_in_every_step_and_know_who_holds_what(chosen):
    """An independent replay of what each node reads and keeps, from the steps of all ranks."""
    chosen = replace(chosen, exchange=True)
    plan = make_plan(chosen)
    held = [set() for _ in range(chosen.nodes)]
    for epoch in range(chosen.epochs):
        reads, padding = 0, chosen.shuffle(int(plan.order[epoch]))[chosen.samples :]
        for step in plan.steps(epoch):
            of_step = replayed(plan, step, held, first=epoch == 0)
            assert chosen.balance != "load" or np.ptp(of_step) <= 1
            reads += of_step.sum()
        assert all(len(each) <= chosen.capacity(k) for k, each in enumerate(held))
        again = int((plan.owner[padding] < 0).sum())  # what nobody keeps is read again
        assert again < chosen.ranks
        if not chosen.drop_last:
            least = max(chosen.samples - chosen.buffer, 0) if epoch else chosen.samples
            assert reads == least + again
        if epoch == 0:
            assert [set(np.flatnonzero(plan.owner == k)) for k in range(chosen.nodes)] == held


def replayed(plan, step, held, *, first):
    """Samples that each node reads in a step; what it keeps of them is added to `held`."""
    reads = np.zeros(len(held), int)
    for sample, load, node in zip(step.ids, step.load, step.source, strict=True):
        assert load or first or sample in held[node]
        reads[node] += load
        if load and plan.owner[sample] == node:
            held[node].add(sample)
    return reads


@settings(deadline=None, max_examples=30)
@given(plans())
def test_steps_that_a_node_shares_are_those_of_the_plan(chosen):
    plan = make_plan(replace(chosen, exchange=True))
    for node in range(chosen.nodes):
        shared = NodeSteps(plan, node, [os.memfd_create("a"), os.memfd_create("b")])
        for epoch in range(chosen.epochs):
            for rank in range(node * chosen.node_ranks, (node + 1) * chosen.node_ranks):
                found, wanted = shared.of(rank, epoch), rank_steps(plan, rank, epoch=epoch)
                same(found, wanted)
                for one, other in zip(found, wanted, strict=True):
                    assert one.source.tolist() == other.source.tolist()


def test_few_samples_change_hands_to_level_reads():
    chosen = make_plan(replace(CHOSEN, exchange=True))
    for step in chosen.steps(1):
        user = np.repeat(np.arange(12) // 3, step.sizes)[step.load]
        reader, uses = step.source[step.load], np.bincount(user, minlength=4)
        share = np.bincount(reader, minlength=4)
        assert (user != reader).sum() == np.maximum(uses - share, 0).sum()
    assert measure_costs(chosen).batch_spread == 1.0
    assert measure_costs(chosen).max_imbalance <= 1


def test_which_of_the_nodes_that_use_most_reads_one_more_changes_from_step_to_step():
    user = np.repeat(np.arange(4, dtype=np.int32), [5, 5, 5, 3])
    reads = np.array([np.bincount(_level_reads(user, 4, turn), minlength=4) for turn in range(4)])
    assert (reads.sum(axis=1) == 18).all()
    assert (np.ptp(reads, axis=1) == 1).all()
    assert ((reads > 4).sum(axis=0)[:3] > 0).all()  # each of the three in its turn
    assert (reads[:, 3] == 4).all()
