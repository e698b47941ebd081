"""Bins found by a division are those found by looking up."""

from __future__ import annotations

import numpy as np
import pytest

from vanidl.analyses import timebins

START = 1_700_000_000_123_456_789


@pytest.mark.parametrize("bins", [1, 512, 4096, timebins.FINEST])
@pytest.mark.parametrize("length", [1, 16_383, 16_385, 10**9 + 7, 61 * 10**9, 30 * 86_400 * 10**9])
def test_division_and_lookup_agree(bins: int, length: int) -> None:
    bounds = timebins.edges(START, START + length, bins)
    rng = np.random.default_rng(0)
    at = START + rng.integers(-length, 2 * length + 2, 5000)
    at = np.concatenate([at, bounds, bounds - 1, bounds + 1])
    expected = np.clip(np.searchsorted(bounds, at, side="right") - 1, 0, bins - 1)
    assert (timebins.bin_of(at, bounds) == expected).all()


def test_uneven_bounds_are_looked_up() -> None:
    bounds = START + np.array([0, 10, 1_000_000, 1_000_001, 50_000_000])
    at = START + np.array([-1, 0, 9, 10, 999_999, 1_000_000, 1_000_001, 49_999_999, 60_000_000])
    assert timebins.bin_of(at, bounds).tolist() == [0, 0, 0, 1, 1, 2, 3, 3, 3]
