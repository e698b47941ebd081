"""A run is brought into each state: by processes that record as programs do, and are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.makers.step_journals import MS, START
from tests.watch.test_watched import SECOND, Recording, steps
from vanidl.record import alive
from vanidl.record.alive import NAME, Recorder, name_place_of_processes, read_recorder, sign_of_life
from vanidl.record.processes import read_start_ticks
from vanidl.watch.state import STALL_S, STALL_STEPS, Activity, State, judge_condition
from vanidl.watch.watched import GONE_S, WatchedRun

PROGRAM = """
import sys
from time import time_ns
from vanidl.record.injected.vanidl_steps import journal as j
from vanidl.record.injected.vanidl_steps.journal import SAVE
events = j.Journal(sys.argv[1])
events.describe({"loader": 0, "class": "Loader", "dataset": "Train", "role": "training"})
events.describe({"loader": 1, "class": "Loader", "dataset": "Test"})
LATER, VALIDATION = 0, 1 << j.LOADER_SHIFT
def step(n=1):
    for _ in range(n):
        now = time_ns() + LATER
        events.add(j.WAIT, 0, now - 2_000_000, now - 1_000_000)
        events.add(j.OPTIMIZER, 0, now, now)
def validate():
    now, before = time_ns(), begin(j.WAIT | VALIDATION)
    events.present.end(before)
    events.add(j.WAIT | VALIDATION, 0, now, now)
def begin(code):
    return events.present.begin(code)
for line in sys.stdin:
    exec(line)
    events.flush()
    print("done", flush=True)
"""


class Program:
    """A process that records what it is told to do."""

    def __init__(self, run: Path) -> None:
        folder = run / "steps"
        folder.mkdir(parents=True)
        words = [sys.executable, "-c", PROGRAM, str(folder)]
        env = {**os.environ, "VANIDL_STEPS": str(folder), "VANIDL_RUN": str(run)}
        self.run = run
        self.child = subprocess.Popen(words, stdin=-1, stdout=-1, text=True, env=env)
        self.watched = WatchedRun(run)

    def do(self, line: str) -> None:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(f"{line}\n")
        self.child.stdin.flush()
        assert self.child.stdout.readline() == "done\n"

    def after(self, later_s: float, wall_s: float = 0.0) -> State:
        """The state once so much time has passed, and more by the time of day."""
        later_ns = int(later_s * 1e9)
        wall_ns = time.time_ns() + later_ns + int(wall_s * 1e9)
        self.state = self.watched.look(wall_ns, time.monotonic_ns() + later_ns)
        return self.state.condition.state

    def kill(self) -> None:
        self.child.kill()
        self.child.wait()

    def recorded_by(self, pid: int) -> None:
        recorder = Recorder(name_place_of_processes(), pid, read_start_ticks(pid), START)
        (self.run / NAME).write_text(json.dumps(asdict(recorder)))


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    if not hasattr(os, "memfd_create") or not Path("/proc/self/fd").exists():
        pytest.skip("no page of memory that others can read here")
    made = Program(tmp_path / "RUN")
    yield made
    made.child.kill()
    made.child.communicate()


def test_a_process_is_seen_in_the_midst_of_what_it_does(program: Program) -> None:
    assert program.after(0) is State.STARTING
    program.do("step(30)")
    assert program.after(1) is State.TRAINING
    program.do("before = begin(j.WAIT)")
    assert program.after(0.5) is State.TRAINING
    assert program.after(12) is State.WAITING
    assert 12 <= program.state.condition.for_s < 14
    program.do("events.present.end(before); step(30)")
    assert program.after(3) is State.TRAINING
    assert program.state.now_steps_per_s is not None
    program.do("before = begin(SAVE)")
    assert program.after(1000) is State.SAVING
    program.do("events.present.end(before); validate()")
    assert program.after(1000) is State.VALIDATING  # amid a pass, whatever a batch takes
    program.do("step(30); before = begin(j.OTHER_STEP)")
    assert program.after(1000) is State.VALIDATING
    program.do("events.present.end(before)")
    assert program.after(14) is State.TRAINING
    assert program.after(16) is State.STALLED  # between two marked steps nothing says where


def test_a_wait_for_validation_is_no_wait_of_training(program: Program) -> None:
    program.do("step(30); before = begin(j.WAIT | VALIDATION)")
    assert program.after(30) is State.VALIDATING


def test_a_save_in_the_background_does_not_hide_training(program: Program) -> None:
    program.do("step(30); before = begin(SAVE); step(30)")
    assert program.after(1) is State.TRAINING
    assert program.after(16) is State.STALLED


def test_a_program_that_sleeps_or_is_stopped_has_stalled(program: Program) -> None:
    program.do("step(100)")
    assert program.after(14) is State.TRAINING
    assert program.after(16) is State.STALLED
    assert program.state.now_steps_per_s == 0.0  # none, not unknown
    program.child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, program.child.pid, os.WSTOPPED)
    assert program.after(16) is State.STALLED
    assert "stopped by a signal" in str(program.state.condition)
    program.child.send_signal(signal.SIGCONT)
    program.do("step(30)")
    assert program.after(1) is State.TRAINING


@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0])
def test_a_clock_that_jumps_changes_nothing(program: Program, jump_s: float) -> None:
    program.do("step(30)")
    assert program.after(1) is State.TRAINING
    assert program.after(2, wall_s=jump_s) is State.TRAINING  # that of who watches
    program.do(f"LATER = {int(jump_s * 1e9)}")
    program.do("step(30)")
    assert program.after(3) is State.TRAINING  # that of the program
    assert program.after(16) is State.STALLED


def test_killed_with_its_recorder_it_is_dead(program: Program) -> None:
    recorder = subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1)
    program.recorded_by(recorder.pid)
    program.do("step(30)")
    assert program.after(1) is State.TRAINING
    recorder.kill()
    recorder.communicate()
    assert program.after(2) is State.TRAINING  # it lives, though its end will not be recorded
    program.kill()
    assert program.after(3) is State.DEAD
    assert f"its recorder {recorder.pid} is gone" in str(program.state.condition)


def test_killed_below_its_recorder_it_has_stalled(program: Program) -> None:
    program.recorded_by(os.getpid())
    program.do("step(30)")
    program.kill()
    assert program.after(1) is State.TRAINING  # the recorder, or a launcher, may tell of its end
    assert program.after(20) is State.STALLED
    assert "its process is gone" in str(program.state.condition)


def test_a_process_that_has_ended_does_not_train_any_more(program: Program) -> None:
    program.recorded_by(os.getpid())
    program.do("step(30)")
    program.do("events.close()")
    assert program.after(100) is State.TRAINING  # its own end takes long
    program.kill()
    assert program.after(114) is State.TRAINING  # the command is about to end as well
    assert program.after(116) is State.STARTING  # it goes on with something else


def test_the_sign_of_life_is_there_as_long_as_it_is_recorded(tmp_path: Path) -> None:
    with sign_of_life(tmp_path):
        recorder = read_recorder(tmp_path)
        assert recorder is not None
        assert recorder.is_here
        assert recorder.is_alive
        assert recorder.pid == os.getpid()
        assert WatchedRun(tmp_path).look(START).condition.state is State.STARTING
    assert list(tmp_path.iterdir()) == []
    assert read_recorder(tmp_path) is None


def test_no_sign_of_life_can_be_left(tmp_path: Path) -> None:
    with sign_of_life(tmp_path / "none"):
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"pid": "x"}',
        "\udcff",
        '{"place": "", "pid": 1, "started": 1, "start_ns": 1, "lives": {"1": ["R", 0]}}',
        '{"place": "", "pid": 1, "started": 1, "start_ns": 1, "lives": {"1": [1, 0, 0, 0, 0]}}',
        '{"place": "", "pid": 1, "started": 1, "start_ns": 1, "lives": {"x": ["R", 0, 0, 0, 0]}}',
        '{"place": "", "pid": 1, "started": 1, "start_ns": 1, "lives": []}',
    ],
)
def test_a_damaged_sign_of_life_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / NAME).write_bytes(content.encode("utf-8", "surrogateescape"))
    assert read_recorder(tmp_path) is None


def test_elsewhere_a_run_is_dead_once_its_recorder_is_silent(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "RUN")
    path = recording.write(0, steps(0, 100, 1))
    sign = recording.folder / NAME
    sign.write_text(json.dumps(asdict(Recorder("elsewhere", 1, 1, START))))
    watched = WatchedRun(recording.folder)

    def after(second: float) -> State:
        return watched.look(START + SECOND, int(second * SECOND) + 1).condition.state

    assert after(0) is State.TRAINING
    assert after(14) is State.TRAINING
    assert after(16) is State.STALLED
    assert after(GONE_S - 1) is State.STALLED
    os.utime(sign, ns=(START, START))  # by whatever clock
    assert after(GONE_S + 1) is State.STALLED
    assert after(2 * GONE_S) is State.STALLED
    assert after(2 * GONE_S + 2) is State.DEAD
    path.write_bytes(path.read_bytes() + path.read_bytes()[-64:])
    assert after(2 * GONE_S + 3) is State.TRAINING


def test_elsewhere_it_is_seen_by_what_its_recorder_says(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recorder is beside the program, who watches is not: no process can be looked at."""
    monkeypatch.setattr(alive, "LOOK_S", 0.01)
    monkeypatch.setattr("vanidl.watch.watched.look_at", lambda *_: None)

    def hear() -> None:
        """What the recorder says next."""
        before = read_recorder(program.run)
        end_s = time.monotonic() + 30
        while (found := read_recorder(program.run)) is None or found == before or not found.lives:
            assert time.monotonic() < end_s
            time.sleep(0.01)
        assert list(found.lives) == [program.child.pid]
        assert found.host == os.uname().nodename
        program.after(0)

    program.do("step(30); before = begin(j.WAIT)")
    with sign_of_life(program.run):
        hear()
    assert program.after(12) is State.WAITING
    program.do("events.present.end(before); step(30); before = begin(SAVE)")
    with sign_of_life(program.run):
        hear()
        hear()
    assert program.after(1000) is State.SAVING


def test_a_page_that_is_another_file_by_now_says_nothing(program: Program) -> None:
    program.do("step(30)")
    assert program.after(1) is State.TRAINING
    program.do(
        "import os; [os.close(n) for n in range(3, 20) if os.path.exists(f'/proc/self/fd/{n}')"
        " and 'present' in os.readlink(f'/proc/self/fd/{n}')]; other = open('/dev/zero')"
    )
    assert program.after(2) is State.TRAINING
    assert program.after(20) is State.STALLED  # by its journal alone


def test_the_usual_step_is_known_to_a_tenth(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "RUN")
    recording.write(0, steps(0, 200, 1))
    watched = WatchedRun(recording.folder)
    watched.look(START + SECOND)
    (file,) = watched._files.values()
    assert file.journal is not None
    usual, longest = (file.journal.totals.step_quantile_ns(q) for q in (0.5, 0.99))
    assert usual is not None
    assert 10 * MS <= usual <= 11 * MS
    assert longest == usual


# What a run is said to do, from what its processes do: both sides of every border.


def process(
    silent_s: float = 0.1,
    within: State | None = None,
    within_s: float = 0.0,
    *,
    steps: int = 100,
    longest_s: float = 0.2,
    trouble: str = "",
    label: str = "rank 0",
) -> Activity:
    """A process whose usual step takes 0.1 s."""
    usual = (0.1, longest_s) if steps else (None, None)
    return Activity(label, steps, *usual, silent_s, within, within_s, trouble)


@pytest.mark.parametrize(
    ("processes", "state"),
    [
        ([], State.STARTING),
        ([process(steps=0)], State.STARTING),
        ([process(3600, steps=0)], State.STARTING),  # no step: nothing tells how long one takes
        ([process()], State.TRAINING),
        ([process(STALL_S - 0.1)], State.TRAINING),
        ([process(STALL_S)], State.STALLED),
        ([process(STALL_STEPS * 9 - 1, longest_s=9)], State.TRAINING),
        ([process(STALL_STEPS * 9, longest_s=9)], State.STALLED),
        ([process(3600, State.SAVING, 3600)], State.SAVING),
        ([process(3600, State.VALIDATING, 3600)], State.VALIDATING),
        ([process(0.9, State.WAITING, 0.9)], State.TRAINING),
        ([process(1.1, State.WAITING, 1.1)], State.WAITING),
        ([process(STALL_S, State.WAITING, STALL_S)], State.STALLED),
        ([process(2, State.WAITING, 2, steps=0)], State.WAITING),
        ([process(40), process(1)], State.TRAINING),  # another goes on
        ([process(40), process(40, State.SAVING, 40)], State.SAVING),  # who waits for whom
        ([process(9), process(9, State.WAITING, 9)], State.WAITING),
        ([process(40), process(40, steps=0)], State.STALLED),
    ],
)
def test_the_state_of_a_run(processes: list[Activity], state: State) -> None:
    assert judge_condition(processes).state is state


def test_a_stall_has_its_reasons() -> None:
    said = str(judge_condition([process(40, State.WAITING, 38, trouble="stopped by a signal")]))
    assert said == (
        "stalled: no event for 40.0 s (rank 0: stopped by a signal, in a wait for input of 38.0 s, "
        "a step takes 100 ms)"
    )


def test_the_rank_that_waits_longest_is_named() -> None:
    ranks = [process(3, State.WAITING, 3), process(5, State.WAITING, 5, label="rank 1")]
    assert str(judge_condition(ranks)) == "waiting for input for 5.00 s (rank 1)"
    assert str(judge_condition(ranks[:1])) == "waiting for input for 3.00 s"


def test_only_what_somebody_should_look_after_alerts() -> None:
    stalled, saving = judge_condition([process(40)]), judge_condition([process(40, State.SAVING)])
    assert stalled.alerts
    assert not stalled.is_over
    assert not saving.alerts
