"""The accounts of time of two sides, cell by cell: the mean over the runs of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vanidl.breakdown import CAUSES, Breakdown
from vanidl.breakdown.account import MEAN, RUN, STEP, WAIT
from vanidl.compare.sides import Side

WINDOWS = {RUN: "run", STEP: "mean step", WAIT: "input waits of a rank"}

Ends = tuple[float, float]


@dataclass(frozen=True, slots=True)
class CellRow:
    """One cell of both sides: at least and at most, in seconds; None: a run has no account.

    `key` is that of `Breakdown.cell`, `share` the most of its window that it can be on any side.
    """

    key: str
    a: Ends | None
    b: Ends | None
    share: float


def compare_cells(a: Side, b: Side) -> tuple[CellRow, ...]:
    """The cells of the mean rank that either side has."""
    return tuple(_rows(_accounts(a), _accounts(b)))


def _accounts(side: Side) -> list[Breakdown]:
    """Of every run of a side; none where one of them has no account."""
    found = [sample.account for sample in side.samples if sample.account is not None]
    return found if len(found) == len(side.samples) else []


def _rows(a: list[Breakdown], b: list[Breakdown]) -> Iterator[CellRow]:
    for window in WINDOWS:
        for cause in CAUSES:
            if not any(cause in account.causes_of(window) for account in (*a, *b)):
                continue
            key = f"{MEAN}/{window}/{cause}"
            shares = (
                account.cell(key).high_ns / account.length_ns(window)
                for account in (*a, *b)
                if account.length_ns(window)
            )
            yield CellRow(key, _mean(a, window, key), _mean(b, window, key), max(shares, default=0))


def _mean(accounts: list[Breakdown], window: str, key: str) -> Ends | None:
    """Both ends, mean over runs; None without runs, or where one has no such window."""
    if not accounts or not all(account.length_ns(window) for account in accounts):
        return None
    low, high = zip(*(account.cell(key).range_s for account in accounts), strict=True)
    return sum(low) / len(low), sum(high) / len(high)
