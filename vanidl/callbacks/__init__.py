"""Callbacks of training frameworks: they record without `vanidl record`, and log the wait's share.

    trainer = lightning.Trainer(callbacks=[vanidl.callbacks.LightningCallback("RUN")])
    trainer = transformers.Trainer(..., callbacks=[vanidl.callbacks.TransformersCallback("RUN")])
    model.fit(..., callbacks=[vanidl.callbacks.KerasCallback("RUN")])

With a folder, steps, input waits, validation, saves and loads of this process and of workers that
are forked from it are written there, as under `vanidl record --tracer none`: `vanidl summary RUN`.
Under `vanidl record` the folder is left alone. A framework is imported when its class is asked for.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

SHARE = "vanidl/input_wait_share"
"""What is logged: of the time since the last logging, the share between the end of one step and the
begin of the next, without validation and what is done at the ends of epochs."""

_RECORDER = "vanidl_steps"
_FOLDER = "VANIDL_STEPS"
_CLASSES = ("LightningCallback", "TransformersCallback", "KerasCallback")
__all__ = ["SHARE", "KerasCallback", "LightningCallback", "TransformersCallback", "record_here"]


def record_here(folder: str | os.PathLike[str]) -> bool:
    """Starts to record this process into a folder; False where that has begun already."""
    if _RECORDER in sys.modules:
        return False
    target = Path(folder).absolute() / "steps"
    target.mkdir(parents=True, exist_ok=True)
    injected = str(Path(__file__).parents[1] / "record" / "injected")
    sys.path.insert(0, injected)
    os.environ[_FOLDER] = str(target)
    try:
        import_module(_RECORDER).start()
    finally:
        del os.environ[_FOLDER]  # processes that this one starts are not recorded
        sys.path.remove(injected)
    return True


class Share:
    """How much of its time training waits between its steps."""

    def __init__(self) -> None:
        self._waited_s = self._seen_s = 0.0
        self._last_s: float | None = None
        self._is_waiting = False

    def begins(self) -> None:
        """A step begins: its batch is there."""
        self._take(self._is_waiting)
        self._is_waiting = False

    def ends(self) -> None:
        """A step ends."""
        self._take(False)
        self._is_waiting = True

    def pauses(self) -> None:
        """Something begins or ends that is neither: what follows is no wait until a step ends."""
        self._last_s, self._is_waiting = None, False

    def take(self) -> float | None:
        """The share since the last call; None where nothing was seen."""
        waited_s, seen_s = self._waited_s, self._seen_s
        self._waited_s = self._seen_s = 0.0
        return waited_s / seen_s if seen_s else None

    def _take(self, waited: bool) -> None:
        now_s = perf_counter()
        if self._last_s is not None:
            self._seen_s += now_s - self._last_s
            self._waited_s += now_s - self._last_s if waited else 0.0
        self._last_s = now_s


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a class of a framework that may be missing
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{name.removesuffix('Callback').lower()}")
    return getattr(module, name)
