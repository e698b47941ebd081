"""How long the device was at each step: a pair of CUDA events around what it is given to do.

The first event goes to the current stream once training has its batch, the second before it
asks for the batch of the next step. Nothing waits for the device: pairs that it has reached are
looked at steps later. From the one event to the other the device was busy or waited for more
work, so their distance is the most that it can have been busy; beside it stands how long the
process took between the same two places. Without CUDA in this build of PyTorch, and until the
program uses a device, nothing is done.
"""

from __future__ import annotations

import threading
from collections import deque
from time import time_ns

from .journal import DEVICE
from .registry import wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from .registry import Channel

MOST_PENDING = 64
"""Pairs that the device has not reached yet; steps beyond are left out."""


class Device:
    """The pairs of one process; `cuda` is `torch.cuda`, or what stands for it."""

    def __init__(self, events: Channel, cuda: Any) -> None:  # noqa: ANN401
        self.events = events
        self._cuda = cuda
        self._stepped = False
        self._has_optimizer = False
        self._free: list[Any] = []
        self._open: tuple[Any, int] | None = None
        self._pending: deque[tuple[Any, Any, int, int]] = deque()

    @property
    def _mine(self) -> bool:
        """Whether this is the thread that trains, and something can be recorded."""
        return (
            self.events.on
            and self._cuda.is_initialized()
            and threading.current_thread() is threading.main_thread()
            and not self._cuda.is_current_stream_capturing()
        )

    def before_wait(self) -> None:
        """Training asks for a batch: of the next step, if the optimizer has stepped since."""
        if self._open is not None and (self._stepped or not self._has_optimizer) and self._mine:
            try:
                self._end()
            except Exception as error:
                self.events.fail(error)

    def after_wait(self) -> None:
        """Training has its batch."""
        if self._open is None and self._mine:
            try:
                self._open = (self._recorded(), time_ns())
                self._stepped = False
            except Exception as error:
                self.events.fail(error)

    def after_optimizer(self) -> None:
        """The optimizer has stepped."""
        self._has_optimizer = self._stepped = True

    def _recorded(self) -> Any:  # noqa: ANN401
        event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def _end(self) -> None:
        if self._open is None:
            return
        (first, began), self._open = self._open, None
        if len(self._pending) < MOST_PENDING:
            self._pending.append((first, self._recorded(), began, time_ns()))
        else:
            self._free.append(first)
        while self._pending and self._pending[0][1].query():
            first, last, began, ended = self._pending.popleft()
            device_ns = round(first.elapsed_time(last) * 1e6)  # it gives milliseconds
            self.events.add(DEVICE, ended - began, began, began + device_ns)
            self._free += [first, last]


_devices: list[Device] = []  # one for each process


def _device(events: Channel) -> Device | None:
    """That of this process; None where its PyTorch was built without CUDA and ROCm."""
    import torch

    if not (torch.version.cuda or torch.version.hip):
        return None
    if not _devices:
        _devices.append(Device(events, torch.cuda))
    return _devices[0]


def watch_loaders(module: ModuleType, events: Channel) -> None:
    """Has loaders say when training asks for a batch, and when it has one."""
    device = _device(events)
    if device is not None:
        watch_next(module._BaseDataLoaderIter, device)


def watch_next(iterator_class: Any, device: Device) -> None:  # noqa: ANN401
    """The same of one class of iterators."""
    original = iterator_class.__next__

    @wraps(original)
    def __next__(self: Any) -> Any:  # noqa: ANN401
        device.before_wait()
        batch = original(self)
        device.after_wait()
        return batch

    iterator_class.__next__ = __next__


def watch_optimizers(module: ModuleType, events: Channel) -> None:
    """Has optimizers say when they have stepped."""
    device = _device(events)
    if device is not None:
        module.register_optimizer_step_post_hook(lambda *_: device.after_optimizer())
