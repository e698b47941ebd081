"""Results of DLIO: its own figures come out to the digit, and the spans fit the clock."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vanidl
from tests.makers.dlio_results import Plan, write
from vanidl.errors import SeveralJobsError
from vanidl.model.trace import SpanKind
from vanidl.readers.dlio import OUTPUT, TIMES
from vanidl.readers.dlio.reading import read_results
from vanidl.readers.dlio.results import read_config
from vanidl.readers.format import Reading, Records

SLOW_RANK = Plan(ranks=3, load=lambda rank, epoch, step: 0.3 if rank == 1 and step % 2 else 0.02)
PLANS = {
    "first": Plan(),
    "later": Plan(later=True),
    "blocks": Plan(blocks=3, evaluation=True),
    "later blocks": Plan(blocks=2, later=True, seed=3),
    "3.0.1": Plan(later=True, counts_alike=True),
    "3.0.1 blocks": Plan(blocks=2, steps=9, later=True, counts_alike=True),
    "slow rank": SLOW_RANK,
}


def records(folder: Path) -> Records:
    files = {
        OUTPUT: tuple(sorted(folder.glob("*_output.json"))),
        TIMES: tuple(sorted(folder.glob("*per_epoch_stats.json"))),
    }
    return read_results(files, Reading(lambda *_: None))


@pytest.mark.parametrize("name", PLANS)
def test_utilization_is_that_of_the_benchmark_to_the_digit(tmp_path: Path, name: str) -> None:
    plan = PLANS[name]
    (benchmark,) = records(write(tmp_path, plan)).benchmarks
    assert len(benchmark.epochs) == plan.ranks * plan.epochs
    for row in benchmark.epochs:
        assert row.utilization_percent == pytest.approx(row.recorded_percent, rel=1e-12)
        parts = (row.compute_s, row.load_s, row.other_s, row.outside_s)
        assert sum(parts) == pytest.approx(row.total_s, rel=1e-12)
        assert row.barrier_s is not None
        assert 0 <= row.barrier_s <= row.outside_s + 1e-9
    for epoch, summed in enumerate(benchmark.summary_percent, 1):
        own = [r.utilization_percent for r in benchmark.epochs if r.epoch == epoch]
        assert np.mean(own) == pytest.approx(summed, rel=1e-12)


def test_without_a_configuration_the_batch_size_follows_from_the_clocks(tmp_path: Path) -> None:
    write(tmp_path, Plan())
    (tmp_path / "configs/config.yaml").unlink()
    (benchmark,) = records(tmp_path).benchmarks
    assert benchmark.threshold_percent is None
    assert all(
        row.utilization_percent == pytest.approx(row.recorded_percent, rel=1e-9)
        for row in benchmark.epochs
    )


def test_the_barrier_is_what_faster_ranks_wait_for_the_slowest(tmp_path: Path) -> None:
    (benchmark,) = records(write(tmp_path, SLOW_RANK)).benchmarks
    waits = {row.rank: row.barrier_s for row in benchmark.epochs if row.epoch == 1}
    assert waits[1] == pytest.approx(0, abs=1e-3)
    assert waits[0] == pytest.approx(3 * 0.28, abs=1e-3)  # three steps, 0.3 s against 0.02 s


@pytest.mark.parametrize("name", PLANS)
def test_steps_tile_their_blocks_and_no_span_leaves_them(tmp_path: Path, name: str) -> None:
    plan = PLANS[name]
    for profile in records(write(tmp_path, plan)).profiles:
        of = {
            kind: (profile.kind == kind).nonzero()[0]
            for kind in (SpanKind.STEP, SpanKind.INPUT_WAIT, SpanKind.OP, SpanKind.COMMUNICATION)
        }
        steps = of[SpanKind.STEP]
        assert len(steps) == plan.epochs * plan.blocks * plan.steps
        assert profile.step[steps].tolist() == list(range(len(steps)))
        start, end = profile.start_ns[steps], profile.end_ns[steps]
        assert (start[1:] >= end[:-1]).all()
        joined = start[1:] == end[:-1]
        assert joined.sum() == len(steps) - plan.epochs * plan.blocks
        for kind, rows in of.items():
            inside = np.searchsorted(start, profile.start_ns[rows], side="right") - 1
            assert (inside >= 0).all(), kind
            trains = profile.start_ns[rows] < end[inside]  # validation computes, too
            assert trains.sum() == len(rows) or plan.evaluation
            assert (profile.end_ns[rows] <= end[inside] + 2)[trains].all(), kind
        waits = of[SpanKind.INPUT_WAIT]
        loads = json.loads(Path(profile.path).read_text())["1"]["load"].items()
        told = sum(sum(values) for block, values in loads if block != "eval")
        first = profile.start_ns[waits] < start[plan.blocks * plan.steps]
        span_s = (profile.end_ns[waits] - profile.start_ns[waits])[first].sum() / 1e9
        assert span_s == pytest.approx(told, abs=1e-6)


def test_results_in_sibling_folders_are_runs_of_their_own(tmp_path: Path) -> None:
    for number in (1, 2):
        write(tmp_path / f"run-{number}", Plan(seed=number))
    with pytest.raises(SeveralJobsError, match="2 unrelated groups"):
        vanidl.open_run(tmp_path)
    one = vanidl.open_run(tmp_path / "run-2")
    assert [b.folder for b in one.trace.benchmarks] == [str(tmp_path / "run-2")]
    assert one.steps is not None
    assert (one.steps.ranks, one.steps.per_rank_max) == (2, 12)


def test_one_bad_file_ends_no_more_than_itself(tmp_path: Path) -> None:
    write(tmp_path, replace(SLOW_RANK, later=True))
    (tmp_path / "1_output.json").write_text('{"host_memory_GB": 1, "1"')
    (tmp_path / "summary.json").write_text("[]")
    run = vanidl.open_run(tmp_path)
    codes = [notice.code for notice in run.trace.warnings]
    assert "unreadable" in codes
    assert {row.rank for b in run.trace.benchmarks for row in b.epochs} == {0, 2}
    assert all(row.barrier_s is None for b in run.trace.benchmarks for row in b.epochs)


def test_a_result_without_steps_says_so(tmp_path: Path) -> None:
    write(tmp_path)
    for path in tmp_path.glob("*_output.json"):
        path.unlink()
    run = vanidl.open_run(tmp_path)
    assert run.steps is None
    assert "steps_not_recorded" in [notice.code for notice in run.trace.warnings]
    (benchmark,) = run.trace.benchmarks
    assert len(benchmark.summary_percent) == 2


def test_what_hydra_writes_is_read_by_dotted_names(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "workload:\n  model:\n    name: 'unet3d'\n  list:\n  - a: 1\n  train:\n"
        "    computation_time:\n      mean: 0.3\n  after: x:y\n? odd\nbroken\n"
    )
    assert read_config(path) == {
        "workload.model.name": "unet3d",
        "workload.train.computation_time.mean": "0.3",
        "workload.after": "x:y",
    }
    assert read_config(tmp_path / "missing.yaml") == {}
