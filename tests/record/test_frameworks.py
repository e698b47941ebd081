"""Loops as people write them, under the recorder, against the times that they took themselves."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import vanidl
from benchmarks.vanidl.step_truth import EVERY, Program
from tests.makers.step_truth import (
    PROGRAMS,
    Compared,
    Process,
    Readings,
    against,
    joined,
    of_steps,
    of_waits,
)
from vanidl.model.trace import SpanKind
from vanidl.record import record

AGREES = 0.01

IMPORT_AGAIN = ("spawned", "forkserver")  # takes its time; test_steps has one of them
TORCH = [p for p in EVERY if p.name.startswith("torch ") and p.command[-1] not in IMPORT_AGAIN]
OTHERS = [p for p in EVERY if not p.name.startswith("torch ") and "ranks" not in p.name]


@pytest.fixture(scope="session")
def loops_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("loops")


@pytest.fixture(scope="session")
def torch_loops(loops_folder: Path) -> dict[str, Process]:
    """All loops of PyTorch, in one run: each in a process forked from one."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    return recorded(loops_folder, [program.command[-1] for program in TORCH if not program.missing])


def recorded(folder: Path, names: list[str]) -> dict[str, Process]:
    """These loops of PyTorch, each in a process forked from one."""
    command = [sys.executable, str(PROGRAMS / "torch_loops.py"), str(folder / "truth"), *names]
    assert record(command, folder / "RUN", tracer="none").exit_status == 0
    found = {one.loop: one for one in against(vanidl.open_run(folder / "RUN").trace, folder)}
    assert list(found) == sorted(names, key=list(found).index)
    return found


@pytest.mark.parametrize("program", TORCH, ids=lambda program: program.command[-1])
def test_loops_of_pytorch(
    torch_loops: dict[str, Process], program: Program, tmp_path: Path
) -> None:
    if program.missing:
        pytest.skip(f"not installed: {', '.join(program.missing)}")
    name = program.command[-1]
    found = torch_loops[name]
    if found.waits.unexplained or found.steps.unexplained:  # a virtual machine may have stopped
        found = recorded(tmp_path, [name])[name]
    assert 0 <= found.waits.found - found.waits.expected <= found.waits.outside  # split: stopped
    assert_true(found.waits, found.steps)


def test_recorded_waits_agree_with_those_of_the_profiler(
    torch_loops: dict[str, Process], loops_folder: Path
) -> None:
    pid = torch_loops["profiled"].pid
    profiled = input_waits(loops_folder / "truth.profile.pt.trace.json")
    recorded = input_waits(next((loops_folder / "RUN" / "steps").glob(f"*-{pid}.steps")))
    window = slice(np.searchsorted(recorded[:, 1], profiled[0, 0]), None)
    same = recorded[window][: len(profiled)]
    assert len(profiled) >= 8
    assert np.diff(same).sum() == pytest.approx(np.diff(profiled).sum(), rel=AGREES, abs=1_000_000)


def input_waits(path: Path) -> np.ndarray:
    spans = vanidl.open_run(path).trace.spans
    mine = spans.kind == SpanKind.INPUT_WAIT
    return np.stack([spans.start[mine], spans.end[mine]], axis=1)


@pytest.mark.parametrize("program", OTHERS, ids=lambda program: program.name.replace(" ", "-"))
def test_loops_of_other_frameworks(tmp_path: Path, program: Program) -> None:
    if program.missing:
        pytest.skip(f"not installed: {', '.join(program.missing)}")
    command = [str(tmp_path / "truth") if word == "TRUTH" else word for word in program.command]
    assert record(command, tmp_path / "RUN", tracer="none", waits=program.waits).exit_status == 0
    every = against(vanidl.open_run(tmp_path / "RUN").trace, tmp_path)
    assert_true(joined([one.waits for one in every]), joined([one.steps for one in every]))


def assert_true(waits: Compared, steps: Compared) -> None:
    assert not waits.unexplained
    assert steps.agrees


def test_what_a_wrong_recorder_says_is_not_explained() -> None:
    """Ten waits of 5 ms, 10 ms apart; during the fourth the thread was stopped for 8 ms."""
    begin = np.arange(10)[:, None] * 10_000_000
    truth = begin + np.array([0, 5_000_000])
    stopped = np.where(truth.ravel() > truth[3, 0], 8_000_000, 0)
    readings = Readings.of(np.stack([truth.ravel(), stopped, stopped], axis=1).tolist())
    assert of_waits(truth, begin + np.array([900_000, 5_000_000]), readings).outside == 0
    late = of_waits(truth, begin + np.array([1_500_000, 5_000_000]), readings)
    assert (late.outside, late.unexplained) == (10, 9)
    long = of_waits(truth, begin + np.array([0, 6_500_000]), readings)
    assert long.unexplained == 10  # nobody was stopped between two waits
    assert of_waits(truth, np.delete(truth, 7, axis=0), readings).unexplained == 1
    steps = np.append(begin[:-1], begin[1:], axis=1)
    assert of_steps(steps, steps, readings).agrees
    assert of_steps(steps, steps + 1_500_000, readings).unexplained >= 6
    assert not of_steps(steps, steps[1:], readings).agrees
