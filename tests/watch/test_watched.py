"""A run that is watched while its files appear and grow, and what is said once it has ended."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import vanidl
from tests.makers.step_journals import MS, START, journal_bytes, text_rows
from vanidl.readers.run_folder import RunRecord, write_record
from vanidl.watch import view
from vanidl.watch.openmetrics import openmetrics
from vanidl.watch.resources import ProcessReads
from vanidl.watch.state import RunState, describe_wait, give_verdict
from vanidl.watch.watched import WatchedRun

SECOND = 1000 * MS
WAITS_MS = (1, 2, 5)  # of each rank at each of its steps of 10 ms


def steps(first: int, last: int, wait_ms: int) -> str:
    words = (f"w0:{k * 10}-{k * 10 + wait_ms} o:{k * 10 + 9}" for k in range(first, last))
    return " ".join(words)


class Recording:
    """What a recorder would write of a run of some ranks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, rank: int, text: str) -> Path:
        path = self.folder / "steps" / f"node-{100 + rank}.steps"
        path.parent.mkdir(parents=True, exist_ok=True)
        described = {"pid": 100 + rank, "host": "node", "rank": rank, "world_size": 3}
        path.write_bytes(journal_bytes(described, text, loaders=1))
        return path

    def end(self, exit_status: int = 0) -> None:
        record = RunRecord(
            "job", ("train",), "/", "node", "none", "", {}, START, START + 10 * SECOND,
            exit_status, 3, (), (), (),
        )  # fmt: skip
        write_record(self.folder / "run.json", record)


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording(tmp_path / "RUN")


def test_the_final_state_is_what_the_analyser_says(recording: Recording) -> None:
    watched = WatchedRun(recording.folder)
    assert not watched.is_there
    for until in (10, 55, 100):
        for rank, wait_ms in enumerate(WAITS_MS):
            recording.write(rank, steps(0, until, wait_ms))
        watched.look(START + until * 10 * MS)
    recording.end()
    state = watched.look(START + 2 * SECOND)
    run = vanidl.open_run(recording.folder)
    assert run.overlap is not None
    assert run.steps is not None
    assert [rank.steps for rank in state.ranks] == [100, 100, 100]
    assert run.steps.per_rank_min == run.steps.per_rank_max == 100
    by_rank = {row.rank: row for row in run.overlap.per_rank}
    for k, rank in enumerate(state.ranks):
        assert rank.label == f"rank {k}"
        assert rank.wait_s == pytest.approx(by_rank[k].input_wait_s, abs=1e-9)
        assert rank.window_s == pytest.approx(by_rank[k].window_s, abs=1e-9)
        assert rank.wait_s == pytest.approx(100 * WAITS_MS[k] / 1000)
    assert state.wait_share == pytest.approx(run.overlap.input_wait_share)
    waits = {loader.name: (loader.waits, loader.wait_s) for loader in run.steps.loaders}
    (name,) = waits
    ours = [w for rank in state.ranks for w in rank.loaders]
    assert {w.loader for w in ours} == {name}
    assert sum(w.waits for w in ours) == waits[name][0]
    assert sum(w.wait_s for w in ours) == pytest.approx(waits[name][1])
    assert str(run.headline).startswith(describe_wait(state)[:-1])
    windows_s = sum(row.window_s for row in run.overlap.per_rank)
    assert state.steps_per_s == pytest.approx(len(run.steps.table.step) / windows_s)


def test_now_is_of_the_last_seconds(recording: Recording) -> None:
    watched = WatchedRun(recording.folder)
    for second in range(30):
        wait_ms = 1 if second < 15 else 6
        before = steps(0, 100 * min(second, 15), 1)
        later = steps(1500, 100 * max(second, 15), 6)
        recording.write(0, f"{before} {later}")
        state = watched.look(START + second * SECOND)
        if second in (14, 29):
            assert state.now_steps_per_s == pytest.approx(100, rel=0.02)
            assert state.now_wait_share == pytest.approx(wait_ms / 10, abs=0.02)
    assert state.wait_share == pytest.approx(0.35, abs=0.03)


def test_the_slowest_rank_waits_most(recording: Recording) -> None:
    for rank, wait_ms in enumerate((2, 7, 4)):
        recording.write(rank, steps(0, 50, wait_ms))
    state = WatchedRun(recording.folder).look(START + SECOND)
    assert state.slowest_rank is not None
    assert state.slowest_rank.label == "rank 1"
    assert "rank 1 waits 7" in view.line(state, 3)
    assert give_verdict(state).startswith("Input holds training up so far")


def test_workers_appear_later_and_the_slowest_is_named(recording: Recording) -> None:
    recording.write(0, steps(0, 5, 2))
    watched = WatchedRun(recording.folder)
    assert not watched.look(START).workers
    for pid, taken in ((7, 3), (8, 30)):
        fetches = " ".join(f"f0:{k * 40}-{k * 40 + taken}" for k in range(4))
        path = recording.folder / "steps" / f"node-{pid}.steps"
        path.write_bytes(journal_bytes({"pid": pid, "host": "node", "rank": 0}, fetches))
    state = watched.look(START + SECOND)
    assert [rank.label for rank in state.ranks] == ["rank 0"]
    assert state.slowest_worker is not None
    assert state.slowest_worker.label == "worker 8"
    assert state.slowest_worker.batch_s == pytest.approx(0.030)


def test_a_rank_that_is_killed_is_silent(recording: Recording) -> None:
    path = recording.write(0, steps(0, 50, 2))
    path.write_bytes(path.read_bytes()[:-40])  # amid a row
    state = WatchedRun(recording.folder).look(START + 60 * SECOND)
    assert state.ranks[0].silent_s == pytest.approx(59.5, abs=0.1)
    assert any("60 s ago" in text or "59 s ago" in text for text, _ in view.screen(state))


def test_a_file_that_cannot_be_read_is_named_and_the_rest_is_shown(recording: Recording) -> None:
    recording.write(0, steps(0, 50, 2))
    bad = recording.folder / "steps" / "bad\x1b[2J.steps"
    bad.write_bytes(b"something else" * 9)
    state = WatchedRun(recording.folder).look(START + SECOND)
    assert len(state.problems) == 1
    assert "\x1b" not in "".join(text for text, _ in view.screen(state))
    assert state.steps == 50


@pytest.mark.parametrize("name", ["a\x1b[31m", "x" * 500, 'quo"te\\', "‮evil"])
def test_names_cannot_drive_the_terminal_or_end_a_label(tmp_path: Path, name: str) -> None:
    path = tmp_path / "RUN" / "steps" / "a.steps"
    path.parent.mkdir(parents=True)
    content = journal_bytes({"pid": 1, "host": "n", "rank": 0}, steps(0, 5, 2), loaders=0)
    described = {"loader": 0, "class": name, "dataset": name}
    path.write_bytes(content + text_rows(described))
    state = WatchedRun(tmp_path / "RUN").look(START + SECOND)
    for text in (*(line for line, _ in view.screen(state)), view.line(state, 0)):
        assert text.isprintable()
        assert len(text) <= 80
    parsed(state)


def parsed(state: RunState) -> dict[str, list]:
    """The metrics as both of prometheus_client's parsers read them."""
    pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as strict
    from prometheus_client.parser import text_string_to_metric_families as older

    text = openmetrics(state)
    found = {sample.name: [] for family in strict(text) for sample in family.samples}
    for family in strict(text):
        for sample in family.samples:
            found[sample.name].append((sample.labels, sample.value))
    plain = [s for family in older(text) for s in family.samples]
    assert sorted((s.name, sorted(s.labels.items()), s.value) for s in plain) == sorted(
        (name, sorted(labels.items()), value)
        for name, values in found.items()
        for labels, value in values
    )
    assert all(s.timestamp is None for s in plain)  # the textfile collector refuses them
    return found


def test_metrics_are_valid_and_hold_the_totals(recording: Recording) -> None:
    for rank, wait_ms in enumerate(WAITS_MS):
        recording.write(rank, steps(0, 20, wait_ms))
    recording.end()
    state = WatchedRun(recording.folder).look(START + SECOND)
    found = parsed(state)
    assert [value for _, value in found["vanidl_steps_total"]] == [20, 20, 20]
    assert [labels["rank"] for labels, _ in found["vanidl_steps_total"]] == ["0", "1", "2"]
    waits = found["vanidl_input_wait_seconds_total"]
    assert sum(value for _, value in waits) == pytest.approx(state.wait_s)
    assert waits[0][0] == {"run": "RUN", "rank": "0", "loader": "DataLoader 0 (D0, training)"}
    assert found["vanidl_run_ended"] == [({"run": "RUN"}, 1.0)]


def test_metrics_of_nothing_are_valid(tmp_path: Path) -> None:
    found = parsed(WatchedRun(tmp_path / "none").look(START))
    assert set(found) == {"vanidl_run_ended", "vanidl_run_state"}
    states = {labels["state"]: value for labels, value in found["vanidl_run_state"]}
    assert states.pop("starting") == 1
    assert set(states.values()) == {0}


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[tuple[subprocess.Popen, Path]]:
    """A process of the run in `folder` that reads as many bytes as it is told to."""
    folder = tmp_path / "RUN" / "steps"
    folder.mkdir(parents=True)
    (tmp_path / "data").write_bytes(bytes(1 << 20))
    code = f"""
import os
file = os.open({str(tmp_path / "data")!r}, os.O_RDONLY)
while line := input():
    print(len(os.pread(file, int(line), 0)), flush=True)
"""
    words = [sys.executable, "-c", code]
    env = {**os.environ, "VANIDL_STEPS": str(folder)}
    child = subprocess.Popen(words, stdin=-1, stdout=-1, text=True, env=env)
    yield child, folder
    child.communicate("\n" if child.poll() is None else None)


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="no /proc/PID/io here")
def test_reads_are_those_of_the_processes_of_the_run(reader: tuple) -> None:
    child, folder = reader

    def read(size: int) -> None:
        child.stdin.write(f"{size}\n")
        child.stdin.flush()
        assert int(child.stdout.readline()) == size

    here = os.uname().nodename
    read(1)
    reads, other = ProcessReads(folder), ProcessReads(folder.parent)
    described = [{"pid": child.pid, "host": here}, {"pid": os.getpid(), "host": here}]
    reads.look([*described, {"pid": child.pid, "host": "elsewhere"}, {"pid": "x", "host": here}])
    before = reads.called
    read(600_000)
    reads.look(described)
    other.look(described)
    assert reads.processes == 1
    assert 600_000 <= reads.called - before < 610_000  # and what tells it to
    assert other.processes == 0


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="no /proc/PID/io here")
def test_a_child_that_was_waited_for_is_counted_once(
    reader: tuple, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel adds its bytes to those of its parent: this process, for these tests."""
    child, folder = reader
    here, me = os.uname().nodename, os.getpid()
    reads = ProcessReads(folder)
    monkeypatch.setattr("vanidl.watch.resources.is_of_run", lambda *_: True)
    described = [
        {"pid": me, "host": here},
        {"pid": child.pid, "host": here, "parent_pid": me},
    ]
    child.stdin.write("900000\n")
    child.stdin.flush()
    child.stdout.readline()
    reads.look(described)
    both = reads.called
    child.stdin.write("\n")
    child.stdin.flush()
    child.wait()
    reads.look(described)
    assert reads.processes == 2
    assert both <= reads.called < both + 500_000  # not 900,000 more


def test_lines_hold_what_was_measured(recording: Recording) -> None:
    recording.write(0, steps(0, 50, 2))
    state = WatchedRun(recording.folder).look(START + SECOND)
    assert re.fullmatch(r"00:01:05  training  \S+ steps/s  waits 2\d %", view.line(state, 65))
