"""Saves: what the steps behind them hide, and how often it is worth saving."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.advice import labeled
from vanidl.advice.checkpoints import (
    BETWEEN_FAILURES_S,
    COPIED,
    STALL_SHARE,
    _limit_claim,
    _Saves,
    _weigh_saves,
)
from vanidl.advice.facts import ANY, Claim, Facts, LoopThreads
from vanidl.advice.registry import list_rules
from vanidl.model import intervals, states
from vanidl.model.states import SampledThread, Samples, States
from vanidl.model.trace import STDIO

WRITTEN = 10**8


def weigh(lengths_s, gaps_s, ranks=1, ending=None):
    """Saves of 100 MB each that took so long, and so long a loop behind each."""
    phases, now_s = [], 5.0
    for length_s, gap_s in zip(lengths_s, gaps_s, strict=True):
        phases.append(SimpleNamespace(start_s=now_s, end_s=now_s + length_s))
        now_s += length_s + gap_s
    facts = SimpleNamespace(
        last_step_s=now_s,
        trace=SimpleNamespace(ranks=(0,) * ranks),
        find_loop_threads=lambda since_s: ending,
    )
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


def upload(lengths_s, gaps_s, sent_s, copy_s=None, is_shared=False):
    """When a loop ends that uploads each save by a thread and waits for these at its end.

    With a time for a copy the thread saves as well. `is_shared`: uploads wait for each other.
    """
    now = sent_at = loop_at = 0.0
    lives = []
    for length_s, gap_s in zip(lengths_s, gaps_s, strict=True):
        now += length_s if copy_s is None else copy_s
        saved_at = now + (0.0 if copy_s is None else length_s)
        begun = max(saved_at, sent_at) if is_shared else saved_at
        lives.append((now, begun + sent_s))
        sent_at = max(sent_at, begun + sent_s)
        now += gap_s
        loop_at = now
    return max(loop_at, sent_at), loop_at, lives


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize(
    ("lengths_s", "gaps_s", "sent_s"),
    [
        ([0.5] * 5, [1.5] * 5, 3.0),  # the loop ends first: the last save stays
        ([0.5] * 5, [1.5] * 5, 1.9),  # by a little
        ([0.1, 0.1, 0.1, 2.0], [3.0] * 4, 3.5),
        ([0.5] * 5, [4.0] * 5, 0.5),  # nothing is waited for
        ([0.5] * 5, [1.5] * 5, 1.4),  # nor now, but behind saves in the background
    ],
)
def test_what_the_program_ends_with_waiting_for_stays(lengths_s, gaps_s, sent_s, is_shared):
    now_s, loop_s, lives = upload(lengths_s, gaps_s, sent_s, is_shared=is_shared)
    copy_s = WRITTEN / COPIED[1]
    then_s, *_ = upload(lengths_s, gaps_s, sent_s, copy_s, is_shared)
    begun, ended = (np.array(ends) for ends in zip(*lives, strict=True))
    lived = intervals.union((begun * 1e9).astype(int), (ended * 1e9).astype(int))
    idle_s = ended.max() - begun.min() - lived.length / 1e9
    ending = LoopThreads(now_s > loop_s, idle_s, max(loop_s - ended.max(), 0.0))
    low_s, high_s = weigh(lengths_s, gaps_s, ending=ending).hidden_s
    assert 0 <= low_s <= high_s
    slack_s = 5 * max(WRITTEN / each for each in COPIED)
    assert low_s - slack_s <= now_s - then_s <= high_s + slack_s
    without = weigh(lengths_s, gaps_s)
    assert (high_s < without.hidden_s[1]) == ending.waits


def watched(position, kinds, begin_s, is_first=False):
    """A thread that was looked at each 10 ms from some second of the job on."""
    run = labeled.made("long_checkpoints")
    process = run.trace.processes[run.trace.ranks[0]]
    times = run.trace.job.start_ns + round(begin_s * 1e9) + np.arange(len(kinds)) * 10**7
    count = len(kinds)
    samples = Samples(
        times, np.array(kinds, np.uint8), np.full(count, -1, np.int32),
        np.zeros(count, np.uint32), np.zeros(count, bool),
    )  # fmt: skip
    nothing = np.empty((0, 3), np.int64)
    tid = process.pid if is_first else process.pid + position
    return SampledThread(process.host, process.pid, tid, 1, samples, (), nothing, nothing)


@pytest.mark.parametrize(
    ("own", "other", "since_s", "is_waited_for"),
    [
        (states.LOCK, states.NETWORK, 1.6, True),
        (states.RUNNING, states.NETWORK, 1.6, False),  # goes on with other work
        (states.LOCK, states.LOCK, 1.6, False),  # nobody is at work
        (states.LOCK, states.NETWORK, 2.49, False),  # begun before that
    ],
)
def test_threads_that_the_program_waits_for_began_in_its_loop_and_are_at_work(
    own, other, since_s, is_waited_for
):
    run = labeled.made("long_checkpoints")
    last_s = Facts(run.trace, run.results, run.breakdown).last_step_s
    main = watched(0, [own] * 50, last_s, is_first=True)
    threads = (
        main, watched(1, [other] * 31, 1.7), watched(2, [other] * 40, last_s - 0.2),
    )  # fmt: skip
    trace = replace(run.trace, states=States(threads))
    facts = Facts(trace, run.results, run.breakdown)
    ending = facts.find_loop_threads(since_s)
    assert (ending is not None) == is_waited_for
    if ending is not None:
        assert ending.waits
        assert ending.slack_s == 0
        assert ending.idle_s == pytest.approx(last_s - 0.2 - 2.0, abs=0.02)
    sooner = replace(trace, states=States((main, watched(1, [states.NETWORK] * 31, 1.7))))
    done = Facts(sooner, run.results, run.breakdown).find_loop_threads(1.6)
    assert not done.waits
    assert done.slack_s == pytest.approx(last_s - 2.0, abs=0.02)
    assert Facts(run.trace, run.results, run.breakdown).find_loop_threads(0.0) is None


@pytest.mark.parametrize(("share", "is_named"), [(1.02, True), (0.98, False)])
def test_saves_in_the_background_gain_two_per_cent_by_the_middle(monkeypatch, share, is_named):
    run = labeled.made("long_checkpoints")
    facts = Facts(run.trace, run.results, run.breakdown, run.gains)
    whole_s = STALL_SHARE * run.trace.job.run_time_s
    saves = _Saves((0.0, 2 * share * whole_s), None, Claim(ANY, "checkpoint", within_s=1.0))
    monkeypatch.setattr("vanidl.advice.checkpoints._weigh_saves", lambda *_: saves)
    (rule,) = (rule for rule in list_rules() if rule.code == "checkpoint_stall")
    assert (rule.find(facts) is not None) == is_named


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
    (rule,) = (rule for rule in list_rules() if rule.code == "stdio_share")
    assert (rule.find(facts) is not None) == is_named
