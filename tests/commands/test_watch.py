"""`vanidl watch`: what it prints, when it ends, and the file that it writes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.makers.step_journals import journal_bytes
from tests.watch.test_watched import Recording, steps
from vanidl.cli import main
from vanidl.commands import watch
from vanidl.model.run_facts import Ending
from vanidl.record.alive import Recorder, name_place_of_processes
from vanidl.watch.state import Condition, RunState, State
from vanidl.watch.view import ending, screen


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording(tmp_path / "RUN")


def test_it_ends_with_the_run_and_its_last_lines_are_the_summary(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    recording.write(0, steps(0, 100, 3))
    recording.end(7)
    assert main(["watch", str(recording.folder)]) == watch.FAILED == 3
    said = capsys.readouterr().out
    assert main(["summary", str(recording.folder)]) == 0
    sentence = said.splitlines()[1].rstrip(".")
    assert sentence in " ".join(capsys.readouterr().out.split())
    assert "100 steps, " in said
    assert "Input holds training up: 30 % of the time." in said
    assert said.splitlines()[0] == "RUN: ended, exit status 7"


@pytest.mark.parametrize(
    ("exit_status", "said"),
    [
        (0, "ended, exit status 0"),
        (128, "ended, exit status 128"),
        (137, "ended by SIGKILL, exit status 137"),
        (143, "ended by SIGTERM, exit status 143"),
        (255, "ended, exit status 255"),
        (None, "ended, exit status not recorded"),
    ],
)
def test_the_end_names_a_signal(exit_status: int | None, said: str) -> None:
    found = None if exit_status is None else Ending(exit_status)
    assert ending(RunState("RUN", Condition(State.ENDED), ending=found)) == said
    if found:
        why = replace(found, memory_kills=2, last_error="ValueError: no\x1b[2J")
        said += "; 2 processes killed as memory had run out; ValueError: no\\x1b[2J"
        assert ending(RunState("RUN", Condition(State.ENDED), ending=why)) == said


def test_it_waits_for_a_run_that_is_not_there_yet(
    recording: Recording, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([lambda: recording.write(0, steps(0, 10, 2)), recording.end])
    monkeypatch.setattr(watch, "wait_for_next_look", lambda *_: next(looks)())
    target = recording.folder.parent / "train.prom"
    words = ["watch", str(recording.folder), "--openmetrics", str(target)]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert err.count("waiting for a recording in") == 1
    assert out.splitlines()[0].startswith("00:00:00  ")
    assert len(out.splitlines()) == 4  # one while it goes on, three at the end
    assert target.read_text().endswith("# EOF\n")
    assert stat.S_IMODE(target.stat().st_mode) & 0o444 == 0o444
    assert [path.name for path in target.parent.iterdir() if path.name.startswith(".")] == []


def test_ctrl_c_ends_it(
    recording: Recording, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recording.write(0, steps(0, 10, 2))

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupted)
    assert main(["watch", str(recording.folder)]) == 0
    assert "Traceback" not in capsys.readouterr().err


def test_quiet_says_nothing(recording: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    recording.write(0, steps(0, 10, 2))
    recording.end()
    target = recording.folder.parent / "m.prom"
    words = ["watch", str(recording.folder), "--quiet", "--openmetrics", str(target)]
    assert main(words) == 0
    assert capsys.readouterr() == ("", "")
    assert 'vanidl_steps_total{run="RUN",rank="0"} 10' in target.read_text()


@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_terminal_gets_a_screen(
    recording: Recording,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    no_color: str,
) -> None:
    recording.write(0, steps(0, 100, 3))
    recording.end()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(watch, "is_terminal", lambda _: True)
    monkeypatch.setattr("vanidl.commands.console.is_terminal", lambda _: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert main(["watch", str(recording.folder)]) == 0
    out = capsys.readouterr().out
    assert "RUN: ended, exit status 0" in out
    assert "rank 0" in out
    assert ("\x1b[1;31m" in out) == (not no_color)


@pytest.mark.parametrize("columns", [40, 60, 120])
def test_no_line_is_wider_than_the_terminal(
    recording: Recording,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
) -> None:
    """One that is wraps, and what is drawn over the lines before leaves rests of them."""
    recording.write(0, steps(0, 100, 3))
    monkeypatch.setenv("COLUMNS", str(columns))
    state = watch.WatchedRun(recording.folder).look(time.time_ns())
    assert max(len(text) for text, _ in screen(state, columns)) <= columns
    monkeypatch.setattr(watch, "is_terminal", lambda _: True)
    watch._say(state, 1.0)
    (line,) = capsys.readouterr().out.splitlines()
    assert len(line) <= columns


def test_it_does_not_wait_longer_than_the_run_lasts(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording.write(0, steps(0, 10, 2))
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        recording.end()

    monkeypatch.setattr(time, "sleep", sleep)
    assert main(["watch", str(recording.folder), "--every", "1000", "--quiet"]) == 0
    assert len(slept) == 1
    assert slept[0] <= 1


def test_record_watches_in_a_process_of_its_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, target = tmp_path / "RUN", tmp_path / "train.prom"
    program = "import vanidl\nfor _ in range(5):\n    with vanidl.step(): pass\nprint('done')"
    words = ["record", "--tracer", "none", "-o", str(folder), "--watch", "--openmetrics"]
    assert main([*words, str(target), "--", sys.executable, "-c", program]) == 0
    out, err = capfd.readouterr()
    assert out == "done\n"
    assert "5 steps" in err
    assert 'vanidl_steps_total{run="RUN",rank="process' in target.read_text()


def test_a_command_that_cannot_be_recorded_leaves_no_watcher(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in use")
    words = ["record", "--tracer", "none", "-o", str(tmp_path), "--watch", "--"]
    assert main([*words, sys.executable, "-c", ""]) == 2


def test_a_file_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["watch", str(tmp_path / "file")]) == 1
    assert "expected the folder of a run" in capsys.readouterr().err


def test_metrics_that_cannot_be_written(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    target = recording.folder.parent / "none" / "m.prom"
    assert main(["watch", str(recording.folder), "--openmetrics", str(target)]) == 1
    assert "choose another place with --openmetrics" in capsys.readouterr().err


def test_a_damaged_record_ends_it_without_an_exit_status(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    recording.write(0, steps(0, 10, 2))
    (recording.folder / "run.json").write_text("{")
    assert main(["watch", str(recording.folder)]) == watch.FAILED
    assert "Training waited" in capsys.readouterr().out


def test_a_dead_run_ends_it_and_alerts(
    recording: Recording, capfd: pytest.CaptureFixture[str]
) -> None:
    recording.write(0, steps(0, 10, 2))
    (recording.folder / "recorder.live").write_text(
        json.dumps(asdict(Recorder(name_place_of_processes(), 2**22 + 1, 1, 0)))
    )
    path = recording.folder / "steps" / "node-100.steps"
    here = {"pid": 2**22 + 1, "host": os.uname().nodename}
    path.write_bytes(journal_bytes(here, steps(0, 10, 2), loaders=1))
    words = ["watch", "--plain", str(recording.folder), "--alert"]
    command = 'echo "$VANIDL_STATE, $VANIDL_SAYS, $VANIDL_RUN"; exit 9'
    assert main([*words, command]) == watch.DEAD == 4
    out, err = capfd.readouterr()
    assert out.splitlines()[0].startswith("RUN: dead: no process of it lives")
    assert err.count("dead, RUN: dead: no process of it lives") == 1
    assert str(recording.folder) in err


def test_an_alert_is_given_once_each_time(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = recording.folder.parent / "told"
    alert = watch.Alert(f'echo "$VANIDL_STATE" >> {told}')
    watched = watch.WatchedRun(recording.folder)
    children = []
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *a, **k: children.append(popen(*a, **k)) or children[-1]
    )
    for state in ("training", "stalled", "stalled", "training", "saving", "stalled", "dead"):
        alert.hear(watched, RunState("RUN", Condition(State(state))))
        for child in children:
            child.wait()
    assert told.read_text().split() == ["stalled", "stalled", "dead"]


def test_what_is_watched_is_not_written_to(recording: Recording) -> None:
    path = recording.write(0, steps(0, 10, 2))
    recording.end()
    before = {each: each.stat() for each in (path, path.parent, recording.folder)}
    assert main(["watch", str(recording.folder), "--quiet"]) == 0
    for each, was in before.items():
        now = each.stat()
        assert (now.st_mtime_ns, now.st_size, now.st_ino) == (
            was.st_mtime_ns,
            was.st_size,
            was.st_ino,
        )
