"""What training waits for, by samples of threads: cores, copies of bytes, metadata, one rank."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.advice import labeled
from vanidl.advice.facts import ITS_OWN, Copying, CoreUse, Facts, Seen, look
from vanidl.advice.registry import RULES
from vanidl.breakdown.account import Column
from vanidl.model import intervals, states
from vanidl.model.states import SampledThread, Samples

RULE = {rule.code: rule for rule in RULES}
MS = 1_000_000


def thread_of(kinds: list[int], delay_us: list[int]) -> SampledThread:
    """A thread that was looked at once a millisecond."""
    count = len(kinds)
    samples = Samples(
        np.arange(count, dtype=np.int64) * MS, np.array(kinds, np.uint8),
        np.full(count, -1, np.int32), np.array(delay_us, np.uint32), np.zeros(count, bool),
    )  # fmt: skip
    nothing = np.empty((0, 3), np.int64)
    return SampledThread("node", 7, 7, 1, samples, (), nothing, nothing)


def test_shares_are_of_the_samples_inside_and_queues_of_the_time_inside():
    random = np.random.default_rng(3)
    kinds = random.integers(0, 3, 1000).tolist()
    waited_us = np.cumsum(random.integers(0, 500, 1000))
    times = intervals.union(np.array([100, 600]) * MS, np.array([300, 700]) * MS)
    seen = look(thread_of(kinds, waited_us.tolist()), times)
    inside = kinds[100:300] + kinds[600:700]
    assert seen.samples == 300
    assert seen.shares == {k: pytest.approx(inside.count(k) / 300) for k in set(inside)}
    queued_us = waited_us[300] - waited_us[100] + waited_us[700] - waited_us[600]
    assert seen.queued_s == pytest.approx(queued_us / 1e6)


def test_a_count_of_waits_that_starts_anew_after_32_bits_goes_on():
    delay_us = [2**32 - 2000 + 100 * k for k in range(20)] + [100 * k for k in range(20)]
    times = intervals.union(np.array([0]), np.array([39 * MS]))
    seen = look(thread_of([states.RUNNING] * 40, delay_us), times)
    assert seen.queued_s == pytest.approx(39 * 100e-6)


def facts_with(waits: dict[str, float], **known: object) -> Facts:
    """A run whose input waits hold these shares of causes, and what else is known of it."""
    run = labeled.made("in_process_slow_storage")
    waited_ns = run.breakdown.length_ns("input_wait")
    columns = {k: c for k, c in run.breakdown.columns.items() if not k.startswith("input_wait/")}
    columns["input_wait/"] = run.breakdown.columns["input_wait/"]
    for cause, share in ({"storage": 0.0} | waits).items():
        part_ns = share * waited_ns
        cell = Column(np.array([int(part_ns)]), np.array([int(part_ns)]), part_ns, part_ns)
        columns[f"input_wait/{cause}"] = cell
    facts = Facts(run.trace, run.results, replace(run.breakdown, columns=columns))
    vars(facts).update(known)
    return facts


def named(facts: Facts) -> set[str]:
    return {code for code in RULE if code.startswith("input_bound") and RULE[code].find(facts)}


FEW, MANY = Copying(0.3e-3, 0.03, 0.5), Copying(0.2, 10.0, 0.8)


def use_of(facts: Facts, wanted: float, queued: float) -> CoreUse:
    steps_s = facts.account.steps_ns / 1e9
    return CoreUse(wanted, queued * steps_s, 0.0)


@pytest.mark.parametrize(
    ("wanted", "copying", "code"),
    [
        (ITS_OWN + 0.1, FEW, "input_bound_cores"),
        (ITS_OWN - 0.1, FEW, "input_bound_delivery"),
        (ITS_OWN + 0.1, MANY, "input_bound_delivery"),
    ],
)
def test_a_batch_of_few_bytes_is_late_because_its_threads_have_no_core(wanted, copying, code):
    facts = facts_with({"delivery": 0.9}, copying=copying)
    vars(facts)["cores"] = use_of(facts, wanted, 0.05)
    assert named(facts) == {code}


@pytest.mark.parametrize(("share", "is_named"), [(0.49, False), (0.51, True)])
def test_bytes_are_what_collating_takes_where_it_is_half_of_fetching(share, is_named):
    facts = facts_with({"input_cpu": 0.9}, copying=replace(MANY, share=share))
    assert ("input_bound_delivery" in named(facts)) == is_named


@pytest.mark.parametrize(
    ("copying", "code"),
    [
        (MANY, "input_bound_delivery"),
        (replace(MANY, share=0.49), "input_bound_cores"),
        (FEW, "input_bound_cores"),
    ],
)
def test_cores_that_copy_batches_are_short_because_of_their_bytes(copying, code):
    facts = facts_with({"too_few_cores": 0.9}, copying=copying)
    vars(facts)["cores"] = use_of(facts, ITS_OWN + 1, 0.05)
    assert named(facts) == {code}


@pytest.mark.parametrize(("wait_ms", "is_named"), [(1.9, False), (2.1, True)])
def test_handing_over_is_bytes_from_two_milliseconds_a_batch_on(wait_ms, is_named):
    facts = facts_with({"delivery": 0.9}, copying=FEW)
    steps = 0.9 * facts.account.length_ns("input_wait") / (wait_ms * 1e6)
    vars(facts)["cores"] = use_of(facts, ITS_OWN - 0.1, 0.05)
    column = replace(facts.account, steps=np.full_like(facts.account.steps, round(steps)))
    fewer = replace(facts, given=column)
    vars(fewer).update(copying=FEW, cores=facts.cores)
    assert fewer.hands_over_bytes == is_named


@pytest.mark.parametrize(
    ("wanted", "queued", "taken"),
    [(1.9, 0.11, True), (1.9, 0.09, False), (2.1, 0.11, False)],
)
def test_others_took_the_cores_of_a_run_that_waits_for_one_and_never_asks_for_two(
    wanted, queued, taken
):
    facts = facts_with({"too_few_cores": 0.9})
    vars(facts)["cores"] = use_of(facts, wanted, queued)
    assert (RULE["cores_taken"].find(facts) is not None) == taken
    assert ("input_bound_cores" in named(facts)) != taken


@pytest.mark.parametrize(("share", "is_named"), [(0.49, False), (0.51, True)])
def test_waits_are_for_metadata_where_it_is_half_of_them(share, is_named):
    facts = facts_with({"storage": 0.9, "storage.metadata": share})
    found = RULE["waits_for_metadata"].find(facts)
    assert (found is not None) == is_named


@pytest.mark.parametrize(
    ("name", "is_known", "is_named"),
    [("one_reader", False, True), ("one_reader", True, False), ("even_ranks", False, False)],
)
def test_a_rank_whose_input_comes_last_is_named_where_no_collectives_are_known(
    name, is_known, is_named
):
    run = labeled.made(name)
    overlap = run.breakdown.overlap
    assert overlap is not None
    if not is_known:
        rows = tuple(replace(row, communication_s=None) for row in overlap.per_rank)
        overlap = replace(overlap, per_rank=rows)
    facts = Facts(run.trace, run.results, replace(run.breakdown, overlap=overlap))
    assert (RULE["uneven_input"].find(facts) is not None) == is_named


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (states.NETWORK, "input_bound_blocked"),
        (states.SLEEP, "input_bound_blocked"),
        (states.RUNNING, "input_bound_decoding"),
        (states.READ, "input_bound_io"),
    ],
)
def test_where_the_account_leaves_all_open_samples_of_fetches_tell(kind, code):
    facts = facts_with({}, seen_fetching=Seen(1.0, 100, {kind: 0.6, states.PIPE: 0.4}, 0.0))
    assert named(facts) == {code}
