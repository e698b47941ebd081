"""Datasets and epochs of real runs, against PyDarshan and plain numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import vanidl
from vanidl.merge.pipeline import Inputs
from vanidl.model.run_facts import DataOptions
from vanidl.report.summary import summary_object


@pytest.fixture
def run_of(shared: Path):
    return lambda name, **more: vanidl.open_run(shared / "data" / name, **more)


def test_tfrecord_files_are_read_four_times_in_256_kib(run_of):
    run = run_of("recorded/tf_tfrecord")
    files = run.dataset.files
    assert [f.path.rsplit("/", 1)[-1] for f in files] == [
        f"part-{i:03d}.tfrecord" for i in range(8)
    ]
    assert {(f.visits, f.opens, f.reread_factor) for f in files} == {(4, 4, 4.0)}
    assert {f.unique_bytes for f in files} == {3_157_504}
    top = run.dataset.modes[0]
    assert (top.low, top.high, top.reads) == (262_144, 262_144, 8 * 4 * 12)
    assert "TFRecord" in top.cause
    assert not top.certain
    assert run.dataset.order.name == "in order"
    assert [round(e.bytes_read / 8) for e in run.phases.epochs] == [3_157_504] * 4
    assert "read again" in run.phases.epochs[0].evidence


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("torch_pfs_workers0", ""),  # chunks are read again within an epoch
        ("torch_pfs_workers4", "worker processes were started again"),
        ("torch_hdf5_workers2", "worker processes were started again"),
        ("ddp_two_hosts", "worker processes were started again"),
    ],
)
def test_two_epochs_by_two_kinds_of_evidence(run_of, name, other):
    run = run_of(f"recorded/{name}")
    epochs = run.phases.epochs
    assert len(epochs) == 2
    assert "created again" in epochs[0].evidence
    assert other in epochs[0].evidence
    assert sum(e.bytes_read for e in epochs) == run.dataset.bytes_read
    assert epochs[0].bytes_read == pytest.approx(epochs[1].bytes_read, rel=0.001)
    assert len(run.phases.checkpoints) == 2


def test_one_epoch_is_not_claimed(run_of):
    phases = run_of("recorded/torch_hdf5_dxt_v2").phases
    assert phases.epochs == ()
    assert "but not in whole passes" in phases.no_epochs  # chunks are read again within it


def pydarshan_reads(log: Path, ending: str) -> list[tuple[int, np.ndarray]]:
    """(rank, rows of (offset, length)) of each DXT record whose file ends so."""
    darshan = pytest.importorskip("darshan", reason="needs PyDarshan")
    report = darshan.DarshanReport(str(log), read_all=False)
    report.mod_read_all_dxt_records("DXT_POSIX", dtype="pandas")
    names = report.name_records
    return [
        (record["rank"], record["read_segments"][["offset", "length"]].to_numpy(np.int64))
        for record in report.records["DXT_POSIX"]
        if names[record["id"]].endswith(ending)
    ]


def length_of_union(rows: np.ndarray) -> int:
    """Bytes covered, by sorted edges: +1 where a range starts, -1 where it ends."""
    rows = rows[rows[:, 1] > 0]
    at = np.concatenate([rows[:, 0], rows[:, 0] + rows[:, 1]])
    change = np.repeat([1, -1], len(rows))
    order = np.lexsort((-change, at))
    depth = np.cumsum(change[order])[:-1]
    return int(np.diff(at[order])[depth > 0].sum())


@pytest.mark.usefixtures("darshan_library")
def test_cosmictagger_train_file_against_pydarshan(run_of, shared):
    name = "public/vanidl_cosmictagger/cosmictagger_8ranks.darshan"
    run = run_of(name)
    records = pydarshan_reads(shared / "data" / name, "cosmic_tagging_train.h5")
    every = np.concatenate([rows for _, rows in records])
    train = next(f for f in run.dataset.files if f.path.endswith("cosmic_tagging_train.h5"))
    assert train.bytes_read == every[:, 1].sum() == 1_265_261_183
    assert train.unique_bytes == length_of_union(every)
    assert train.extent == every.sum(axis=1).max()
    assert train.reread_factor == pytest.approx(every[:, 1].sum() / length_of_union(every))
    assert (train.visits, train.opens, train.ranks) == (8, 16, 8)
    per_rank = {rank: length_of_union(rows) for rank, rows in records}
    only = run.select(vanidl.Selection(include=("*cosmic_tagging_train.h5",)))
    assert {r.rank: r.unique_bytes for r in only.dataset.ranks} == per_rank


def test_cosmictagger_modes_are_2_and_6_kb(run_of):
    modes = run_of("public/vanidl_cosmictagger/cosmictagger_8ranks.darshan").dataset.modes
    small = [m for m in modes if m.high < 10_000 and m.low != m.high]
    assert [(m.low // 1000, m.high // 1000) for m in small] == [(5, 6), (2, 2)]
    (index,) = [m for m in modes if m.low == m.high == 2096]
    assert "1-dimensional" in index.cause


def test_cosmictagger_checkpoints_come_from_stdio_counters(run_of):
    saved = run_of("public/vanidl_cosmictagger/cosmictagger_8ranks.darshan").phases.checkpoints
    large = [c for c in saved if c.bytes_written > 2**27]
    assert len(large) == 3  # 150 iterations, a checkpoint every 50
    assert all(c.busy_s is None for c in large)  # STDIO has no single operations


def test_samples_per_second_of_all_ranks(run_of):
    inputs = Inputs(data=DataOptions(samples_per_step=16))
    run = run_of("recorded/ddp_two_hosts", inputs=inputs)
    made = summary_object(run)["throughput"]
    assert made["samples_per_s"] == pytest.approx(made["steps_per_s"] * 16 * 4)


def test_files_dropped_by_the_tracer_are_not_called_unread(run_of):
    run = run_of("recorded/tf_tfrecord_default_limits")
    assert run.dataset is None
    assert run.phases.epochs == ()
    assert {p.bytes_read for p in run.phases.stages} == {None}
