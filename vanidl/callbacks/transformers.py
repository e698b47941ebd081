"""The callback of Hugging Face's Trainer."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from vanidl.callbacks import SHARE, Share, record_here

_base: Any = import_module("transformers.trainer_callback").TrainerCallback


class TransformersCallback(_base):  # type: ignore[misc]
    """Records into a folder, if one is given, and adds the wait's share to what Trainer logs.

    Args:
        folder: where to; None: only log, unless `vanidl record` records.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._share = Share()
        if folder is not None:
            record_here(folder)

    def on_step_begin(self, *_: object, **__: object) -> None:
        """The batches of a step are there."""
        self._share.begins()

    def on_step_end(self, *_: object, **__: object) -> None:
        """Gradients were applied."""
        self._share.ends()

    def on_evaluate(self, *_: object, **__: object) -> None:
        """An evaluation has ended."""
        self._share.pauses()

    def on_epoch_end(self, *_: object, **__: object) -> None:
        """What is done at the end of an epoch is no wait."""
        self._share.pauses()

    def on_save(self, *_: object, **__: object) -> None:
        """A checkpoint was saved."""
        self._share.pauses()

    def on_log(self, *_: object, logs: dict[str, Any] | None = None, **__: object) -> None:
        """Before the trainer's own integrations are given the same values: ours come first."""
        share = self._share.take()
        if logs is not None and share is not None:
            logs[SHARE] = share
