"""Rules about the training loop, on accounts of which one cell is set by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.advice import labeled
from tests.makers.results import EXAMPLES
from vanidl.advice import training_loop
from vanidl.advice.actions import Context, suggest_remedies
from vanidl.advice.capacity import CoreLoad
from vanidl.advice.changes import bound_handing_over_s
from vanidl.advice.facts import Facts, Seen
from vanidl.advice.registry import list_rules
from vanidl.advice.training_loop import (
    CALLS_SHARE,
    COPIES_SHARE,
    ENDS_SHARE,
    EVALUATION_SHARE,
    PART_SHARE,
)
from vanidl.breakdown.account import Breakdown, Column
from vanidl.model import states
from vanidl.model.counter_tables import CounterTable
from vanidl.model.run_facts import Ending
from vanidl.model.trace import OBJECT

RULE = {rule.code: rule for rule in list_rules()}


def facts_with(name: str = "healthy", **cells: float) -> Facts:
    """A run in whose account cells have these shares of a training step, of each of them."""
    run = labeled.made(name)
    account = run.breakdown
    ranks = len(account.ranks)
    columns = dict(account.columns)
    for key, share in cells.items():
        window, _, name_of = key.partition("/")
        per_run = window in ("phase", "epoch_end")
        mean_ns = share * (account.steps_ns if per_run else account.length_ns("step"))
        total = np.full(ranks, round(mean_ns * (1 if per_run else account.steps[0])))
        columns[key] = Column(total, total, mean_ns, mean_ns)
        if window == "step":
            columns.pop(f"input_wait/{name_of}", None)
    changed: Breakdown = replace(account, columns=columns)
    return Facts(run.trace, run.results, changed)


@pytest.mark.parametrize(
    ("code", "key", "share"),
    [
        ("loop_work", "step_part/rest", PART_SHARE),
        ("loop_work", "step_part/prepare", PART_SHARE),
        ("loop_syncs", "step/storage.sync", CALLS_SHARE),
        ("loop_writes", "step/storage.write", CALLS_SHARE),
        ("device_copies", "step/copy", COPIES_SHARE),
        ("loop_blocked", "step/blocked.network", ENDS_SHARE),
        ("loop_blocked", "step/blocked.sleep", ENDS_SHARE),
        ("loop_locked", "step/blocked.lock", ENDS_SHARE),
        ("long_validation", "phase/validation", EVALUATION_SHARE / (1 - EVALUATION_SHARE)),
    ],
)
def test_what_the_loop_does_is_named_from_its_threshold_on(code, key, share):
    assert RULE[code].find(facts_with(**{key: 0.98 * share})) is None
    found = RULE[code].find(facts_with(**{key: 1.02 * share}))
    assert found is not None
    assert found.claim is not None


@pytest.mark.parametrize(("part", "factor", "is_named"), [
    ("prepare", 1.02, True), ("prepare", 0.98, False), ("rest", 0.98, True),
])  # fmt: skip
def test_work_on_batches_is_worth_a_worker_from_what_handing_over_takes_on(part, factor, is_named):
    facts = facts_with(**{f"step_part/{part}": 0.5})
    account = facts.account
    shrink = factor * bound_handing_over_s()[0] * 1e9 / (0.5 * account.length_ns("step"))
    assert shrink < 1
    columns = {
        key: replace(
            column,
            low=(column.low * shrink).astype(np.int64),
            high=(column.high * shrink).astype(np.int64),
            mean_low=column.mean_low * shrink,
            mean_high=column.mean_high * shrink,
        )
        for key, column in account.columns.items()
    }
    shorter = replace(facts, given=replace(account, columns=columns))
    assert (RULE["loop_work"].find(shorter) is not None) == is_named


@pytest.mark.parametrize(
    ("load", "is_sure"), [(CoreLoad(4.0, 0.004), True), (CoreLoad(1.0, 1.0), False), (None, False)]
)
def test_workers_that_prepare_batches_gain_for_sure_what_cores_leave_them(
    monkeypatch, load, is_sure
):
    monkeypatch.setattr(training_loop, "measure_core_load", lambda trace: load)
    facts = facts_with(**{"step_part/prepare": 0.5})
    step_s = facts.account.length_ns("step") / 1e9
    found = RULE["loop_work"].find(facts)
    assert (found.claim.surely_s > 0) == is_sure
    if is_sure:
        workers = facts.workers_of_rank or training_loop.FEW_WORKERS
        left_s = load.bound_step_s(len(facts.trace.ranks) * (1 + workers), step_s / 2)
        most_s = (step_s - left_s) * facts.steps_of_rank
        assert found.claim.surely_s <= most_s * (1 + 1e-9)


@pytest.mark.parametrize(
    ("code", "kind"),
    [("loop_syncs", states.SYNC), ("loop_blocked", states.NETWORK), (None, states.METADATA)],
)
def test_what_training_threads_were_seen_waiting_for_beside_the_model_counts(
    monkeypatch, code, kind
):
    run = labeled.made("healthy")
    facts = Facts(run.trace, run.results, run.breakdown)
    assert len(facts.trace.ranks) == 1
    steps_s = facts.account.steps_ns / 1e9
    seen = Seen(0.5 * steps_s, 10_000, {kind: 0.8, states.RUNNING: 0.2}, 0.0)
    monkeypatch.setattr(Facts, "look_at_part", lambda self, part: seen if part == "rest" else None)
    codes = ("loop_syncs", "loop_blocked", "loop_locked", "loop_writes")
    found = {each: RULE[each].find(facts) for each in codes}
    assert {each for each in codes if found[each] is not None} == ({code} if code else set())
    if code is not None:
        spent_s = facts.in_loop_ns(found[code].claim.cause)[0] / 1e9
        assert spent_s == pytest.approx(0.4 * steps_s, rel=0.03)


@pytest.mark.parametrize(("sent_share", "sends"), [(0.6, True), (0.4, False)])
def test_of_objects_that_are_sent_in_the_background_the_last_one_may_stay(sent_share, sends):
    facts = facts_with(**{"step/blocked.network": 0.5})
    spent_s = facts.in_loop_ns("blocked.network")[0] / 1e9
    ranks, count = len(facts.trace.ranks), 4
    took_s = np.full(count, sent_share * spent_s * ranks / count)
    table = CounterTable(
        OBJECT, np.zeros(count, np.int32), np.zeros(count, np.int32),
        {"OBJECT_WRITES": np.ones(count, np.int64)}, {"OBJECT_F_WRITE_TIME": took_s},
    )  # fmt: skip
    facts = replace(facts, trace=replace(facts.trace, counters={OBJECT: table}))
    claim = RULE["loop_blocked"].find(facts).claim
    assert bool(claim.keeps) == sends
    assert claim.surely_s == (pytest.approx(spent_s - took_s[0]) if sends else None)


def test_own_work_is_not_what_the_loop_waits_for():
    parts = {"step_part/rest": 0.5, "step/storage": 0.45}
    assert RULE["loop_work"].find(facts_with(**parts)) is None


@pytest.mark.parametrize(("name", "epochs"), [("one_epoch", 1), ("healthy", 2)])
def test_ends_of_epochs_are_named_where_workers_start_anew_with_epochs_to_come(name, epochs):
    recipe = replace(labeled.RECIPES["healthy"], epochs=epochs)
    run = labeled.trace_of(recipe)
    results = labeled.analyse(run)
    facts = Facts(run, results)
    ends_ns = facts.account.steps_ns
    column = Column(np.array([round(ends_ns)]), np.array([round(ends_ns)]), ends_ns, ends_ns)
    account = replace(facts.account, columns={**facts.account.columns, "epoch_end/": column})
    found = RULE["epoch_ends"].find(Facts(run, results, account))
    assert (found is not None) == (epochs > 1 and facts.starts_workers_anew)
    if found is not None:
        assert found.claim.stays == pytest.approx(1 / epochs)


def test_a_program_that_failed_comes_first():
    run = labeled.made("in_process_slow_storage")
    failed = replace(run, trace=replace(run.trace, ending=Ending(1, None, "OSError: full")))
    assert failed.diagnoses[0].code == "failed"
    assert failed.diagnoses[0].title == "Mend what ended the program, and record again"
    assert "OSError: full" in failed.diagnoses[0].findings[0].title
    ended = replace(run, trace=replace(run.trace, ending=Ending(0)))
    assert all(d.code != "failed" for d in ended.diagnoses)


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("input_bound_blocked", "blocked.lock"),
        ("input_bound_blocked", "blocked.network"),
        ("input_bound_cores", "too_few_cores"),
    ],
)
def test_waits_are_for_what_holds_half_of_them(code, cause):
    run = labeled.made("in_process_slow_storage")
    waited_ns = run.breakdown.length_ns("input_wait")
    for share, is_named in ((0.49, False), (0.51, True)):
        part_ns = share * waited_ns
        cell = Column(np.array([int(part_ns)]), np.array([int(part_ns)]), part_ns, part_ns)
        nothing = Column(np.array([0]), np.array([0]), 0.0, 0.0)
        columns = {**run.breakdown.columns, f"input_wait/{cause}": cell, STORED: nothing}
        facts = Facts(run.trace, run.results, replace(run.breakdown, columns=columns))
        assert (RULE[code].find(facts) is not None) == is_named


STORED = "input_wait/storage"


@pytest.mark.parametrize("waits_known", [True, False])
def test_a_lock_may_be_that_of_a_queue_of_batches_where_no_waits_were_recorded(
    waits_known: bool,
) -> None:
    trace = EXAMPLES["one_rank"]().trace
    run = SimpleNamespace(trace=trace, account=SimpleNamespace(waits_known=waits_known))
    advice = suggest_remedies("background_work", Context(run, (), None))
    assert any("--wait queue:Queue.get" in each.code for each in advice.remedies) != waits_known
    assert ("queue of batches" in advice.title) != waits_known
