"""Hugging Face's Trainer and accelerate: hf_loops.py LOOP."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
from timers import BATCHES, COMPUTE_S, EPOCHS, EVALUATION, VALIDATIONS, WAIT, Timers, compute, tell
from torch_loops import Rows, loader


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
        compute(COMPUTE_S / 2)
        out = self.net(x)
        return {"loss": out.sum(), "logits": out}


class Asked:
    """A loader, timed; all else that is asked of it is its own."""

    def __init__(self, timers: Timers, inner: Any, name: str = WAIT) -> None:  # noqa: ANN401
        self.timers, self.inner, self.name = timers, inner, name

    def __iter__(self) -> Iterator[Any]:
        if self.name == EVALUATION:
            self.timers.end_step()
        return self.timers.batches(self.inner, self.name)

    def __len__(self) -> int:
        """Batches."""
        return len(self.inner)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self.inner, name)


def fit(timers: Timers, epochs: int = EPOCHS, accumulate: int = 1, **options: Any) -> None:  # noqa: ANN401
    """Trainer; it is timed where it asks for batches, evaluates and saves."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Counts(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:  # noqa: ANN401
            timers.step()

        def on_epoch_begin(self, *_: Any, **__: Any) -> None:  # noqa: ANN401
            timers.counts["epochs"] += 1

    class Timed(Trainer):  # type: ignore[misc]
        def get_train_dataloader(self) -> Any:  # noqa: ANN401
            return Asked(timers, super().get_train_dataloader())

        def get_eval_dataloader(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            return Asked(timers, super().get_eval_dataloader(*args, **kwargs), EVALUATION)

        def get_batch_samples(self, iterator: Any, *args: Any) -> Any:  # noqa: ANN401
            timers.is_step_due = True
            return super().get_batch_samples(iterator, *args)

        def evaluate(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            with timers.time("validation"):
                return super().evaluate(*args, **kwargs)

        def _save_checkpoint(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            with timers.saving():
                return super()._save_checkpoint(*args, **kwargs)

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=2, num_train_epochs=epochs, report_to=[],
            gradient_accumulation_steps=accumulate, use_cpu=True, disable_tqdm=True,
            logging_strategy="no", **options,
        )  # fmt: skip
        data, validation = Pairs(), Pairs(2 * VALIDATIONS)
        trainer = Timed(
            Net(), arguments, train_dataset=data, eval_dataset=validation, callbacks=[Counts()]
        )
        trainer.train()
        tell(*(p for weights in trainer.model.parameters() for p in weights.flatten()))
        tell(*(v for row in trainer.state.log_history for k, v in row.items() if k == "eval_loss"))


def trainer_3(timers: Timers) -> None:
    """Evaluated and saved after each epoch."""
    fit(timers, eval_strategy="epoch", save_strategy="epoch")


def trainer_18(timers: Timers) -> None:
    """Evaluated every second step, with workers."""
    fit(timers, eval_strategy="steps", eval_steps=2, save_strategy="no", dataloader_num_workers=2)


def trainer_accumulated(timers: Timers) -> None:
    """Two batches a step."""
    fit(timers, 1, 2, eval_strategy="no", save_strategy="no", dataloader_num_workers=2)


def accelerated(timers: Timers, every: int = 1) -> None:
    """A loop of accelerate."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=every)
    net = torch.nn.Linear(2, 1)
    model, optimizer, batches, validation = accelerator.prepare(
        net, torch.optim.SGD(net.parameters(), 1e-3), loader(), loader(2 * VALIDATIONS)
    )
    losses = []
    for _ in range(EPOCHS):
        timers.counts["epochs"] += 1
        for batch in timers.batches(batches):
            with accelerator.accumulate(model):
                compute()
                loss = model(batch).sum()
                losses.append(loss.detach())
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                if accelerator.sync_gradients:
                    timers.step()
        with timers.time("validation"), torch.no_grad():
            model.eval()
            for batch in timers.batches(validation, EVALUATION):
                losses.append(model(batch).sum())
                compute(COMPUTE_S / 2)
            model.train()
        with tempfile.TemporaryDirectory() as folder, timers.saving():
            accelerator.save_state(folder)
    tell(*losses)


LOOPS: dict[str, Callable[[Timers], None]] = {
    "trainer-3": trainer_3,
    "trainer-18": trainer_18,
    "trainer-accumulated": trainer_accumulated,
    "accelerate": accelerated,
    "accelerate-accumulated": lambda timers: accelerated(timers, 4),
}


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    assert BATCHES % 4 == 0
    LOOPS[sys.argv[1]](Timers(sys.argv[1]))
