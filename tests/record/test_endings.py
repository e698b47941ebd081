"""A program that fails: its exit status, its signal and its last error are in every output."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import vanidl
from vanidl.cli import main
from vanidl.mcp.answers import Answers, KnownRuns
from vanidl.model.run_facts import Ending
from vanidl.readers.run_folder import read_record
from vanidl.record import record, recording
from vanidl.record.injected.vanidl_steps import journal
from vanidl.record.memory import count_memory_kills
from vanidl.record.run_record import mask_error_line, take_last_error

STEPS = """
import os, time, vanidl
time.sleep(0.3)
for _ in range(5):
    with vanidl.step(): time.sleep(0.01)
"""
FAILS = (
    STEPS
    + """
class Unreachable(Exception): pass
raise Unreachable("no https://me:hunter2@db/x\\n  and more")
"""
)


def recorded(folder: Path, program: str) -> Path:
    record([sys.executable, "-c", program], folder, tracer="none")
    return folder


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("failed") / "RUN", FAILS)


WORDS = "The program failed with exit status 1; Unreachable: no https://***@db/x."


def test_the_record_has_the_last_error_without_secrets(failed: Path) -> None:
    found = read_record(failed / "run.json")
    assert found.exit_status == 1
    assert found.last_error == "Unreachable: no https://***@db/x"
    assert [path.suffix for path in (failed / "steps").iterdir()] == [".steps"]


def test_it_comes_first_in_every_output(
    failed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    timeline = tmp_path / "t.json"
    outputs = (
        ["summary"], ["summary", "--full"], ["report", "-o", str(tmp_path / "r.html")],
        ["export", "--to", "chrome", "-o", str(timeline)],
        ["export", "--to", "csv", "-o", str(tmp_path / "tables")],
    )  # fmt: skip
    for words in outputs:
        assert main([words[0], str(failed), *words[1:]]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert said.startswith(WORDS)
        assert "hunter2" not in said
    assert WORDS in (tmp_path / "r.html").read_text()
    assert json.loads(timeline.read_text())["otherData"]["ending"] == WORDS
    assert main(["summary", "--json", str(failed)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["headline"].startswith(WORDS)
    assert found["verdict"] is None
    ending = found["job"]["ending"]
    assert (ending["exit_status"], ending["signal"]) == (1, None)
    assert ending["last_error"].startswith("Unreachable")
    assert main(["summary", "--anonymize", "--json", str(failed)]) == 0
    assert "Unreachable" not in capsys.readouterr().out
    assert repr(vanidl.open_run(failed)).count(WORDS) == 1
    assert WORDS in vanidl.open_run(failed)._repr_html_()


def test_assistants_and_watchers_hear_of_it(
    failed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = Answers(KnownRuns([failed.parent]))
    listed = json.loads(answers.runs())
    (name,) = listed["runs"]
    assert listed["endings"].keys() == {name}
    assert listed["endings"][name].startswith(WORDS)
    for answer in (answers.summary, answers.findings, answers.what_if, answers.steps):
        first = next(iter(json.loads(answer(name)).values()))
        assert first.startswith(WORDS)
    assert main(["watch", str(failed)]) == 3
    assert capsys.readouterr().out.startswith("RUN: ended, exit status 1; Unreachable: no https")


def test_a_comparison_says_which_side_failed(
    failed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    well = recorded(tmp_path / "WELL", STEPS)
    assert main(["compare", str(well), str(failed)]) == 0
    assert capsys.readouterr().out.startswith("B: The program failed with exit status 1")
    assert main(["compare", "--json", str(well), str(failed)]) == 0
    sides = json.loads(capsys.readouterr().out)["sides"]
    assert [side["runs"][0]["exit_status"] for side in sides] == [0, 1]
    assert main(["summary", str(well)]) == 0
    assert "exit status" not in capsys.readouterr().out


def test_without_a_tracer_the_run_is_that_of_its_record(failed: Path) -> None:
    job = vanidl.open_run(failed).trace.job
    found = read_record(failed / "run.json")
    assert job.id == found.id
    assert job.command == " ".join(found.command)
    assert (job.start_ns, job.end_ns) == (found.start_ns, found.end_ns)
    assert job.run_time_s > 0.3  # though the first step is later


def test_a_signal_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = STEPS + "os.kill(os.getpid(), 9)"
    words = ["record", "--tracer", "none", "-o", str(tmp_path / "RUN"), "--"]
    assert main([*words, sys.executable, "-c", program]) == 137
    said = "The program was ended by SIGKILL (exit status 137)."
    assert said in capfd.readouterr().err
    assert str(vanidl.open_run(tmp_path / "RUN").headline).startswith(said)


def test_a_command_without_steps_tells_its_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path / "RUN", "raise KeyError('data')")
    assert main(["summary", str(tmp_path / "RUN")]) == 1
    said = capsys.readouterr().err
    assert "failed with exit status 1; KeyError: 'data'." in said
    assert "of the recorded command " in said
    assert "KeyError('data')" in said.partition("found none")[0]  # the command


@pytest.mark.parametrize(
    "program",
    [
        "class E(Exception):\n def __str__(self): raise ValueError\nraise E",
        "raise SystemExit(4)",
        "import os; os._exit(3)",
        "raise ValueError('x' * 100_000)",
        "raise ValueError('\\udcff\\x1b[2J')",
    ],
)
def test_whatever_the_error_the_program_ends_as_without(tmp_path: Path, program: str) -> None:
    done = record([sys.executable, "-c", program], tmp_path / "RUN", tracer="none")
    assert done.exit_status == os.waitstatus_to_exitcode(
        os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", program]) << 8
    )
    assert len(done.run.last_error) <= 500
    assert done.run.last_error.isprintable()


def test_the_first_error_is_the_cause(tmp_path: Path) -> None:
    for at, name in ((3, "a"), (1, "b"), (2, "c")):
        (tmp_path / f"{name}.last-error").write_text(f"{at} Error: {name}\n")
    (tmp_path / "d.last-error").write_text("no number")
    assert take_last_error(tmp_path) == "Error: b"
    assert list(tmp_path.iterdir()) == []
    assert take_last_error(tmp_path) == ""


def test_a_line_is_printable_bounded_and_without_secrets() -> None:
    assert mask_error_line("at ftp://u:p@h \x1b[2J") == "at ftp://***@h \\x1b[2J"
    assert len(mask_error_line("x" * 10_000)) == 500


def test_kills_for_memory_are_counted_where_the_kernel_does() -> None:
    found = count_memory_kills()
    assert found is None or found >= 0


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (Ending(0), ""),
        (Ending(0, 0, "left over"), ""),
        (Ending(2), "The program failed with exit status 2."),
        (Ending(128), "The program failed with exit status 128."),
        (Ending(137, 1), "The program was ended by SIGKILL (exit status 137); the kernel killed "
                         "1 process as memory had run out."),
        (Ending(0, 2), "The program ended with exit status 0, but not all of it; the kernel killed "
                       "2 processes as memory had run out."),
    ],
)  # fmt: skip
def test_the_words_of_an_ending(ending: Ending, said: str) -> None:
    from vanidl.model.run_facts import describe_ending

    assert describe_ending(ending) == said
    assert describe_ending(None) == ""


def test_storage_that_fails_afterwards_changes_no_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def found(pids: object) -> dict[int, str]:
        raise OSError(116, "Stale file handle")

    blind = recording.no_tracer()
    monkeypatch.setattr(recording, "_choose_tracer", lambda *_: replace(blind, found=found))
    words = ["record", "-o", str(tmp_path / "RUN"), "--", sys.executable, "-c", "exit(9)"]
    assert main(words) == 9
    assert "Traceback" not in capfd.readouterr().err
    losses = read_record(tmp_path / "RUN" / "run.json").losses
    assert any("could not be looked at" in loss and "Stale file" in loss for loss in losses)


ELASTIC = """
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-28_21:02:13
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 3524)  (SIGTERM)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-28_21:02:13
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 3525)  (SIGKILL)
  traceback : Signal 9 (SIGKILL) received by PID 3525
============================================================"""
WORKER = """Caught KeyError in DataLoader worker process 1.
Original Traceback (most recent call last):
  File "worker.py", line 351, in _worker_loop
    data = fetcher.fetch(index)
KeyError: 'label'
"""


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("", ""),
        ("\n=====\n", ""),
        ("=====\nno such column: x\nand more", "no such column: x"),
        (WORKER, "Caught KeyError in DataLoader worker process 1: KeyError: 'label'"),
        (ELASTIC, "train.py FAILED, rank 1 (local_rank: 1), exitcode -9 (pid: 3525) (SIGKILL)"),
        ("Root Cause: a line alone", "Root Cause: a line alone"),
    ],
)
def test_of_a_long_message_the_line_that_says_what_happened_is_kept(
    message: str, words: str
) -> None:
    assert journal._pick_words(message) == words
