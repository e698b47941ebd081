"""Steps and waits that a program marks itself."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import vanidl
from vanidl.model.trace import SpanKind
from vanidl.record import record

PROGRAM = Path(__file__).with_name("marked_training.py")


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> tuple[vanidl.Run, dict]:
    folder = tmp_path_factory.mktemp("marked")
    words = [sys.executable, str(PROGRAM), str(folder)]
    done = record(words, folder / "RUN", tracer="none", waits=["__main__:Batches"])
    assert done.exit_status == 0
    return vanidl.open_run(done.folder), json.loads((folder / "truth").read_text())


def spans(run: vanidl.Run, kind: SpanKind) -> np.ndarray:
    mine = run.trace.spans.kind == kind
    return np.stack([run.trace.spans.start[mine], run.trace.spans.end[mine]], axis=1)


@pytest.mark.parametrize(
    ("kind", "name"), [(SpanKind.STEP, "training"), (SpanKind.EVALUATION, "validation")]
)
def test_marked_steps_are_the_steps(marked: tuple, kind: SpanKind, name: str) -> None:
    """Eight training steps of 5 ms, each with the wait before it, and nothing else."""
    run, truth = marked
    found, true = spans(run, kind), np.array(truth[name])
    assert len(found) == len(true)
    assert (true[:, 0] <= found[:, 0]).all()
    assert (found[:, 1] <= true[:, 1]).all()
    filled = (found[:, 1] - found[:, 0]) / (true[:, 1] - true[:, 0])
    assert np.median(filled) >= 0.8  # a busy machine may stop some of them between two clocks


def test_waits_are_within_the_steps_that_they_are_for(marked: tuple) -> None:
    run, _ = marked
    assert run.steps is not None
    assert (run.steps.table.input_wait_s >= 0.002).all()
    marks = {loader.name: loader for loader in run.steps.loaders}
    (files,) = (loader for name, loader in marks.items() if "(files" in name)
    assert files.waits == 3 + 1  # and the end
    assert files.wait_s >= 0.003


def test_the_run_says_that_steps_were_marked(marked: tuple) -> None:
    run, _ = marked
    assert run.steps is not None
    assert "vanidl.step()" in run.steps.source
    (said,) = (w for w in run.coverage.warnings if w.code == "steps_marked")
    assert "8 training steps, 6 others" in said.message


def test_a_step_within_the_optimizer_s_is_counted_once(tmp_path: Path) -> None:
    from tests.makers.step_journals import journal_bytes
    from vanidl.readers.steps.journal import read_journal
    from vanidl.readers.steps.loop import build_profile

    path = tmp_path / "a.steps"
    text = "w0:0-2 o:5 s:3-8 w0:10-12 o:15 s:13-18 o:20"
    path.write_bytes(journal_bytes({"pid": 1, "host": "n"}, text))
    found = build_profile(read_journal(path))
    steps = found.kind == SpanKind.STEP
    starts = ((found.start_ns[steps] - found.start_ns[0]) // 1_000_000).tolist()
    assert starts == [0, 10]


def test_without_the_recorder_marks_do_nothing() -> None:
    def function() -> int:
        return 1

    assert vanidl.step()(function) is function
    assert vanidl.wait("x")(function) is function
    with vanidl.step("validation"), vanidl.wait():
        pass
    with pytest.raises(ValueError, match="mine"), vanidl.step():
        raise ValueError("mine")


def test_marking_imports_nothing_else() -> None:
    code = (
        "import sys; before = set(sys.modules); import vanidl; vanidl.step(); vanidl.wait();"
        "print(*sorted(set(sys.modules) - before))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name for name in said.stdout.split() if name.startswith("vanidl")} == {
        "vanidl", "vanidl.marks",
    }  # fmt: skip
    assert not {"numpy", "pandas", "torch", "orjson"} & set(said.stdout.split())


def test_functions_that_are_awaited_are_marked_until_they_end(tmp_path: Path) -> None:
    from vanidl.readers.steps.journal import OTHER_STEP, read_journal
    from vanidl.record.injected.vanidl_steps.journal import Journal
    from vanidl.record.injected.vanidl_steps.marks import Marks
    from vanidl.record.injected.vanidl_steps.registry import Channel

    journal = Journal(str(tmp_path))
    marks = Marks(Channel("marks", journal))

    @marks.step("validation")
    async def validate() -> int:
        await asyncio.sleep(0.01)
        return 7

    assert asyncio.run(validate()) == 7
    journal.close()
    (path,) = tmp_path.glob("*.steps")
    events = read_journal(path).events
    assert events.kind.tolist() == [OTHER_STEP]
    assert events.end[0] - events.begin[0] >= 10_000_000
