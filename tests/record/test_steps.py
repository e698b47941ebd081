"""Steps recorded with no change of a program, against times that the program took itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import vanidl
from tests.record.own_times import OwnTimes, assert_same_times, assert_steps, own_times
from vanidl.model.trace import SpanKind
from vanidl.record import record

PROGRAM = Path(__file__).with_name("timed_training.py")


@dataclass(frozen=True)
class Trained(OwnTimes):
    """Also how the program ended."""

    exit_status: int


def train(folder: Path, *how: str) -> Trained:
    command = [sys.executable, str(PROGRAM), str(folder / "truth"), *how]
    done = record(command, folder / "RUN", tracer="none")
    times = own_times(folder, vanidl.open_run(done.folder))
    return Trained(times.run, times.truth, done.exit_status)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Trained]:
    """Runs of the program, each once a session."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    known: dict[tuple, Trained] = {}

    def run(*how: str) -> Trained:
        if how not in known:
            known[how] = train(tmp_path_factory.mktemp("steps"), *how)
        return known[how]

    return run


WITHOUT_WORKERS = ("0", "fork", "2", "raise")
WITH_WORKERS = ("2", "fork", "2", "return")
KILLED = ("0", "fork", "1", "kill")
PROGRAMS = [WITHOUT_WORKERS, WITH_WORKERS]  # test_fetches has other start methods, and ranks


@pytest.mark.parametrize("how", PROGRAMS, ids="-".join)
def test_waits_are_those_of_the_program(trained: Callable[..., Trained], how: tuple) -> None:
    timed = trained(*how)
    assert_same_times(timed.spans(SpanKind.INPUT_WAIT, 0), timed.waits(0))


@pytest.mark.parametrize("how", PROGRAMS, ids="-".join)
def test_steps_begin_with_their_first_wait(trained: Callable[..., Trained], how: tuple) -> None:
    assert_steps(trained(*how), 0, epochs=int(how[2]))  # two batches each, of two optimizers


def test_loaders_are_told_apart(trained: Callable[..., Trained]) -> None:
    timed = trained(*WITH_WORKERS)
    steps = timed.run.steps
    assert steps is not None
    waits = timed.truth[0]["waits"]
    assert {loader.name: loader.waits for loader in steps.loaders} == {
        f"DataLoader {k} (Rows, {name})": sum(w[0] == name for w in waits)
        for k, name in enumerate(("training", "evaluation"))
    }


def test_the_program_runs_as_without(trained: Callable[..., Trained], tmp_path: Path) -> None:
    assert trained(*WITHOUT_WORKERS).exit_status == 1  # it raises
    assert trained(*KILLED).exit_status == 137
    words = [sys.executable, "-c", "import sys; print(sys.path); print(*sorted(sys.modules)); 1/0"]
    told = subprocess.run(words, capture_output=True, text=True)
    through = "import sys; from vanidl.cli import entry; sys.argv[0] = 'vanidl'; entry()"
    options = ["record", "-o", str(tmp_path / "RUN"), "--tracer", "none", "--", *words]
    recorded = subprocess.run(
        [sys.executable, "-c", through, *options], capture_output=True, text=True
    )
    assert recorded.returncode == told.returncode
    assert recorded.stdout.splitlines()[0] == told.stdout.splitlines()[0]
    assert recorded.stderr.startswith(told.stderr)
    more = set(recorded.stdout.split()) - set(told.stdout.split())
    assert not {name for name in more if not name.startswith("vanidl_steps")} & {"torch", "numpy"}


def test_a_killed_process_leaves_its_steps(trained: Callable[..., Trained]) -> None:
    timed = trained(*KILLED)
    truth = timed.waits(0)
    assert_same_times(timed.spans(SpanKind.INPUT_WAIT, 0)[: len(truth)], truth)


def test_steps_can_be_switched_off(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "import os; raise SystemExit('VANIDL_STEPS' in os.environ)"]
    assert record(words, tmp_path / "on", tracer="none").exit_status == 1
    assert record(words, tmp_path / "off", tracer="none", with_steps=False).exit_status == 0
    assert not (tmp_path / "off" / "steps").exists()
