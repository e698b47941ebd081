"""Saves: what the steps behind them hide, and how often it is worth saving."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.advice import labeled
from vanidl.advice.checkpoints import BETWEEN_FAILURES_S, COPIED, _limit_claim, _weigh_saves
from vanidl.advice.facts import ANY, Facts
from vanidl.advice.registry import RULES
from vanidl.model.trace import STDIO

WRITTEN = 10**8


def weigh(lengths_s, gaps_s, ranks=1):
    """Saves of 100 MB each that took so long, and so long a loop behind each."""
    phases, now_s = [], 5.0
    for length_s, gap_s in zip(lengths_s, gaps_s, strict=True):
        phases.append(SimpleNamespace(start_s=now_s, end_s=now_s + length_s))
        now_s += length_s + gap_s
    facts = SimpleNamespace(last_step_s=now_s, trace=SimpleNamespace(ranks=(0,) * ranks))
    return _weigh_saves(phases, facts, WRITTEN * len(lengths_s))


def simulate(lengths_s, gaps_s, copy_s):
    """Seconds of a loop that saves in the background, where each save waits for the one before."""
    now = free_at = 0.0
    for length_s, gap_s in zip(lengths_s, gaps_s, strict=True):
        now = max(now, free_at) + copy_s
        free_at = now + length_s
        now += gap_s
    return max(now, free_at)


@pytest.mark.parametrize(
    ("lengths_s", "gaps_s"),
    [([1.0] * 3, [10.0] * 3), ([1.0] * 4, [2.0, 2.0, 2.0, 0.0]), ([2.0] * 4, [1.5] * 4)],
)
def test_steps_hide_as_much_of_saves_as_a_loop_that_is_run_again_with_a_thread(lengths_s, gaps_s):
    saves = weigh(lengths_s, gaps_s)
    for hidden_s, copied_per_s in zip(saves.hidden_s, COPIED, strict=True):
        then_s = simulate(lengths_s, gaps_s, WRITTEN / copied_per_s)
        now_s = sum(lengths_s) + sum(gaps_s)
        # A copy behind which nothing is hidden still costs its time: no more than one for each.
        assert now_s - then_s == pytest.approx(hidden_s, abs=4 * WRITTEN / copied_per_s)
    assert saves.every_s is None
    assert (saves.claim.surely_s, saves.claim.within_s) == saves.hidden_s
    limited = _limit_claim(saves.claim, saves.hidden_s[1] / 2)
    assert limited.within_s == saves.hidden_s[1] / 2
    assert 0 <= saves.hidden_s[0] <= saves.hidden_s[1] <= sum(lengths_s)


@pytest.mark.parametrize(
    ("length_s", "gap_s", "count", "is_seldom"),
    [
        (1.0, 0.1, 5, True),  # a save each second, of an hour that would be lost once in three
        (1.0, 0.1, 1, False),  # the only one
        (1.0, 0.9, 5, False),  # half of it is hidden
        (1000.0, 400.0, 5, True),
        (5000.0, 1000.0, 5, False),  # already as seldom as the formula says, within a half
    ],
)
def test_saves_are_too_many_where_steps_hide_under_half_and_youngs_interval_is_twice_theirs(
    length_s, gap_s, count, is_seldom
):
    saves = weigh([length_s] * count, [gap_s] * count)
    assert (saves.every_s is not None) == is_seldom
    if saves.every_s is not None:
        best_s = (2 * length_s * BETWEEN_FAILURES_S) ** 0.5
        assert abs(saves.every_s - best_s) <= 5
        assert saves.claim.cause == ANY
        assert 1 / count <= saves.claim.stays < 1


def test_each_rank_copies_its_part():
    alone, four = weigh([1.0] * 3, [10.0] * 3), weigh([1.0] * 3, [10.0] * 3, ranks=4)
    assert alone.hidden_s < four.hidden_s


@pytest.mark.parametrize(("nbytes", "is_named"), [(65_000, True), (66_000, False)])
def test_a_training_is_told_to_buffer_calls_of_under_64_kib(nbytes, is_named):
    run = labeled.made("much_through_stdio")
    facts = Facts(run.trace, run.results, run.breakdown)
    assert facts.gains is not None
    moved = sum((t.bytes_read or 0) + (t.bytes_written or 0)
                for t in run.results.summary.layers if t.layer == STDIO)  # fmt: skip
    table = run.trace.counters[STDIO]
    calls = np.zeros_like(table.counters["STDIO_BYTES_READ"])
    calls[0] = moved // nbytes
    changed = replace(table, counters={**table.counters, "STDIO_READS": calls,
                                       "STDIO_WRITES": np.zeros_like(calls)})  # fmt: skip
    counters = {**run.trace.counters, STDIO: changed}
    facts = Facts(replace(run.trace, counters=counters), run.results, run.breakdown)
    (rule,) = (rule for rule in RULES if rule.code == "stdio_share")
    assert (rule.find(facts) is not None) == is_named
