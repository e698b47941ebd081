"""Steps recorded with no change of a program, against times that the program took itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import vanidl
from vanidl.model.trace import SpanKind
from vanidl.record import Recorded, record

PROGRAM = Path(__file__).with_name("timed_training.py")
MS = 1_000_000
SAME_TIME = 0.9  # of the calls: on a busy machine a process may be stopped between two clocks


@dataclass(frozen=True)
class Timed:
    """A recorded run, and what its processes measured themselves, by rank."""

    done: Recorded
    truth: dict[int, dict]

    @property
    def run(self) -> vanidl.Run:
        return vanidl.open_run(self.done.folder)

    def spans(self, kind: SpanKind, rank: int) -> np.ndarray:
        trace = self.run.trace
        pids = np.array([p.pid for p in trace.processes])
        mine = (trace.spans.kind == kind) & (pids[trace.spans.process] == self.truth[rank]["pid"])
        return np.stack([trace.spans.start[mine], trace.spans.end[mine]], axis=1)


def train(folder: Path, *how: str, launcher: tuple[str, ...] = ()) -> Timed:
    command = [*(launcher or (sys.executable,)), str(PROGRAM), str(folder / "truth"), *how]
    done = record(command, folder / "RUN", tracer="none")
    truths = folder.glob("truth-*")
    return Timed(done, {int(p.name.split("-")[1]): json.loads(p.read_text()) for p in truths})


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Timed]:
    """Runs of the program, each once a session."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    known: dict[tuple, Timed] = {}

    def run(*how: str, launcher: tuple[str, ...] = ()) -> Timed:
        if (how, launcher) not in known:
            folder = tmp_path_factory.mktemp("steps")
            known[how, launcher] = train(folder, *how, launcher=launcher)
        return known[how, launcher]

    return run


WITHOUT_WORKERS = ("0", "fork", "2", "raise")
WITH_WORKERS = ("2", "fork", "2", "return")
SPAWNED = ("1", "spawn", "1", "return")
KILLED = ("0", "fork", "1", "kill")
PROGRAMS = [WITHOUT_WORKERS, WITH_WORKERS, SPAWNED]


@pytest.mark.parametrize("how", PROGRAMS, ids="-".join)
def test_waits_are_those_of_the_program(trained: Callable[..., Timed], how: tuple) -> None:
    timed = trained(*how)
    assert_same_times(
        timed.spans(SpanKind.INPUT_WAIT, 0), np.array([w[1:] for w in timed.truth[0]["waits"]])
    )


def assert_same_times(found: np.ndarray, truth: np.ndarray) -> None:
    """Every recorded span lies inside the one that was measured around it, and fills it."""
    assert len(found) == len(truth)
    assert (truth[:, 0] <= found[:, 0]).all()
    assert (found[:, 1] <= truth[:, 1]).all()
    length = truth[:, 1] - truth[:, 0]
    near = length - (found[:, 1] - found[:, 0]) <= np.maximum(MS, length // 100)
    assert near.mean() >= SAME_TIME


@pytest.mark.parametrize("how", PROGRAMS, ids="-".join)
def test_steps_begin_with_their_first_wait(trained: Callable[..., Timed], how: tuple) -> None:
    timed = trained(*how)
    found, truth = timed.spans(SpanKind.STEP, 0), np.array(timed.truth[0]["steps"])
    assert len(found) == len(truth)  # two batches each, of two optimizers
    assert (truth[:, 0] <= found[:, 0]).all()
    assert (found[:, 0] < truth[:, 1]).all()
    assert (found[:, 0] - truth[:, 0] <= MS).mean() >= SAME_TIME
    a_pass = len(found) // int(how[2])
    inside = np.arange(len(found)) % a_pass != a_pass - 1  # not the last of an epoch
    assert (found[inside, 1] == found[np.flatnonzero(inside) + 1, 0]).all()


def test_loaders_are_told_apart(trained: Callable[..., Timed]) -> None:
    timed = trained(*WITH_WORKERS)
    steps = timed.run.steps
    assert steps is not None
    waits = timed.truth[0]["waits"]
    assert {loader.name: loader.waits for loader in steps.loaders} == {
        f"DataLoader {k} (Rows, {name})": sum(w[0] == name for w in waits)
        for k, name in enumerate(("training", "evaluation"))
    }


def test_the_program_runs_as_without(trained: Callable[..., Timed], tmp_path: Path) -> None:
    assert trained(*WITHOUT_WORKERS).done.exit_status == 1  # it raises
    assert trained(*KILLED).done.exit_status == 137
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


def test_a_killed_process_leaves_its_steps(trained: Callable[..., Timed]) -> None:
    timed = trained(*KILLED)
    truth = np.array([w[1:] for w in timed.truth[0]["waits"]])
    assert_same_times(timed.spans(SpanKind.INPUT_WAIT, 0)[: len(truth)], truth)


def test_each_rank_of_torchrun_has_its_steps(trained: Callable[..., Timed]) -> None:
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    timed = trained("0", "fork", "1", "return", launcher=torchrun)
    assert timed.done.exit_status == 0
    run = timed.run
    assert [run.trace.processes[i].rank for i in run.trace.ranks] == [0, 1]
    for rank in (0, 1):
        truth = np.array([w[1:] for w in timed.truth[rank]["waits"]])
        assert_same_times(timed.spans(SpanKind.INPUT_WAIT, rank), truth)


def test_steps_can_be_switched_off(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "import os; raise SystemExit('VANIDL_STEPS' in os.environ)"]
    assert record(words, tmp_path / "on", tracer="none").exit_status == 1
    assert record(words, tmp_path / "off", tracer="none", with_steps=False).exit_status == 0
    assert not (tmp_path / "off" / "steps").exists()
