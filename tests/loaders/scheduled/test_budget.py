"""One budget for buffer and staging: what is read at equal total memory."""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.loaders.data.stored import N, direct
from tests.loaders.scheduled.planned import scheduled, stream
from vanidl_loaders.data import pool, pread
from vanidl_loaders.errors import UsageError
from vanidl_loaders.loader.loader import Settings
from vanidl_loaders.loader.registry import open_loader, parse_nbytes
from vanidl_loaders.ranks.world import World
from vanidl_loaders.scheduled.plan import PlanSettings
from vanidl_loaders.scheduled.stage import STAGED_SHARE, divide_budget


@st.composite
def budgets(draw):
    """(settings, places of all ranks, look-ahead)."""
    ranks = draw(st.integers(1, 64))
    samples = draw(st.integers(ranks, 10**6))
    chosen = PlanSettings(samples, ranks, draw(st.integers(1, 600)), drop_last=draw(st.booleans()))
    return chosen, draw(st.integers(0, samples + 99)), draw(st.integers(0, 20))


@given(budgets())
def test_buffer_and_staging_fit_and_cost_a_twentieth_of_the_bound(budget):
    chosen, places, look_ahead = budget
    plan, staged = divide_budget(chosen, places, look_ahead)
    assert plan.buffer + chosen.ranks * staged <= places
    bound = max(chosen.samples - places, 0)
    assert bound <= chosen.samples - plan.buffer <= bound + bound // STAGED_SHARE
    assert replace(plan, buffer=0) == chosen


def reads(loader, epoch, row_nbytes):
    """Samples that the file system was asked for in an epoch, counted at the call."""
    arrived, inner = [], pread._PREAD

    def counting(*arguments):
        arrived.append(inner(*arguments))
        return arrived[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pread, "_PREAD", counting)
        for _ in stream(loader, [epoch]):
            pass
    return sum(arrived) / row_nbytes


@settings(deadline=None, max_examples=12)
@given(st.integers(1, 4), st.integers(0, 60), st.integers(2, 20), st.integers(0, 6))
def test_a_loader_reads_the_bound_within_its_memory(flat, ranks, of_rank, batch, look_ahead):
    memory, counts = of_rank * flat.sample_nbytes, []
    for rank in range(ranks):
        chosen = Settings(World(rank, ranks, 0, 1), batch, 3, memory_nbytes=memory)
        loader = open_loader("scheduled", flat, chosen, {"gap": 0, "look_ahead": look_ahead})
        counts.append([reads(loader, epoch, flat.sample_nbytes) for epoch in range(3)])
        stats = loader.stats()
        assert stats.buffer_capacity + stats.staging_capacity <= of_rank
        assert stats.buffer_peak <= stats.buffer_capacity
        assert stats.staging_peak <= stats.staging_capacity
        loader.close()
    padding = -N % ranks  # may be read twice where staging has no room for it
    first, *later = np.sum(counts, 0)
    bound = max(N - ranks * of_rank, 0)
    assert N <= first <= N + padding
    assert all(bound <= epoch <= bound * (1 + 1 / STAGED_SHARE) + padding for epoch in later)


@pytest.mark.parametrize("places", [0, 1, 3, 6, 40])
def test_what_finds_no_place_is_read_into_its_batch(flat, places):
    """No staging, or less than a step needs: the same samples, read once each."""
    options = {"gap": 0, "buffer": 0, "staging_bytes": places * flat.sample_nbytes}
    loader, stored = open_loader("scheduled", flat, Settings(batch=4), options), direct(flat)
    for batch in loader:
        for name, values in stored.items():
            np.testing.assert_array_equal(batch[name], values[batch["sample"].numpy()])
    stats = loader.stats()
    assert (stats.loads, stats.reloads) == (N, 0)
    assert stats.staging_peak <= stats.staging_capacity == places
    loader.close()


@pytest.mark.parametrize(("quick_s", "staged"), [(1e9, False), (-1e9, True)])
def test_what_is_read_quickly_waits_nowhere(flat, monkeypatch, quick_s, staged):
    monkeypatch.setattr(pool, "QUICK_S", quick_s)
    loader, stored, placed = scheduled(flat, buffer=30, gap=6), direct(flat), []
    list(stream(loader, [0]))  # nothing is known of the storage before the first reads
    add, before = loader._stage.staging.add, loader.stats().requests
    monkeypatch.setattr(loader._stage.staging, "add", lambda i: (placed.append(i), add(i)))
    for _, batch in stream(loader, [1]):
        np.testing.assert_array_equal(batch["x"], stored["x"][batch["sample"].numpy()])
    assert len(placed) == staged * (N - 30)
    stats, apart = loader.stats(), (N - 30) * len(flat.fields)
    assert stats.loads == N + (N - 30)
    assert (stats.requests - before == apart) != staged  # merged only where latency counts
    loader.close()


def test_a_sample_that_a_step_has_twice_is_read_once_without_staging(flat):
    """One step of two ranks: padding repeats its first sample."""
    options, total, ids = {"gap": 0, "buffer": 0, "staging_bytes": 0}, 0, []
    for rank in range(2):
        chosen = Settings(World(rank, 2, 0, 1), batch=N)
        loader = open_loader("scheduled", flat, chosen, options)
        (batch,) = list(loader)
        ids += batch["sample"].tolist()
        np.testing.assert_array_equal(batch["x"], direct(flat)["x"][batch["sample"].numpy()])
        total += loader.stats().loads
        loader.close()
    assert (total, len(ids), len(set(ids))) == (N, N + 1, N)


@pytest.mark.parametrize("option", [{"buffer": 3}, {"buffer_fraction": 0.5}, {"plan": "x.npz"}])
def test_a_budget_beside_a_size_of_the_buffer_is_refused(flat, option):
    with pytest.raises(UsageError, match="--memory"):
        open_loader("scheduled", flat, Settings(memory_nbytes=10**6), option)


def test_staging_of_a_given_size_is_part_of_the_budget(flat):
    chosen = Settings(batch=4, memory_nbytes=50 * flat.sample_nbytes)
    loader = open_loader("scheduled", flat, chosen, {"staging_bytes": 8 * flat.sample_nbytes})
    assert (loader.stats().buffer_capacity, loader.stats().staging_capacity) == (42, 8)
    loader.close()


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("0", 0), ("1048576", 1 << 20), ("4GiB", 4 << 30), ("500MB", 5 * 10**8), ("1.5k", 1500),
     ("2 Ti", 2 << 40), ("7B", 7)],
)  # fmt: skip
def test_sizes_of_memory(text, nbytes):
    assert parse_nbytes(text) == nbytes


@pytest.mark.parametrize("text", ["", "-1", "GiB", "4 iB", "1e9", "4GiBs"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected a size"):
        parse_nbytes(text)
