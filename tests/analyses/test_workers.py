"""What workers read, and who worked beside whom."""

from __future__ import annotations

import pytest

from tests.makers.training_jobs import Recipe, trace_of
from vanidl.analyses import analyse


def workers_of(recipe: Recipe):
    return analyse(trace_of(recipe)).workers


def test_workers_of_an_epoch_are_a_group():
    found = workers_of(Recipe(workers=2, epochs=3))
    assert [row.group for row in found.rows] == [0, 0, 1, 1, 2, 2]
    assert found.largest_group == 2
    assert found.spread == pytest.approx(1.0)
    assert sum(row.bytes_read for row in found.rows) == 3 * 16 * 4 * (4 << 20)


def test_spread_is_the_largest_share_times_the_workers():
    assert workers_of(Recipe(uneven_workers=True)).spread == pytest.approx(14 / 16 * 2)


def test_ranks_have_groups_of_their_own():
    found = workers_of(Recipe(ranks=2, workers=2, epochs=1))
    assert len({row.trainer for row in found.rows}) == 2
    assert found.spread == pytest.approx(1.0)


def test_a_trainer_that_reads_itself_has_no_workers():
    assert workers_of(Recipe(workers=0)) is None


def test_one_worker_has_nobody_beside_it():
    assert workers_of(Recipe(workers=1)).spread is None
