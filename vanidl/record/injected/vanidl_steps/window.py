"""PyTorch's own profiler, switched on for a few steps: `vanidl record --profile STEPS`.

A window opens after some steps of warm-up, and once more, for half as many steps, halfway
through an epoch that is long, or else after many steps. Its borders lie where training asks for
the batch of the next step, before the wait for it begins, so that switching on and off, and
writing the trace, is in no wait. A profiler of the program wins: once it makes one, ours is
dropped and stays off.
"""

from __future__ import annotations

import atexit
import os
import threading
from time import time_ns

from .registry import wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from .registry import Channel

STEPS_VARIABLE = "VANIDL_PROFILE"
RUN_VARIABLE = "VANIDL_RUN"
FOLDER = "profile"
WARM_UP = 10
LONG_EPOCH = 200  # steps at which a second window lies in the middle of it
LATER = 500  # steps before a second window where no epoch is that long


class Window:
    """When to profile, and the profiler while it is on."""

    def __init__(self, events: Channel, steps: int, warm_up: int = WARM_UP) -> None:
        self.events = events
        self.making = False  # a profiler of ours
        self._steps = steps
        self._warm_up = warm_up
        self._opens = warm_up + 1  # at that border
        self._borders = 0
        self._waits = 0
        self._stepped = False
        self._has_optimizer = False
        self._left = 0
        self._profiler: Any = None
        self._over = False
        self._process = os.getpid()
        atexit.register(self._last)

    @property
    def _mine(self) -> bool:
        """Whether this is the thread that trains, in the process that is to profile."""
        main = threading.current_thread() is threading.main_thread()
        return self.events.on and not self._over and main and os.getpid() == self._process

    def before_wait(self, batches: int | None) -> None:
        """Training asks for a batch: of the next step, if the optimizer has stepped since.

        Args:
            batches: how many an epoch has, None where that is not known.
        """
        if not self._mine:
            return
        self._waits += 1
        if self._stepped or not self._has_optimizer:
            self._stepped = False
            self._border(batches)

    def after_optimizer(self) -> None:
        """The optimizer has stepped: without a loader that ends the step."""
        if not self._mine:
            return
        if not self._has_optimizer and self._profiler is None:
            self._borders = min(self._borders, 1)  # what was asked for until now is of one step
        self._has_optimizer = self._stepped = True
        if not self._waits:
            self._border(None)

    def _border(self, batches: int | None) -> None:
        try:
            self._borders += 1
            if self._profiler is not None:
                self._left -= 1
                if self._left:
                    self._profiler.step()
                else:
                    self._close(batches)
            elif self._borders == self._opens:
                self._open()
        except Exception as error:
            self._profiler, self._over = None, True
            self.events.fail(error)

    def _open(self) -> None:
        from torch.autograd import profiler as running

        if getattr(running, "_is_profiler_enabled", False):
            self.give_way()
            return
        self._left = self._steps
        self.making = True
        try:
            self._profiler = _profiler()
            self._profiler.start()
        finally:
            self.making = False

    def _close(self, batches: int | None) -> None:
        """Ends a window and writes its trace; says when the next one opens, if that is the first.

        A step may take several batches.
        """
        profiled, first = self._steps - self._left, self._opens - 1
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        profiler.export_chrome_trace(_path())
        self.events.describe({"profile": "steps", "first": first, "steps": profiled})
        if self._opens > self._warm_up + 1:
            self._over = True
            return
        epoch = (batches or 0) * (self._borders - 1) // max(self._waits - 1, 1)
        halfway = epoch // 2 if epoch >= LONG_EPOCH else LATER
        self._opens = max(halfway, self._borders + self._warm_up)
        self._steps = max(self._steps // 2, 1)

    def give_way(self) -> None:
        """The program makes a profiler of its own: what ours has is dropped."""
        if self._over or os.getpid() != self._process:
            return
        profiler, self._profiler, self._over = self._profiler, None, True
        try:
            if profiler is not None:
                profiler.stop()
            self.events.describe({"profile": "own"})
        except Exception as error:
            self.events.fail(error)

    def _last(self) -> None:
        """The program ends within a window: its whole steps are kept."""
        if self._profiler is not None and self._mine:
            try:
                if self._left < self._steps:
                    self._close(None)
                else:
                    self._profiler.stop()
                self.events.journal.flush()
            except Exception as error:
                self.events.fail(error)


def _profiler() -> Any:  # noqa: ANN401
    """With the device where the program uses one: asking for it would start it.

    Steps are marked in its trace only where it has a schedule.
    """
    import torch
    from torch import profiler

    activities = [profiler.ProfilerActivity.CPU]
    if torch.cuda.is_initialized():
        activities.append(profiler.ProfilerActivity.CUDA)
    always = profiler.ProfilerAction.RECORD
    return profiler.profile(activities=activities, schedule=lambda _: always)


def _path() -> str:
    """A trace is named as PyTorch's own handler names it."""
    folder = os.path.join(os.environ[RUN_VARIABLE], FOLDER)  # noqa: PTH118
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103
    name = f"{os.uname().nodename}_{os.getpid()}.{time_ns()}.pt.trace.json"
    return os.path.join(folder, name)  # noqa: PTH118


_windows: list[Window] = []  # one for each process that has a loop


def _window(events: Channel) -> Window:
    if not _windows:
        _windows.append(Window(events, int(os.environ[STEPS_VARIABLE])))
    return _windows[0]


def watch_loaders(module: ModuleType, events: Channel) -> None:
    """Has loaders say when training asks for a batch, outside of what the wait is timed by."""
    iterator_class: Any = module._BaseDataLoaderIter
    original, window = iterator_class.__next__, _window(events)

    @wraps(original)
    def __next__(self: Any) -> Any:  # noqa: ANN401
        window.before_wait(_batches(self))
        return original(self)

    iterator_class.__next__ = __next__


def _batches(iterator: Any) -> int | None:  # noqa: ANN401
    if getattr(iterator, "_dataset_kind", None) != 0:  # of an iterable its length may warn
        return None
    try:
        return len(iterator._index_sampler)
    except Exception:
        return None


def watch_optimizers(module: ModuleType, events: Channel) -> None:
    """Has optimizers say when they have stepped."""
    window = _window(events)
    module.register_optimizer_step_post_hook(lambda *_: window.after_optimizer())


def watch_profilers(module: ModuleType, events: Channel) -> None:
    """Has profilers say that the program makes one."""
    window = _window(events)
    for name in ("_KinetoProfile", "profile"):
        profiler_class = vars(module).get(name)
        if profiler_class is not None and "__init__" in vars(profiler_class):
            _watch_making(profiler_class, window)


def _watch_making(profiler_class: Any, window: Window) -> None:  # noqa: ANN401
    original = profiler_class.__init__

    @wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        if not window.making:
            window.give_way()
        original(self, *args, **kwargs)

    profiler_class.__init__ = __init__
