"""What costs a run most: each cost is a cell of the account, and nothing leads that may be none."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import vanidl
from tests.makers.accounts import account_of
from tests.makers.pytorch_traces import event, kernel, steps, trace, write
from tests.makers.results import EXAMPLES
from vanidl.breakdown.account import MEAN, PHASE, STEP, WAIT, Breakdown, Column
from vanidl.breakdown.causes import COMMUNICATION, DEVICE_IDLE, QUEUED
from vanidl.breakdown.costs import WHOLE_PHASES, rank_costs
from vanidl.formatting.units import seconds
from vanidl.wording.account import LITTLE, find_lead
from vanidl.wording.cells import settle


@cache
def example_account(name: str) -> Breakdown:
    return account_of(EXAMPLES[name]())


def column(account: Breakdown, low_ns: float, high_ns: float | None = None) -> Column:
    ranks, high_ns = len(account.ranks), low_ns if high_ns is None else high_ns
    sides = (np.full(ranks, int(ns)) for ns in (low_ns, high_ns))
    return Column(*sides, float(low_ns), float(high_ns))


def with_cells(account: Breakdown, **cells: tuple[float, float]) -> Breakdown:
    """The account with other cells; `__` stands for a slash in their names."""
    more = {name.replace("__", "/"): column(account, *ends) for name, ends in cells.items()}
    return replace(account, columns=dict(account.columns) | more)


@pytest.mark.parametrize("name", EXAMPLES)
def test_costs_are_cells_of_the_account_in_order(name):
    account = example_account(name)
    costs = rank_costs(account)
    assert [c.low_ns for c in costs] == sorted((c.low_ns for c in costs), reverse=True)
    for cost in costs:
        assert 0 < cost.low_ns <= cost.high_ns
        if cost.window == WAIT:
            assert cost.low_ns == account.length_ns(WAIT)
        elif cost.window in WHOLE_PHASES:
            assert cost.low_ns == account.cell(cost.key).low_ns
        elif cost.window == STEP:
            waited = account.cell(f"{MEAN}/{WAIT}/{cost.cause}")
            all_steps = account.cell(cost.key).high_ns * float(
                account.steps[account.observed].mean()
            )
            assert cost.low_ns <= max(all_steps - waited.low_ns, 0)


@pytest.mark.parametrize("phase", WHOLE_PHASES)
def test_a_phase_leads_when_it_took_more_than_the_waits(phase):
    account = example_account("one_rank")
    wait_ns = account.length_ns(WAIT)
    for spent_ns, leads in ((wait_ns * 1.01, True), (wait_ns * 0.99, False)):
        changed = with_cells(account, **{f"{PHASE}__{phase}": (spent_ns, spent_ns)})
        lead = find_lead(changed)
        assert (lead.window == phase) is leads
        assert bool(lead.sentence) is leads


def test_what_may_be_nothing_never_leads():
    account = with_cells(example_account("one_rank"), phase__checkpoint=(0, 10e9 * 3600))
    assert all(cost.window != "checkpoint" for cost in rank_costs(account))


def test_next_to_nothing_does_not_lead():
    account = with_cells(example_account("one_rank"), input_wait__=(0, 0))
    for share, leads in ((1.01 * LITTLE, True), (0.99 * LITTLE, False)):
        spent_ns = share * account.window_ns
        changed = with_cells(account, phase__checkpoint=(spent_ns, spent_ns))
        assert (find_lead(changed).window == "checkpoint") is leads


def test_an_open_cost_is_said_with_both_ends():
    account = example_account("one_rank")
    wait_ns = account.length_ns(WAIT)
    changed = with_cells(account, phase__checkpoint=(1.5 * wait_ns, 2 * wait_ns))
    cell = changed.cell(f"{MEAN}/{PHASE}/checkpoint")
    ends = f"{seconds(cell.low_ns / 1e9)} to {seconds(cell.high_ns / 1e9)}"
    assert settle(find_lead(changed).sentence).startswith(f"Saving took {ends} of the ")


def test_communication_that_nothing_covers_leads_where_it_is_most():
    account = example_account("one_rank")
    steps = float(account.steps[account.observed].mean())
    for share, leads in ((1.01, True), (0.99, False)):
        spent_ns = share * account.length_ns(WAIT) / steps
        free = {
            f"input_wait__{COMMUNICATION}": (0, 0),
            f"step__{COMMUNICATION}": (spent_ns, spent_ns),
        }
        lead = find_lead(with_cells(account, **free))
        assert lead.sentence.startswith("Communication that no kernel covers") is leads


@pytest.mark.parametrize(
    ("queued", "why"),
    [(None, "."), (0.49, "the host gave it no work in time."), (0.51, "had not begun.")],
)
def test_an_idle_device_says_whether_it_had_work(queued, why):
    account = example_account("one_rank")
    idle_ns = 2 * account.length_ns(WAIT)
    cells = {f"step__{DEVICE_IDLE}": (0, idle_ns)}
    if queued is not None:
        cells[f"step__{DEVICE_IDLE}.{QUEUED}"] = (0, queued * idle_ns)
    sentence = find_lead(with_cells(account, input_wait__=(0, 0), **cells)).sentence
    assert sentence.startswith("The device was idle")
    assert sentence.endswith(why)
    assert (":" in sentence) is (queued == 0.49)


@pytest.mark.parametrize("seed", range(4))
def test_idle_time_with_work_in_the_queue_is_what_a_look_at_each_moment_says(tmp_path, seed):
    """Outside of input waits, in steps: no kernel runs, and one that has not begun was launched."""
    chance = random.Random(seed)
    events, begin = [], 1000
    idle, handed = np.ones(1500, bool), np.zeros(1500, bool)
    for i in range(12):
        begin += chance.randrange(5, 22)
        length, launch = chance.randrange(1, 30), begin - chance.randrange(0, 45)
        own = {"args": {"correlation": i + 1}}
        events += [kernel("gemm", begin, length, **own),
                   event("cudaLaunchKernel", launch, 1, "cuda_runtime", **own)]  # fmt: skip
        idle[begin : begin + length] = False
        handed[launch:begin] = True
    of_steps = np.zeros(1500, bool)
    marked = steps(4, start_us=1000)  # of 100 us, with 40 us of waiting from 5 us on
    for i in range(4):
        of_steps[1000 + 100 * i : 1100 + 100 * i] = True
        of_steps[1005 + 100 * i : 1045 + 100 * i] = False
    path = write(tmp_path / "t.pt.trace.json", trace([*marked, *events]))
    account = vanidl.open_run(path).breakdown
    said = account.cell(f"{MEAN}/{STEP}/{DEVICE_IDLE}.{QUEUED}").high_ns * account.steps[0]
    assert said == pytest.approx((idle & handed & of_steps).sum() * 1000, abs=4)
