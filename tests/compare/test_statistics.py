from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanidl.compare.statistics import ALPHA, holm, middle, paired, unpaired

RANDOM = np.random.default_rng(5)
PAIRS = [(RANDOM.lognormal(0, 0.05, n), RANDOM.lognormal(0.05, 0.1, n)) for n in (2, 3, 5, 12)]


@pytest.fixture(scope="module")
def stats():
    from scipy import stats  # late: workers that collect these tests need not run them

    return stats


@pytest.mark.parametrize(("a", "b"), PAIRS, ids=lambda v: str(len(v)))
def test_paired_is_students_t_on_logarithms(a, b, stats):
    found = paired(a, b)
    oracle = stats.ttest_rel(np.log(b), np.log(a))
    bounds = oracle.confidence_interval(1 - ALPHA)
    assert found.scale == "ratio"
    assert found.p == pytest.approx(oracle.pvalue)
    assert (found.low, found.high) == pytest.approx((math.exp(bounds.low), math.exp(bounds.high)))
    assert found.value == pytest.approx(stats.gmean(b / a))


@pytest.mark.parametrize("sizes", [(2, 2), (3, 7), (5, 5), (9, 2)])
def test_unpaired_is_welchs_t_on_logarithms(sizes, stats):
    a, b = RANDOM.lognormal(0, 0.05, sizes[0]), RANDOM.lognormal(0.1, 0.2, sizes[1])
    found = unpaired(a, b)
    oracle = stats.ttest_ind(np.log(b), np.log(a), equal_var=False)
    bounds = oracle.confidence_interval(1 - ALPHA)
    assert found.p == pytest.approx(oracle.pvalue)
    assert (found.low, found.high) == pytest.approx((math.exp(bounds.low), math.exp(bounds.high)))


def test_values_with_zeros_are_subtracted(stats):
    a, b = [0.0, 1.0, 2.0], [3.0, 4.5, 4.0]
    found = paired(a, b)
    assert found.scale == "difference"
    assert found.value == pytest.approx(2.8333, abs=1e-3)
    assert found.p == pytest.approx(stats.ttest_rel(b, a).pvalue)


@pytest.mark.parametrize(("least", "scale"), [(0.0, "difference"), (1e-300, "ratio")])
@pytest.mark.parametrize("test", [paired, unpaired])
def test_a_single_zero_on_either_side_makes_differences(test, least, scale):
    a, b = [least, 1.0, 2.0], [3.0, 4.5, 4.0]
    assert test(a, b).scale == test(b, a).scale == scale


@pytest.mark.parametrize("test", [paired, unpaired])
def test_one_run_gives_no_interval(test):
    assert test([1.0], [2.0]) is None


def test_pairs_must_be_pairs():
    with pytest.raises(ValueError, match="2 and 3"):
        paired([1, 2], [1, 2, 3])


@pytest.mark.parametrize("test", [paired, unpaired])
@pytest.mark.parametrize(("b", "p"), [(7.0, 1.0), (8.0, 0.0)])
def test_counts_that_never_vary(test, b, p):
    found = test([7.0] * 4, [b] * 4)
    assert found.p == p
    assert found.low == found.high == pytest.approx(b / 7)


def test_two_runs_far_apart_have_finite_bounds():
    found = paired([1e-9, 1e9], [1e9, 1e-9])
    assert math.isfinite(found.high)
    assert found.low >= 0


positive = st.floats(1e-3, 1e3)


@given(st.lists(st.tuples(positive, positive), min_size=2, max_size=8))
def test_swapping_sides_inverts_the_interval(pairs):
    a, b = zip(*pairs, strict=True)
    for test in (paired, unpaired):
        there, back = test(a, b), test(b, a)
        assert there.value == pytest.approx(1 / back.value)
        assert there.p == pytest.approx(back.p, abs=1e-9)
        assert there.low <= there.value * (1 + 1e-12)
        assert there.value <= there.high * (1 + 1e-12)


def closed_testing(p: list[float]) -> list[float]:
    """Holm by its meaning: reject i where Bonferroni rejects every set that holds i."""
    n = len(p)
    sets = [s for size in range(1, n + 1) for s in combinations(range(n), size)]
    return [min(1, max(len(s) * min(p[k] for k in s) for s in sets if i in s)) for i in range(n)]


@given(st.lists(st.floats(0, 1), max_size=6))
def test_holm_is_closed_testing(p):
    assert holm(p) == pytest.approx(closed_testing(p))


@pytest.mark.parametrize("runs", [3, 5])
@pytest.mark.parametrize("test", [paired, unpaired])
def test_the_interval_holds_the_truth_as_often_as_it_says(test, runs):
    random = np.random.default_rng(11)
    trials = 4000
    hits = 0
    for _ in range(trials):
        a, b = np.exp(random.normal(0, 0.03, (2, runs)))
        found = test(a, 1.1 * b)
        hits += found.low <= 1.1 <= found.high
    # Welch's t errs on the safe side for few runs
    most = 0.007 if test is paired or runs > 3 else 0.015
    assert -0.007 <= hits / trials - (1 - ALPHA) <= most


@pytest.mark.parametrize("runs", [3, 5])
@pytest.mark.parametrize("test", [paired, unpaired])
def test_a_change_of_half_an_interval_is_seen_by_every_second_repetition(test, runs):
    """What "show a change of +12 % about every second time" promises."""
    random = np.random.default_rng(12)
    trials = 1000
    seen = 0
    for _ in range(trials):
        first = test(*np.exp(random.normal(0, 0.03, (2, runs))))
        a, b = np.exp(random.normal(0, 0.03, (2, runs)))
        seen += test(a, b * first.high / first.value).p <= ALPHA
    assert seen / trials == pytest.approx(0.5, abs=0.05)


def test_like_with_like_fails_a_hundred_seldom(stats):
    """The reason for ALPHA: at most 5 false alarms in 100 comparisons, nearly always."""
    assert stats.binom.cdf(5, 100, ALPHA) > 0.98
    assert stats.binom.cdf(5, 100, 0.05) == pytest.approx(0.616, abs=1e-3)


def test_middle():
    assert middle([]) is None
    assert middle([0.0, 1.0]) == 0.5
    assert middle([1.0, 4.0]) == pytest.approx(2)
    assert middle([0.1, 0.1, 0.1]) == 0.1
