"""Results of a log without traced operations, against sums written out here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.makers.records import JOB_START_NS, Io, darshan_log
from vanidl.analyses.results import analyse
from vanidl.errors import UsageError
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble
from vanidl.model.selection import Selection
from vanidl.readers.records import CounterFile, CounterRecords, HeatmapRecord, StripeRecord

CLASSES = ("0_100", "100_1K", "1K_10K", "10K_100K", "100K_1M", "1M_4M", "4M_10M", "10M_100M",
           "100M_1G", "1G_PLUS")  # fmt: skip
NAMES = {1: "/data/a.h5", 2: "/data/b.h5"}
SECOND = 10**9


def posix(rows: list[tuple[int, int, int, int]]) -> CounterRecords:
    """Rows of (file, rank, reads, bytes read); writes are half of both."""
    file, rank, reads, nbytes = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    counters = {
        "POSIX_READS": reads, "POSIX_WRITES": reads // 2,
        "POSIX_BYTES_READ": nbytes, "POSIX_BYTES_WRITTEN": nbytes // 2,
        "POSIX_SEQ_READS": reads - 1, "POSIX_CONSEC_READS": reads // 4,
        "POSIX_SEQ_WRITES": reads // 2, "POSIX_CONSEC_WRITES": reads // 4,
    }  # fmt: skip
    for i, name in enumerate(CLASSES):
        counters[f"POSIX_SIZE_READ_{name}"] = reads if i == 3 else np.zeros_like(reads)
        counters[f"POSIX_SIZE_WRITE_{name}"] = reads // 2 if i == 9 else np.zeros_like(reads)
    seconds = {f"POSIX_F_{k}_TIME": 0.5 * (rank + 2.0) for k in ("READ", "WRITE", "META")}
    return CounterRecords("POSIX", file.astype(np.uint64), rank, counters, seconds)


def results_of(rows, *, nprocs=3, heatmaps=(), stripes=(), selection=None):
    log = replace(darshan_log([], nprocs=nprocs, pid=None, names=NAMES), host="node01")
    file = CounterFile((posix(rows),), (), tuple(stripes), tuple(heatmaps))
    trace = assemble(Group((log,), ()), {log.path: file})
    return analyse(trace, selection)


OWN = [(1, 0, 8, 800), (1, 1, 4, 400), (2, 0, 2, 100)]
SHARED = [*OWN, (2, -1, 20, 5_000)]


def test_sizes_are_darshans_ten_classes():
    sizes = results_of(OWN).sizes
    assert [b.reads for b in sizes.darshan_histogram] == [0, 0, 0, 14, 0, 0, 0, 0, 0, 0]
    assert [b.writes for b in sizes.darshan_histogram] == [0] * 9 + [7]
    assert sizes.darshan_histogram[3].low == 10_241
    assert sizes.darshan_histogram[9].high is None
    assert {b.bytes_read for b in sizes.darshan_histogram} == {None}
    assert (sizes.min, sizes.mean, sizes.histogram, sizes.common) == (None, None, (), ())


def test_access_is_darshans_rule_and_nothing_else():
    access = results_of(OWN).access
    assert access.source == "counters"
    assert (access.read.ops, access.write.ops) == (14, 7)
    assert (access.read.sequential_darshan, access.read.consecutive_darshan) == (11, 3)
    assert access.counted_sequential == (11, 7)
    assert {access.read.first, access.read.forward, access.read.backward} == {None}


def test_balance_is_over_ranks_with_records_of_their_own():
    balance = results_of(OWN).balance
    assert balance.source == "counters"
    assert [r.bytes_read for r in balance.rows] == [900, 400, 0]
    assert [r.ops for r in balance.rows] == [15, 6, 0]
    assert [r.counter_s for r in balance.rows] == [4.0, 3.0, 0.0]
    assert {r.busy_s for r in balance.rows} == {None}
    assert balance.busy_spread is None
    assert balance.counter_spread == pytest.approx(4.0 * 3 / 7)
    assert (balance.silent_ranks, balance.shared_bytes) == (1, 0)


def test_records_of_all_ranks_are_in_no_row():
    balance = results_of(SHARED).balance
    assert [r.bytes_read for r in balance.rows] == [900, 400, 0]
    assert balance.shared_bytes == 7_500
    moved = sum(r.bytes_read + r.bytes_written for r in balance.rows) + balance.shared_bytes
    assert moved == (900 + 400 + 5_000) * 3 // 2
    assert results_of([(2, -1, 20, 5_000)]).balance is None


def test_time_by_counters_is_never_busy_time():
    results = results_of(OWN)
    time = results.summary.counter_s
    assert results.summary.time is None
    assert (time.read_s, time.write_s, time.meta_s) == (3.5, 3.5, 3.5)
    assert time.per_rank_mean_s == pytest.approx(7 / 3)
    assert time.per_rank_max_s == 4.0
    assert results_of(SHARED).summary.counter_s.per_rank_max_s is None


def test_metadata_time_that_cannot_be_is_left_out():
    rows = [(1, 500, 2, 10)]
    assert results_of(rows, nprocs=1).summary.counter_s.meta_s is None


def test_traced_operations_go_before_counters():
    log = darshan_log([Io(0, 10, 0, 5)], names=NAMES)
    trace = assemble(Group((log,), ()), {log.path: CounterFile((posix(OWN),))})
    results = analyse(trace)
    assert results.access.source == "trace"
    assert results.balance.source == "trace"
    assert results.sizes.max == 5


def heat(rank, read, written, *, width=SECOND, layer="POSIX"):
    return HeatmapRecord(layer, rank, width, np.array(read, np.int64), np.array(written, np.int64))


def test_the_timeline_has_the_bins_of_the_heat_map():
    maps = [heat(0, [5, 0, 7], [1, 2, 3]), heat(2, [0, 9, 0], [0, 0, 4]),
            heat(0, [1, 1, 1], [1, 1, 1], layer="STDIO")]  # fmt: skip
    line = results_of(OWN, heatmaps=maps).timeline
    assert line.source == "heatmap"
    assert line.edges_s.tolist() == [0, 1, 2, 3]
    assert line.bytes_read.tolist() == [[5, 0, 7], [0, 0, 0], [0, 9, 0]]
    assert line.bytes_written.tolist() == [[1, 2, 3], [0, 0, 0], [0, 0, 4]]
    assert (line.reads, line.writes) == (None, None)
    assert line.row_labels == ("rank 0", "rank 1", "rank 2")


def test_heat_maps_of_processes_with_other_starts_and_widths_keep_their_sums():
    rng = np.random.default_rng(1)
    logs, files = [], {}
    total = np.zeros(2, np.int64)
    for i, width in enumerate((SECOND // 10, SECOND // 5, SECOND // 10)):
        start = JOB_START_NS + i * 137_000_001
        log = darshan_log([], pid=100 + i, parent=100 if i else None, names=NAMES, start_ns=start)
        sides = rng.integers(0, 10**12, (2, 20 - 3 * i))
        total += sides.sum(axis=1)
        logs.append(log)
        files[log.path] = CounterFile((), (), (), (heat(0, *sides, width=width),))
    line = analyse(assemble(Group(tuple(logs), ()), files)).timeline
    assert (line.bytes_read.sum(), line.bytes_written.sum()) == tuple(total)
    assert np.allclose(np.diff(line.edges_s), 0.2)
    assert line.edges_s[0] == 0


def test_heat_maps_know_no_files_but_know_time():
    maps = [heat(0, [5, 0, 7], [0, 0, 0])]
    chosen = Selection(include=("*.h5",))
    assert results_of(OWN, heatmaps=maps, selection=chosen).timeline is None
    line = results_of(OWN, heatmaps=maps, selection=Selection(from_s=1.0, to_s=3.0)).timeline
    assert line.bytes_read.sum() == 7
    with pytest.raises(UsageError):
        results_of(OWN, heatmaps=maps, selection=Selection(layer="H5D"))


def test_stripes_belong_to_their_file():
    stripes = [StripeRecord(2, 1 << 20, 4, (0, 3, 5, 7)), StripeRecord(99, 1, 1, (1,))]
    rows = {r.path: r for r in results_of(OWN, stripes=stripes).files.rows}
    (part,) = rows["/data/b.h5"].stripes
    assert (part.stripe_nbytes, part.stripe_count, part.osts) == (1 << 20, 4, (0, 3, 5, 7))
    assert rows["/data/a.h5"].stripes == ()
