"""Lightning's fit: lightning_loops.py OPTIMIZERS."""

from __future__ import annotations

import logging
import sys
import tempfile
import warnings
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.profilers import Profiler
from timers import COMPUTE_S, EPOCHS, EVALUATION, VALIDATIONS, WAIT, Timers, compute, tell
from torch.utils.data import DataLoader
from torch_loops import Rows

NEXT = {"train_dataloader_next": WAIT, "val_next": EVALUATION}


class Watch(Profiler):
    """Lightning calls it around all it does."""

    def __init__(self, timers: Timers) -> None:
        super().__init__()
        self.timers = timers
        self.at: dict[str, int] = {}

    def start(self, action_name: str) -> None:
        """Something begins."""
        self.at[action_name] = self.timers.now()

    def stop(self, action_name: str) -> None:
        """It ends."""
        for word, name in NEXT.items():
            if action_name.endswith(word):
                self.timers.add(name, self.at[action_name])


class Watched(DataLoader):  # type: ignore[type-arg]
    """Times the making of its iterator."""

    timers: Timers
    asked = WAIT

    def __iter__(self) -> Any:  # noqa: ANN401
        with self.timers.time(self.asked):
            return super().__iter__()


class Counts(lightning.Callback):  # type: ignore[misc]
    """What Lightning calls a step and an epoch."""

    def __init__(self, timers: Timers) -> None:
        self.timers = timers

    def on_train_epoch_start(self, *_: Any) -> None:  # noqa: ANN401
        """An epoch."""
        self.timers.counts["epochs"] += 1

    def on_train_batch_end(self, *_: Any) -> None:  # noqa: ANN401
        """A step."""
        self.timers.step()


class Module(lightning.LightningModule):  # type: ignore[misc]
    """One layer; with several optimizers it steps them itself."""

    def __init__(self, optimizers: int) -> None:
        super().__init__()
        self.net = torch.nn.Linear(2, 1)
        self.count = optimizers
        self.automatic_optimization = optimizers == 1
        self.losses: list[torch.Tensor] = []

    def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
        """A batch."""
        compute()
        loss = self.net(batch).sum()
        self.losses.append(loss.detach())
        for optimizer in self.optimizers() if self.count > 1 else ():
            optimizer.zero_grad()
            self.manual_backward(self.net(batch).sum())
            optimizer.step()
        return loss

    def validation_step(self, batch: torch.Tensor, _: int) -> None:
        """A batch."""
        self.net(batch)
        compute(COMPUTE_S / 2)

    def configure_optimizers(self) -> Any:  # noqa: ANN401
        """As many as asked for."""
        return [torch.optim.SGD(self.parameters(), 1e-3) for _ in range(self.count)]


class Saves(ModelCheckpoint):  # type: ignore[misc]
    """Times its checkpoints."""

    timers: Timers

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        with self.timers.saving():
            return super()._save_checkpoint(*args, **kwargs)


def main(optimizers: int) -> None:
    """Three epochs."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    timers = Timers()
    Watched.timers = Saves.timers = timers
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            accelerator="cpu", max_epochs=EPOCHS, logger=False, default_root_dir=folder,
            enable_progress_bar=False, enable_model_summary=False, profiler=Watch(timers),
            callbacks=[Counts(timers), Saves(folder)], num_sanity_val_steps=0,
        )  # fmt: skip
        batches = Watched(Rows(), batch_size=2)
        validation = Watched(Rows(2 * VALIDATIONS), batch_size=2)
        validation.asked = EVALUATION
        module = Module(optimizers)
        # As a whole, what comes before and after Lightning's callbacks included.
        validates = trainer.fit_loop.epoch_loop.val_loop
        validates.run = timers.time("validation")(validates.run)
        trainer.fit(module, batches, validation)
        tell(*module.losses)


if __name__ == "__main__":
    main(int(sys.argv[1]))
