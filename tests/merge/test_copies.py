"""What lies in a run twice counts once, whatever its format, and is said."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import vanidl
from tests.makers import pytorch_traces, rocprof_profiles, xplane_files
from tests.makers.calls_files import Calls, calls_file, read_loop
from tests.makers.darshan_logs import Log, Record, log_bytes
from tests.makers.dftracer_traces import PfwTrace
from tests.makers.dlio_results import write as write_result
from tests.makers.event_files import Event, event_file
from tests.makers.object_files import objects_of
from tests.makers.states_files import StatesFile
from tests.makers.step_journals import journal_of
from vanidl.cli import main
from vanidl.errors import SeveralJobsError
from vanidl.merge import copies
from vanidl.readers import discover, registry
from vanidl.readers.run_folder import ProcessRecord, RunRecord, write_record
from vanidl.survey import survey

SECOND = 10**9
START_S = 1_700_000_000
KIB = 1024


def darshan_log(
    *, reads: int = 3, job: tuple[int, int, int] = (1000, 7, 1), late_s: int = 0
) -> Log:
    rows = [(i * KIB, KIB, 1.0 + i, 1.5 + i, 1) for i in range(reads)]
    ranks = [[Record(1, rank, "node01", [], rows)] for rank in range(job[2])]
    return Log(
        job=job, start=(START_S + late_s, SECOND // 2), end=(START_S + late_s + 60, 0),
        names={1: b"/data/a.bin"}, metadata=b"", dxt={"DXT_POSIX": ranks}, compression="none",
    )  # fmt: skip


def darshan(folder: Path) -> None:
    (folder / "u_python_id7-42_11-14-80000-1_1.darshan").write_bytes(log_bytes(darshan_log()))


def dftracer(folder: Path) -> None:
    trace = PfwTrace(42)
    for i in range(20):
        trace.io("pread", "/data/a.bin", 10 * i, 5, ret=100, offset=100 * i)
    trace.end(1000)
    trace.write(folder / "trace-0.pfw")
    record = RunRecord(
        "run-1", ("python", "train.py"), "/job", "node01", "dftracer", "2", {}, START_S * SECOND,
        (START_S + 1) * SECOND, 0, None, (),
        (ProcessRecord(42, 1, "python train.py", 0, 0, 1), ProcessRecord(9, 1, "x", None, 0, 1,
                                                                         "missing")), (),
    )  # fmt: skip
    write_record(folder / "run.json", record)


def recorded_calls(folder: Path) -> None:
    calls = Calls({10: read_loop(20)}, {i: b"/data/%d.bin" % i for i in range(1, 5)}, pid=42)
    (folder / calls.name).write_bytes(calls_file(calls))


def pytorch(folder: Path) -> None:
    darshan(folder)
    content = pytorch_traces.trace(pytorch_traces.steps(6))
    name = f"node01_42.{START_S * SECOND}.pt.trace.json"
    pytorch_traces.write(folder / name, content)


def rocprof(folder: Path) -> None:
    works = [rocprof_profiles.dispatch(10 * i, 10 * i + 5) for i in range(20)]
    content = rocprof_profiles.profile(rocprof_profiles.process(works))
    (folder / "908_results.json").write_bytes(content)


def tensorboard(folder: Path) -> None:
    darshan(folder)
    events = [Event(START_S + 5 + i, i) for i in range(8)]
    (folder / f"events.out.tfevents.{START_S}.node01.42.0").write_bytes(event_file(events))


def xprof(folder: Path) -> None:
    spans = [
        *(xplane_files.Event("train", i * 10**8, i * 10**8 + 9 * 10**7, step=i) for i in range(4)),
        *(
            xplane_files.Event("IteratorGetNextOp::DoCompute", i * 10**8, i * 10**8 + 10**7,
                               line="get_next")
            for i in range(4)
        ),
    ]  # fmt: skip
    content = xplane_files.xspace(spans, start_ns=(START_S + 6) * SECOND)
    xplane_files.write_xplane(folder, content)


def recorded_steps(folder: Path) -> None:
    darshan(folder)
    journal_of(folder, " ".join(f"w0:{10 * i}-{10 * i + 4} o:{10 * i + 8}" for i in range(1, 7)))


def sampled_states(folder: Path) -> None:
    recorded_steps(folder)
    (folder / "node01-7.states").write_bytes(StatesFile().content())


def recorded_objects(folder: Path) -> None:
    objects_of(folder)


def benchmark_result(folder: Path) -> None:
    write_result(folder)
    (folder / "summary.json").unlink()  # a copy of what is read for its folder alone is no input
    (folder / "configs/config.yaml").unlink()


RUNS: dict[str, Callable[[Path], None]] = {
    "darshan": darshan,
    "dftracer": dftracer,
    "dlio": benchmark_result,
    "objects": recorded_objects,
    "pytorch": pytorch,
    "rocprof": rocprof,
    "states": sampled_states,
    "steps": recorded_steps,
    "tensorboard": tensorboard,
    "vanidl": recorded_calls,
    "xprof": xprof,
}


def test_every_format_has_a_run_to_double():
    assert set(RUNS) == {known.name for known in registry.FORMATS}


def summary(capsys, *arguments: object) -> dict:
    assert main(["summary", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def numbers(found: dict) -> tuple[dict, list[dict]]:
    """Everything but the warnings about copies, and those."""
    warnings = found["coverage"]["warnings"]
    twice = [w for w in warnings if w["code"] in ("copies", "versions_left_out")]
    found["coverage"]["warnings"] = [w for w in warnings if w not in twice]
    return found, twice


@pytest.mark.parametrize("many", [0, 512])
@pytest.mark.parametrize("name", RUNS)
def test_doubling_any_input_file_changes_no_number(capsys, tmp_path, name, many, monkeypatch):
    monkeypatch.setattr(copies, "_MANY", many)
    RUNS[name](tmp_path)
    alone, said = numbers(summary(capsys, tmp_path))
    assert not said
    for file in sorted(path for path in tmp_path.rglob("*") if path.is_file()):
        copy = file.parent / "again" / file.name
        copy.parent.mkdir()
        shutil.copyfile(file, copy)
        doubled, said = numbers(summary(capsys, tmp_path))
        assert doubled == alone, file
        if file.name != "run.json":
            (warning,) = said
            assert str(copy) in warning["message"]
        shutil.rmtree(copy.parent)


@pytest.mark.parametrize("name", RUNS)
def test_a_folder_of_results_beside_its_copy_is_one_run(capsys, tmp_path, name):
    for part in ("a", "b"):
        (tmp_path / part).mkdir()
        RUNS[name](tmp_path / part)
    both, said = numbers(summary(capsys, tmp_path))
    alone, _ = numbers(summary(capsys, tmp_path / "a"))
    assert both == alone
    assert said


def gzipped(path: Path) -> Path:
    target = path.parent / "packed" / f"{path.name}.gz"
    target.parent.mkdir()
    target.write_bytes(gzip.compress(path.read_bytes()))
    return target


@pytest.mark.parametrize("name", ["dftracer", "pytorch"])
def test_a_trace_beside_its_own_gz_counts_once(capsys, tmp_path, name):
    RUNS[name](tmp_path)
    alone, _ = numbers(summary(capsys, tmp_path))
    (trace,) = (p for p in tmp_path.iterdir() if p.suffix in (".pfw", ".json") and "run" not in
                p.name)  # fmt: skip
    packed = gzipped(trace)
    both, said = numbers(summary(capsys, tmp_path))
    assert both == alone
    assert [w["code"] for w in said] == ["versions_left_out"]
    assert str(packed) in said[0]["message"]


@pytest.mark.parametrize("name", ["darshan", "dftracer"])
def test_the_whole_one_is_used_beside_one_that_was_cut(capsys, tmp_path, name):
    RUNS[name](tmp_path)
    alone, _ = numbers(summary(capsys, tmp_path))
    (log,) = (p for p in tmp_path.iterdir() if p.name != "run.json")
    cut = tmp_path / "0" / log.name
    cut.parent.mkdir()
    cut.write_bytes(log.read_bytes()[:-60])
    both, said = numbers(summary(capsys, tmp_path))
    assert both == alone
    assert [w["code"] for w in said] == ["versions_left_out"]
    assert f"{cut}, used: {log}" in said[0]["message"]


def test_a_log_that_darshan_did_not_finish_gives_way_to_the_finished_one(tmp_path):
    darshan(tmp_path)
    (log,) = tmp_path.iterdir()
    unfinished = log.with_suffix(".darshan_partial")
    unfinished.write_bytes(log_bytes(darshan_log(reads=2)))
    run = vanidl.open_run(tmp_path)
    assert len(run.trace.processes) == 1
    assert run.summary.bytes_read == 3 * KIB
    assert "versions_left_out" in {w.code for w in run.coverage.warnings}


@pytest.mark.parametrize("many", [0, 512])
def test_a_copy_under_the_name_of_another_process_counts_once(capsys, tmp_path, many, monkeypatch):
    monkeypatch.setattr(copies, "_MANY", many)
    darshan(tmp_path)
    alone, _ = numbers(summary(capsys, tmp_path))
    (log,) = tmp_path.iterdir()
    copy = tmp_path / log.name.replace("-42_", "-43_")
    shutil.copyfile(log, copy)
    both, said = numbers(summary(capsys, tmp_path))
    assert both == alone
    assert [w["code"] for w in said] == ["copies"]
    assert f"{copy} of {log}" in said[0]["message"]


def test_only_files_of_one_size_and_read_beginning_are_read_whole(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(copies, "_digest", lambda path: opened.append(path))
    for pid in range(40):
        name = f"u_python_id7-{pid}_11-14-80000-{pid}_1.darshan"
        (tmp_path / name).write_bytes(b"%04d of one size" % pid)
    copies.drop_copies(discover.find(tmp_path))
    assert not opened
    again = tmp_path / "u_python_id7-99_11-14-80000-99_1.darshan"
    again.write_bytes(b"0007 of one size")
    copies.drop_copies(discover.find(tmp_path))
    assert sorted(path.name[13:15] for path in opened) == ["7_", "99"]


def test_of_many_logs_only_those_of_one_process_are_opened_again(tmp_path, monkeypatch):
    opened, look = [], copies._read_beginning
    monkeypatch.setattr(copies, "_MANY", 3)
    monkeypatch.setattr(copies, "_read_beginning", lambda path: opened.append(path) or look(path))
    logs = [tmp_path / f"u_python_id7-{pid}_11-14-80000-{pid}_1.darshan" for pid in (41, 42, 43)]
    for late_s, path in enumerate(logs):
        path.write_bytes(log_bytes(darshan_log(late_s=late_s)))
    assert len(vanidl.open_run(tmp_path).trace.processes) == 3
    assert not opened
    shutil.copyfile(logs[1], copy := tmp_path / "copy.darshan")
    assert len(vanidl.open_run(tmp_path).trace.processes) == 3
    assert sorted(opened) == sorted([copy, logs[1]])


def mpi(folder: Path, late_s: int, name: str = "", *, reads: int = 3) -> Path:
    content = log_bytes(darshan_log(reads=reads, job=(1000, 7, 4), late_s=late_s))
    path = folder / (name or f"u_prog_id7-{late_s}_11-14-{late_s}-1_1.darshan")
    path.write_bytes(content)
    return path


def test_two_executions_of_a_job_are_not_added_up(tmp_path, capsys):
    first = mpi(tmp_path, 0)
    mpi(tmp_path, 30)
    for more in ([], ["--job", "7"]):
        assert main(["summary", str(tmp_path), *more]) == 1
        said = capsys.readouterr().err
        assert "2 executions" in said
        assert first.name in said
    with pytest.raises(SeveralJobsError):
        vanidl.open_run(tmp_path)
    assert len(vanidl.open_run(first).trace.ranks) == 4


def test_versions_of_one_execution_are_one(tmp_path):
    mpi(tmp_path, 0)
    mpi(tmp_path, 0, "copy.darshan", reads=2)
    run = vanidl.open_run(tmp_path)
    assert len(run.trace.ranks) == 4
    assert run.summary.bytes_read == 4 * 3 * KIB


def test_survey_counts_copies_once_and_executions_apart(tmp_path):
    logs, out = tmp_path / "logs", tmp_path / "out"
    (logs / "again").mkdir(parents=True)
    first = mpi(logs, 0)
    mpi(logs, 100)
    shutil.copyfile(first, logs / "again" / first.name)
    rows = survey(logs, out).rows
    assert [(r["job"], r["ranks"], r["bytes_read"], r["logs"]) for r in rows] == [
        ("7", 4, 12 * KIB, 1),
        ("7", 4, 12 * KIB, 1),
    ]
    assert ["copies" in r["warnings"] for r in rows] == [True, False]
