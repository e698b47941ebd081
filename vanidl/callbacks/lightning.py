"""The callback of Lightning."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from vanidl.callbacks import SHARE, Share, record_here

_pytorch: Any = import_module(
    "lightning.pytorch" if find_spec("lightning") is not None else "pytorch_lightning"
)


class LightningCallback(_pytorch.Callback):  # type: ignore[misc]
    """Records into a folder, if one is given, and logs the wait's share.

    Args:
        folder: where to; None: only log, unless `vanidl record` records.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._share = Share()
        if folder is not None:
            record_here(folder)

    def on_train_batch_start(self, *_: object, **__: object) -> None:
        """The batch is there."""
        self._share.begins()

    def on_train_batch_end(self, trainer: Any, *_: object, **__: object) -> None:  # noqa: ANN401
        """As often as Lightning logs."""
        self._share.ends()
        if (trainer.global_step + 1) % trainer.log_every_n_steps:
            return
        share = self._share.take()
        for logger in trainer.loggers if share is not None else ():
            logger.log_metrics({SHARE: share}, step=trainer.global_step)

    def on_validation_start(self, *_: object) -> None:
        """What follows is no wait of training."""
        self._share.pauses()

    def on_train_epoch_end(self, *_: object) -> None:
        """The same of what is done at the end of an epoch."""
        self._share.pauses()
