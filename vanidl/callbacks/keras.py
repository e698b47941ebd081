"""The callback of Keras, with any backend."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from vanidl.callbacks import SHARE, Share, record_here

_base: Any = import_module("keras").callbacks.Callback


class KerasCallback(_base):  # type: ignore[misc]
    """Records into a folder, if one is given, and adds the wait's share to the logs of an epoch.

    With TensorFlow the batch is taken within the step: the share says nothing there.

    Args:
        folder: where to; None: only log, unless `vanidl record` records.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        self._share = Share()
        if folder is not None:
            record_here(folder)

    def on_train_batch_begin(self, *_: object, **__: object) -> None:
        """The batch is there."""
        self._share.begins()

    def on_train_batch_end(self, *_: object, **__: object) -> None:
        """Gradients were applied."""
        self._share.ends()

    def on_test_begin(self, *_: object, **__: object) -> None:
        """Validation is no wait of training."""
        self._share.pauses()

    def on_epoch_end(self, _epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Callbacks that come later see it in the logs."""
        share = self._share.take()
        if logs is not None and share is not None:
            logs[SHARE] = share
        self._share.pauses()
