from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vanidl
from tests.makers.dftracer_traces import PfwTrace
from tests.makers.step_journals import journal_of
from vanidl.advice.facts import Facts
from vanidl.errors import InputError, SeveralJobsError
from vanidl.readers.run_json import (
    MISSING,
    STATES,
    UNFINISHED,
    ProcessRecord,
    RunRecord,
    read_record,
    write_record,
)
from vanidl.record.injected.vanidl_steps.journal import WAIT, Journal

EXAMPLE = RunRecord(
    id="20261121-120000-100",
    command=("python", "train.py"),
    folder="/job",
    host="node01",
    tracer="dftracer",
    tracer_version="2.2.0",
    settings={"DFTRACER_ENABLE": "1"},
    start_ns=1,
    end_ns=2,
    exit_status=0,
    ranks=None,
    mounts=(("/data", "lustre"), ("/", "ext4")),
    processes=(ProcessRecord(100, 1, "python train.py", None, 1, 2),),
    losses=(),
)

processes = st.builds(
    ProcessRecord,
    st.integers(1, 2**31),
    st.integers(0, 2**31),
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.none() | st.integers(0, 10**6),
    st.integers(0, 2**62),
    st.integers(0, 2**62),
    st.sampled_from(STATES),
    st.booleans(),
)


@given(st.lists(processes, max_size=5), st.integers(0, 255), st.none() | st.integers(1, 10**6))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory,
    seen: list[ProcessRecord],
    status: int,
    ranks: int | None,
) -> None:
    record = replace(EXAMPLE, processes=tuple(seen), exit_status=status, ranks=ranks)
    path = tmp_path_factory.mktemp("r") / "run.json"
    write_record(path, record)
    assert read_record(path) == record


def test_a_recording_without_anything_says_how_its_command_ended(tmp_path: Path) -> None:
    write_record(tmp_path / "run.json", replace(EXAMPLE, exit_status=3))
    with pytest.raises(InputError, match=r"recorded command \(exit status 3\), found none"):
        vanidl.open_run(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": "other/1"}',
                                  '{"schema": "vanidl-run/1"}', "3"])  # fmt: skip
def test_a_foreign_file_is_an_error_and_in_a_run_a_notice(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(InputError, match=r"expected a record of vanidl record"):
        read_record(tmp_path / "run.json")
    one_process(tmp_path, 100)
    run = vanidl.open_run(tmp_path)
    assert "run_record_unreadable" in {w.code for w in run.coverage.warnings}


def one_process(folder: Path, pid: int) -> None:
    trace = PfwTrace(pid, 1, command=f"python job{pid}.py")
    trace.io("pread", "/data/a.bin", 1, 1, ret=10, offset=0)
    trace.end(10)
    trace.write(folder / "dftracer" / f"trace-{pid}-preload.pfw")


def test_logs_below_one_record_are_one_run_with_its_ranks_and_mounts(tmp_path: Path) -> None:
    for pid in (100, 200):
        one_process(tmp_path, pid)
    with pytest.raises(SeveralJobsError):
        vanidl.open_run(tmp_path)
    seen = tuple(ProcessRecord(pid, 1, "python", 300 - pid, 1, 2) for pid in (100, 200))
    write_record(tmp_path / "run.json", replace(EXAMPLE, processes=seen))
    trace = vanidl.open_run(tmp_path).trace
    assert trace.job.id == EXAMPLE.id
    assert [(p.pid, p.rank) for p in trace.processes] == [(200, 100), (100, 200)]
    assert trace.files.file_system == ("lustre",)


def test_two_recorded_runs_in_one_folder_stay_apart(tmp_path: Path) -> None:
    for i, pid in enumerate((100, 200)):
        one_process(tmp_path / str(i), pid)
        write_record(tmp_path / str(i) / "run.json", replace(EXAMPLE, id=f"job-{i}"))
    with pytest.raises(SeveralJobsError) as raised:
        vanidl.open_run(tmp_path)
    assert "job-0" in raised.value.table
    inputs = vanidl.Inputs(job_ids=("job-1",))
    assert [p.pid for p in vanidl.open_run(tmp_path, inputs=inputs).trace.processes] == [200]


SECOND = 1_000_000_000
TOOL = ProcessRecord(101, 100, "ldconfig -p", None, SECOND, SECOND + 1_000_000, MISSING)


@pytest.mark.parametrize(
    ("process", "code"),
    [
        (TOOL, "processes_brief"),
        (replace(TOOL, last_seen_ns=2 * SECOND), "processes_missing"),
        (replace(TOOL, rank=1), "processes_missing"),
        (replace(TOOL, running=True), "processes_missing"),
        (replace(TOOL, command=EXAMPLE.processes[0].command), "processes_missing"),
        (replace(TOOL, state=UNFINISHED), "processes_unfinished"),
    ],
)
def test_tools_that_lived_a_moment_are_no_loss(
    tmp_path: Path, process: ProcessRecord, code: str
) -> None:
    """Not so workers (copies of their parent), ranks and what lived longer."""
    one_process(tmp_path, 100)
    record = replace(EXAMPLE, processes=(*EXAMPLE.processes, process))
    write_record(tmp_path / "run.json", record)
    run = vanidl.open_run(tmp_path)
    found = {w.code: w.severity for w in run.coverage.warnings if w.code.startswith("processes")}
    assert found == {code: "info" if code == "processes_brief" else "warning"}
    assert Facts(run.trace, run.results).lossy == (code != "processes_brief")


def test_a_command_that_left_no_log_is_missing_however_short(tmp_path: Path) -> None:
    write_record(tmp_path / "run.json", replace(EXAMPLE, processes=(TOOL,)))
    with pytest.raises(InputError, match="left no log"):
        vanidl.open_run(tmp_path)


@pytest.mark.parametrize(
    ("state", "code"), [(MISSING, "processes_missing"), (UNFINISHED, "processes_unfinished")]
)
def test_lost_processes_are_warnings(tmp_path: Path, state: str, code: str) -> None:
    one_process(tmp_path, 100)
    lost = ProcessRecord(101, 100, "python worker.py", None, 1, SECOND, state)
    seen = (*EXAMPLE.processes, lost)
    write_record(tmp_path / "run.json", replace(EXAMPLE, processes=seen))
    (notice,) = [w for w in vanidl.open_run(tmp_path).coverage.warnings if w.code == code]
    assert "1 of at least 2 processes" in notice.message
    assert "101 python worker.py" in notice.message


def test_a_record_from_before_ceilings_is_of_training(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_record(path, EXAMPLE)
    values = json.loads(path.read_text())
    assert values.pop("ceiling") is False
    path.write_text(json.dumps(values))
    assert read_record(path) == EXAMPLE


def test_a_ceiling_run_is_never_a_run_of_training(tmp_path: Path) -> None:
    """Neither by itself, nor beside one, nor its files named one by one."""
    for name, ceiling in (("run", False), ("free", True)):
        (tmp_path / name).mkdir()
        journal_of(tmp_path / name, "w0:0-9 o:20 w0:20-29 o:40 w0:40-49 o:60")
        write_record(tmp_path / name / "run.json", replace(EXAMPLE, ceiling=ceiling))
    run = vanidl.open_run(tmp_path)
    assert run.steps.table.step.tolist() == [0, 1, 2]
    assert [w.severity for w in run.coverage.warnings if w.code == "ceiling_run"] == ["info"]
    with pytest.raises(InputError, match="found one of vanidl ceiling"):
        vanidl.open_run(tmp_path / "free")
    events = Journal(str(tmp_path))
    events.describe({"replay": 0, "class": "DataLoader", "state": "warm-up", "needed": 20})
    events.add(WAIT, 0, 1, 2)
    events.close()
    (path,) = tmp_path.glob("*.steps")
    with pytest.raises(InputError, match="found those of vanidl ceiling"):
        vanidl.open_run(path)
