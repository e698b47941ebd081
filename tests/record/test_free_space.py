"""The disk of RUN fills up: recording stops at a floor and says so, the program ends as without."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import vanidl
from vanidl.cli import main
from vanidl.readers.run_folder import read_record
from vanidl.readers.steps.journal import read_journal
from vanidl.record import dftracer, free_space, record
from vanidl.record import tracer as own
from vanidl.record.free_space import STOP, FreeSpace
from vanidl.record.injected.vanidl_steps import journal as hooks

MIB = 1 << 20
ONE_STEP = """
import sys, vanidl
with vanidl.step(): pass
print("done")
sys.exit(5)
"""
UNTIL_STOPPED = """
import os, sys, time, vanidl
stop, steps = os.environ["VANIDL_STEPS"] + "/stop", 0
def step():
    global steps
    steps += 1
    with vanidl.step(): time.sleep(0.001)
for _ in range(10): step()
time.sleep(1)  # a journal is written at the first event after a second
step()
open(sys.argv[1], "w").close()
end = time.monotonic() + 120
while not os.path.exists(stop) and time.monotonic() < end: step()
time.sleep(1)
for _ in range(20): step()
open(sys.argv[1], "w").write(str(steps))
print("done")
sys.exit(5)
"""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine, what is free is known before the command runs."""
    monkeypatch.setattr(free_space, "_ANSWER_S", 60.0)


def disk_with(monkeypatch: pytest.MonkeyPatch, free: object) -> None:
    """A disk that has so many bytes free: a number, or what says one."""

    def statvfs(path: object) -> SimpleNamespace:
        left = free() if callable(free) else free
        if isinstance(left, OSError):
            raise left
        return SimpleNamespace(f_bavail=left, f_bfree=left, f_frsize=1, f_blocks=1)

    monkeypatch.setattr(free_space.os, "statvfs", statvfs)


@pytest.mark.parametrize(
    ("free", "stops"),
    [(0, True), (MIB - 1, True), (MIB, False), (1 << 50, False), (OSError(5, "I/O"), False)],
)
def test_it_stops_below_the_floor_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: object, stops: bool
) -> None:
    disk_with(monkeypatch, free)
    asked = []
    space = FreeSpace(tmp_path, MIB, tmp_path / "steps", lambda: asked.append(1))
    assert space.look() is stops
    assert len(asked) == stops
    assert (tmp_path / "steps" / STOP).exists() is stops
    assert bool(space.remark(0, "")) is stops


def test_it_stays_stopped_and_stops_who_begins_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter([0, MIB, MIB])
    disk_with(monkeypatch, lambda: next(left))
    asked = []
    space = FreeSpace(tmp_path, MIB, None, lambda: asked.append(1))
    assert [space.look() for _ in range(3)] == [True] * 3
    assert len(asked) == 3
    said = space.remark(space.stopped_ns - 2_500_000_000, "X goes on.")
    assert said.startswith(
        "Recording was stopped from 2.5 s after its start on, as the disk of RUN"
    )
    assert said.endswith("X goes on.")


def test_a_journal_stops_and_is_whole(tmp_path: Path) -> None:
    journal = hooks.Journal(str(tmp_path))
    journal.add(hooks.OPTIMIZER, 0, 1, 1)
    journal.flush()
    (tmp_path / STOP).touch()
    journal.add(hooks.OPTIMIZER, 0, 2, 2)
    journal.flush()
    journal.add(hooks.OPTIMIZER, 0, 3, 3)
    journal.close()
    (path,) = tmp_path.glob("*.steps")
    found = read_journal(path)
    assert found.ended
    assert found.losses == ()
    assert found.events.end.tolist() == [1]
    assert hooks.Journal(str(tmp_path)).flush() is None


def test_the_program_goes_on_and_the_report_says_since_when(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    told = tmp_path / "told"
    disk_with(monkeypatch, lambda: 0 if told.exists() else 1 << 40)
    command = [sys.executable, "-c", UNTIL_STOPPED, str(told)]
    done = record(command, tmp_path / "RUN", tracer="none", keep_free_nbytes=MIB)
    assert done.exit_status == 5
    assert capfd.readouterr().out == "done\n"
    said = read_record(tmp_path / "RUN" / "run.json").stopped
    assert "as the disk of RUN had 0 B free, less than 1 MiB (--keep-free)" in said
    run = vanidl.open_run(tmp_path / "RUN")
    assert run.steps is not None
    assert 10 <= run.steps.per_rank_max <= int(told.read_text()) - 20
    (notice,) = [w for w in run.coverage.warnings if w.code == "recording_stopped"]
    assert notice.message == said
    assert notice.severity == "warning"
    (finding,) = [f for f in run.findings if f.code == "trace_truncated"]
    assert "--keep-free" in finding.advice
    assert not [w for w in run.coverage.warnings if w.code == "steps_cut"]
    assert said in done.unheard


def test_below_the_floor_from_the_start_nothing_is_recorded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    free = shutil.disk_usage(tmp_path).free
    words = ["record", "--tracer", "none", "-o", str(tmp_path / "RUN"), "--keep-free"]
    command = [sys.executable, "-c", ONE_STEP]
    assert main([*words, f"{2 * free}", "--", *command]) == 5
    out, err = capfd.readouterr()
    assert out == "done\n"
    assert "Recording was stopped from its start on" in err
    assert list((tmp_path / "RUN" / "steps").glob("*.steps")) == []
    assert main(["summary", str(tmp_path / "RUN")]) == 1
    assert "Recording was stopped from its start on" in capfd.readouterr().err


def test_a_size_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "--keep-free", "much", "--", "true"]) == 2
    assert "--keep-free much: expected a size" in capsys.readouterr().err


@pytest.mark.skipif(own.find_library() is None, reason="the tracer's library was not compiled")
def test_the_own_tracer_is_left_no_room(tmp_path: Path) -> None:
    """Calls after that are in counters alone, and the file says since when."""
    program = """
import os, sys
print(os.getpid(), flush=True)
input()
for _ in range(20_000):
    os.close(os.open(sys.argv[1], os.O_RDONLY))
"""
    import subprocess

    target = tmp_path / "data"
    target.write_bytes(b"x")
    chosen = own.make_tracer(tmp_path / "RUN")
    env = {**os.environ, **{k: v for k, v in chosen.environment.items() if v is not None}}
    words = [sys.executable, "-c", program, str(target)]
    child = subprocess.Popen(words, stdin=-1, stdout=-1, text=True, env=env)
    assert child.stdout is not None
    child.stdout.readline()
    chosen.stop()
    child.communicate("\n")
    assert child.returncode == 0
    (path,) = (tmp_path / "RUN" / "calls").glob("*.calls")
    content = path.read_bytes()
    chunks, missing_since = (int.from_bytes(content[at : at + 8], "little") for at in (96, 112))
    assert missing_since > 0
    assert chunks < 10  # 40,000 calls would take 25 of 65,536 bytes


@pytest.mark.parametrize("free", [0, 1 << 50])
def test_what_dftracer_can_do_is_said_where_it_is_started(tmp_path, monkeypatch, capsys, free):
    pytest.importorskip("dftracer", reason="DFTracer is not installed")
    disk_with(monkeypatch, free)
    told = []
    done = record([sys.executable, "-c", "pass"], tmp_path / "RUN", tracer="dftracer",
                  with_steps=False, tell=told.append)  # fmt: skip
    started = free > 0
    assert told == [dftracer.HARM] * started
    assert (dftracer.HARM in done.run.losses) == started
    assert bool(done.run.stopped) != started
    assert done.exit_status == 0
