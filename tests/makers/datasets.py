"""Synthetic datasets and phases for the synthetic runs of `results`."""

from __future__ import annotations

import numpy as np

from vanidl.analyses.access import AccessCounts
from vanidl.analyses.datafiles import (
    DataFile,
    NeverRead,
    RankShare,
    ReadGrid,
    SampleBin,
    SamplesPerFile,
)
from vanidl.analyses.dataset import Dataset, VisitOrder
from vanidl.analyses.sizes import TransferMode
from vanidl.breakdown.phases import Phase, Phases

BINS = 64


def dataset_of(paths: tuple[str, ...], ranks: int, run_s: float) -> Dataset | None:
    """Every file read twice from start to end, each rank its part."""
    if not paths:
        return None
    n = len(paths)
    shown = min(n, 1000)
    files = tuple(
        DataFile(path, None, 2**20, 2**21, 64, 2**20, 2.0, 2, 2, 1, 256, 1.0 + i / n, run_s - 1)
        for i, path in enumerate(paths)
    )
    grid = np.zeros((shown, BINS), np.int64)
    grid[np.arange(shown), np.arange(shown) * (BINS // 2) // shown] = 2**20
    grid[np.arange(shown), BINS // 2 + np.arange(shown) * (BINS // 2) // shown] = 2**20
    return Dataset(
        files,
        n * 2**21,
        n * 2**20,
        2.0,
        None,
        0.7,
        tuple(
            RankShare(f"rank {r}", r, n, n * 2**21 // ranks, n * 2**20 // ranks, 1 / ranks)
            for r in range(ranks)
        ),
        "bytes that any rank read",
        VisitOrder("in order", 1.0, 1.0, 2 * n),
        AccessCounts(64 * n, n, 63 * n, 0, 0, 63 * n, 63 * n),
        SamplesPerFile(
            4096, "given", "--record-size", n, 256 * n, 256, 256.0, 256, (SampleBin(256, 512, n),)
        ),
        (TransferMode(32768, 32768, 64 * n, 1.0, 1.0, None, False, "unknown"),),
        NeverRead(paths[:3], None),
        ReadGrid(np.arange(shown), np.linspace(0, run_s, BINS + 1), grid, n),
        None,
    )


def phases_of(run_s: float, first_s: float, training_s: float) -> Phases:
    """Three stages, two epochs and a checkpoint."""
    last_s = min(first_s + training_s, run_s)
    middle_s = (first_s + last_s) / 2

    def phase(name: str, start_s: float, end_s: float) -> Phase:
        return Phase(name, start_s, end_s, "synthetic", 20, 2**20, 0, 0.5, None)

    return Phases(
        (
            phase("start-up", 0.0, first_s),
            phase("training", first_s, last_s),
            phase("tail", last_s, run_s),
        ),
        (phase("epoch 1", first_s, middle_s), phase("epoch 2", middle_s, last_s)),
        (phase("checkpoint 1", middle_s, middle_s + 0.01),),
        "",
    )
