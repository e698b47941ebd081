"""What the verdicts are worth, on step times that were really recorded."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.makers import simulated_runs
from tests.makers.simulated_runs import CASES
from vanidl.compare.comparison import MIN_RUNS, NO_DIFFERENCE, WORSE

TRIALS = 200 if settings.default.derandomize else 2_000  # the latter in `make fuzz`


def share(wanted: str, name: str, length: int, slowdown: float) -> float:
    found = [
        simulated_runs.change(name, length, slowdown, seed, MIN_RUNS).verdict
        for seed in range(TRIALS)
    ]
    return found.count(wanted) / TRIALS


@pytest.mark.parametrize(("name", "length"), CASES)
def test_like_with_like_shows_no_difference(name, length):
    assert share(NO_DIFFERENCE, name, length, 1.0) >= 0.95


@pytest.mark.parametrize(
    ("case", "slowdown", "least"),
    list(zip(CASES, (1.1, 1.3, 1.1), (0.8, 0.6, 0.9), strict=True)),
)
def test_slower_is_called_worse(case, slowdown, least):
    assert share(WORSE, *case, slowdown) >= least
