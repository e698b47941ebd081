"""Ignite and fastai: framework_loops.py LOOP."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from timers import EPOCHS, VALIDATIONS, WAIT, Timers, compute, tell
from torch_loops import Rows, Trainer, loader


def ignite(timers: Timers) -> None:
    """Ignite's engines."""
    from ignite.engine import Engine, Events

    trainer = Trainer(timers)
    validation = loader(2 * VALIDATIONS)
    engine = Engine(lambda _, batch: trainer.train(batch))
    at = {"": 0}

    def asks(_: Any) -> None:  # noqa: ANN401
        at[""] = timers.now()

    def has(_: Any) -> None:  # noqa: ANN401
        timers.add(WAIT, at[""])

    def epoch(_: Any) -> None:  # noqa: ANN401
        timers.counts["epochs"] += 1

    def validate(_: Any) -> None:  # noqa: ANN401
        trainer.validate(validation)

    engine.add_event_handler(Events.GET_BATCH_STARTED, asks)
    engine.add_event_handler(Events.GET_BATCH_COMPLETED, has)
    engine.add_event_handler(Events.EPOCH_STARTED, epoch)
    engine.add_event_handler(Events.EPOCH_COMPLETED, validate)
    engine.run(loader(), max_epochs=EPOCHS)
    trainer.tell()


def fastai(timers: Timers) -> None:
    """Fastai's Learner: its optimizer is none of PyTorch's."""
    from fastai.basics import Callback, DataLoaders, Learner
    from fastai.data.load import DataLoader as Fast

    class Both(Rows):
        def __getitem__(self, i: int) -> Any:  # noqa: ANN401
            return super().__getitem__(i), torch.zeros(1)

    class Asked(Fast):  # type: ignore[misc]
        def __iter__(self) -> Any:  # noqa: ANN401
            return timers.batches(super().__iter__())

    class Counts(Callback):  # type: ignore[misc]
        def after_batch(self) -> None:
            if self.training:
                timers.step()

        def before_train(self) -> None:
            timers.counts["epochs"] += 1

        def before_validate(self) -> None:
            self.begin = timers.now()

        def after_validate(self) -> None:
            timers.add("validation", self.begin)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            compute()
            return self.net(x)

    data = DataLoaders(Asked(Both(), bs=2), Fast(Both(2 * VALIDATIONS), bs=2))
    learner = Learner(data, Net(), loss_func=torch.nn.MSELoss(), cbs=[Counts()])
    with learner.no_logging():
        learner.fit(EPOCHS, 1e-3)
    tell(*(value for row in learner.recorder.values for value in row))


LOOPS: dict[str, Callable[[Timers], None]] = {
    "ignite": ignite,
    "fastai": fastai,
}


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    LOOPS[sys.argv[1]](Timers(sys.argv[1]))
