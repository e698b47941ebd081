"""Windows beside training lie where the program's own clock says, of a program that fails."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import vanidl
from vanidl.model.trace import SpanKind
from vanidl.record import record

PROGRAM = Path(__file__).with_name("phased_training.py")
Pairs = list[tuple[int, int]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[vanidl.Run, dict[str, Pairs]]:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("phased")
    done = record([sys.executable, str(PROGRAM), str(folder)], folder / "RUN", tracer="none")
    assert done.exit_status == 3
    assert not list(folder.glob("RUN/steps/*-error"))
    return vanidl.open_run(done.folder), json.loads((folder / "truth").read_text())


@pytest.mark.parametrize(
    ("kind", "around", "inside"),
    [
        (SpanKind.VALIDATION, "validation", "evaluating"),
        (SpanKind.CHECKPOINT, "checkpoint", ""),
        (SpanKind.LOAD, "load", ""),
        (SpanKind.PHASE, "phase", "uploading"),
    ],
)
def test_windows_are_where_they_were(
    recorded: tuple, kind: SpanKind, around: str, inside: str
) -> None:
    run, truth = recorded
    spans = run.trace.spans.pick(run.trace.spans.kind == kind)
    found = list(zip(spans.start.tolist(), spans.end.tolist(), strict=True))
    assert len(found) == len(truth[around])
    for (begin, end), (start, stop) in zip(found, truth[around], strict=True):
        assert start <= begin <= end <= stop
    for (begin, end), (start, stop) in zip(found, truth.get(inside, found), strict=True):
        assert begin <= start <= stop <= end


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (SpanKind.FORWARD, "forward"),
        (SpanKind.BACKWARD, "backward"),
        (SpanKind.OPTIMIZER, "optimizer"),
    ],
)
def test_parts_of_steps_are_where_they_were(recorded: tuple, kind: SpanKind, name: str) -> None:
    run, truth = recorded
    spans = run.trace.spans.pick(run.trace.spans.kind == kind)
    assert len(spans) == len(truth[name]) == 12
    after = [pair[0] for pair in truth["backward"]] if name == "forward" else None
    for i, (begin, end) in enumerate(zip(spans.start.tolist(), spans.end.tolist(), strict=True)):
        start, stop = truth[name][i]
        assert start <= begin <= stop
        # a forward pass goes on until the backward pass
        assert (stop if after is None else after[i]) >= end or after is not None
    parts = {key for key in run.breakdown.columns if key.startswith("step_part/")}
    assert {f"step_part/{part}" for part in ("prepare", name, "rest")} <= parts


def test_no_step_holds_any_of_them(recorded: tuple) -> None:
    run, _ = recorded
    assert run.steps.per_rank_max == 12
    cells = {name: run.breakdown.cell(f"mean/phase/{name}").low_ns for name in (
        "validation", "checkpoint", "load", "other", "training")}  # fmt: skip
    spans = run.trace.spans
    for name, kind in (("validation", SpanKind.VALIDATION), ("checkpoint", SpanKind.CHECKPOINT)):
        mine = spans.kind == kind
        assert cells[name] == (spans.end[mine] - spans.start[mine]).sum()
    (step,) = run.breakdown.columns["step/"].low.tolist()
    assert step <= cells["training"]


def test_saves_have_their_last_names(recorded: tuple) -> None:
    run, _ = recorded
    calls = run.trace.checkpoint_calls
    names = [(Path(call.path).name, call.is_load) for call in calls]
    assert names == [
        ("model_2.pt", False), ("model_2.pt", True), ("model_6.pt", False), ("model_10.pt", False),
    ]  # fmt: skip
    assert all(call.nbytes > 4096 for call in calls)
    evidence = [phase.evidence for phase in run.phases.checkpoints]
    assert evidence == [f"torch.save of model_{step}.pt" for step in (2, 6, 10)]
