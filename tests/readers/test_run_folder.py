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
from vanidl.model.run_facts import Ceiling
from vanidl.readers.run_folder import (
    CEILING_JSON,
    MISSING,
    STATES,
    UNFINISHED,
    ProcessRecord,
    RunRecord,
    gather_ceiling,
    gather_memory,
    parse_memory,
    read_ceiling,
    read_memory,
    read_record,
    write_ceiling,
    write_record,
)
from vanidl.record.injected.vanidl_steps.journal import WAIT, Journal

CEILING = Ceiling(
    ranks=2, steps=50, step_s=0.1, free_s=0.04, median_step_s=0.1, median_free_s=0.04,
    copying_s=0.001, cost=0.6, low=0.58, high=0.63, replayed=2, kept=40, kept_nbytes=1000,
    remarks=("DataLoader (V) stayed real",),
)  # fmt: skip


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_ceiling(tmp_path, CEILING)
    assert read_ceiling(tmp_path / CEILING_JSON) == CEILING
    assert gather_ceiling([tmp_path / "run.json"]) == (CEILING, [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"cost": 0.9}, {"low": 0.7}, {"high": 1.0}, {"high": 0.5}, {"step_s": 0.0}, {"free_s": -1},
        {"copying_s": -1.0}, {"steps": 0}, {"ranks": True}, {"kept": "1"}, {"kept_nbytes": -1},
        {"remarks": 5}, {"schema": "vanidl-ceiling/9"}, {"median_step_s": None}, {"pairs": 0},
    ],
    ids=str,
)  # fmt: skip
def test_impossible_values_are_refused(tmp_path: Path, wrong: dict) -> None:
    write_ceiling(tmp_path, CEILING)
    path = tmp_path / CEILING_JSON
    path.write_text(json.dumps(json.loads(path.read_text()) | wrong))
    with pytest.raises(InputError, match="expected what vanidl ceiling measured"):
        read_ceiling(path)
    ceiling, (notice,) = gather_ceiling([tmp_path / "run.json"])
    assert ceiling is None
    assert notice.code == "ceiling_unreadable"


@pytest.mark.parametrize("text", ["", "[]", "nan", '{"schema": "vanidl-ceiling/1"}', "\xff"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / CEILING_JSON).write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match="expected what vanidl ceiling measured"):
        read_ceiling(tmp_path / CEILING_JSON)


def test_long_remarks_are_cut(tmp_path: Path) -> None:
    write_ceiling(tmp_path, replace(CEILING, remarks=("x" * 10_000,) * 100))
    found = read_ceiling(tmp_path / CEILING_JSON)
    assert len(found.remarks) == 20
    assert max(map(len, found.remarks)) == 400


def test_of_several_runs_none_speaks_for_all(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        write_ceiling(tmp_path / name, CEILING)
    assert gather_ceiling([tmp_path / name / "run.json" for name in "ab"]) == (None, [])


HEAD = {"schema": "vanidl-memory/1", "host": "node", "limit": 1000, "limit_of": "machine"}
FIRST = {"t": 10, "new": {"7": 1}, "p": {"7": [100, 40]}, "s": {"7": [90, 80, 5, 1]},
         "m": [3, 900], "c": [500, 400, 60, 2]}  # fmt: skip
SECOND_NS = {"t": 20, "p": {"7": [120, 40], "8": [9, 9]}, "m": [4, 800]}


def lines(*rows):
    return [json.dumps(row).encode() if isinstance(row, dict) else row for row in rows]


def test_every_look_comes_back():
    host = parse_memory(lines(HEAD, FIRST, SECOND_NS), "x")
    assert (host.host, host.limit, host.limit_of) == ("node", 1000, "machine")
    seven, eight = host.processes
    assert (seven.pid, seven.parent_pid, seven.at_ns.tolist()) == (7, 1, [10, 20])
    assert (seven.resident.tolist(), seven.shared.tolist()) == ([100, 120], [40, 40])
    assert [column.tolist() for column in (seven.walked_ns, seven.proportional, seven.private,
            seven.shared_memory, seven.swapped)] == [[10], [90], [80], [5], [1]]  # fmt: skip
    assert (eight.parent_pid, len(eight.walked_ns)) == (-1, 0)
    assert host.dev_shm.tolist() == [3, 4]
    assert host.available.tolist() == [900, 800]
    assert (host.group.tolist(), host.group_files.tolist()) == ([500, -1], [60, -1])


@pytest.mark.parametrize(
    "wrong",
    [b"{", b"[1]", {"t": -1}, {"t": "now"}, {"t": 30, "p": {"7": [1]}},
     {"t": 30, "p": {"x": [1, 2]}}, {"t": 30, "p": {"7": [1, -2]}},
     {"t": 30, "p": 5, "s": [], "new": 3, "m": "?", "c": [1]},
     {"t": 30, "p": {"7": [1, 1 << 63]}}],
)  # fmt: skip
def test_lines_that_make_no_sense_change_no_process(wrong):
    host = parse_memory(lines(HEAD, FIRST, wrong, SECOND_NS), "x")
    assert [p.resident.tolist() for p in host.processes] == [[100, 120], [9]]


def test_something_else_is_refused(tmp_path):
    for content in (b"", b"{}\n", b'{"schema": "other"}\n'):
        path = tmp_path / "a.memory"
        path.write_bytes(content)
        with pytest.raises(InputError, match="expected memory"):
            read_memory(path)
    with pytest.raises(InputError, match="missing"):
        read_memory(tmp_path / "none.memory")


def test_what_lies_beside_records_is_found_and_what_cannot_be_read_is_said(tmp_path):
    folder = tmp_path / "memory"
    folder.mkdir()
    (folder / "a-1.memory").write_bytes(b"\n".join(lines(HEAD, FIRST)))
    (folder / "b-1.memory").write_bytes(b"?")
    found, notices = gather_memory([tmp_path / "run.json"])
    assert [host.host for host in found] == ["node"]
    assert [notice.severity for notice in notices] == ["info"]
    assert gather_memory([tmp_path / "other" / "run.json"]) == ((), [])


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
    with pytest.raises(InputError, match=r"found none\. The program failed with exit status 3"):
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
