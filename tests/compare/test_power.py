"""What the verdicts are worth, on step times that were really recorded.

A simulated run: blocks of 8 neighbouring recorded steps drawn at random (circular block
bootstrap: Politis and Romano 1992), so that short-range dependence stays; times a factor of
its own, 1.5 % from run to run; times a drift of the machine of 2 % over the whole session.
Runs are recorded in ABBA order and go through the same `compare` as any others.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import vanidl
from tests import DATA
from tests.makers.results import Shape, everything
from vanidl.compare import Sample, Side, compare
from vanidl.compare.ab import order
from vanidl.compare.comparison import NO_DIFFERENCE, WORSE

BLOCK = 8
RUN_SPREAD = 0.015
DRIFT = 0.02
PAIRS = 5
TRIALS = 400


@cache
def recorded_steps(name: str) -> np.ndarray:
    table = vanidl.open_run(DATA / name).steps.table
    return (table.end_s - table.start_s)[table.rank == 0]


def simulated(steps: np.ndarray, length: int, random: np.random.Generator) -> np.ndarray:
    starts = random.integers(0, len(steps), -(-length // BLOCK))
    index = (starts[:, None] + np.arange(BLOCK)).ravel()[:length] % len(steps)
    return steps[index] * np.exp(random.normal(0, RUN_SPREAD))


@cache
def template() -> Sample:
    trace, results = everything(Shape(ranks=1, steps=4))
    results = replace(results, overlap=None)
    return Sample("run", trace.job, ("rank 0",), results)


def sample_of(steps: np.ndarray, pair: int) -> Sample:
    base = template()
    end = np.cumsum(steps)
    n = len(steps)
    table = replace(
        base.results.steps.table,
        rank=np.zeros(n, np.int32), step=np.arange(n, dtype=np.int32), start_s=end - steps,
        end_s=end, input_wait_s=np.full(n, np.nan), busy_s=np.full(n, np.nan),
    )  # fmt: skip
    found = replace(
        base.results.steps,
        table=table,
        mean_s=float(steps.mean()),
        median_s=float(np.median(steps)),
    )
    return replace(base, results=replace(base.results, steps=found), pair=pair)


def verdict(steps: np.ndarray, length: int, slowdown: float, seed: int) -> str:
    random = np.random.default_rng(seed)
    samples: dict[str, dict[int, Sample]] = {"a": {}, "b": {}}
    turns = order(PAIRS)
    for k, (side, pair) in enumerate(turns):
        factor = (slowdown if side == "b" else 1.0) * (1 + DRIFT * k / len(turns))
        samples[side][pair] = sample_of(simulated(steps, length, random) * factor, pair)
    a, b = (
        Side(s.upper(), s, tuple(samples[s][pair] for pair in range(1, PAIRS + 1))) for s in "ab"
    )
    return compare([a, b]).pairings[0].change("step_time_s").verdict


def share(wanted: str, name: str, length: int, slowdown: float) -> float:
    steps = recorded_steps(name)
    found = [verdict(steps, length, slowdown, seed) for seed in range(TRIALS)]
    return found.count(wanted) / TRIALS


CASES = [("torch_pfs_workers0", 61), ("torch_pfs_workers4", 61), ("ddp_two_hosts", 480)]
"""Recorded run, and steps of a simulated one."""


@pytest.mark.parametrize(("name", "length"), CASES)
def test_like_with_like_shows_no_difference(name, length):
    assert share(NO_DIFFERENCE, name, length, 1.0) >= 0.95


@pytest.mark.parametrize(("name", "length"), CASES)
def test_ten_per_cent_slower_is_called_worse(name, length):
    assert share(WORSE, name, length, 1.1) >= 0.80
