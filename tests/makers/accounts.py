"""Accounts of time for runs whose results are written by hand, with the waits of those."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tests.makers.results import Example
from vanidl.breakdown import Breakdown
from vanidl.breakdown.account import STEP, STEP_PART, WAIT, Column
from vanidl.breakdown.causes import INPUT_CPU, STORAGE
from vanidl.breakdown.windows import INPUT_WAIT, PART_NAMES


def account_of(made: Example) -> Breakdown:
    """The account whose steps fill the window of each rank, and whose waits are as its overlap."""
    account, overlap = made.account, made.overlap
    if overlap is None:
        return account
    rows = overlap.per_rank
    ranks = len(account.ranks)
    window = _column([row.window_s for row in rows], ranks)
    known = all(row.input_wait_s is not None for row in rows)
    wait = _column([row.input_wait_s or 0.0 for row in rows], ranks)
    columns = dict(account.columns) | {f"{STEP}/": window}
    part = f"{STEP_PART}/{PART_NAMES[INPUT_WAIT]}"
    columns[part] = wait if known else _column([0.0] * len(rows), ranks, window)
    if known:
        storage = [(row.input_wait_io_s, row.input_wait_rest_s) for row in rows]
        low = _column([io or 0.0 for io, _ in storage], ranks)
        most = [
            (row.input_wait_s or 0.0) if io is None or rest is None
            else (row.input_wait_s or 0.0) - rest
            for row, (io, rest) in zip(rows, storage, strict=True)
        ]  # fmt: skip
        columns[f"{WAIT}/"] = wait
        columns[f"{WAIT}/{STORAGE}"] = _column([], ranks, _column(most, ranks), low)
        rest_s = [(row.input_wait_s or 0.0) - (row.input_wait_io_s or 0.0) for row in rows]
        zeros = _column([0.0] * len(rows), ranks)
        columns[f"{WAIT}/{INPUT_CPU}"] = _column([], ranks, _column(rest_s, ranks), zeros)
    steps = np.array([1] * len(rows) + [0] * (ranks - len(rows)))
    return replace(account, columns=columns, steps=steps)


def _column(
    seconds: Sequence[float], ranks: int, high: Column | None = None, low: Column | None = None
) -> Column:
    values = np.zeros(ranks, np.int64)
    values[: len(seconds)] = np.rint(np.array(seconds) * 1e9)
    least = values if low is None else low.low
    most = values if high is None else np.maximum(high.high, least)
    observed = max(len(seconds), 1) if high is None else ranks
    return Column(least, most, float(least.sum()) / observed, float(most.sum()) / observed)
