"""What the verdicts are worth, on step times that were really recorded."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.makers import simulated_runs
from tests.makers.simulated_runs import CASES
from vanidl.compare.comparison import NO_DIFFERENCE, WORSE

TRIALS = 200 if settings.default.derandomize else 2_000  # the latter in `make fuzz`


def share(wanted: str, name: str, length: int, slowdown: float, pairs: int) -> float:
    found = [
        simulated_runs.change(name, length, slowdown, seed, pairs).verdict for seed in range(TRIALS)
    ]
    return found.count(wanted) / TRIALS


@pytest.mark.parametrize("pairs", [3, 5])
@pytest.mark.parametrize(("name", "length"), CASES)
def test_like_with_like_shows_no_difference(name, length, pairs):
    assert share(NO_DIFFERENCE, name, length, 1.0, pairs) >= 0.95


@pytest.mark.parametrize(
    ("case", "slowdown", "pairs", "least"),
    [
        (CASES[0], 1.1, 5, 0.8),
        (CASES[1], 1.3, 5, 0.6),
        (CASES[2], 1.1, 5, 0.9),
        (CASES[0], 1.3, 3, 0.9),
        (CASES[2], 1.3, 3, 0.95),
    ],
)
def test_slower_is_called_worse(case, slowdown, pairs, least):
    assert share(WORSE, *case, slowdown, pairs) >= least
