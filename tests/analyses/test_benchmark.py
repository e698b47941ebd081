"""What accelerators of a benchmark waited for: parts that add up, and causes that were planted."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

import vanidl
from tests.makers.darshan_logs import Log, Record, log_bytes
from tests.makers.dlio_results import GIB, START, Plan, write
from vanidl.analyses.benchmark import BenchmarkResult
from vanidl.cli import main
from vanidl.run import Run

START_S = int((START - START.__class__(1970, 1, 1)).total_seconds())
ALONE = Plan(ranks=1, epochs=2, load=lambda rank, epoch, step: 0.3, compute_s=0.1, memory_gib=0.5)


def with_reads(folder: Path, plan: Plan, share: float) -> Path:
    """The result with a Darshan log of reads under way in the first part of each load."""
    write(folder, plan)
    times = json.loads((folder / "per_epoch_stats.json").read_text())
    output = json.loads((folder / "0_output.json").read_text())
    reads = []
    for epoch, stamps in times.items():
        begin = (START.fromisoformat(stamps["block1"]["start"]) - START).total_seconds()
        for load, proc in zip(
            output[epoch]["load"]["block1"], output[epoch]["proc"]["block1"], strict=True
        ):
            reads.append((4096 * len(reads), 4096, begin, begin + share * load, 1))
            begin += proc + plan.between_s
    log = Log(
        job=(1000, 7, 1), metadata=b"", start=(START_S, 1),
        end=(START_S + 60, 0), names={1: b"/data/a.npz"},
        dxt={"DXT_POSIX": [[Record(1, 0, "node00", [], reads)]]}, compression="none",
    )  # fmt: skip
    (folder / "u_python_id7-42_3-4-18367-1_1.darshan").write_bytes(log_bytes(log))
    return folder


def only(run: Run) -> BenchmarkResult:
    (result,) = run.benchmarks
    for row in result.epochs:
        parts = [row.compute_s, *(wait or 0.0 for wait in row.waits_s)]
        assert sum(parts) == pytest.approx(row.total_s, rel=1e-9)
        assert min(parts) >= -1e-9
    total = (result.compute_s or 0.0) + sum(wait or 0.0 for wait in result.waits_s.values())
    assert total == pytest.approx(result.total_s or 0.0, rel=1e-9)
    return result


def test_a_load_is_storage_while_reads_are_under_way_and_else_the_processor(tmp_path: Path) -> None:
    result = only(vanidl.open_run(with_reads(tmp_path, ALONE, 0.75)))
    load_s = 2 * (ALONE.steps - 1) * 0.3  # the first step of each epoch is left out
    assert result.waits_s["storage"] == pytest.approx(0.75 * load_s, rel=0.01)
    assert result.waits_s["processor"] == pytest.approx(0.25 * load_s, rel=0.01)
    assert result.waits_s["page cache"] == 0
    assert result.waits_s["not known"] == 0
    assert result.largest_wait == "storage"


def test_reads_of_data_that_fit_into_memory_are_the_page_caches_from_epoch_two(
    tmp_path: Path,
) -> None:
    plan = replace(ALONE, sample_nbytes=1024)
    result = only(vanidl.open_run(with_reads(tmp_path, plan, 0.75)))
    first, second = result.epochs
    assert first.page_cache_s == 0
    assert second.storage_s == 0
    assert second.page_cache_s == pytest.approx(first.storage_s, rel=0.01)


def test_without_a_trace_the_cause_of_a_load_is_not_known(tmp_path: Path) -> None:
    run = vanidl.open_run(write(tmp_path, ALONE))
    result = only(run)
    assert result.waits_s["storage"] is None
    assert result.largest_wait == "not known"
    (finding,) = [f for f in run.findings if f.code == "benchmark_wait"]
    assert finding.gain_at_most_s == pytest.approx(result.waits_s["not known"])


def test_the_barrier_of_a_slow_rank_is_found(tmp_path: Path) -> None:
    slow = Plan(ranks=4, load=lambda rank, epoch, step: 0.2 if rank == 2 else 0.001)
    run = vanidl.open_run(write(tmp_path, slow))
    result = only(run)
    assert result.largest_wait == "barrier"
    assert run.answer.support[0].startswith(f"DLIO unet3d: utilization of 4 accelerators "
                                            f"{result.utilization_percent:.2f} %. Most of the rest "
                                            "is waiting at barriers for slower ranks")  # fmt: skip
    assert "barrier" in next(f for f in run.findings if f.code == "benchmark_wait").title


RULES = {
    "kept": (Plan(compute_s=9.0, steps=500, epochs=1, sample_nbytes=GIB), [True, True, True]),
    "no rule": (Plan(memory_gib=64.0), [False, False, False]),
}


@pytest.mark.parametrize("name", RULES)
def test_the_rules_of_the_benchmark(tmp_path: Path, name: str) -> None:
    plan, expected = RULES[name]
    run = vanidl.open_run(write(tmp_path, plan))
    (result,) = run.benchmarks
    assert [rule.holds for rule in result.rules] == expected
    assert ("benchmark_rules" in [f.code for f in run.findings]) == (False in expected)
    broken = [rule.name for rule in result.rules if rule.holds is False]
    said = f"Rules that do not hold: {', '.join(broken)}."
    assert (said in str(run.answer)) == bool(broken)
    assert result.summary_percent == pytest.approx(result.utilization_percent, rel=1e-9)


def test_steps_less_than_a_file_short_keep_the_rule(tmp_path: Path) -> None:
    """MLPerf's tool rounds the number of files down: 499 steps are in many valid results."""
    found = []
    for short, expected in ((1, 499), (9, 497)):
        folder = write(tmp_path / str(short), Plan(ranks=1, epochs=1, steps=500))
        summary = json.loads((folder / "summary.json").read_text())
        summary["num_files_train"] -= short  # of one sample each, four to a step
        (folder / "summary.json").write_text(json.dumps(summary))
        (result,) = vanidl.open_run(folder).benchmarks
        assert result.rules[2].found == expected
        found.append(result.rules[2].holds)
    assert found == [True, False]


def test_it_is_in_every_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "result", Plan(later=True))
    assert main(["summary", "--full", str(folder)]) == 0
    assert "between steps" in capsys.readouterr().out
    assert main(["summary", "--json", str(folder)]) == 0
    (found,) = json.loads(capsys.readouterr().out)["benchmarks"]
    assert found["workload"] == "unet3d"
    assert len(found["epochs"]) == 4
    assert main(["report", str(folder), "-o", str(tmp_path / "page.html")]) == 0
    assert "What the accelerators waited for" in (tmp_path / "page.html").read_text()


def test_checkpoints_alone_have_their_times_and_no_rules_of_training(tmp_path: Path) -> None:
    def stamp(at: float) -> str:
        return (START + timedelta(seconds=at)).isoformat()

    saves, loads = [2.0, 4.0], [1.0]
    parts = {f"save_ckpt{i}": (10 * i, took) for i, took in enumerate(saves, 1)}
    parts |= {f"load_ckpt{i}": (50 * i, took) for i, took in enumerate(loads, 1)}
    stamps = {name: {"start": stamp(at), "end": stamp(at + s)} for name, (at, s) in parts.items()}
    times = {"1": {"start": stamp(0), "end": stamp(90), **stamps}}
    (tmp_path / "0_per_epoch_stats.json").write_text(json.dumps(times))
    (tmp_path / "summary.json").write_text(
        '{"num_files_train": 8, "num_samples_per_file": 1, '
        '"num_accelerators": 1, "host_memory_GB": [1]}'
    )
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/config.yaml").write_text(
        "workload:\n  model:\n    name: llama\n  workflow:\n    train: false\n"
        "  reader:\n    batch_size: 1\n  dataset:\n    record_length_bytes: 10\n"
    )
    run = vanidl.open_run(tmp_path)
    (result,) = run.benchmarks
    assert (list(result.saves_s), list(result.loads_s), result.rules) == (saves, loads, ())
    assert "benchmark_rules" not in [finding.code for finding in run.findings]
    said = "DLIO llama: 2 saves of a checkpoint, 3.00 s each on average, 4.00 s the slowest."
    assert run.answer.support[0].startswith(said)
