"""What was hidden where only the loop was marked: a run whose split is known by construction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.makers.records import Io, Span, darshan_log, profile
from tests.makers.runs import analysed
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble
from vanidl.merge.profiles import drop_bare_loops
from vanidl.model.trace import SpanKind, Trace
from vanidl.readers.records import ProfileTrace
from vanidl.run import Run

MS = 1_000_000
STEPS, WAIT, WHOLE = 10, 4, 10  # each step of 10 ms waits for 4 ms
OWN = [Io(1 * MS, 3 * MS), Io(17 * MS, 19 * MS, op=1)]  # of the trainer: in a wait, and beside
WORKERS = [Io(2 * MS, 5 * MS), Io(16 * MS, 18 * MS), Io(150 * MS, 160 * MS)]


def loop(*, waits: bool = True) -> ProfileTrace:
    spans = [Span(SpanKind.STEP, k * WHOLE * MS, (k + 1) * WHOLE * MS, k) for k in range(STEPS)]
    starts = [span.start for span in spans]
    spans += [Span(SpanKind.INPUT_WAIT, at, at + WAIT * MS) for at in starts if waits]
    return replace(profile(spans), path="host-100.steps", source="vanidl-record", marks_loop=True)


def trace_of(*profiles: ProfileTrace) -> Trace:
    logs = (darshan_log(OWN), darshan_log(WORKERS, pid=101, parent=100))
    return assemble(Group(logs, profiles), {})


def split(results: Run) -> dict[str, float]:
    assert results.overlap is not None
    names = ("unobserved_s", "in_wait_s", "hidden_s", "behind_communication_s", "other_s")
    return {name: round(getattr(results.overlap.mean, name) * 1e3, 6) for name in names}


def test_the_split_is_that_of_the_construction() -> None:
    results = analysed(trace_of(loop()))
    # [1, 5) and [16, 19) and [150, 160) were busy; [4, 5) and [16, 17) ran beside the loop; in
    # [17, 19) the training process wrote itself, which hides nothing, whatever else was read
    assert split(results) == {
        "unobserved_s": 10.0,
        "in_wait_s": 3.0,
        "hidden_s": 2.0,
        "behind_communication_s": 0.0,
        "other_s": 2.0,
    }
    assert results.overlap.basis == "loop"
    assert results.overlap.accelerator_utilization is None  # no compute was recorded
    assert results.overlap.mean.compute_s == pytest.approx((STEPS * (WHOLE - WAIT) - 2) / 1e3)


def test_words_claim_no_compute() -> None:
    said = analysed(trace_of(loop())).headline
    assert "overlapped with training" in said
    assert "compute" not in said


def test_without_waits_nothing_is_known_to_be_hidden() -> None:
    mean = analysed(trace_of(loop(waits=False))).overlap.mean
    assert mean.hidden_s is None
    assert mean.input_wait_s is None
    assert mean.compute_s is None


def profiled() -> ProfileTrace:
    """A profiler's window over the second step: one operator, from 16 to 16.5 ms."""
    return profile(
        [
            Span(SpanKind.STEP, 10 * MS, 20 * MS, 1),
            Span(SpanKind.INPUT_WAIT, 10 * MS, 14 * MS),
            Span(SpanKind.OP, 15 * MS, 15 * MS + 1),
            Span(SpanKind.OP, 16 * MS, 16 * MS + MS // 2),
            Span(SpanKind.OP, 20 * MS - 1, 20 * MS),
        ]
    )


def test_a_loop_of_an_unknown_loader_gives_way_to_a_profile_with_waits() -> None:
    bare, own = loop(waits=False), profiled()
    assert drop_bare_loops([bare, own]) == [own]
    assert drop_bare_loops([bare]) == [bare]  # it is all there is
    assert drop_bare_loops([loop(), own])[1] is own
    assert len(drop_bare_loops([loop(), own])) == 2
    assert len(drop_bare_loops([bare, replace(own, pid=7)])) == 2


def test_a_profiler_says_more_inside_its_window_only() -> None:
    results = analysed(trace_of(loop(), profiled()))
    assert results.overlap.basis == "ops+loop"
    assert split(results)["hidden_s"] == 1.5  # [4, 5) by the loop, [16, 16.5) by the operator
    assert split(results)["unobserved_s"] == 10.0
    table = results.steps.table
    assert table.step.tolist() == list(range(STEPS))  # the profiled step is no second one
    assert np.round(table.input_wait_s * 1e3).tolist() == [WAIT] * STEPS
