from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
from hypothesis import given, settings
from hypothesis import strategies as st

from vanidl_loaders.pls.exchange_plan import find_places, permute_at


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(0, 2**40), st.data())
def test_every_number_is_at_one_place_wherever_one_looks(size, seed, data):
    whole = permute_at(np.arange(size), size, (seed,))
    assert sorted(whole.tolist()) == list(range(size))
    places = data.draw(st.lists(st.integers(0, size - 1), max_size=20))
    some = permute_at(np.array(places, np.int64), size, (seed,))
    assert some.tolist() == whole[places].tolist()
    assert find_places(whole, size, (seed,)).tolist() == list(range(size))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 50)), min_size=1, max_size=20))
def test_sizes_and_permutations_may_differ_from_place_to_place(cases):
    size, which = np.array(cases).T
    places = (np.arange(len(cases)) * 7) % size
    found = permute_at(places, size, (3,), which)
    alone = [permute_at(places[i : i + 1], *of, (3,), w)[0] for i, (*of, w) in enumerate(cases)]
    assert found.tolist() == alone
    assert find_places(found, size, (3,), which).tolist() == places.tolist()


def test_permutations_of_a_seed_are_independent():
    """Chi-square, 1 in 10,000: which of 5 ranks numbers come to, in 4,000 permutations in a row."""
    drawn = permute_at(np.full(4000, 2), 5, (3,), np.arange(4000))
    pairs = np.bincount(5 * drawn[:-1] + drawn[1:], minlength=25)
    assert ((pairs - 3999 / 25) ** 2 / (3999 / 25)).sum() < 58.6


def test_a_few_places_of_very_many():
    size = 10**12 + 7
    places = np.concatenate([np.arange(1000), np.arange(size - 1000, size)])
    found = permute_at(places, size, (3,))
    assert len(set(found.tolist())) == len(places)
    assert 0 <= found.min() < size / 20
    assert size * 0.95 < found.max() < size


def test_numbers_and_pairs_of_them_are_anywhere_alike():
    """Chi-square over 3,000 seeds: of where 5 comes of 12, and of the halves that 2 and 3 come to.

    Limits at 1 in 10,000; the seeds are fixed, so the outcome is, too.
    """
    drawn = np.array([permute_at(np.arange(12), 12, (seed,)) for seed in range(3000)])
    at = np.argsort(drawn, axis=1)
    places = np.bincount(at[:, 5], minlength=12)
    assert ((places - 250) ** 2 / 250).sum() < 37.4
    together = np.count_nonzero((at[:, 2] < 6) == (at[:, 3] < 6))
    assert abs(together - 3000 * 5 / 11) < 3.9 * (3000 * 5 / 11 * 6 / 11) ** 0.5
    assert len({tuple(row) for row in drawn.tolist()}) > 2990


def test_neighbours_are_not_neighbours_again():
    """The mean distance of the numbers at neighbouring places is a third of the size."""
    size = 100_003
    distance = np.abs(np.diff(permute_at(np.arange(size), size, (1,)))).mean() / size
    assert abs(distance - 1 / 3) < 0.01
