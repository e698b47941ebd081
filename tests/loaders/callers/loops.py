"""Trainings that call a loader as frameworks do: what each batch held, in the order of steps."""

from __future__ import annotations

from tempfile import TemporaryDirectory

import pytest
import torch
from torch import nn


class Left(Exception):
    """The training is left in the middle, as a job that is killed."""


class Seen(list):
    """Ids of each batch; leaves behind `stop` of them."""

    def __init__(self, stop=None):
        super().__init__()
        self.stop = stop

    def take(self, batch):
        self.append(batch["id"].tolist())
        if len(self) == self.stop:
            raise Left


def plain(loader, epochs, seen):
    for _ in range(epochs):
        for batch in loader:
            seen.take(batch)


def with_accelerate(loader, epochs, seen):
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    accelerator = accelerate.Accelerator(cpu=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(epochs):
        for batch in loader:
            seen.take(batch)
            accelerator.backward(model(torch.ones(1, 1)).sum())


def with_lightning(loader, epochs, seen, **options):
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(1, 1)

        def training_step(self, batch):
            seen.take(batch)
            return self.net(torch.ones(1, 1)).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.0)

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", enable_model_summary=False, **quiet, **options
    )
    trainer.fit(Module(), loader)


def with_trainer(loader, epochs, seen):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(1, 1)

        def forward(self, **batch):
            seen.take(batch)
            return {"loss": self.net(torch.ones(1, 1)).sum()}

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self):
            return loader

    with TemporaryDirectory() as folder:
        options = transformers.TrainingArguments(
            folder, num_train_epochs=epochs, save_strategy="no", use_cpu=True, report_to=[],
            disable_tqdm=True,
        )  # fmt: skip
        Trainer(Model(), options, train_dataset=[0]).train()


LOOPS = {
    "plain": plain,
    "accelerate": with_accelerate,
    "lightning": with_lightning,
    "trainer": with_trainer,
}
"""Framework -> (loader, epochs, Seen) -> nothing; a framework that is not installed skips."""
