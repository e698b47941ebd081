"""Both sides of the thresholds of rules, on runs that lie exactly at them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.advice import labeled
from tests.advice.labeled import IMAGES, PIECES, RECIPES
from tests.makers.training_jobs import Recipe, trace_of
from vanidl.advice.changes import bound_handing_over_s
from vanidl.advice.facts import Facts
from vanidl.advice.finding import Finding
from vanidl.advice.input_waits import _is_too_short_for_workers
from vanidl.advice.registry import find, list_rules
from vanidl.advice.request_costs import fit_request_cost
from vanidl.advice.requests import _measure_chunk_misfit
from vanidl.analyses.results import analyse
from vanidl.breakdown.account import STEP, WAIT
from vanidl.breakdown.attribution import attribute_time
from vanidl.model.counter_tables import CounterTable
from vanidl.model.run_facts import ArrayFacts
from vanidl.model.trace import MPIIO

SECOND = 1_000_000_000


def found(name: str, code: str, overlap=None, **results) -> Finding | None:
    """The finding of a labelled run, with parts of its results or its overlap replaced."""
    run = labeled.made(name)
    changed = replace(run.results, **results)
    # Of other lengths of steps the account of the run itself is taken: its spans are as they were.
    account = run.breakdown if "steps" in results else attribute_time(run.trace, changed)
    if overlap is not None:
        account = replace(account, overlap=overlap)
    every = find(run.trace, changed, account)
    return next((one for one in every if one.code == code), None)


def of_recipe(recipe: Recipe) -> set[str]:
    trace = trace_of(recipe)
    return {finding.code for finding in find(trace, analyse(trace))}


def overlap_of(name: str, **changes):
    """Its overlap, each rank and the mean changed."""
    overlap = labeled.made(name).overlap
    own = {k: v for k, v in changes.items() if k not in ("ranks", *RANK)}
    rank = {k: v for k, v in changes.items() if k in RANK}
    rows = tuple(replace(row, **rank) for row in overlap.per_rank)
    return replace(overlap, mean=replace(overlap.mean, **rank), per_rank=rows, **own)


RANK = ("io_s", "unobserved_s", "exposed_s", "hidden_s", "compute_s", "window_s", "communication_s",
        "input_wait_s")  # fmt: skip


@pytest.mark.parametrize(("waited_s", "is_bound"), [(9, False), (10, True)])
def test_training_is_bound_by_input_from_a_tenth_of_the_time(waited_s, is_bound):
    run = labeled.made("in_process_slow_storage")
    account = attribute_time(run.trace, run.results)
    steps, waits = (account.columns[f"{window}/"] for window in (STEP, WAIT))
    columns = {
        f"{STEP}/": replace(steps, low=np.full_like(steps.low, 100 * SECOND)),
        f"{WAIT}/": replace(waits, mean_low=float(waited_s * SECOND)),
    }
    account = replace(account, columns={**account.columns, **columns})
    rules = [rule for rule in list_rules() if rule.code.startswith("input_bound")]
    facts = Facts(run.trace, run.results, account)
    assert any(rule.find(facts) is not None for rule in rules) == is_bound


@pytest.mark.parametrize(
    ("wait_s", "step_s", "has_workers", "batch_nbytes", "too_short"),
    [
        (1.34e-3, 2.73e-3, False, 0, True),  # an HDF5 reader that a worker made slower
        (1.34e-3, 2.73e-3, True, 0, False),  # batches are handed over already
        (2.40e-3, 4e-3, False, 0, False),
        (2.39e-3, 4e-3, False, 0, True),
        (6e-3, 8e-3, False, 0, False),
        (6e-3, 8e-3, False, 5_300_000, False),  # bytes are mapped and freed, too
        (6e-3, 8e-3, False, 5_400_000, True),
    ],
)
def test_waits_are_worth_a_worker_where_handing_over_leaves_a_tenth_of_the_step(
    wait_s, step_s, has_workers, batch_nbytes, too_short
):
    handing_over_s = bound_handing_over_s(batch_nbytes)
    account = SimpleNamespace(length_ns=lambda window: {"step": step_s * 1e9}[window])
    facts = SimpleNamespace(has_workers=has_workers, account=account, handing_over_s=handing_over_s)
    assert _is_too_short_for_workers(facts, wait_s + 1e-9, 0.1) == too_short


@pytest.mark.parametrize(
    ("observed_s", "hidden", "named"),
    [(4.99, 0.0, False), (5.0, 0.0, True), (5.0, 0.1999, True), (5.0, 0.2, False)],
)
def test_io_is_not_overlapped_from_a_twentieth_of_the_window_and_below_a_fifth_hidden(
    observed_s, hidden, named
):
    seen = {"io_s": observed_s + 3, "unobserved_s": 3.0, "window_s": 100.0, "exposed_s": 4.0}
    overlap = overlap_of("in_process_slow_storage", **seen, hidden_fraction=hidden)
    name = "in_process_slow_storage"
    assert bool(found(name, "io_not_overlapped", overlap=overlap)) == named


@pytest.mark.parametrize(("compute_s", "surely_s"), [(1.0, 1.0), (4.5, 4.0)])
def test_overlap_gains_for_sure_what_compute_can_hide_and_at_most_what_is_exposed(
    compute_s, surely_s
):
    seen = {"io_s": 6.0, "unobserved_s": 0.0, "window_s": 100.0, "exposed_s": 4.0, "hidden_s": 0.0}
    overlap = overlap_of(
        "in_process_slow_storage", **seen, compute_s=compute_s, hidden_fraction=0.0
    )
    finding = found("in_process_slow_storage", "io_not_overlapped", overlap=overlap)
    run = labeled.made("in_process_slow_storage")
    facts = Facts(run.trace, run.results, replace(run.breakdown, overlap=overlap))
    rule = next(rule for rule in list_rules() if rule.code == "io_not_overlapped")
    claim = rule.find(facts).claim
    assert (claim.surely_s, claim.within_s) == (surely_s, 4.0)
    assert finding.gain_at_most_s <= 4.0


@pytest.mark.parametrize(
    ("communication_s", "lost_s", "named", "named_on_taken_cores"),
    [
        (4.99, 90.0, False, False),
        (5.0, 90.0, True, False),
        (10.0, 90.0, True, True),
        (50.0, 14.99, False, False),
        (50.0, 15.0, True, False),
        (50.0, 20.0, True, True),
    ],
)
def test_a_rank_waits_for_others_from_a_twentieth_of_its_window(
    communication_s, lost_s, named, named_on_taken_cores, monkeypatch
):
    """And no longer than others waited more than it did; twice that where cores were taken."""
    seen = {"window_s": 100.0, "communication_s": communication_s, "input_wait_s": 10.0}
    overlap = overlap_of("two_ranks", **seen, lost_to_input_s=lost_s)
    run = labeled.made("two_ranks")
    rule = next(rule for rule in list_rules() if rule.code == "waits_for_other_ranks")
    account = replace(run.breakdown, overlap=overlap)
    result = rule.find(Facts(run.trace, run.results, account))
    assert bool(result) == named
    if result:
        assert result.claim.within_s == pytest.approx(lost_s - 10)
    monkeypatch.setattr(Facts, "cores_were_taken", True)
    assert bool(rule.find(Facts(run.trace, run.results, account))) == named_on_taken_cores


@pytest.mark.parametrize(("nbytes", "small"), [((128 << 10) - 1, True), (128 << 10, False)])
def test_reads_are_small_below_128_kib(nbytes, small):
    codes = of_recipe(replace(PIECES, sample_nbytes=16 * nbytes))
    assert ("small_reads" in codes) == small


@pytest.mark.parametrize(("nbytes", "tiny"), [((256 << 10) - 1, True), (256 << 10, False)])
def test_files_are_tiny_below_256_kib(nbytes, tiny):
    assert ("tiny_files" in of_recipe(replace(IMAGES, sample_nbytes=nbytes))) == tiny


@pytest.mark.parametrize(("samples", "fits"), [(3, True), (4, False)])
def test_chunks_of_few_samples_fit(samples, fits):
    array = ArrayFacts("images", (samples, 64), "uint8", (4, 64))
    assert (_measure_chunk_misfit(array, shuffled=True) is None) == fits
    assert (
        _measure_chunk_misfit(replace(array, shape=(9, 64), chunk=(3, 64)), shuffled=True) is None
    )
    assert _measure_chunk_misfit(replace(array, shape=(9, 64)), shuffled=False) is None
    spread = replace(array, shape=(9, 64), chunk=(1, 4))  # 16 pieces of each
    assert _measure_chunk_misfit(spread, shuffled=False) is not None
    assert _measure_chunk_misfit(replace(spread, shape=(9, 60)), shuffled=False) is None


@pytest.mark.parametrize(("more", "named"), [(0, True), (1, False)])
def test_a_file_is_opened_for_each_sample_from_one_open_for_two_on(more, named):
    name = "open_for_each_sample"
    data = labeled.made(name).results.dataset
    opens = sum(file.opens or 0 for file in data.files)
    samples = replace(data.samples, total=2 * opens + more)
    data = replace(data, samples=samples, reread_factor=1.0)
    assert bool(found(name, "open_per_sample", dataset=data)) == named


@pytest.mark.parametrize(
    ("size", "share", "named"),
    [(1 << 20, 0.5, False), (1 << 20, 0.49, True), ((1 << 20) - 2, 0.5, True)],
)
def test_opens_that_each_read_half_of_a_large_file_are_none_to_save(size, share, named):
    """As once an epoch."""
    name = "open_for_each_sample"
    data = labeled.made(name).results.dataset
    files = tuple(
        replace(f, size=size, bytes_read=int(share * size * (f.opens or 0))) for f in data.files
    )
    samples = replace(data.samples, total=sum(f.opens or 0 for f in files))
    data = replace(data, files=files, samples=samples, reread_factor=1.0)
    assert bool(found(name, "open_per_sample", dataset=data)) == named


@pytest.mark.parametrize("column", ["busy_spread", "bytes_spread"])
@pytest.mark.parametrize(("spread", "named"), [(1.499, False), (1.5, True)])
def test_ranks_are_uneven_from_half_more_than_the_mean(column, spread, named):
    balance = labeled.made("slow_rank").results.balance
    balance = replace(balance, **({"busy_spread": 1.0, "bytes_spread": 1.0} | {column: spread}))
    assert bool(found("slow_rank", "rank_imbalance", balance=balance)) == named


@pytest.mark.parametrize(("nbytes", "alone"), [(899, False), (900, True)])
def test_one_rank_reads_for_all_from_nine_tenths_of_the_bytes(nbytes, alone):
    data = labeled.made("one_reader").results.dataset
    rows = (replace(data.ranks[0], bytes_read=nbytes), *data.ranks[1:])
    data = replace(data, bytes_read=1000, ranks=rows)
    assert bool(found("one_reader", "one_reader", dataset=data)) == alone


@pytest.mark.parametrize(("nbytes", "named"), [(1499, False), (1500, True), (4000, True)])
def test_data_are_read_again_from_half_of_them_on(nbytes, named):
    data = labeled.made("read_again").results.dataset
    finding = found(
        "read_again",
        "reread_each_epoch",
        dataset=replace(data, bytes_read=nbytes, unique_bytes=1000),
    )
    assert bool(finding) == named
    if finding:  # a second reading is what can be saved, and no more than the waits for I/O
        whole = found(
            "read_again",
            "reread_each_epoch",
            dataset=replace(data, bytes_read=2 * nbytes, unique_bytes=1000),
        )
        # The first pass takes what its bytes take at best, where a copy reads it, else as now.
        run = labeled.made("read_again")
        facts = Facts(run.trace, run.results, run.breakdown)
        moved = facts.transfer_share if fit_request_cost(run.trace) is not None else 1.0
        for end, first in ((0, 1.0), (1, moved)):
            shares = [1 - first * 1000 / nbytes, 1 - first * 1000 / (2 * nbytes)]
            ratio = finding.gain_s[end] / whole.gain_s[end]
            assert ratio == pytest.approx(shares[0] / shares[1])


@pytest.mark.parametrize(("read", "named"), [(0, False), (1, True)])
def test_what_is_read_only_to_be_written_over_is_no_data_read_again(read, named):
    run = labeled.made("read_again")
    code = int(np.flatnonzero(run.trace.files.is_data)[0])
    columns = {"MPIIO_BYTES_READ": np.array([read]), "MPIIO_BYTES_WRITTEN": np.array([1000])}
    table = CounterTable(MPIIO, np.zeros(1, int), np.array([code]), columns, {})
    trace = replace(run.trace, counters={**run.trace.counters, MPIIO: table})
    results = replace(
        run.results, dataset=replace(run.results.dataset, bytes_read=4000, unique_bytes=1000)
    )
    codes = {finding.code for finding in find(trace, results, run.breakdown)}
    assert ("reread_each_epoch" in codes) == named


def timed(name: str, durations: np.ndarray):
    """Its steps one after another, each as long as given; nothing else is changed."""
    steps = labeled.made(name).results.steps
    start = np.ceil(steps.table.start_s * 2**20) / 2**20  # so that sums are exact
    table = replace(steps.table, start_s=start, end_s=start + durations, input_wait_s=durations)
    return replace(steps, table=table)


@pytest.mark.parametrize(("times", "named"), [(2.99, False), (3.0, True)])
def test_a_first_step_is_slow_from_three_times_the_others_on(times, named):
    name = "very_slow_first_batches"
    recipe = RECIPES[name]
    durations = np.full(recipe.epochs * recipe.steps, 1.0)
    durations[:: recipe.steps] = times
    steps = timed(name, durations / 64)  # shorter than what lies between their starts
    assert bool(found(name, "slow_first_step", steps=steps)) == named


@pytest.mark.parametrize(("left", "named"), [(19, False), (20, True)])
def test_a_tail_takes_twenty_steps_to_be_one(left, named):
    name = "very_slow_tail"
    run = labeled.made(name)
    durations = np.ones(len(run.results.steps.table.step))
    durations[5:7] = 30.0
    steps = timed(name, durations)
    table = steps.table
    rows = slice(0, left + len(run.phases.epochs))  # first steps are not of the tail
    columns = ("rank", "step", "start_s", "end_s", "input_wait_s", "busy_s")
    table = replace(table, **{column: getattr(table, column)[rows] for column in columns})
    assert bool(found(name, "slow_tail", steps=replace(steps, table=table))) == named
