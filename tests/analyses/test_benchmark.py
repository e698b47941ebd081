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
    assert run.answer.support[0].startswith(f"DLIO unet3d: utilization of 4 accelerators on 2 "
                                            f"hosts {result.utilization_percent:.2f} %. Most of "
                                            "the rest "
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
    assert [rule.holds for rule in result.rules if not rule.exact] == expected
    assert [(rule.name, rule.found, rule.holds) for rule in result.rules if rule.exact] == [
        ("CLOSED: samples of a batch", 4.0, True),
        ("CLOSED: compute of a step", plan.compute_s, False),
    ]
    assert ("benchmark_rules" in [f.code for f in run.findings]) == (False in expected)
    broken = [rule.name for rule in result.rules if rule.holds is False and not rule.exact]
    said = f"Rules that do not hold: {', '.join(broken)}."
    assert (said in str(run.answer)) == bool(broken)
    assert result.summary_percent == pytest.approx(result.utilization_percent, rel=1e-9)


@pytest.mark.parametrize(
    ("batch", "compute_s", "asked", "holds"),
    [
        (24, 0.04755, (24, 0.04755), (True, True)),  # B200
        (32, 0.0634, (32, 0.0634), (True, True)),  # MI355
        (32, 0.04755, (32, 0.0634), (True, False)),
        (24, 0.05, (24, 0.04755), (True, False)),
        (30, 0.0634, (32, None), (False, None)),
    ],
)
def test_what_closed_fixes_of_retinanet_stands_with_its_value(
    tmp_path: Path, batch, compute_s, asked, holds
) -> None:
    folder = summed_up(tmp_path / "result", **METRIC)
    (folder / "configs").mkdir(exist_ok=True)
    (folder / "configs/config.yaml").write_text(
        "workload:\n  model:\n    name: retinanet\n  workflow:\n    train: true\n"
        f"  reader:\n    batch_size: {batch}\n  train:\n    computation_time: {compute_s}\n"
    )
    (result,) = vanidl.open_run(folder).benchmarks
    rules = {rule.name.removeprefix("CLOSED: "): rule for rule in result.rules}
    fixed = (rules["samples of a batch"], rules["compute of a step"])
    assert [rule.found for rule in fixed] == [batch, compute_s]
    assert tuple(rule.least for rule in fixed) == asked
    assert tuple(rule.holds for rule in fixed) == holds
    assert rules["accelerator utilization"].least == 85


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
    assert (list(result.saves_s), list(result.loads_s)) == (saves, loads)
    assert [(rule.name, rule.holds) for rule in result.rules] == [
        ("checkpoints written / memory of all hosts", None)
    ]
    assert "benchmark_rules" not in [finding.code for finding in run.findings]
    said = "DLIO llama: 2 saves of a checkpoint, 3.00 s each on average, 4.00 s the slowest."
    assert run.answer.title.startswith(said)


METRIC = {
    "train_au_percentage": [90.0, 94.0],
    "train_au_mean_percentage": 92.0,
    "train_au_meet_expectation": "success",
    "train_throughput_samples_per_second": [60.0, 70.0],
    "train_throughput_mean_samples_per_second": 65.0,
    "train_io_mean_MB_per_second": 9000.5,
}


def summed_up(
    folder: Path, *, hosts: int | None = 2, files: int = 700, late_s: int = 0, **metric: float
) -> Path:
    """A result of which only the sums were published, as most of MLPerf Storage are."""
    folder.mkdir(parents=True)
    begin = START + timedelta(seconds=late_s)
    stamps = {"start": begin.isoformat(), "end": (begin + timedelta(seconds=9)).isoformat()}
    (folder / "per_epoch_stats.json").write_text(json.dumps({"1": stamps}))
    summary = {
        "model": "unet3d", "num_accelerators": 8, "metric": METRIC | metric,
        "num_files_train": files, "num_samples_per_file": 1, "epochs": 2,
    }  # fmt: skip
    if hosts is not None:  # 0.5 wrote none of both
        summary |= {"num_hosts": hosts, "host_memory_GB": [64.0] * hosts}
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "configs").mkdir()
    (folder / "configs/config.yaml").write_text(
        "workload:\n  model: unet3d\n  dataset:\n    record_length: 146600628\n"
        "  reader:\n    batch_size: 7\n  train:\n    computation_time: 0.323\n"
    )
    return folder


@pytest.mark.parametrize("hosts", [None, 2])
def test_a_result_without_steps_has_the_figures_of_its_summary(tmp_path: Path, hosts) -> None:
    run = vanidl.open_run(summed_up(tmp_path / "run1", hosts=hosts))
    (result,) = run.benchmarks
    assert result.summary_percent == METRIC["train_au_mean_percentage"]
    assert result.samples_per_s == METRIC["train_throughput_mean_samples_per_second"]
    assert result.io_bytes_per_s == METRIC["train_io_mean_MB_per_second"] * 2**20
    on = "" if hosts is None else " on 2 hosts"
    assert run.answer.title.startswith(
        f"DLIO unet3d: utilization of 8 accelerators{on} 92.00 %, as much as is asked for; "
        "65 samples/s, 8.79 GiB/s."
    )
    least = {rule.name: rule.least for rule in result.rules}
    assert least["accelerator utilization"] == 90  # not in its configuration: of the workload
    assert [rule.holds for rule in result.rules if rule.exact] == [True, True]
    row = vanidl.table([run]).iloc[0]
    assert (row["accelerators"], row["samples_per_s"]) == (8, 65.0)


@pytest.mark.parametrize(("files", "named", "kept"), [
    (937, True, False), (938, False, False), (4_641, False, False), (4_642, False, True),
])  # fmt: skip
def test_data_beside_the_memory_of_the_hosts(tmp_path: Path, files, named, kept) -> None:
    """Of 128 GiB: 937 files are no more, 4,642 are 4.951 times, which rounding leaves."""
    run = vanidl.open_run(summed_up(tmp_path / "run1", files=files))
    (result,) = run.benchmarks
    assert (result.epochs_from_memory == (2,)) == named
    assert ("Epoch 2 may have come from memory" in run.headline) == named
    (rule,) = [rule for rule in result.rules if rule.name.startswith("data")]
    assert rule.holds is kept


def test_results_are_compared_by_their_sums(tmp_path: Path) -> None:
    for side, factor in (("a", 1.0), ("b", 1.1)):
        for k in range(5):
            rate = factor * (65 + k / 100)
            rates = {"train_throughput_samples_per_second": [rate, rate]}
            summed_up(tmp_path / side / f"run{k}", late_s=100 * k, **rates)
    frame = vanidl.compare_runs(tmp_path / "a", tmp_path / "b").frame().set_index("quantity")
    assert frame.loc["samples_per_s", "verdict"] == "better"
    assert frame.loc["samples_per_s", "ratio"] == pytest.approx(1.1)
    assert "not recorded" not in set(frame["verdict"])


def test_one_save_is_one_save(tmp_path: Path) -> None:
    folder = summed_up(tmp_path / "run1")
    at = [(START + timedelta(seconds=s)).isoformat() for s in (0, 1, 2, 9)]
    times = {"1": {"start": at[0], "ckpt1": {"start": at[1], "end": at[2]}, "end": at[3]}}
    (folder / "per_epoch_stats.json").write_text(json.dumps(times))
    assert "DLIO unet3d: 1 save of a checkpoint, 1.00 s." in vanidl.open_run(folder).headline


def test_checkpoints_have_their_rates_and_their_rule(tmp_path: Path) -> None:
    folder = summed_up(
        tmp_path / "run1", save_checkpoint_io_mean_GB_per_second=105.5, checkpoint_size_GB=96.0
    )
    config = folder / "configs/config.yaml"
    config.write_text(config.read_text() + "  workflow:\n    train: false\n")
    for saves, holds in ((3, False), (4, True)):
        at = [(START + timedelta(seconds=s)).isoformat() for s in range(10)]
        parts = {f"save_ckpt{k}": {"start": at[k], "end": at[k + 1]} for k in range(saves)}
        times = {"1": {"start": at[0], **parts, "end": at[9]}}
        (folder / "per_epoch_stats.json").write_text(json.dumps(times))
        (result,) = vanidl.open_run(folder).benchmarks
        assert result.save_bytes_per_s == 105.5 * 2**30
        (rule,) = result.rules
        assert (rule.found, rule.holds) == (0.75 * saves, holds)  # of 96 GiB, memory 128 GiB
