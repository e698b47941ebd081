"""The buffer that ranks of a node share."""

from __future__ import annotations

import os
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.loaders.data.stored import N, direct, written
from vanidl_loaders.errors import InputError, UsageError
from vanidl_loaders.loader.loader import Settings
from vanidl_loaders.ranks.messages import Alone
from vanidl_loaders.ranks.nodes import count_node_ranks, share_memory
from vanidl_loaders.ranks.world import World
from vanidl_loaders.scheduled import PlanSettings, make_plan
from vanidl_loaders.scheduled.buffer import NodeMemory, NodeSize
from vanidl_loaders.scheduled.exchange import NodeAccess
from vanidl_loaders.scheduled.loader import ScheduledLoader
from vanidl_loaders.scheduled.stage_settings import StageSettings


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
