"""Triggers of counters are silent where their calls cost nothing, however many they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.advice import labeled
from vanidl.advice import job_counters
from vanidl.advice.facts import Facts
from vanidl.advice.registry import LEAST, apply, list_rules
from vanidl.breakdown.account import Column
from vanidl.model.counter_tables import CounterTable, Stripes
from vanidl.model.trace import MPIIO, POSIX, STDIO

RULE = {rule.code: rule for rule in list_rules()}
SECOND = 1_000_000_000


def facts_of(counters: dict[str, int], storage_s: float, part: str, run_s: float = 100.0) -> Facts:
    """A job of one rank of which only these counters are known, and how long storage took it."""
    run = labeled.made("healthy")
    base = run.trace.counters[POSIX]
    table = CounterTable(
        layer=POSIX,
        process=base.process[:1],
        file=base.file[:1],
        counters={name: np.array([value]) for name, value in counters.items()},
        seconds={"POSIX_F_META_TIME": np.array([storage_s])},
    )
    mpi = CounterTable(MPIIO, base.process[:0], base.file[:0], {}, {})
    counted = {POSIX: table, MPIIO: mpi}
    spans = run.trace.spans.pick(slice(0, 0))
    trace = replace(run.trace, counters=counted, profiles=(), spans=spans)
    files = replace(trace.files, path=tuple(f"/data/{i}" for i in range(len(trace.files))))
    results = replace(run.results, steps=None)
    spent_ns = storage_s * SECOND
    whole = Column(np.array([int(spent_ns)]), np.array([int(spent_ns)]), spent_ns, spent_ns)
    account = replace(
        run.breakdown,
        columns={"run/storage": whole, f"run/storage.{part}": whole},
        window_ns=int(run_s * SECOND),
        outermost=frozenset({POSIX}),
        overlap=None,
    )
    job = replace(trace.job, end_ns=trace.job.start_ns + int(run_s * SECOND))
    return Facts(replace(trace, files=files, job=job), results, account)


SMALL = {"POSIX_READS": 10_000, "POSIX_SIZE_READ_1K_10K": 10_000, "POSIX_BYTES_READ": 10_000_000}
RANDOM = {"POSIX_READS": 10_000, "POSIX_SEQ_READS": 0}
MISALIGNED = {"POSIX_READS": 10_000, "POSIX_WRITES": 0, "POSIX_FILE_NOT_ALIGNED": 10_000}
METADATA = {"POSIX_OPENS": 10_000}
AGAIN = {"POSIX_BYTES_READ": 10**12, "POSIX_MAX_BYTE_READ": 0}


@pytest.mark.parametrize(
    ("code", "counters", "part"),
    [
        ("job_small_reads", SMALL, "read"),
        ("job_random_reads", RANDOM, "read"),
        ("job_misaligned", MISALIGNED, "read"),
        ("job_metadata", METADATA, "metadata"),
        ("job_redundant", AGAIN, "read"),
    ],
)
def test_what_a_trigger_says_is_weighed_in_seconds(code, counters, part):
    for cost_s, is_said in ((0.99, False), (1.01, True)):
        facts = facts_of(counters, cost_s, part)
        assert facts.base_s == pytest.approx(100.0)
        finding = apply(RULE[code], facts)
        assert (finding is not None) == is_said
        if finding is not None:
            assert finding.gain_at_most_s == pytest.approx(cost_s)
            assert finding.gain_at_most_s >= LEAST * facts.base_s


@pytest.mark.parametrize(("small", "is_said"), [(999, False), (1000, True)])
def test_a_trigger_keeps_its_own_threshold(small, is_said):
    counters = {"POSIX_READS": 1000, "POSIX_SIZE_READ_0_100": small, "POSIX_BYTES_READ": 1000}
    assert (RULE["job_small_reads"].find(facts_of(counters, 50.0, "read")) is not None) == is_said


@pytest.mark.parametrize(
    ("small", "mean_nbytes", "is_said"),
    [
        (100_000, 512 * 1024, False),
        (100_000, 512 * 1024 - 1, True),
        (99_000, 512 * 1024, False),
        (98_999, 512 * 1024, True),  # the others may have most of the bytes
    ],
)
def test_requests_of_half_a_mib_are_not_small(small, mean_nbytes, is_said):
    counters = {
        "POSIX_READS": 100_000,
        "POSIX_SIZE_READ_100K_1M": small,
        "POSIX_BYTES_READ": 100_000 * mean_nbytes,
    }
    assert (RULE["job_small_reads"].find(facts_of(counters, 50.0, "read")) is not None) == is_said


@pytest.mark.parametrize(("read", "is_said"), [(1110, False), (1112, True)])
def test_reading_again_is_what_lies_beyond_the_length_of_a_file(read, is_said):
    counters = {"POSIX_BYTES_READ": read, "POSIX_MAX_BYTE_READ": 999}
    found = RULE["job_redundant"].find(facts_of(counters, 50.0, "read"))
    assert (found is not None) == is_said
    if found is not None:
        assert 1 - found.claim.stays == pytest.approx((read - 1000) / read)


@pytest.mark.parametrize(
    ("counters", "storage_s", "gain_s"),
    [
        ({"MPIIO_COLL_WRITES": 999}, 30.0, None),
        ({"MPIIO_COLL_WRITES": 1000}, 30.0, 30.0),
        ({"MPIIO_COLL_WRITES": 1000}, 80.0, 20.0),
        ({"MPIIO_COLL_WRITES": 1000, "MPIIO_NB_WRITES": 1}, 30.0, None),
    ],
)
def test_of_blocking_calls_no_more_is_hidden_than_there_is_to_compute(counters, storage_s, gain_s):
    facts = facts_of({"POSIX_WRITES": 1}, storage_s, "write")
    columns = {name: np.array([value]) for name, value in counters.items()}
    base = facts.trace.counters[POSIX]
    mpi = CounterTable(MPIIO, base.process, base.file, columns, {})
    trace = replace(facts.trace, counters={**facts.trace.counters, MPIIO: mpi})
    finding = apply(RULE["job_blocking"], Facts(trace, facts.results, facts.account))
    assert (finding and finding.gain_s) == (gain_s and (0.0, pytest.approx(gain_s)))


@pytest.mark.parametrize(("most", "is_said"), [(290, False), (310, True)])
def test_a_rank_that_moves_half_of_the_bytes_is_named(most, is_said):
    run = labeled.made("healthy_four_ranks")
    facts = facts_of({"POSIX_READS": 1}, 50.0, "read")
    rows = [replace(row, bytes_read=100, bytes_written=0) for row in run.results.balance.rows[:4]]
    rows[0] = replace(rows[0], bytes_read=most)
    balance = replace(run.results.balance, rows=tuple(rows), shared_bytes=0)
    trace = replace(facts.trace, processes=run.trace.processes)
    results = replace(facts.results, balance=balance)
    found = RULE["job_one_rank"].find(Facts(trace, results, facts.account))
    assert (found is not None) == is_said


@pytest.mark.parametrize(
    ("path", "writes", "spent_s", "is_said"),
    [
        ("<STDOUT>", 1000, 1.01, True),
        ("<STDERR>", 1000, 1.01, True),
        ("<STDOUT>", 999, 50.0, False),
        ("<STDOUT>", 1000, 0.99, False),
        ("/data/STDOUT", 1000, 50.0, False),
    ],
)
def test_what_a_program_prints_is_weighed_in_seconds(path, writes, spent_s, is_said):
    facts = facts_of({"POSIX_WRITES": 1}, 60.0, "write")
    base = facts.trace.counters[POSIX]
    columns = {"STDIO_WRITES": np.array([writes]), "STDIO_BYTES_WRITTEN": np.array([40 * writes])}
    printed = CounterTable(
        STDIO, base.process, base.file, columns, {"STDIO_F_WRITE_TIME": np.array([spent_s])}
    )
    paths = list(facts.trace.files.path)
    paths[int(base.file[0])] = path
    files = replace(facts.trace.files, path=tuple(paths))
    trace = replace(facts.trace, files=files, counters={STDIO: printed})
    finding = apply(RULE["standard_streams"], Facts(trace, facts.results, facts.account))
    assert (finding is not None) == is_said
    if finding is not None:
        assert finding.gain_at_most_s == pytest.approx(spent_s)


def test_a_training_is_told_of_its_dataset_instead():
    run = labeled.made("healthy")
    facts = Facts(run.trace, run.results, run.breakdown)
    assert all(rule.find(facts) is None for rule in job_counters.RULES)


@pytest.mark.parametrize(
    ("stripes", "slowest_s", "moved", "is_said"),
    [
        (1, 40.0, 2 << 30, True),
        (8, 40.0, 2 << 30, False),  # of several targets
        (1, 1.0, 2 << 30, False),  # 0.88 s at most of 100
        (1, 40.0, 1 << 20, False),  # a file of few bytes
    ],
)
def test_one_target_for_a_shared_file_is_weighed_by_its_slowest_rank(
    stripes, slowest_s, moved, is_said
):
    """Of a record that ranks share Darshan does not say which ranks they were."""
    facts = facts_of({"POSIX_WRITES": 10}, 50.0, "write")
    table = facts.trace.counters[POSIX]
    shared = replace(
        table,
        process=np.full(1, -1, table.process.dtype),
        seconds={"POSIX_F_SLOWEST_RANK_TIME": np.array([slowest_s])},
    )
    code = int(table.file[0])
    trace = replace(
        facts.trace,
        counters=facts.trace.counters | {POSIX: shared},
        stripes=(Stripes(code, 1 << 20, stripes, ()),),
        processes=tuple(
            replace(facts.trace.processes[0], rank=rank, pid=rank + 1, trainer=rank)
            for rank in range(2)
        ),
    )
    row = replace(
        facts.results.files.rows[0], path=trace.files.path[code], ranks=None,
        bytes_read=0, bytes_written=moved,
    )  # fmt: skip
    results = replace(facts.results, files=replace(facts.results.files, rows=(row,)))
    finding = apply(RULE["job_stripes"], Facts(trace, results, facts.given))
    assert (finding is not None) == is_said
    if finding is not None:
        assert finding.gain_s == (0.0, pytest.approx(slowest_s * 7 / 8))


def sieved(read: int, by_mpi: int, seconds: float) -> Facts:
    """A job that writes 1 GB by MPI-IO, and how much was read beneath it in how long."""
    facts = facts_of({"POSIX_BYTES_READ": read}, 50.0, "write")
    table = facts.trace.counters[POSIX]
    table = replace(table, seconds={"POSIX_F_READ_TIME": np.array([seconds])})
    mpi = CounterTable(
        MPIIO, table.process, table.file,
        {"MPIIO_BYTES_WRITTEN": np.array([10**9]), "MPIIO_BYTES_READ": np.array([by_mpi])}, {},
    )  # fmt: skip
    return replace(facts, trace=replace(facts.trace, counters={POSIX: table, MPIIO: mpi}))


@pytest.mark.parametrize(
    ("read", "by_mpi", "seconds", "is_said"),
    [
        (10**8, 0, 10.0, True),
        (10**8 - 1, 0, 10.0, False),
        (10**8, 1, 10.0, False),  # the job reads the file itself
        (10**9, 0, 0.9, False),  # under 1 % of the run
        (10**9, 0, 1.1, True),
    ],
)
def test_reads_beneath_mpi_io_that_only_writes_are_those_of_data_sieving(
    read, by_mpi, seconds, is_said
):
    finding = apply(RULE["job_sieving"], sieved(read, by_mpi, seconds))
    assert (finding is not None) == is_said
    if finding is not None:
        assert finding.gain_at_most_s == pytest.approx(seconds)
