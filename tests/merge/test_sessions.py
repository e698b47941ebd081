"""Profiles of TensorFlow and JAX in a run: which file, which process, which clock."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

import vanidl
from tests.makers import xplane_files
from tests.makers.darshan_logs import Log, Record, log_bytes
from tests.makers.event_files import Event as Mark
from tests.makers.event_files import event_file, message
from tests.makers.xplane_files import Event, write_viewer, write_xplane, xspace
from vanidl.cli import main
from vanidl.readers.darshan import reading

START_S = 1_795_219_350
SECOND = 10**9
START_NS = START_S * SECOND
BATCHES = [Event("train", i * 10**8, i * 10**8 + 9 * 10**7, step=i) for i in range(4)]
WAITS = [
    Event("IteratorGetNextOp::DoCompute", i * 10**8, i * 10**8 + 10**7, line="get_next")
    for i in range(4)
]
OPS = [Event("m/MatMul:MatMul", i * 10**8 + 5 * 10**7, i * 10**8 + 8 * 10**7, title="MatMul",
             line="tf_Compute/1") for i in range(4)]  # fmt: skip
SPANS = [*BATCHES, *WAITS, *OPS]


def write_log(
    folder: Path, pid: int = 42, *, parent: int | None = None, local_s: int = 0, length_s: int = 10
) -> None:
    """A log of one process that reads from 0.25 to 0.35 s after START_S + 6 s."""
    read = (0, 4096, 5.75, 5.85, 1)
    log = Log(
        job=(1000, 7, 1), start=(START_S, SECOND // 2), end=(START_S + length_s, SECOND // 2),
        metadata=b"" if parent is None else f"fork_parent={parent}\n".encode(),
        names={1: b"/data/a.tfrecord"},
        dxt={"DXT_POSIX": [[Record(1, 0, xplane_files.HOST, [], [read])]]},
    )  # fmt: skip
    local = datetime.fromtimestamp(START_S + local_s, timezone.utc)
    second = (START_S + local_s) % 86400
    name = f"u_python_id7-{pid}_{local.month}-{local.day}-{second}-{pid}_1.darshan"
    (folder / name).write_bytes(log_bytes(log))


def summary(capsys, *arguments: object) -> dict:
    assert main(["summary", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def profile(folder: Path, host: str = xplane_files.HOST, *, late_s: int = 6) -> Path:
    content = xspace(SPANS, start_ns=START_NS + late_s * 10**9)
    return write_xplane(folder, content, host=host)


def test_steps_waits_and_overlap_come_from_the_profile(capsys, tmp_path):
    write_log(tmp_path)
    profile(tmp_path)
    found = summary(capsys, tmp_path)
    assert found["steps"]["source"] == "xplane"
    assert (found["job"]["processes"], found["steps"]["per_rank"]["max"]) == (1, 4)
    (rank,) = found["overlap"]["per_rank"]
    assert found["overlap"]["basis"] == "ops"
    # Read from 0.25 to 0.35 s: operator to 0.28, wait from 0.30 to 0.31, operator from 0.35.
    assert rank["input_wait_s"] == pytest.approx(0.04)
    assert rank["in_wait_s"] == pytest.approx(0.01)
    assert rank["hidden_s"] == pytest.approx(0.03)
    assert rank["io_s"] == pytest.approx(0.1)
    assert rank["other_s"] == pytest.approx(0.06)


def test_every_output_shows_them(capsys, tmp_path):
    write_log(tmp_path)
    profile(tmp_path)
    page = tmp_path / "report.html"
    assert main(["report", str(tmp_path), "-o", str(page)]) == 0
    assert page.read_text().replace("\u00a0", " ").count("40.0 ms")
    assert main(["summary", str(tmp_path), "--full"]) == 0
    assert "(xplane)" in capsys.readouterr().out
    assert main(["compare", str(tmp_path), str(tmp_path)]) == 0
    assert "input wait" in capsys.readouterr().out
    assert main(["check", str(tmp_path)]) == 0
    assert "TensorFlow or JAX profile" in capsys.readouterr().out


def test_a_session_written_twice_counts_once(capsys, tmp_path):
    write_log(tmp_path)
    path = profile(tmp_path)
    write_viewer(tmp_path, SPANS)
    assert summary(capsys, tmp_path)["steps"]["per_rank"]["max"] == 4
    path.write_bytes(b"damaged")
    found = summary(capsys, tmp_path)
    assert found["steps"]["source"] == "trace-viewer"
    assert "unreadable" in {w["code"] for w in found["coverage"]["warnings"]}


@pytest.mark.parametrize("local_s", [0, 9 * 3600, -4 * 3600, 19_800])
def test_a_folder_in_local_time_is_placed_by_the_name_of_the_log(capsys, tmp_path, local_s):
    write_log(tmp_path, local_s=local_s)
    written = datetime.fromtimestamp(START_S + 6 + local_s, timezone.utc)
    folder = xplane_files.session(tmp_path, written.strftime("%Y_%m_%d_%H_%M_%S"))
    (folder / f"{xplane_files.HOST}.xplane.pb").write_bytes(xspace(SPANS, start_ns=None))
    assert summary(capsys, tmp_path)["steps"]["clock"]["uncertainty_s"] >= 1
    spans = vanidl.open_run(tmp_path).trace.spans
    assert abs(int(spans.end.max()) - (START_NS + 6 * 10**9)) <= 10**9


def test_the_zone_of_a_log_around_new_year():
    start_ns = 1_798_761_599 * 10**9  # 2026-12-31T23:59:59Z
    name = "u_python_id7-42_1-1-3599-1_1.darshan"  # an hour later, of another year
    assert reading.find_utc_offset_s([(name, start_ns)]) == 3600
    assert reading.find_utc_offset_s([("renamed.darshan", start_ns)]) is None


def test_the_event_file_beside_a_profile_names_its_process(capsys, tmp_path):
    for pid in (42, 43):
        write_log(tmp_path, pid)
    marks = event_file([Mark(START_S + 1.0, 0)])
    (tmp_path / "train").mkdir()
    name = f"events.out.tfevents.{START_S}.{xplane_files.HOST}.43.0.v2"
    (tmp_path / "train" / name).write_bytes(marks)
    profile(tmp_path)
    trace = vanidl.open_run(tmp_path).trace
    assert trace.processes[trace.profiles[0].process].pid == 43


def test_without_one_the_only_program_of_the_host_is_it(tmp_path):
    write_log(tmp_path, 42)
    write_log(tmp_path, 43, parent=42)  # its worker
    profile(tmp_path)
    trace = vanidl.open_run(tmp_path).trace
    assert [p.pid for p in trace.processes] == [42, 43]
    assert trace.profiles[0].process == 0


def test_a_profile_that_outlives_the_log_is_of_another_process(tmp_path):
    write_log(tmp_path, 42, length_s=6)
    profile(tmp_path, late_s=7)
    trace = vanidl.open_run(tmp_path).trace
    assert {p.pid for p in trace.processes} == {42, None}


def test_sessions_of_one_host_are_windows_of_one_process(tmp_path):
    write_log(tmp_path, 42)
    profile(tmp_path)
    second = xplane_files.session(tmp_path, "2026_11_21_00_02_38")
    content = xspace(SPANS, start_ns=START_NS + 8 * 10**9)
    (second / f"{xplane_files.HOST}.xplane.pb").write_bytes(content)
    run = vanidl.open_run(tmp_path)
    assert len(run.trace.processes) == 1
    assert run.steps.per_rank_max == 8
    # Two windows, and not what lies between them.
    assert run.overlap.per_rank[0].window_s == pytest.approx(2 * 0.39)


@pytest.mark.parametrize(("apart_s", "groups"), [(100, 1), (130, 2)])
def test_hosts_of_one_capture_are_one_run(capsys, tmp_path, apart_s, groups):
    profile(tmp_path, "node01")
    content = xspace(SPANS, start_ns=START_NS + (6 + apart_s) * 10**9)
    content = content.replace(message(4, b"node01"), message(4, b"node02"))
    folder = xplane_files.session(tmp_path, "2026_11_21_00_04_00")
    (folder / "node02.xplane.pb").write_bytes(content)
    assert main(["summary", str(tmp_path), "--json"]) == (0 if groups == 1 else 1)
    if groups == 1:
        assert json.loads(capsys.readouterr().out)["job"]["hosts"] == ["node01", "node02"]


def test_a_profile_without_steps_leaves_them_to_the_event_file(capsys, tmp_path):
    write_log(tmp_path)
    write_xplane(tmp_path, xspace(OPS, start_ns=START_NS + 6 * 10**9))
    name = f"events.out.tfevents.{START_S}.{xplane_files.HOST}.42.0"
    (tmp_path / name).write_bytes(event_file([Mark(START_S + 6 + i, i) for i in range(3)]))
    found = summary(capsys, tmp_path)
    assert found["steps"]["source"] == "tensorboard-events"
    assert found["overlap"]["mean"]["input_wait_s"] is None


def test_steps_may_lie_elsewhere(capsys, tmp_path):
    (tmp_path / "run").mkdir()
    write_log(tmp_path / "run")
    path = profile(tmp_path / "elsewhere")
    found = summary(capsys, tmp_path / "run", "--steps", path)
    assert found["steps"]["source"] == "xplane"


def test_the_recorded_run(capsys, shared):
    found = summary(capsys, shared / "data" / "recorded" / "tf_tfrecord")
    assert found["steps"]["source"] == "xplane"
    assert (found["steps"]["per_rank"]["max"], found["job"]["processes"]) == (36, 1)
    (rank,) = found["overlap"]["per_rank"]
    assert rank["input_wait_s"] == pytest.approx(0.00386, abs=1e-5)
    codes = {w["code"]: w["message"] for w in found["coverage"]["warnings"]}
    assert "36 steps were profiled, of about 511" in codes["steps_partly_profiled"]
