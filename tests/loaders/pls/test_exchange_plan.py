"""The ownership table: conservation, sizes, balance, and the mixing law."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from vanidl_loaders.errors import UsageError
from vanidl_loaders.pls import exchange_plan
from vanidl_loaders.pls.exchange_plan import (
    NOBODY,
    PARTITIONS,
    Draw,
    Ownership,
    deal,
    deal_at,
    deal_to,
    home_fraction,
    plan_rank_exchange,
)

SHAPES = [(64, 2), (65, 2), (101, 4), (101, 8), (8, 8), (23, 1), (1000, 16)]
FRACTIONS = (0.0, 0.1, 0.3, 0.9, 1.0)


def held_by_all(table):
    return table[table != NOBODY]


def location(table):
    """Rank of every sample."""
    slot, rank = np.nonzero(table != NOBODY)
    where = np.empty(len(slot), np.int64)
    where[table[slot, rank]] = rank
    return where


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize(("samples", "ranks"), SHAPES)
def test_every_sample_has_one_home_and_sizes_differ_by_one(samples, ranks, partition):
    homes = deal(samples, ranks, partition=partition)
    assert np.array_equal(np.sort(held_by_all(homes)), np.arange(samples))
    sizes = (homes != NOBODY).sum(axis=0)
    assert sizes.tolist() == [samples // ranks + (r < samples % ranks) for r in range(ranks)]


def test_blocks_are_in_order_and_shuffled_homes_follow_the_seed():
    assert deal(8, 2, partition="blocks").T.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    first, again, other = (deal(1000, 4, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("fraction", FRACTIONS)
@pytest.mark.parametrize(("samples", "ranks"), SHAPES)
def test_nothing_is_lost_and_sizes_never_change(samples, ranks, fraction):
    owner = Ownership(deal(samples, ranks), fraction, seed=3)
    for epoch in range(6):
        table = owner.held(epoch)
        assert np.array_equal(np.sort(held_by_all(table)), np.arange(samples))
        assert np.array_equal((table != NOBODY).sum(axis=0), owner.sizes)


@pytest.mark.parametrize("fraction", FRACTIONS)
@pytest.mark.parametrize(("samples", "ranks"), SHAPES)
def test_each_rank_gives_one_and_gets_one(samples, ranks, fraction):
    owner = Ownership(deal(samples, ranks), fraction, seed=3)
    exchange = owner.exchange(4)
    for targets, sources in zip(exchange.targets, exchange.sources, strict=True):
        having = np.flatnonzero(targets != NOBODY)
        assert np.array_equal(np.sort(targets[having]), having)  # a permutation of those
        assert np.array_equal(np.sort(sources[having]), having)
        assert np.array_equal(sources[targets[having]], having)
    for rank in range(ranks):
        slots = exchange.slots[exchange.slots[:, rank] != NOBODY, rank]
        exact = Fraction(str(fraction)) * int(owner.sizes[rank])
        assert len(slots) == len(np.unique(slots)) == exact.__floor__()
        assert np.all(slots < owner.sizes[rank])


def test_fraction_0_moves_nothing_and_fraction_1_gives_everything():
    homes = deal(400, 4)
    assert np.array_equal(Ownership(homes, 0.0).held(5), homes)
    everything = Ownership(homes, 1.0).exchange(0)
    assert np.array_equal(np.sort(everything.slots, axis=0), np.tile(np.arange(100), (4, 1)).T)
    stays = (everything.targets == np.arange(4)).mean()
    assert stays == pytest.approx(1 / 4, abs=4 * np.sqrt(0.25 * 0.75 / 400))


@pytest.mark.parametrize("fraction", [0.1, 0.3, 0.9])
@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_home_fraction_follows_the_law(ranks, fraction):
    samples = 1600 * ranks
    owner = Ownership(deal(samples, ranks), fraction, seed=11)
    home = location(owner.homes)
    for epochs in (1, 2, 5, 10):
        found = (location(owner.held(epochs)) == home).mean()
        law = 1 / ranks + (1 - 1 / ranks) * (1 - fraction) ** epochs
        assert home_fraction(ranks, fraction, epochs) == pytest.approx(law)
        assert found == pytest.approx(law, abs=4 * np.sqrt(law * (1 - law) / samples))


def test_a_sample_that_left_is_on_any_rank_alike():
    owner = Ownership(deal(32_000, 8, partition="blocks"), 0.3, seed=5)
    left = location(owner.held(12))[:4000]  # of rank 0
    counts = np.bincount(left, minlength=8)
    law = home_fraction(8, 0.3, 12)
    expected = 4000 * np.array([law] + [(1 - law) / 7] * 7)
    assert ((counts - expected) ** 2 / expected).sum() < 24.3  # chi square, 7 degrees, p = 0.001


def test_epochs_in_any_order_give_the_same_table():
    owner, other = (Ownership(deal(60, 3), 0.5, seed=2) for _ in range(2))
    forward = [owner.held(epoch).copy() for epoch in range(5)]
    for epoch in (4, 1, 3, 0):
        assert np.array_equal(other.held(epoch), forward[epoch])
        assert np.array_equal(other.held_by(2, epoch), forward[epoch][:20, 2])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: deal(3, 4),
        lambda: deal(8, 2, partition="sorted"),
        lambda: Ownership(deal(8, 2), 1.1),
        lambda: Ownership(deal(8, 2), -0.1),
        lambda: Ownership(np.array([[0, 1], [NOBODY, 2]]), 0.5),
    ],
)
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(UsageError, match="expected"):
        wrong()


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize(
    ("samples", "ranks", "fraction"),
    [(101, 4, 0.3), (64, 8, 1.0), (40, 3, 0.05), (9, 9, 1.0), (7, 1, 0.5)],
)
def test_what_one_rank_draws_is_its_column_of_what_all_do(
    samples, ranks, fraction, partition, monkeypatch
):
    """Also where tables are filled a few rows at a time."""
    monkeypatch.setattr(exchange_plan, "_AT_ONCE", 3 * ranks)
    homes = deal(samples, ranks, partition=partition, seed=2)
    exchange = Ownership(homes, fraction, seed=6).exchange(3)
    draw = Draw(samples, ranks, fraction, seed=6)
    for rank in range(ranks):
        own = deal_to(rank, samples, ranks, partition=partition, seed=2)
        assert own.tolist() == homes[homes[:, rank] != NOBODY, rank].tolist()
        found = plan_rank_exchange(draw, rank, 3)
        assert found.items == len(exchange)
        for name in ("slots", "targets", "sources"):
            column = getattr(exchange, name)[:, rank]
            assert getattr(found, name).tolist() == column[column != NOBODY].tolist()


@pytest.mark.parametrize(
    ("samples", "ranks", "fraction"), [(101, 4, 0.3), (23, 5, 1.0), (7, 1, 0.5)]
)
def test_what_a_rank_holds_is_found_without_a_table(samples, ranks, fraction):
    """Followed back item by item, it is what moving whole tables forwards ends with."""
    owner = Ownership(deal(samples, ranks, seed=4), fraction, seed=9)
    draw = Draw(samples, ranks, fraction, seed=9)
    for epoch in range(8):
        for rank in range(ranks):
            found = deal_at(draw.home(rank, epoch), samples, ranks, seed=4)
            assert found.tolist() == owner.held_by(rank, epoch).tolist()
