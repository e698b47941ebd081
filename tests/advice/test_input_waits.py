"""What training waits for, by samples of threads: cores, copies of bytes, metadata, one rank."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import vanidl
from tests.advice import labeled
from vanidl.advice.changes import bound_handing_over_s
from vanidl.advice.facts import ITS_OWN, Copying, CoreUse, Facts, Seen, look
from vanidl.advice.input_waits import _is_limit_certain
from vanidl.advice.registry import list_rules
from vanidl.analyses.profiled_steps import StepTable
from vanidl.breakdown.account import Column
from vanidl.model import intervals, states
from vanidl.model.states import SampledThread, Samples, States
from vanidl.model.trace import FETCH_COLUMNS, make_fetches

RULE = {rule.code: rule for rule in list_rules()}
MS = 1_000_000
RUNS = Path(__file__).parents[1] / "data"


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


@pytest.mark.parametrize("measured", [(), (10 << 20, 30 << 20)])
def test_batches_that_take_long_to_hand_over_have_their_measured_bytes(measured):
    facts = facts_with({"delivery": 0.9}, copying=MANY)
    columns = dict.fromkeys(FETCH_COLUMNS, np.full(1 + len(measured), -1))
    fetches = make_fetches(columns | {"nbytes": np.array([-1, *measured])}, ())
    facts = replace(facts, trace=replace(facts.trace, fetches=fetches))
    vars(facts)["copying"] = MANY
    found = RULE["input_bound_delivery"].find(facts)
    assert ("A batch takes 20 MiB in memory." in found.detail) == bool(measured)
    assert found.evidence.get("batch_bytes") == (20 << 20 if measured else None)
    least_s, most_s = facts.handing_over_s
    assert (least_s, most_s) == bound_handing_over_s(20 << 20 if measured else 0)


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


@pytest.mark.parametrize(
    ("decode_ms", "is_taken", "is_named"),
    [(2.35, False, False), (2.45, False, True), (2.6, True, False), (2.8, True, True)],
)
def test_decoding_takes_more_than_handing_over_to_a_worker(decode_ms, is_taken, is_named):
    # Steps of 4 ms that wait for 3.5: what they wait for beside decoding may have come once.
    facts = facts_with({})
    account, steps = facts.account, facts.steps_of_rank
    ends_ms = {
        "step/": (4.0, 4.0),
        "input_wait/": (3.5 * steps,) * 2,
        "input_wait/input_cpu": ((decode_ms - 0.3) * steps, (decode_ms + 0.3) * steps),
    }
    columns = dict(account.columns)
    for key, (low_ms, high_ms) in ends_ms.items():
        low, high = (np.array([round(ms * MS)]) for ms in (low_ms, high_ms))
        columns[key] = Column(low, high, low_ms * MS, high_ms * MS)
    short = replace(account, columns=columns)
    facts = replace(facts, given=short)
    vars(facts)["cores"] = use_of(facts, 1.0, 0.2 if is_taken else 0.0)
    assert facts.cores_were_taken == is_taken
    assert ("input_bound_decoding" in named(facts)) == is_named


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


@pytest.mark.parametrize(("queued", "code"), [(0.49, "decoding"), (0.51, "cores")])
def test_threads_that_could_run_and_had_no_core_half_of_the_time_have_too_few(queued, code):
    seen = Seen(1.0, 100, {states.RUNNING: 1.0}, queued)
    facts = facts_with({}, seen_fetching=seen)
    vars(facts)["cores"] = use_of(facts, ITS_OWN + 0.1, 0.05)
    assert named(facts) == {f"input_bound_{code}"}
    # A run that asks for less than two cores is not short of them by itself.
    vars(facts)["cores"] = use_of(facts, ITS_OWN - 0.1, 0.05)
    assert named(facts) == {"input_bound_decoding"}


@pytest.mark.parametrize(
    ("low", "running", "queued", "is_certain"),
    [(0.1, 1.0, 0.9, False), (0.1, 1.0, 0.4, True), (0.1, 0.5, 0.4, False), (0.4, 1.0, 0.9, True)],
)
def test_decoding_on_taken_cores_limits_by_what_its_threads_ran(low, running, queued, is_certain):
    facts = facts_with({"too_few_cores": 0.0})
    waited_ns = facts.account.length_ns("input_wait")
    ends = np.array([round(low * waited_ns)]), np.array([round(0.9 * waited_ns)])
    columns = {
        **facts.account.columns,
        "input_wait/input_cpu": Column(*ends, *(float(end[0]) for end in ends)),
    }
    seen = Seen(1.0, 10_000, {states.RUNNING: running, states.PIPE: 1 - running}, queued)
    facts = replace(facts, given=replace(facts.account, columns=columns))
    vars(facts).update(seen_fetching=seen, cores=use_of(facts, 1.0, 0.2))
    assert facts.cores_were_taken
    assert _is_limit_certain(facts, "input_cpu") == is_certain


@pytest.mark.parametrize(("share", "is_named"), [(0.55, False), (0.65, True)])
def test_metadata_calls_are_seen_however_long_threads_wait_for_a_core_then(share, is_named):
    """Of 100 samples 0.6 are at least half, two deviations below."""
    facts = facts_with({"storage": 0.2, "storage.metadata": 0.2, "too_few_cores": 0.3})
    waited_ns = facts.account.length_ns("input_wait")
    columns = dict(facts.account.columns)
    most = Column(np.array([0]), np.array([int(waited_ns)]), 0.2 * waited_ns, 0.9 * waited_ns)
    columns["input_wait/storage.metadata"] = most
    seen = Seen(1.0, 100, {states.METADATA: share, states.RUNNING: 1 - share}, 0.3)
    facts = replace(facts, given=replace(facts.account, columns=columns))
    vars(facts).update(seen_fetching=seen)
    vars(facts)["cores"] = use_of(facts, ITS_OWN - 0.1, 0.2)
    assert (RULE["waits_for_metadata"].find(facts) is not None) == is_named
    vars(facts)["cores"] = use_of(facts, ITS_OWN + 0.1, 0.2)
    assert RULE["waits_for_metadata"].find(facts) is None


@pytest.mark.parametrize(
    ("readers", "storage", "is_named"), [(2.1, 0.9, True), (1.9, 0.9, False), (2.1, 0.3, False)]
)
def test_storage_is_crowded_where_two_read_at_once_and_no_read_was_timed(
    readers, storage, is_named
):
    facts = facts_with({"storage": storage}, readers_at_once=readers, throughput=None)
    found = RULE["storage_crowded"].find(facts)
    assert (found is not None) == is_named
    if found is not None:
        low_s, high_s = facts.bound(found.claim)
        assert low_s == 0 < high_s
    timed = facts_with({"storage": storage}, readers_at_once=readers)
    assert timed.throughput is not None
    assert RULE["storage_crowded"].find(timed) is None


def thread_with(tid: int, kinds: list[int], moved: list[tuple[int, int]]) -> SampledThread:
    """One of a process of its own, by rows of time and bytes read."""
    rows = np.array([(at, states.RCHAR, nbytes) for at, nbytes in moved], np.int64)
    return replace(
        thread_of(kinds, [0] * len(kinds)), host="", pid=tid, tid=tid, moved=rows.reshape(-1, 3)
    )


def test_readers_are_counted_while_any_of_them_fetches():
    run = vanidl.open_run(RUNS / "torch_fetches")
    fetches = run.trace.fetches
    two = fetches.pick(np.arange(2))
    at = np.array([0, 50]) * MS
    two = replace(two, begin=at, collate=at + 100 * MS, end=at + 100 * MS, pid=np.array([8, 9]))
    reads = [states.READ] * 50 + [states.RUNNING] * 200
    threads = thread_with(8, reads, []), thread_with(9, [states.READ] * 250, [])
    facts = Facts(replace(run.trace, fetches=two, states=States(threads)), run.results)
    # 50 of 100 and 100 of 100 ms in reads, of 150 ms in which one or both fetched.
    assert facts.readers_at_once == pytest.approx(150 / 150)


MIB = 1 << 20


@pytest.mark.parametrize(
    ("shares", "nbytes", "is_named"),
    [
        ((0.91, 0.03, 0.03, 0.03), 17 * MIB, True),
        ((0.89, 0.05, 0.03, 0.03), 17 * MIB, False),
        ((0.91, 0.03, 0.03, 0.03), 15 * MIB, False),
        ((0.25, 0.25, 0.25, 0.25), 170 * MIB, False),
    ],
)
def test_one_rank_reads_for_all_by_the_counts_of_the_kernel(shares, nbytes, is_named):
    run = labeled.made("even_ranks")
    begin, length = run.trace.job.start_ns, run.breakdown.window_ns
    processes = [run.trace.processes[position] for position in run.trace.ranks]
    threads = tuple(
        thread_with(process.pid, [states.READ] * 30,
                    [(begin, 10**9), (begin + length, 10**9 + round(share * nbytes))])
        for process, share in zip(processes, shares, strict=True)
    )  # fmt: skip
    trace = replace(run.trace, states=States(threads))
    facts = Facts(trace, replace(run.results, dataset=None), run.breakdown)
    vars(facts)["waits_on_storage"] = True
    assert sum(facts.counted_nbytes) <= nbytes  # only while it trained
    # Steps fill the window but for its first and last moments.
    grown = replace(facts, given=run.breakdown)
    vars(grown).update(waits_on_storage=True, counted_nbytes=tuple(s * nbytes for s in shares))
    found = RULE["one_reader"].find(grown)
    assert (found is not None) == is_named
    if found is not None:
        assert found.evidence["share"] == pytest.approx(shares[0])
        assert found.claim.stays == pytest.approx(1 / len(shares))
    vars(grown)["waits_on_storage"] = False
    assert RULE["one_reader"].find(grown) is None


def test_what_a_rank_reads_is_counted_over_its_steps_and_workers():
    run = labeled.made("one_reader")
    starts, ends = run.results.steps.table.start_s, run.results.steps.table.end_s
    since, processes = run.trace.job.start_ns, run.trace.processes
    first, last = since + round(starts.min() * 1e9), since + round(ends.max() * 1e9)
    threads = []
    for k, position in enumerate(run.trace.ranks):
        pid, each = processes[position].pid, (k + 1) * MIB
        inside = [(first - MS, 50 * MIB), (last + MS, 50 * MIB + each)]
        rows = [(first - 10**9, 0), *inside, (last + 10**9, 10**12)]
        threads.append(thread_with(pid, [states.READ], rows))
    facts = Facts(replace(run.trace, states=States(tuple(threads))), run.results, run.breakdown)
    expected = [(k + 1) * MIB for k in range(len(threads))]
    assert facts.counted_nbytes == pytest.approx(expected, rel=0.01)
    # One rank of which nothing is known: nothing is said of any.
    fewer = replace(facts.trace, states=States(tuple(threads[1:])))
    assert Facts(fewer, run.results, run.breakdown).counted_nbytes == ()


@pytest.mark.parametrize(("lasting", "is_named"), [(0.101, True), (0.099, False)])
def test_what_only_the_first_batch_waits_for_no_worker_takes_away(lasting, is_named):
    facts = facts_with({"input_cpu": 0.9}, cores=None)
    steps_s, share = facts.account.steps_ns / 1e9, facts.wait_share
    assert share > 0.2
    vars(facts)["once_s"] = steps_s * (share - lasting) / (1 - lasting)
    assert facts.lasting_wait_share == pytest.approx(lasting)
    assert named(facts) == ({"input_bound_decoding"} if is_named else set())


def test_the_first_wait_of_a_rank_counts_beyond_a_usual_one():
    run = labeled.made("two_ranks")
    table = run.results.steps.table
    waits = np.full(len(table.step), 0.01)
    for rank, first_s in ((0, 0.5), (1, 0.1)):
        waits[np.flatnonzero(table.rank == rank)[0]] = first_s
    steps = replace(run.results.steps, table=replace(table, input_wait_s=waits))
    facts = Facts(run.trace, replace(run.results, steps=steps), run.breakdown)
    ranks = len(np.unique(table.rank))
    assert facts.once_s == pytest.approx((0.49 + 0.09) / ranks)
    few = replace(steps, table=table_of(steps.table, 19))
    assert Facts(run.trace, replace(run.results, steps=few), run.breakdown).once_s == 0


def table_of(table: StepTable, count: int) -> StepTable:
    """The first steps of each rank, so many."""
    rows = np.concatenate([np.flatnonzero(table.rank == r)[:count] for r in np.unique(table.rank)])
    arrays = {name: getattr(table, name) for name in
              ("rank", "step", "start_s", "end_s", "input_wait_s", "busy_s")}  # fmt: skip
    return replace(table, **{name: array[rows] for name, array in arrays.items()})


@pytest.mark.parametrize(
    ("start_up", "pickled", "is_named"), [(0.9, 0, True), (1.1, 0, False), (1.1, 4 * MIB, True)]
)
def test_workers_that_start_once_take_longer_than_the_program_or_are_handed_much(
    start_up, pickled, is_named
):
    facts = facts_with({"workers": 0.9}, pickled_nbytes=pickled, start_up_s=start_up)
    gain = SimpleNamespace(low_ns=950 * MS, high_ns=1000 * MS, touchable_ns=1000 * MS)
    vars(facts)["gains"] = SimpleNamespace(without=lambda *_: gain)
    assert not facts.starts_workers_anew
    found = RULE["input_bound_workers"].find(facts)
    assert (found is not None) == is_named
    if found is not None:
        assert found.claim.surely_s == pytest.approx(max(0.95 - start_up, 0.0))
