"""`--profile`: when the profiler is on, that it gives way, and that its steps are the recorded."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import vanidl
from vanidl.errors import UsageError
from vanidl.model.trace import SpanKind
from vanidl.readers.pytorch.trace import read_trace
from vanidl.readers.steps.journal import read_journal
from vanidl.record import Recorded, record
from vanidl.record.injected.vanidl_steps import journal, registry, window

PROGRAM = Path(__file__).with_name("profiled_training.py")
STEPS = 4
MS = 1_000_000


class Profiler:
    """Notes what is asked of it."""

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls

    def __getattr__(self, name: str) -> object:
        return lambda *_: self.calls.append(name)


@pytest.fixture
def fake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[window.Window, list[str], journal.Journal]:
    calls: list[str] = []
    monkeypatch.setattr(window, "_profiler", lambda: Profiler(calls))
    monkeypatch.setattr(window, "_path", lambda: "")
    events = journal.Journal(str(tmp_path))
    return window.Window(registry.Channel("window", events), STEPS), calls, events


def train(own: window.Window, steps: int, batches: int | None = None, a_step: int = 1) -> None:
    for _ in range(steps):
        for _ in range(a_step):
            own.before_wait(batches)
        own.after_optimizer()
        own.after_optimizer()  # of a second optimizer


A_WINDOW = ["start", *["step"] * (STEPS - 1), "stop", "export_chrome_trace"]
HALF_A_WINDOW = ["start", *["step"] * (STEPS // 2 - 1), "stop", "export_chrome_trace"]


@pytest.mark.parametrize("a_step", [1, 3])
def test_the_window_opens_after_the_warm_up_for_so_many_steps(fake: tuple, a_step: int) -> None:
    own, calls, _ = fake
    train(own, window.WARM_UP, a_step=a_step)
    assert not calls
    train(own, 1, a_step=a_step)
    assert calls == ["start"]
    train(own, STEPS - 1, a_step=a_step)
    assert calls == A_WINDOW[:-2]
    train(own, 1, a_step=a_step)
    assert calls == A_WINDOW


@pytest.mark.parametrize(
    ("batches", "a_step", "halfway"),
    [(1_000, 1, 500), (1_000, 4, 125), (100, 1, window.LATER), (None, 1, window.LATER)],
)
def test_a_second_window_lies_halfway(
    fake: tuple, batches: int | None, a_step: int, halfway: int
) -> None:
    own, calls, _ = fake
    train(own, halfway - 1, batches, a_step)
    assert calls == A_WINDOW
    train(own, 1 + STEPS // 2, batches, a_step)
    assert calls == A_WINDOW + HALF_A_WINDOW
    train(own, 2_000, batches, a_step)
    assert calls == A_WINDOW + HALF_A_WINDOW


def test_a_loop_without_optimizer_or_without_loader_has_steps_too(fake: tuple) -> None:
    own, calls, _ = fake
    for _ in range(window.WARM_UP + STEPS + 1):
        own.before_wait(None)
    assert calls == A_WINDOW


def test_without_a_loader_a_step_ends_with_the_optimizers(fake: tuple) -> None:
    own, calls, _ = fake
    for _ in range(window.WARM_UP + STEPS + 1):
        own.after_optimizer()
    assert calls == A_WINDOW


def test_a_profiler_of_the_program_ends_ours_for_good(fake: tuple, tmp_path: Path) -> None:
    own, calls, events = fake
    train(own, window.WARM_UP + 2)
    own.give_way()
    train(own, 1_000)
    assert calls == ["start", "step", "stop"]
    events.add(journal.OPTIMIZER, 0, 1, 1)
    events.close()
    (path,) = tmp_path.iterdir()
    assert [text["profile"] for text in read_journal(path).profiled] == ["own"]


def test_a_profiler_that_fails_breaks_nothing(fake: tuple, tmp_path: Path, monkeypatch) -> None:
    own, _, _ = fake

    def fails() -> None:
        raise RuntimeError("no profiler here")

    monkeypatch.setattr(window, "_profiler", fails)
    train(own, 100)
    (failure,) = tmp_path.iterdir()
    assert failure.read_text() == "window: RuntimeError: no profiler here\n"


def test_steps_to_profile_need_steps(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--profile 3 with --no-steps"):
        record(["true"], tmp_path / "RUN", tracer="none", with_steps=False, profile_steps=3)
    with pytest.raises(UsageError, match="at least one step"):
        record(["true"], tmp_path / "RUN", tracer="none", profile_steps=0)


def profiled(folder: Path, own: str) -> Recorded:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    command = [sys.executable, str(PROGRAM), own, "20"]
    done = record(command, folder, tracer="none", profile_steps=STEPS)
    assert done.exit_status == 0
    return done


def test_profiled_steps_are_the_recorded_ones(tmp_path: Path) -> None:
    done = profiled(tmp_path / "RUN", "none")
    run = vanidl.open_run(done.folder)
    assert run.overlap is not None
    assert run.overlap.basis == "ops+loop"
    assert "steps_profiled" in {w.code for w in run.coverage.warnings}
    (path,) = (done.folder / "profile").iterdir()
    marked = read_trace(path)
    steps = marked.kind == SpanKind.STEP
    trace = run.trace
    mine = trace.spans.kind == SpanKind.STEP
    chosen = slice(window.WARM_UP, window.WARM_UP + STEPS)
    for column, own in (("start", marked.start_ns[steps]), ("end", marked.end_ns[steps])):
        recorded = getattr(trace.spans, column)[mine][chosen]
        inner = slice(1, None) if column == "start" else slice(None, -1)
        # Switching on lies between the first step's two starts, off between its last ends. A busy
        # machine may take the core between two marks of one step, but not between all of them.
        apart = np.abs(recorded[:, None] - own[None, :])[inner]
        assert (apart.argmin(axis=1) == np.arange(STEPS)[inner]).all(), column
        assert apart.min() <= MS, column


def test_the_programs_own_profiler_wins(tmp_path: Path) -> None:
    done = profiled(tmp_path / "RUN", "own")
    assert not (done.folder / "profile").exists()
    codes = {w.code for w in vanidl.open_run(done.folder).coverage.warnings}
    assert "profile_gave_way" in codes
    assert "steps_incomplete" not in codes
