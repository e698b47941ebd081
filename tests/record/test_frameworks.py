"""Loops as people write them, under the recorder, against what they measured of themselves.

That a process is stopped between two clocks must not matter here: what is looked at is how many
waits and steps there are, and in which order they lie with the readings of the program's own clock.
How many milliseconds they are off is for `make loops`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import vanidl
from benchmarks.loops.compared import (
    Process,
    Readings,
    compare_processes,
    compare_steps,
    compare_waits,
    count_steps_out_of_order,
    count_waits_out_of_order,
)
from benchmarks.loops.run import HERE, LOOPS, Loop
from benchmarks.loops.timers import VARIABLE
from vanidl.model.trace import SpanKind
from vanidl.record import record

AGREES = 0.01

IMPORT_AGAIN = ("spawned", "forkserver")  # takes its time; test_steps has one of them
ENDS = ("killed", "terminated", "exits")  # take a second each; test_step_processes has such
TORCH = [
    loop
    for loop in LOOPS
    if loop.script == "torch_loops" and loop.has_borders
    if loop.words[0] not in (*IMPORT_AGAIN, *ENDS, "compiled")
]
OTHERS = [
    loop
    for loop in LOOPS
    if loop.script != "torch_loops" and loop.has_borders and loop.launcher == (sys.executable,)
]


@pytest.fixture(scope="session")
def loops_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("loops")


@pytest.fixture(scope="session")
def torch_loops(loops_folder: Path) -> dict[str, Process]:
    """All loops of PyTorch, in one run: each in a process forked from one."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    names = [loop.words[0] for loop in TORCH if not loop.missing]
    command = [sys.executable, str(HERE / "torch_loops.py"), *names]
    processes = {one.loop: one for one in run_recorded(command, loops_folder)}
    assert list(processes) == names
    return processes


def run_recorded(command: list[str], folder: Path, waits: tuple[str, ...] = ()) -> list[Process]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(folder / "own"))
        assert record(command, folder / "RUN", tracer="none", waits=waits).exit_status == 0
    return compare_processes(vanidl.open_run(folder / "RUN").trace, folder)


@pytest.mark.parametrize("loop", TORCH, ids=lambda loop: loop.words[0])
def test_loops_of_pytorch(torch_loops: dict[str, Process], loop: Loop) -> None:
    if loop.missing:
        pytest.skip(f"not installed: {', '.join(loop.missing)}")
    assert_in_order(torch_loops[loop.words[0]])


def assert_in_order(process: Process) -> None:
    assert process.waits.found >= process.waits.expected
    assert process.steps.found == process.counted_steps
    assert not process.out_of_order


def test_recorded_waits_agree_with_those_of_the_profiler(
    torch_loops: dict[str, Process], loops_folder: Path
) -> None:
    """Each of its spans is of a call within ours, and ours is of no other."""
    pid = torch_loops["profiled"].pid
    profiled = input_waits(loops_folder / "own.profile.pt.trace.json")
    recorded = input_waits(next((loops_folder / "RUN" / "steps").glob(f"*-{pid}.steps")))
    window = slice(np.searchsorted(recorded[:, 1], profiled[0, 0]), None)
    same = recorded[window][: len(profiled)]
    assert len(profiled) >= 8
    assert (same[1:, 0] >= profiled[:-1, 1]).all()
    assert (profiled[1:, 0] >= same[:-1, 1]).all()


def input_waits(path: Path) -> np.ndarray:
    spans = vanidl.open_run(path).trace.spans
    mine = spans.kind == SpanKind.INPUT_WAIT
    return np.stack([spans.start[mine], spans.end[mine]], axis=1)


@pytest.mark.parametrize("loop", OTHERS, ids=lambda loop: loop.name.replace(" ", "-"))
def test_loops_of_other_frameworks(tmp_path: Path, loop: Loop) -> None:
    if loop.missing:
        pytest.skip(f"not installed: {', '.join(loop.missing)}")
    waits = tuple(word for word in loop.options if word != "--wait")
    processes = run_recorded(loop.command, tmp_path, waits)
    assert processes
    for process in processes:
        assert_in_order(process)


def test_what_a_wrong_recorder_says_is_not_explained() -> None:
    """Ten waits of 5 ms, 10 ms apart; during the fourth the thread was stopped for 8 ms."""
    begin = np.arange(10)[:, None] * 10_000_000
    truth = begin + np.array([0, 5_000_000])
    stopped = np.where(truth.ravel() > truth[3, 0], 8_000_000, 0)
    readings = Readings.of(np.stack([truth.ravel(), stopped], axis=1).tolist())
    assert compare_waits(truth, begin + np.array([900_000, 5_000_000]), readings).outside == 0
    late = compare_waits(truth, begin + np.array([1_500_000, 5_000_000]), readings)
    assert (late.outside, late.unexplained) == (10, 9)
    long = compare_waits(truth, begin + np.array([0, 6_500_000]), readings)
    assert long.unexplained == 10  # nobody was stopped between two waits
    assert compare_waits(truth, np.delete(truth, 7, axis=0), readings).unexplained == 1
    steps = np.append(begin[:-1], begin[1:], axis=1)
    assert compare_steps(steps, steps, readings).agrees
    assert compare_steps(steps, steps + 1_500_000, readings).unexplained >= 6
    assert not compare_steps(steps, steps[1:], readings).agrees


def test_how_spans_must_lie() -> None:
    truth = np.arange(10)[:, None] * 100 + np.array([0, 50])
    readings = Readings.of([(at, 0) for at in truth.ravel().tolist()])
    for inside in ([0, 50], [40, 49], [1, 1]):
        assert not count_waits_out_of_order(truth, truth[:, :1] + np.array(inside))
    assert count_waits_out_of_order(truth, truth + np.array([0, 1])) == 10
    assert count_waits_out_of_order(truth, truth - np.array([1, 0])) == 10
    assert count_waits_out_of_order(truth, truth[:0]) == 10
    twice = np.concatenate([truth, truth[3:4] + np.array([50, 10])])
    assert count_waits_out_of_order(truth, twice) == 1
    steps = np.append(truth[:-1, :1], truth[1:, :1], axis=1)
    for late in (-100, 0, 50):
        assert not count_steps_out_of_order(steps[1:-1], steps[1:-1] + late, readings)
    assert count_steps_out_of_order(steps, steps - 101, readings) == len(steps)
    assert count_steps_out_of_order(steps[:-1], steps[:-1] + 101, readings) == len(steps) - 1
    assert count_steps_out_of_order(steps, steps[1:], readings) == len(steps)


RAISES = """
import sys
import torch
from torch.utils.data import DataLoader
class Broken(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, i): raise ValueError("as asked")
model = torch.nn.Linear(2, 1)
try:
    next(iter(DataLoader(Broken())))
except ValueError:
    model(torch.ones(3))
"""


def test_a_traceback_is_that_of_the_program(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    script = tmp_path / "raises.py"
    script.write_text(RAISES)
    alone = subprocess.run([sys.executable, script], capture_output=True, text=True)
    words = [sys.executable, "-m", "vanidl", "record", "-o", str(tmp_path / "RUN")]
    command = [*words, "--tracer", "none", "--", sys.executable, str(script)]
    recorded = subprocess.run(command, capture_output=True, text=True)
    assert alone.returncode == recorded.returncode == 1
    assert alone.stderr.count("Traceback") == 2
    assert alone.stderr in recorded.stderr
