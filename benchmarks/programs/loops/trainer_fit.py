"""Hugging Face's Trainer with evaluation, accumulating gradients: trainer_fit.py TRUTH.

It is timed where it asks for the batches of a step (a method that may be overridden).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import torch
from torch_loops import Rows
from transformers import Trainer, TrainingArguments
from truth import EVALUATION, TRAINING, Truth, busy


class Pairs(Rows):
    """Rows as Trainer wants them."""

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:  # type: ignore[override]
        """Row i."""
        return {"x": super().__getitem__(i)}


class Net(torch.nn.Module):
    """One linear layer that returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(2, 1)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Loss and logits."""
        busy(0.003)
        out = self.net(x)
        return {"loss": out.sum(), "logits": out}


class Evaluated:
    """The loader for evaluation, timed; all else that is asked of it is its own."""

    def __init__(self, loader: Any, truth: Truth) -> None:  # noqa: ANN401
        self.loader, self.truth = loader, truth

    def __iter__(self) -> Iterator[Any]:
        self.truth.end()
        return self.truth.batches(self.loader, EVALUATION)

    def __len__(self) -> int:
        """Batches."""
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self.loader, name)


class Timed(Trainer):
    """Times what it asks its loaders for."""

    truth: Truth

    def get_batch_samples(self, iterator: Any, count: int, device: Any) -> Any:  # noqa: ANN401
        """The batches of one step."""
        self.truth.step(self.truth.now())
        return super().get_batch_samples(self.truth.asked(iterator, TRAINING), count, device)

    def get_eval_dataloader(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """The loader for evaluation."""
        return Evaluated(super().get_eval_dataloader(*args, **kwargs), self.truth)


def main(path: str) -> None:
    """Two epochs of two batches a step."""
    torch.set_num_threads(1)
    truth = Truth()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=2, num_train_epochs=2, report_to=[],
            gradient_accumulation_steps=2, use_cpu=True, save_strategy="no", disable_tqdm=True,
            eval_strategy="epoch", dataloader_num_workers=2, logging_strategy="no",
        )  # fmt: skip
        trainer = Timed(Net(), arguments, train_dataset=Pairs(), eval_dataset=Pairs(8))
        trainer.truth = truth
        trainer.train()
    truth.save(path)


if __name__ == "__main__":
    main(sys.argv[1])
