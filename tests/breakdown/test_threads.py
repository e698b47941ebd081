"""Calls of other threads of the process that trains: an interval, and what was assumed is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.makers.training_jobs import Recipe, trace_of
from vanidl.analyses.results import analyse
from vanidl.breakdown import assumptions, attribute_time
from vanidl.breakdown.attribution import open_gains
from vanidl.breakdown.causes import COMPUTE, STORAGE
from vanidl.breakdown.overlap import LOOP
from vanidl.breakdown.rank_accounts import divide_rank
from vanidl.breakdown.rank_cells import Windows
from vanidl.breakdown.windows import INPUT_WAIT, WORK
from vanidl.model.trace import SpanKind, Trace

RECIPE = Recipe(workers=0, read_us=20_000, delivery_us=0)


def moved(trace: Trace, by_ns: int, thread: int = -1) -> Trace:
    """All calls so much later, in some thread."""
    parts = [part.shifted(by_ns) for part in trace.io]
    return replace(trace, io=[replace(p, thread=np.full_like(p.thread, thread)) for p in parts])


def windows_of(trace: Trace, without: str = "") -> Windows:
    found = divide_rank(trace, analyse(trace), 0, assumptions.ALL - {without})
    assert found is not None
    return found


def test_calls_that_lie_in_waits_are_taken_for_those_of_the_thread_that_waits() -> None:
    found, strict = windows_of(trace_of(RECIPE)), windows_of(trace_of(RECIPE), "")
    waits = found.part == INPUT_WAIT
    assert found.low[STORAGE][waits].sum() > 0
    assert found.assumed[assumptions.ONE_THREAD].all()
    strict = windows_of(trace_of(RECIPE), assumptions.ONE_THREAD)
    assert strict.low[STORAGE].sum() == 0
    assert (strict.high[STORAGE] >= found.high[STORAGE]).all()


@pytest.mark.parametrize(("by_ms", "several"), [(0, False), (10, True)])
def test_calls_that_go_on_while_waits_end_are_of_other_threads(by_ms: int, several: bool) -> None:
    """Each read takes 20 ms: moved by half of it one of them crosses the end of each wait."""
    found = windows_of(moved(trace_of(RECIPE), by_ms * 1_000_000))
    assert (found.low[STORAGE].sum() == 0) == several
    assert (assumptions.ONE_THREAD in found.assumed) != several
    work = (found.part == WORK) & (found.step >= 0)
    assert (found.high[COMPUTE] > found.low[COMPUTE])[work].any() == several


@pytest.mark.parametrize(("by_ms", "hidden_s"), [(0, 0.0), (10, None)])
def test_calls_of_unknown_threads_may_be_hidden_behind_the_loop(
    by_ms: int, hidden_s: float | None
) -> None:
    """The training thread that is in a call computes nothing; another thread's hides it not."""
    trace = moved(trace_of(RECIPE), by_ms * 1_000_000)
    profiles = tuple(replace(profile, marks_loop=True) for profile in trace.profiles)
    spans = trace.spans.pick(trace.spans.kind != SpanKind.OP)
    trace = replace(trace, profiles=profiles, spans=spans)
    overlap = attribute_time(trace, analyse(trace)).overlap
    assert overlap is not None
    assert overlap.basis == LOOP
    mean = overlap.mean
    assert mean.hidden_s == hidden_s
    assert mean.in_wait_s is not None
    # If they are another thread's, those outside of waits run while training computes.
    assert mean.io_s is not None
    assert mean.unobserved_s is not None
    outside_s = mean.io_s - mean.unobserved_s - mean.in_wait_s
    assert mean.hidden_at_least_s == 0
    assert mean.hidden_at_most_s == pytest.approx(0 if hidden_s == 0 else outside_s)


@pytest.mark.parametrize("counted_s", [0.0, 0.5, 100.0])
def test_reads_that_were_counted_and_not_traced_may_have_been_hidden(counted_s: float) -> None:
    """So much more, but never more than there was compute to hide it."""
    trace = trace_of(RECIPE)
    whole = attribute_time(trace, analyse(trace)).overlap
    assert whole is not None
    table = trace.counters["POSIX"]
    read_s = table.seconds["POSIX_F_READ_TIME"].copy()
    read_s[np.flatnonzero(table.process == 0)[0]] += counted_s
    seconds = {**table.seconds, "POSIX_F_READ_TIME": read_s}
    trace = replace(trace, counters={**trace.counters, "POSIX": replace(table, seconds=seconds)})
    found = attribute_time(trace, analyse(trace)).overlap
    assert found is not None
    before, after = whole.per_rank[0], found.per_rank[0]
    assert after.hidden_at_least_s == before.hidden_s == after.hidden_s
    room_s = after.window_s - (after.input_wait_s or 0.0)
    most_s = min((before.hidden_at_most_s or 0.0) + counted_s, room_s)
    assert after.hidden_at_most_s == pytest.approx(most_s, rel=1e-6)


def test_threads_of_which_nobody_knows_which_one_trains_leave_it_open() -> None:
    trace = trace_of(RECIPE)
    halves = [replace(p, thread=(np.arange(len(p)) % 2).astype(np.int32)) for p in trace.io]
    found = windows_of(replace(trace, io=halves))
    assert found.low[STORAGE].sum() == 0
    assert found.high[STORAGE].sum() > 0
    assert assumptions.ONE_THREAD not in found.assumed
    gains = open_gains(replace(trace, io=halves), analyse(replace(trace, io=halves)))
    assert gains is not None
    assert gains.without(STORAGE).low_ns == 0


def test_a_thread_that_is_known_to_read_ahead_is_what_waits_may_be_for() -> None:
    """Its calls are none of the training thread's, which felt no more than its waits."""
    trace = moved(trace_of(RECIPE), 0, thread=1)
    known = tuple(replace(profile, thread_known=True) for profile in trace.profiles)
    found = windows_of(replace(trace, profiles=known))
    waits, work = found.part == INPUT_WAIT, (found.part == WORK) & (found.step >= 0)
    assert found.low[STORAGE][waits].sum() == 0
    assert (found.high[STORAGE][waits] > 0.9 * found.length_ns[waits]).all()
    alone = windows_of(trace_of(RECIPE))
    assert (found.high[STORAGE][work] <= alone.high[STORAGE][work]).all()
