"""Callbacks: the share that they log, and that they record without the command that does."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import vanidl
from tests import ROOT
from vanidl import callbacks
from vanidl.callbacks import Share
from vanidl.model.trace import SpanKind

PROGRAM = f"""
import sys
sys.path.append({str(ROOT / "tests" / "record")!r})
import light_torch
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


DATA = """
import json, sys
import torch
from torch.utils.data import DataLoader, Dataset
from vanidl.callbacks import SHARE

class Rows(Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, i):
        return {"x": torch.full((4,), float(i))}

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 1)
    def forward(self, x):
        return {"loss": self.net(x).mean()}
"""

LIGHTNING = (
    DATA
    + """
import csv, lightning
from lightning.pytorch.loggers import CSVLogger
from vanidl.callbacks import LightningCallback

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()
    def training_step(self, batch):
        return self.net(**batch)["loss"]
    def validation_step(self, batch):
        self.net(**batch)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-3)

folder = sys.argv[1]
trainer = lightning.Trainer(
    accelerator="cpu", max_epochs=2, logger=CSVLogger(folder, "", ""), log_every_n_steps=4,
    enable_progress_bar=False, num_sanity_val_steps=0, callbacks=[LightningCallback(folder)],
)
trainer.fit(Module(), DataLoader(Rows(), batch_size=4), DataLoader(Rows(), batch_size=8))
with open(folder + "/metrics.csv") as file:
    print(json.dumps([float(row[SHARE]) for row in csv.DictReader(file) if row.get(SHARE)]))
"""
)

TRANSFORMERS = (
    DATA
    + """
from transformers import Trainer, TrainerCallback, TrainingArguments
from vanidl.callbacks import TransformersCallback

class Logged(TrainerCallback):
    shares = []
    def on_log(self, *_, logs, **__):
        self.shares += [logs[SHARE]] if SHARE in logs else []

folder = sys.argv[1]
arguments = TrainingArguments(
    folder, per_device_train_batch_size=4, num_train_epochs=2, report_to=[], use_cpu=True,
    disable_tqdm=True, logging_steps=4, eval_strategy="epoch", save_strategy="epoch",
)
trainer = Trainer(
    Net(), arguments, train_dataset=Rows(), eval_dataset=Rows(),
    callbacks=[TransformersCallback(folder), Logged()],
)
trainer.train()
print(json.dumps(Logged.shares))
"""
)

KERAS = """
import json, os, sys
os.environ["KERAS_BACKEND"] = "jax"
import keras, numpy
from vanidl.callbacks import SHARE, KerasCallback

class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return numpy.full((4, 4), i, "float32"), numpy.zeros((4, 1), "float32")

model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
history = model.fit(
    Batches(), epochs=2, verbose=0, validation_data=Batches(),
    callbacks=[KerasCallback(sys.argv[1])],
)
model.save(sys.argv[1] + "/model.keras")
print(json.dumps(history.history[SHARE]))
"""


@pytest.mark.parametrize(
    ("program", "needs", "saves"),
    [
        (LIGHTNING, ("torch", "lightning"), 0),
        (TRANSFORMERS, ("torch", "transformers", "accelerate"), 2),
        (KERAS, ("keras", "jax"), 1),
    ],
    ids=["lightning", "transformers", "keras"],
)
def test_in_the_trainer_itself(
    tmp_path: Path, program: str, needs: tuple[str, ...], saves: int
) -> None:
    """Two epochs of eight steps, an evaluation after each; shares are logged as others are."""
    missing = [name for name in needs if find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    shares = json.loads(done.stdout.splitlines()[-1])
    assert len(shares) >= 2
    assert all(0 < share < 1 for share in shares)
    assert not list(tmp_path.glob("steps/*-error"))
    run = vanidl.open_run(tmp_path)
    assert run.steps is not None
    assert run.phases is not None
    assert (run.steps.per_rank_max, len(run.phases.epochs)) == (16, 2)
    assert int((run.trace.spans.kind == SpanKind.VALIDATION).sum()) == 2
    assert len(run.trace.checkpoint_calls) >= saves
