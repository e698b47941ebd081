"""Bins found by a division are those found by looking up."""

from __future__ import annotations

import numpy as np
import pytest

from vanidl.analyses import timeline

START = 1_700_000_000_123_456_789


@pytest.mark.parametrize("bins", [1, 512, 4096, timeline.FINEST])
@pytest.mark.parametrize("length", [1, 16_383, 16_385, 10**9 + 7, 61 * 10**9, 30 * 86_400 * 10**9])
def test_division_and_lookup_agree(bins: int, length: int) -> None:
    bounds = timeline.compute_edges(START, START + length, bins)
    rng = np.random.default_rng(0)
    at = START + rng.integers(-length, 2 * length + 2, 5000)
    at = np.concatenate([at, bounds, bounds - 1, bounds + 1])
    expected = np.clip(np.searchsorted(bounds, at, side="right") - 1, 0, bins - 1)
    assert (timeline.find_bin(at, bounds) == expected).all()


def test_uneven_bounds_are_looked_up() -> None:
    bounds = START + np.array([0, 10, 1_000_000, 1_000_001, 50_000_000])
    at = START + np.array([-1, 0, 9, 10, 999_999, 1_000_000, 1_000_001, 49_999_999, 60_000_000])
    assert timeline.find_bin(at, bounds).tolist() == [0, 0, 0, 1, 1, 2, 3, 3, 3]


def exact_shares(start, end, nbytes, bounds) -> dict[tuple[int, int], int]:
    """The rule in whole numbers of Python, operation by operation."""
    found = {}
    for i, (a, b, n) in enumerate(zip(start.tolist(), end.tolist(), nbytes.tolist(), strict=True)):
        last = len(bounds) - 2
        at = max(0, min(last, int(np.searchsorted(bounds, a, "right")) - 1))
        done = 0
        while at < last and bounds[at + 1] < b:
            upto = n * (int(bounds[at + 1]) - a) // (b - a)
            found[i, at] = upto - done
            done, at = upto, at + 1
        found[i, at] = n - done
    return found


@pytest.mark.parametrize("largest", [1 << 20, 1 << 30, 1 << 40])
@pytest.mark.parametrize("longest", [5, 300])
def test_shares_follow_the_rule_exactly(largest: int, longest: int) -> None:
    bounds = timeline.compute_edges(START, START + 60 * 10**9 + 7, 512)
    rng = np.random.default_rng(0)
    start = START + rng.integers(-(10**9), 61 * 10**9, 300)
    width = int(bounds[1] - bounds[0])
    end = start + np.where(
        rng.random(300) < 0.5, rng.integers(0, longest * width, 300), longest * width // 2
    )
    nbytes = rng.integers(0, largest, 300)
    found: dict[tuple[int, int], int] = {}
    for owner, at, share in timeline.split_by_bin(start, end, nbytes, bounds):
        for key in zip(owner.tolist(), at.tolist(), share.tolist(), strict=True):
            assert key[:2] not in found
            found[key[:2]] = key[2]
    assert found == exact_shares(start, end, nbytes, bounds)


@pytest.mark.parametrize("longest", [3, 200])
def test_wider_bins_are_those_of_the_rule(longest: int) -> None:
    bounds = timeline.compute_edges(START, START + 60 * 10**9 + 7, 512)
    rng = np.random.default_rng(1)
    start = np.sort(START + rng.integers(-(10**9), 61 * 10**9, 2000))
    width = int(bounds[1] - bounds[0])
    end = start + rng.integers(0, longest, 2000) * width // 2 + rng.integers(0, 9, 2000)
    nbytes = rng.choice([0, 1, 1 << 20, 1 << 50], 2000)  # the last: beyond what floats hold
    row = rng.integers(0, 3, 2000)
    sums, wider = np.zeros(512, np.int64), np.zeros(3 * 128, np.int64)
    into = timeline.Sums(sums), timeline.Sums(wider, 4, row * 128)
    timeline.add_spread((start, end, nbytes), bounds, *into)
    expected, of_rows = np.zeros(512, object), np.zeros(3 * 128, object)
    for (i, at), share in exact_shares(start, end, nbytes, bounds).items():
        expected[at] += share
        of_rows[row[i] * 128 + at // 4] += share
    assert sums.tolist() == expected.tolist()
    assert wider.tolist() == of_rows.tolist()


def test_sums_beyond_what_floats_hold_are_exact() -> None:
    """Each share is one of floats, their sum is not: 2**50 bytes within 3 ns, 4,000 times."""
    bounds = timeline.compute_edges(START, START + timeline.FINEST)
    start = START + np.arange(4000, dtype=np.int64) % 7
    nbytes = (1 << 50) - 1 - 2 * np.arange(4000, dtype=np.int64)
    expected = np.zeros(timeline.FINEST, np.int64)
    for (_, at), share in exact_shares(start, start + 3, nbytes, bounds).items():
        expected[at] += share
    assert expected.max() > 1 << 53
    assert (timeline.spread_bytes(start, start + 3, nbytes, bounds) == expected).all()


def test_few_bins_and_many_give_the_same_sums() -> None:
    """Rows of many bins are added up in another way than those of few."""
    bounds = timeline.compute_edges(START, START + 10**9, 512)
    rng = np.random.default_rng(0)
    start = START + rng.integers(0, 10**9, 3000)
    end, nbytes = start + rng.integers(0, 10**8, 3000), rng.integers(0, 1 << 30, 3000)
    row = rng.integers(0, 100, 3000)
    few, many = np.zeros(512, np.int64), np.zeros(100 * 512, np.int64)
    into = (timeline.Sums(few), timeline.Sums(many, base=row * 512))
    timeline.add_spread((start, end, nbytes), bounds, *into)
    assert (many.reshape(100, 512).sum(axis=0) == few).all()
    expected = np.zeros(512, np.int64)
    for (_, at), share in exact_shares(start, end, nbytes, bounds).items():
        expected[at] += share
    assert (few == expected).all()
