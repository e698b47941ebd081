"""Checkpoints while they are written: who watches the run sees that training has not stopped."""

from __future__ import annotations

from functools import wraps

from .present import SAVE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType
    from typing import Any

    from .hooks import Channel


def watch_torch(module: ModuleType, channel: Channel) -> None:
    """`torch.save`, and with it what Lightning and accelerate save."""
    _watch(module, ("save",), channel)


def watch_distributed(module: ModuleType, channel: Channel) -> None:
    """Checkpoints of sharded models; of `async_save` the part that training waits for."""
    _watch(module, ("save", "async_save"), channel)


def watch_safetensors(module: ModuleType, channel: Channel) -> None:
    """Weights as Hugging Face's libraries save them."""
    _watch(module, ("save_file", "save_model"), channel)


def watch_keras(module: ModuleType, channel: Channel) -> None:
    """`Model.save` and `save_weights`, with every backend."""
    _watch(module, ("save_model", "save_weights"), channel)


def watch_tensorflow(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """`tf.train.Checkpoint`, and the manager of these."""
    _watch(module.TrackableSaver, ("save",), channel)


def _watch(owner: Any, names: Iterable[str], channel: Channel) -> None:  # noqa: ANN401
    for name in names:
        if hasattr(owner, name):
            setattr(owner, name, _saying(getattr(owner, name), channel))


def _saying(original: Any, channel: Channel) -> Any:  # noqa: ANN401
    @wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        before = channel.journal.present.begin(SAVE)
        try:
            return original(*args, **kwargs)
        finally:
            channel.journal.present.end(before)

    return save
