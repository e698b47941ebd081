"""Steps that were placed between bursts of reads, in words."""

from __future__ import annotations

import numpy as np
import pytest

from vanidl.analyses.placement import Placement, RankPlacement
from vanidl.sections.placement import list_placement_sentences
from vanidl.wording.results import describe_placement


def rank(number: int = 0, *, lag: int = 0, slope: float | None = None) -> RankPlacement:
    none = np.zeros(0)
    return RankPlacement(
        label=f"rank {number}", rank=number, path="/data/train.h5", bursts=4, lag=lag, why="",
        shortest_step_s=0.5, other_steps=0, earliest_s=none, latest_s=none, step_s=none, io_s=10.0,
        hidden_low_s=1.0, hidden_high_s=9.0, before_s=0.0, after_s=0.0, slope=slope,
        slope_error=None if slope is None else 0.1,
    )  # fmt: skip


def placed(*ranks: RankPlacement, verdict: str = "not determined") -> Placement:
    low, high = (sum(getattr(r, f"hidden_{side}_s") for r in ranks) for side in ("low", "high"))
    return Placement(ranks, sum(r.io_s for r in ranks), low, high, verdict)


def test_nothing_placed_is_nothing_said():
    assert describe_placement(None) == ""
    assert list_placement_sentences(None) == []


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        ("hidden", "nearly all of it was hidden"),
        ("exposed", "nearly none of it was hidden"),
        ("not determined", "how much was hidden is not determined"),
    ],
)
def test_bounds_are_sums_over_ranks(verdict, words):
    alone = describe_placement(placed(rank(), verdict=verdict))
    both = describe_placement(placed(rank(), rank(1), verdict=verdict))
    assert "hid 1.00 s to 9.00 s of 10.0 s of reads:" in alone
    assert "hid 2.00 s to 18.0 s of 20.0 s of reads, summed over 2 ranks:" in both
    assert words in alone


def test_where_the_steps_lie_is_said_once_for_all_ranks_or_by_rank():
    where, _, _ = list_placement_sentences(placed(rank(lag=2), rank(1, lag=2)))
    assert "step k between bursts k + 2 and k + 3, both counted from 0" in where
    where, _, _ = list_placement_sentences(placed(rank(lag=2), rank(1, lag=0)))
    assert "which two differs by rank (bursts 0, 2 after its number)" in where


def test_slopes_near_1_waited_and_slopes_near_0_read_ahead():
    slopes = (0.05, -0.1, 1.1, 0.5, 0.5)  # of ranks; 0.5 is far from both
    _, slope, _ = list_placement_sentences(
        placed(*(rank(i, slope=s) for i, s in enumerate(slopes)))
    )
    assert "2 of 5 ranks read ahead and 1 waited; of 2 it cannot be told." in slope
    _, slope, _ = list_placement_sentences(placed(rank(0, slope=1.1), rank(1, slope=1.0)))
    assert "By that slope, 2 of 2 ranks waited. It" in slope
    _, slope, _ = list_placement_sentences(placed(rank(0, slope=0.5)))
    assert "By that slope, nothing can be told of 1 rank. It" in slope
    _, slope, _ = list_placement_sentences(placed(rank()))
    assert slope == "Whether longer bursts made iterations longer is not known."
