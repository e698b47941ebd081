from __future__ import annotations

import numpy as np
import pytest

from vanidl.figures.downsample import compute_rates, fold_bins, pick_spread


@pytest.mark.parametrize("bins", [1, 7, 511, 512, 513, 4096])
@pytest.mark.parametrize("limit", [1, 512])
def test_folding_keeps_every_byte(bins, limit):
    random = np.random.default_rng(bins)
    edges = np.linspace(0, 10, bins + 1)
    values = random.integers(0, 2**53, (3, bins))
    new_edges, sums = fold_bins(edges, values, limit)
    assert sums.shape[1] <= limit
    assert len(new_edges) == sums.shape[1] + 1
    assert (new_edges[0], new_edges[-1]) == (edges[0], edges[-1])
    assert (sums.sum(axis=1) == values.sum(axis=1)).all()


def test_a_run_without_length_has_no_infinite_rate():
    edges = np.zeros(3)
    assert (compute_rates(edges, np.ones((2, 2), np.int64)) == 0).all()


def test_spread_out_keeps_both_ends():
    assert pick_spread(1024, 10).tolist()[::9] == [0, 1023]
    assert pick_spread(3, 10).tolist() == [0, 1, 2]
    assert pick_spread(0, 10).tolist() == []
