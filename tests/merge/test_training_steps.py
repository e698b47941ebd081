"""Which spans are training steps, against loops whose batches are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.makers.records import JOB_START_NS, Io, Span, darshan_log, profile
from tests.makers.runs import analysed
from tests.makers.training_loops import loop, marked
from vanidl.breakdown.account import EPOCH_END, WAIT
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble
from vanidl.merge.training_steps import (
    derive_from_waits,
    drop_stub,
    got_batch,
    set_validation_apart,
)
from vanidl.model.trace import SpanKind
from vanidl.readers.records import ProfileTrace

MS = 1_000_000


def steps_of(trace: ProfileTrace) -> list[int]:
    return trace.step[trace.kind == SpanKind.STEP].tolist()


@given(st.lists(st.integers(2, 6), min_size=1, max_size=4))
def test_a_loop_has_as_many_steps_as_batches(epochs):
    """However many epochs: waits that end a loader are not for a batch."""
    seen = loop([["train"] * n for n in epochs])
    assert int((seen.kind == SpanKind.INPUT_WAIT).sum()) == sum(epochs) + len(epochs)
    found = set_validation_apart(drop_stub(derive_from_waits(seen)))
    assert steps_of(found) == list(range(sum(epochs)))


def test_steps_run_from_one_waits_end_to_the_next():
    seen = loop([["train"] * 3])
    waits = seen.end_ns[seen.kind == SpanKind.INPUT_WAIT].tolist()
    found = derive_from_waits(seen)
    mine = found.kind == SpanKind.STEP
    assert found.start_ns[mine].tolist() == waits[:-1]
    assert found.end_ns[mine].tolist() == waits[1:]
    assert found.steps_from == "input waits"
    assert (np.diff(found.start_ns) >= 0).all()


def test_validation_between_epochs_is_not_counted():
    seen = loop([["train"] * 4, ["test"] * 2, ["train"] * 4, ["test"] * 2])
    found = set_validation_apart(derive_from_waits(seen))
    assert steps_of(found) == list(range(8))
    assert int((found.kind == SpanKind.EVALUATION).sum()) == 4


def test_a_run_that_only_infers_has_steps():
    found = set_validation_apart(derive_from_waits(loop([["test"] * 5])))
    assert steps_of(found) == list(range(5))


@pytest.mark.parametrize(
    ("last", "work", "steps"),
    [
        (0.3, 0, 5),  # the loop had ended: 61 marks for 60 batches
        (300, 0, 5),  # and then the model was saved
        (2, 1.5, 5),  # what the device had left to do
        (25, 20, 6),  # a batch that had no wait
        (60, 8, 6),  # a batch of fewer samples
    ],
)
def test_a_last_mark_without_work_is_no_step(last, work, steps):
    seen = marked([*[100.0] * 5, last], [*[20.0] * 5, work])
    assert len(steps_of(drop_stub(seen))) == steps


@pytest.mark.parametrize(("steps", "left"), [(3, 3), (4, 3)])
def test_of_three_steps_the_last_says_nothing(steps, left):
    seen = marked([*[100.0] * (steps - 1), 0.3], [*[20.0] * (steps - 1), 0])
    assert len(steps_of(drop_stub(seen))) == left


@pytest.mark.parametrize(("operations", "is_batch"), [(0, False), (1, False), (2, True)])
def test_a_wait_got_a_batch_where_a_twentieth_of_the_usual_operations_follow(operations, is_batch):
    """What creates the iterator of the next epoch is less."""
    spans, at = [], 0
    for count in (40, 40, 40, operations):
        spans.append(Span(SpanKind.INPUT_WAIT, at, at + MS))
        spans += [Span(SpanKind.OP, at + (i + 1) * MS, at + (i + 2) * MS) for i in range(count)]
        at += 50 * MS
    seen = profile(spans)
    waits = seen.kind == SpanKind.INPUT_WAIT
    found = got_batch(seen, seen.start_ns[waits], seen.end_ns[waits])
    assert found.tolist() == [True, True, True, is_batch]


def test_durations_alone_say_nothing_of_the_last_step():
    """An event file has nothing beside its steps."""
    spans = [Span(SpanKind.STEP, k * 100 * MS, (k + 1) * 100 * MS, k) for k in range(6)]
    spans.append(Span(SpanKind.STEP, 600 * MS, 601 * MS, 6))
    assert len(steps_of(drop_stub(profile(spans)))) == 7


def recorded(seen: ProfileTrace, *more: ProfileTrace):
    reads = [Io(k * 31 * MS, k * 31 * MS + 5 * MS, k * 4096, 4096) for k in range(10)]
    return analysed(assemble(Group((darshan_log(reads),), (seen, *more)), {}))


def test_an_unmarked_profile_has_waits_compute_and_overlap():
    """Waits before the first batch and at the end of the loader are ends of epochs."""
    seen = loop([["train"] * 4, ["train"] * 4])
    waits = seen.kind == SpanKind.INPUT_WAIT
    results = recorded(seen)
    rank = results.overlap.per_rank[0]
    waited = (seen.end_ns - seen.start_ns)[waits].sum() / 1e9
    account = results.breakdown
    all_waits = (account.length_ns(WAIT) + account.length_ns(EPOCH_END)) / 1e9
    assert all_waits == pytest.approx(waited)
    assert 0 < rank.input_wait_s < waited
    assert rank.window_s == pytest.approx((seen.end_ns.max() - seen.start_ns.min()) / 1e9)
    assert rank.compute_s > 0
    assert rank.in_wait_s is not None
    assert results.steps.steps_from == "input waits"
    assert "steps from input waits" in results.steps.source
    assert len(results.steps.table.step) == 8


def test_marks_of_another_source_of_the_process_go_first():
    """No second set of steps beside those that an event file marked."""
    spans = [Span(SpanKind.STEP, k * 60 * MS, (k + 1) * 60 * MS, k) for k in range(4)]
    other = replace(profile(spans), path="events.out.tfevents.1.node01.100.0", source="tfevents")
    results = recorded(loop([["train"] * 4]), other)
    assert results.steps.source == "tfevents"
    assert len(results.steps.table.step) == 4


def test_the_run_says_what_it_did_not_count():
    trace = assemble(Group((), (loop([["train"] * 4, ["test"] * 2]),)), {})
    codes = {notice.code for notice in trace.warnings}
    assert {"steps_from_waits", "validation_steps"} <= codes
    assert trace.job.start_ns == JOB_START_NS
