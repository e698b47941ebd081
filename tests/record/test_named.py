"""Loops of which nothing is known: what the user names settles what trains."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import vanidl
from vanidl.errors import UsageError
from vanidl.model.trace import UNSURE, SpanKind
from vanidl.record import record, steps

PROGRAM = [sys.executable, str(Path(__file__).with_name("named_training.py"))]


def count(run: vanidl.Run, kind: SpanKind) -> int:
    return int((run.trace.spans.kind == kind).sum())


def test_without_a_gradient_it_is_not_known_what_trains(tmp_path: Path) -> None:
    done = record(PROGRAM, tmp_path / "RUN", tracer="none", waits=["__main__:Batches"])
    run = vanidl.open_run(done.folder)
    assert run.trace.purpose == UNSURE
    assert str(run.headline).startswith("Whether the steps train is not known")
    assert run.verdict == ""  # nobody says that there is nothing to fix
    assert count(run, SpanKind.STEP) == 24


@pytest.mark.parametrize("name", ["Batches", "served"])
def test_a_function_that_trains_settles_it(tmp_path: Path, name: str) -> None:
    names = {"waits": [f"__main__:{name}"], "trains": ["__main__:train"]}
    done = record(PROGRAM, tmp_path / "RUN", tracer="none", **names)
    run = vanidl.open_run(done.folder)
    assert run.trace.purpose == ""
    assert [count(run, kind) for kind in (SpanKind.STEP, SpanKind.EPOCH)] == [12, 2]
    spans = run.trace.spans
    names_of_waits = np.array(spans.names)[spans.name[spans.kind == SpanKind.INPUT_WAIT]]
    assert sum("evaluation" in each for each in names_of_waits.tolist()) == 2 * 7
    assert not any("--wait" in said for said in done.unheard)


QUEUED = """
import queue, threading, time
class Batch(list): pass  # can be iterated over, and is used for what it is
def read():
    for k in range(12):
        time.sleep(0.01)
        batches.put(Batch([k, k]))
    batches.put(None)
batches = queue.Queue(2)
def train(batch):
    assert type(batch) is Batch
    return sum(batch)
total = 0
threading.Thread(target=read, daemon=True).start()
while (batch := batches.get()) is not None:
    total += train(batch)
print(total)
"""


def test_each_call_of_a_function_that_gives_a_batch_is_a_wait(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is handed on as it is, though it can be iterated over; None is the end."""
    done = record([sys.executable, "-c", QUEUED], tmp_path / "RUN", tracer="none",
                  waits=["queue:Queue.get"], trains=["__main__:train"])  # fmt: skip
    assert (done.exit_status, capfd.readouterr().out) == (0, f"{2 * sum(range(12))}\n")
    run = vanidl.open_run(done.folder)
    assert count(run, SpanKind.STEP) == 12
    waited_s = run.breakdown.length_ns("input_wait") / 1e9
    assert 11 * 0.01 <= waited_s <= run.trace.job.run_time_s


def test_a_name_that_is_not_there_is_said(tmp_path: Path) -> None:
    done = record(PROGRAM, tmp_path / "RUN", tracer="none",
                  waits=["__main__:NoSuch", "__main__:Batches", "no.such:Thing"],
                  trains=["__main__:nothing"])  # fmt: skip
    said = [each.split(":")[0] + ":" + each.split(":")[1] for each in done.unheard]
    assert said == ["--wait __main__:NoSuch", "--wait no.such:Thing", "--train __main__:nothing"]
    assert not list((tmp_path / "RUN" / "steps").glob("named-*"))


def test_a_name_without_a_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected MODULE:NAME"):
        record(PROGRAM, tmp_path / "RUN", tracer="none", trains=["train"])


def test_storage_that_takes_no_folder_of_steps_ends_nothing(tmp_path: Path) -> None:
    """The command is run all the same; that its names were not found is said."""
    (tmp_path / "RUN").touch()
    words = steps.make_environment(tmp_path / "RUN", ["a:B"], trains=["c:d"])
    assert words["VANIDL_WAITS"] == "a:B"
    said = list(steps.explain_names_not_found(tmp_path / "RUN", ["a:B"], ["c:d"]))
    assert [one.split(":")[0] for one in said] == ["--wait a", "--train c"]
    assert list(steps.explain_names_not_found(tmp_path / "RUN", [], [])) == []
