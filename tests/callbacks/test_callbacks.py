"""Callbacks: the share that they log, and that they record without the command that does."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import vanidl
from vanidl import callbacks
from vanidl.callbacks import Share

PROGRAM = """
import sys
from vanidl.callbacks import record_here
import torch
from torch.utils.data import DataLoader, TensorDataset
assert record_here(sys.argv[1]) and not record_here(sys.argv[1])
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for x, in DataLoader(TensorDataset(torch.rand(12, 4)), batch_size=2):
    model(x).mean().backward()
    optimizer.step()
torch.save(model.state_dict(), sys.argv[1] + "/model.pt")
"""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(callbacks, "perf_counter", lambda: now[0])
    return now


def test_the_share_is_of_waits_between_steps(clock: list[float]) -> None:
    share = Share()
    assert share.take() is None
    for begin, end in ((10, 11), (14, 15), (18, 19)):  # waits of 3 between steps of 1
        clock[0] = begin
        share.begins()
        clock[0] = end
        share.ends()
    assert share.take() == pytest.approx(6 / 9)
    assert share.take() is None


def test_a_pause_is_no_wait(clock: list[float]) -> None:
    share = Share()
    share.begins()
    clock[0] = 2
    share.ends()
    share.pauses()
    clock[0] = 100
    share.begins()
    clock[0] = 102
    share.ends()
    assert share.take() == 0


def test_it_records_without_the_command(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], check=True)
    assert not list(tmp_path.glob("steps/*-error"))
    run = vanidl.open_run(tmp_path)
    assert run.steps is not None
    assert run.steps.per_rank_max == 6
    assert [Path(call.path).name for call in run.trace.checkpoint_calls] == ["model.pt"]


@pytest.mark.parametrize("name", ["Lightning", "Transformers", "Keras"])
def test_a_class_needs_its_framework_alone(name: str) -> None:
    assert f"{name}Callback" in callbacks.__all__
    source = Path(callbacks.__file__).with_name(f"{name.lower()}.py").read_text()
    packages = {"Lightning": ("lightning", "pytorch_lightning")}.get(name, (name.lower(),))
    if not any(find_spec(package) for package in packages):
        with pytest.raises(ImportError):
            getattr(callbacks, f"{name}Callback")
    assert f"class {name}Callback" in source
    with pytest.raises(AttributeError):
        callbacks.NoCallback  # noqa: B018
