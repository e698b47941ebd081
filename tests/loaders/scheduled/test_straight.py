"""Reads that turn out quick go straight into batches, slow ones are staged: no batch may differ.

Once a sample that was read straight into a batch passed by in a later window's gap, was given a
place there, and the batch was filled from that place before it was read.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

pytest.importorskip("h5py", reason="h5py is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.loaders.data.stored import N, direct
from tests.loaders.scheduled.planned import scheduled, stream
from vanidl_loaders.data.pool import ReadGroup
from vanidl_loaders.scheduled import stage


def chosen(draw):
    """Options of a loader, and epochs in some order: those not visited before are read anew."""
    options = {
        "buffer": draw.choice([0, 20, 60, 86, N]),
        "gap": draw.choice([0, 3, 12, 30]),
        "look_ahead": draw.choice([1, 1, 2, 8]),
        "read_threads": draw.choice([1, 3]),
        "staging_bytes": draw.choice([None, None, 600, 3432, 6000]),
        "batch": draw.choice([3, 16]),
        "drop_last": draw.random() < 0.5,
        "epochs": 4,
    }
    return options, [draw.randrange(4) for _ in range(3)]


def storage_of_moods(draw, monkeypatch):
    """What was read seems quick, or slow."""
    often = draw.random()
    monkeypatch.setattr(
        ReadGroup, "is_quick", lambda self: draw.random() < often if self._done else None
    )


@pytest.mark.parametrize("seed", range(100))
def test_batches_are_the_same_however_quick_the_storage_seems(seed, flat, monkeypatch):
    draw, stored = random.Random(seed), direct(flat)
    ranks, (options, epochs) = draw.choice([1, 1, 2, 3]), chosen(draw)
    rank = draw.randrange(ranks)
    steady = scheduled(flat, rank, ranks, **options)
    wanted = [batch["sample"].tolist() for _, batch in stream(steady, epochs)]
    steady.close()
    storage_of_moods(draw, monkeypatch)
    loader, given = scheduled(flat, rank, ranks, **options), []
    for _, batch in stream(loader, epochs):
        ids = batch["sample"].tolist()
        given.append(ids)
        for name, values in stored.items():
            np.testing.assert_array_equal(batch[name], values[ids], err_msg=f"{name}: {options}")
    assert given == wanted
    loader.close()
    stats = loader.stats()
    assert stats.loads + stats.reloads + stats.hits >= sum(map(len, given))
    assert stats.staging_peak <= stats.staging_capacity


@pytest.mark.parametrize("buffer", [0, 40, N])
@pytest.mark.parametrize("together_nbytes", [0, stage.TOGETHER_NBYTES])
def test_reads_are_the_plans_where_all_is_quick(buffer, together_nbytes, flat, monkeypatch):
    monkeypatch.setattr(stage, "TOGETHER_NBYTES", together_nbytes)
    monkeypatch.setattr(ReadGroup, "is_quick", lambda self: True if self._done else None)
    loader = scheduled(flat, buffer=buffer)
    for _ in stream(loader, range(3)):
        pass
    stats = loader.stats()
    assert stats.loads == N + 2 * (N - buffer)
    assert stats.hits == 3 * N - stats.loads
    assert stats.nbytes == stats.loads * flat.sample_nbytes
    assert stats.reloads == 0
    assert stats.buffer_peak == buffer
    loader.close()
