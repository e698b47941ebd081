"""Lightning's `fit` with validation, timed by one of its profilers: lightning_fit.py TRUTH."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any

import lightning
import torch
from lightning.pytorch.profilers import Profiler
from torch.utils.data import DataLoader
from torch_loops import Rows
from truth import EVALUATION, TRAINING, Truth, busy

NEXT = {"train_dataloader_next": TRAINING, "val_next": EVALUATION}


class Asked(DataLoader):
    """A loader that times the making of its iterator."""

    truth: Truth
    role: str

    def __iter__(self) -> Any:  # noqa: ANN401
        begin = self.truth.now()
        if self.role == TRAINING:
            self.truth.step(begin)
            self.truth.begun = True
        else:
            self.truth.end(begin)
        iterator = super().__iter__()
        self.truth.waited(self.role, begin)
        return iterator


def asked(truth: Truth, role: str, rows: int, **options: Any) -> Asked:  # noqa: ANN401
    """Such a loader."""
    made = Asked(Rows(rows), batch_size=2, **options)
    made.truth, made.role = truth, role
    return made


class Timer(Profiler):
    """Lightning calls it around all it does."""

    def __init__(self, truth: Truth) -> None:
        super().__init__()
        self.truth = truth
        self.at: dict[str, int] = {}

    def start(self, action_name: str) -> None:
        """Something begins; the first batch of an epoch belongs to the making of the iterator."""
        self.at[action_name] = self.truth.now()
        if action_name.endswith("train_dataloader_next"):
            if not self.truth.begun:
                self.truth.step(self.at[action_name])
            self.truth.begun = False

    def stop(self, action_name: str) -> None:
        """Something ends."""
        for name, role in NEXT.items():
            if action_name.endswith(name):
                self.truth.waited(role, self.at[action_name])


class Module(lightning.LightningModule):
    """One linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(2, 1)

    def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
        """Computes."""
        busy(0.006)
        return self.net(batch).sum()

    def validation_step(self, batch: torch.Tensor, _: int) -> None:
        """Computes less."""
        self.net(batch)
        busy(0.003)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """One."""
        return torch.optim.SGD(self.parameters(), 1e-9)


def main(path: str) -> None:
    """Two epochs."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    truth = Truth()
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=2, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, profiler=Timer(truth),
    )  # fmt: skip
    batches = asked(truth, TRAINING, 24, num_workers=2)
    trainer.fit(Module(), batches, asked(truth, EVALUATION, 8))
    truth.save(path)


if __name__ == "__main__":
    main(sys.argv[1])
