"""Runs made of step times that were really recorded, for what verdicts are worth.

A simulated run: blocks of 8 neighbouring recorded steps drawn at random (circular block
bootstrap: Politis and Romano 1992), so that short-range dependence stays; times a factor of
its own, 1.5 % from run to run; times a drift of the machine of 2 % over the whole session.
Runs are in ABBA order and go through the same `compare` as any others.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

import vanidl
from tests import DATA
from tests.makers.results import Shape, everything
from vanidl.compare import Change, Sample, Side, compare
from vanidl.compare.ab import order

BLOCK = 8
RUN_SPREAD = 0.015
DRIFT = 0.02

CASES = (("torch_pfs_workers0", 61), ("torch_pfs_workers4", 61), ("ddp_two_hosts", 480))
"""Recorded run, and steps of a simulated one."""


def change(name: str, length: int, slowdown: float, seed: int, pairs: int) -> Change:
    """The change of the primary metric in one experiment in which B is that much slower."""
    steps, random = recorded_steps(name), np.random.default_rng(seed)
    samples: dict[str, dict[int, Sample]] = {"a": {}, "b": {}}
    turns = order(pairs)
    for k, (side, pair) in enumerate(turns):
        factor = (slowdown if side == "b" else 1.0) * (1 + DRIFT * k / len(turns))
        samples[side][pair] = sample_of(simulated(steps, length, random) * factor, pair)
    a, b = (
        Side(s.upper(), s, tuple(samples[s][pair] for pair in range(1, pairs + 1))) for s in "ab"
    )
    comparison = compare([a, b])
    found = comparison.pairings[0].change(comparison.primary)
    assert found is not None
    return found


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
    made = everything(Shape(ranks=1, steps=4))
    return Sample("run", made.trace.job, ("rank 0",), made.results, account=made.account)


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
    rows = tuple(replace(r, window_s=float(steps.sum())) for r in base.account.overlap.per_rank)
    overlap = replace(base.account.overlap, per_rank=rows)
    return replace(
        base,
        results=replace(base.results, steps=found),
        account=replace(base.account, overlap=overlap),
        pair=pair,
    )
