"""What is recorded of Keras: what its passes over data are for, and batches that JAX is given."""

from __future__ import annotations

import sys
from time import time_ns

from .journal import OPTIMIZER
from .registry import wraps
from .replay_frameworks import DATA, INFINITE, LENGTH
from .waits import Waits, as_role, in_place_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from .registry import Channel

_ROLES = {
    "fit": "training",
    "evaluate": "evaluation",
    "predict": "evaluation",
    "_symbolic_build": "setup",  # takes a batch to see what shape it has
    "_maybe_symbolic_build": "setup",
}


def watch_torch(module: ModuleType, channel: Channel) -> None:
    """Batches come from a DataLoader of PyTorch, another one for each pass."""
    _tell_roles(module.TorchTrainer)
    original = module.TorchEpochIterator._get_iterator

    @wraps(original)
    def _get_iterator(iterator: Any) -> Any:  # noqa: ANN401
        loader = original(iterator)
        try:
            in_place_of(iterator, loader)
        except Exception as error:
            channel.fail(error)
        return loader

    module.TorchEpochIterator._get_iterator = _get_iterator


def watch_tensorflow(module: ModuleType, channel: Channel) -> None:
    """Batches come from a dataset of tf.data; how many a pass has is known to Keras alone.

    That of arrays and of a PyDataset says that it does not know, and Keras never asks for its end.
    """
    _tell_roles(module.TensorFlowTrainer)
    original = module.TFEpochIterator.__init__

    @wraps(original)
    def __init__(iterator: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        original(iterator, *args, **kwargs)
        try:
            known = iterator._distributed_dataset.__dict__
            batches = iterator.data_adapter.num_batches
            known[DATA] = type(iterator.data_adapter).__name__
            if batches or iterator.steps_per_epoch:
                endless = INFINITE  # epochs follow each other in one pass, until training ends
                known[LENGTH] = int(batches or endless)
        except Exception as error:
            channel.fail(error)

    module.TFEpochIterator.__init__ = __init__


def watch_jax(module: ModuleType, channel: Channel) -> None:
    """Batches come from an iterator of Keras."""
    _tell_roles(module.JAXTrainer)
    Waits(channel, _description).watch_iter(module.JAXEpochIterator, "_get_iterator")


def _tell_roles(trainer: Any) -> None:  # noqa: ANN401
    for name, role in _ROLES.items():
        if hasattr(trainer, name):
            setattr(trainer, name, _within(getattr(trainer, name), role))


def _within(original: Any, role: str) -> Any:  # noqa: ANN401
    @wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        with as_role(role):
            return original(*args, **kwargs)

    return run


def watch_optimizers(module: ModuleType, channel: Channel) -> None:
    """Steps of an optimizer, where each is a call in Python: not where functions are traced."""
    original = module.BaseOptimizer.apply

    @wraps(original)
    def apply(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        begin = time_ns()
        result = original(*args, **kwargs)
        if channel.on and sys.modules["keras.src.backend"].backend() == "torch":
            try:
                channel.add(OPTIMIZER, 0, begin, time_ns())
            except Exception as error:
                channel.fail(error)
        return result

    module.BaseOptimizer.apply = apply


def _description(loader: Any, _iterator: Any) -> dict[str, object]:  # noqa: ANN401
    return {"class": type(loader).__name__, "dataset": type(loader.data_adapter).__name__}
