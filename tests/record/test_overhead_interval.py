"""The interval of `record_overhead` holds the truth as often as it says, where processes differ."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from benchmarks.vanidl.record_overhead import between_pairs, mean_interval, middle, nested_interval
from vanidl.errors import InputError

TRUE = 0.01
TIMES = 300


@pytest.mark.parametrize("between", [0.003, 0.05])
def test_the_interval_holds_the_truth_95_times_in_100(between: float) -> None:
    """Whatever the scatter between processes, against the same scatter of turns."""
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(TIMES):
        turns = TRUE + rng.normal(0, between, (8, 1)) + rng.normal(0, 0.01, (8, 6))
        _, low, high = nested_interval(turns, rng, 600)
        held += low <= TRUE <= high
    least = 0.91  # three standard errors of 300 times below 0.95
    assert least < held / TIMES
    assert between < 0.05 or held / TIMES < 0.985  # nor by being wide


@pytest.mark.parametrize("between", [0.003, 0.05])
def test_the_interval_of_medians_does_too(between: float) -> None:
    """Turns that an interrupt meets included: they are long, and count for little."""
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(TIMES):
        logs = rng.normal(0, 0.01, (10, 7, 2)) + rng.normal(0, between, (10, 1, 2))
        logs += 0.5 * (rng.random(logs.shape) < 0.05)
        logs[..., 1] += TRUE
        _, low, high, _ = between_pairs(np.exp(logs))
        held += np.log(low) <= TRUE <= np.log(high)
    assert 0.91 < held / TIMES < 0.99


def test_turns_taken_together_claim_too_much() -> None:
    """What the interval is for: one process pair's luck in 8 is no finding."""
    turns = np.repeat([[-0.2], [0.1], [-0.1], [0.2], [-0.2], [0.1], [-0.3], [0.1]], 40, axis=1)
    _, low, high = nested_interval(turns, np.random.default_rng(0), 1000)
    _, _, pooled = mean_interval(turns.ravel())
    assert pooled < 0 < high
    assert low < -0.15


def test_the_middle_is_taken_of_each_pair() -> None:
    values = np.array([[9.0, *range(8), -9.0], [90.0, *range(10, 18), -90.0]])
    assert middle(values).tolist() == [[*range(8)], [*range(10, 18)]]


def test_one_pair_of_processes_is_refused() -> None:
    with pytest.raises(InputError, match="--fresh"):
        nested_interval(np.zeros((1, 9)), np.random.default_rng(0))
    with pytest.raises(InputError, match="--fresh"):
        between_pairs(np.ones((1, 9, 2)))
