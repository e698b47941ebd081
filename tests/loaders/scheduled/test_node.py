"""What ranks of a node share: the buffer, and the plan that each of them would make."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.loaders.data.stored import N, direct, written
from tests.loaders.ranks.threads import on_ranks, outcomes_on_ranks
from tests.loaders.scheduled.test_plan import plans
from vanidl_loaders.errors import InputError, UsageError
from vanidl_loaders.loader.loader import Settings
from vanidl_loaders.ranks.messages import Alone
from vanidl_loaders.ranks.world import World
from vanidl_loaders.scheduled.buffer import NodeMemory, NodeSize
from vanidl_loaders.scheduled.exchange import NodeAccess
from vanidl_loaders.scheduled.loader import ScheduledLoader
from vanidl_loaders.scheduled.node import NodeSteps, count_node_ranks, share_memory, share_plan
from vanidl_loaders.scheduled.plan import Plan, PlanSettings, make_plan
from vanidl_loaders.scheduled.stage import StageSettings
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


@contextmanager
def loaders(samples, *, nodes, node_ranks, batch=4, buffer=60, epochs=3):
    """Of all ranks, in this process."""
    ranks = nodes * node_ranks
    plan = make_plan(PlanSettings(N, ranks, batch, epochs, buffer, node_ranks=node_ranks))
    stage, opened = StageSettings(gap=0, look_ahead=2), []
    size = NodeSize.of(plan.settings, stage.staging(plan.settings, samples.sample_nbytes))
    for node in range(nodes):
        memory = NodeMemory(samples, size)
        for rank in range(node * node_ranks, (node + 1) * node_ranks):
            chosen = Settings(World(rank, ranks, 0, 1), batch, epochs)
            opened.append(ScheduledLoader(samples, chosen, plan, stage, NodeAccess(memory)))
    yield opened
    for each in opened:
        each.close()


def reads(loader):
    """Samples that a loader read, from its bytes."""
    return loader.stats().nbytes / loader._stage._reads._samples.sample_nbytes


@settings(deadline=None, max_examples=12)
@given(st.integers(1, 2), st.integers(2, 3), st.integers(2, 12), st.integers(0, N + 5))
def test_ranks_in_step_read_the_bound_over_all_nodes(flat, nodes, node_ranks, batch, buffer):
    stored = direct(flat)
    with loaders(flat, nodes=nodes, node_ranks=node_ranks, batch=batch, buffer=buffer) as every:
        before = 0
        for epoch in range(3):
            for each in every:
                each.set_epoch(epoch)
            for batches in zip(*every, strict=True):
                for found in batches:
                    ids = found["sample"].numpy()
                    for name, values in stored.items():
                        np.testing.assert_array_equal(found[name], values[ids])
            now = sum(reads(each) for each in every)
            assert now - before == (max(N - buffer, 0) if epoch else N)
            before = now
        assert sum(each.stats().reloads for each in every) == 0
        for each in every:
            stats = each.stats()
            assert stats.buffer_peak <= stats.buffer_capacity <= -(-buffer // nodes)
            assert stats.staging_peak <= stats.staging_capacity


def test_ranks_that_go_on_alone_read_no_sample_of_the_buffer_twice(flat):
    """One rank is through before the other begins: it reads what it needs, the other uses it."""
    with loaders(flat, nodes=1, node_ranks=2) as every:
        stored = direct(flat)
        for each in every:
            for epoch in range(3):
                each.set_epoch(epoch)
                for found in each:
                    ids = found["sample"].numpy()
                    np.testing.assert_array_equal(found["x"], stored["x"][ids])
        assert sum(map(reads, every)) <= N + 2 * (N - 60)
        assert every[1].stats().reloads == 0


def test_what_one_rank_did_not_read_whole_no_rank_uses(tmp_path):
    made = written(tmp_path, "contiguous")
    content, stored = made.path(0).read_bytes(), direct(made)
    with loaders(made, nodes=1, node_ranks=2, buffer=N) as (first, second):
        next(iter(second))
        iteration = iter(first)
        next(iteration)
        os.truncate(made.path(0), len(content) // 2)
        with pytest.raises(InputError, match="end"):
            list(iteration)
        made.path(0).write_bytes(content)
        second.set_epoch(1)
        for found in second:
            np.testing.assert_array_equal(found["x"], stored["x"][found["sample"].numpy()])


def test_a_plan_for_nodes_without_their_memory_is_refused(flat):
    plan = make_plan(PlanSettings(N, 2, 4, 3, 60, node_ranks=2))
    chosen = Settings(World(0, 2, 0, 1), 4, 3)
    with pytest.raises(UsageError, match="ranks share"):
        ScheduledLoader(flat, chosen, plan, StageSettings())
    with pytest.raises(UsageError, match="as many ranks"):
        PlanSettings(N, 3, node_ranks=2)


class Spoken(Alone):
    """A transport whose ranks say what a test wants."""

    connected = True

    def __init__(self, nodes):
        super().__init__(World())
        self._nodes = nodes

    def gather(self, value):
        return list(self._nodes)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [("a", 1), ("aa", 2), ("aabb", 2), ("aaab", 1), ("abab", 1), ("aba", 1), ("abcd", 1),
     ("aaabbb", 3), ("aabbaa", 1)],
)  # fmt: skip
def test_nodes_with_equally_many_ranks_side_by_side_share(nodes, expected):
    assert count_node_ranks(Spoken(nodes)) == expected


def test_memory_of_a_rank_alone():
    memory = share_memory(Alone(World()), 1, 5000)
    assert len(memory) == 5000
    assert memory[:10] == bytes(10)
