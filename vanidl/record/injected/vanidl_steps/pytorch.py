"""What is recorded of PyTorch: every `__next__` of a DataLoader, every step of an optimizer."""

from __future__ import annotations

import sys
from time import time_ns
from weakref import WeakKeyDictionary

from .journal import END, EPOCH_SHIFT, ITER, LOADER_SHIFT, OPTIMIZER, WAIT, Journal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_STATE = "_vanidl_state"


class _Position:
    """Where one iterator is: its loader, its epoch, and how many batches it gave."""

    __slots__ = ("code", "number", "session")

    def __init__(self, session: object, loader: int, epoch: int) -> None:
        self.session = session
        self.code = loader << LOADER_SHIFT
        self.number = epoch << EPOCH_SHIFT


class _Loaders:
    """The loaders that this process has used, numbered in the order of their first use."""

    def __init__(self, events: Journal) -> None:
        self.events = events
        self._session = events.session
        self._known: WeakKeyDictionary[Any, list[int]] = WeakKeyDictionary()  # number, epochs
        self._count = 0

    def begin(self, loader: Any, iterator: Any) -> _Position:  # noqa: ANN401
        """The position of an iterator that a loader, if one is known, has just begun."""
        if self._session is not self.events.session:
            self._session, self._count = self.events.session, 0
            self._known = WeakKeyDictionary()
        known = None if loader is None else self._known.get(loader)
        if known is None:
            known = [self._count, 0]
            self._count += 1
            self.events.describe({"loader": known[0], **_description(loader, iterator)})
            if loader is not None:
                self._known[loader] = known
        position = _Position(self._session, *known)
        known[1] += 1
        iterator.__dict__[_STATE] = position
        return position

    def note(self, iterator: Any, kind: int, begin: int) -> None:  # noqa: ANN401
        """A call of `__next__` that began then and ends now."""
        end = time_ns()
        try:
            position = iterator.__dict__.get(_STATE)
            if position is None or position.session is not self.events.session:
                if _in_worker():
                    return
                position = self.begin(None, iterator)
            self.events.add(position.code | kind, position.number, begin, end)
            position.number += 1
        except Exception as error:
            self.events.fail(error)


def watch_loaders(module: ModuleType, events: Journal) -> None:
    """Has DataLoader and its iterators, subclasses included, note what they do."""
    loaders = _Loaders(events)
    _watch_iter(module.DataLoader, loaders)
    _watch_next(module._BaseDataLoaderIter, loaders)


def _watch_iter(loader_class: Any, loaders: _Loaders) -> None:  # noqa: ANN401
    events, original = loaders.events, loader_class.__iter__

    def __iter__(self: Any) -> Any:  # noqa: ANN401
        begin = time_ns()
        iterator = original(self)
        if events.on and not _in_worker():
            try:
                position = loaders.begin(self, iterator)
                events.add(position.code | ITER, position.number, begin, time_ns())
            except Exception as error:
                events.fail(error)
        return iterator

    loader_class.__iter__ = _like(__iter__, original)


def _watch_next(iterator_class: Any, loaders: _Loaders) -> None:  # noqa: ANN401
    events, original, note = loaders.events, iterator_class.__next__, loaders.note

    def __next__(self: Any) -> Any:  # noqa: ANN401
        begin = time_ns()
        try:
            batch = original(self)
        except StopIteration:
            if events.on:
                note(self, END, begin)
            raise
        if events.on:
            note(self, WAIT, begin)
        return batch

    iterator_class.__next__ = _like(__next__, original)


def watch_optimizers(module: ModuleType, events: Journal) -> None:
    """Has PyTorch tell of every step of every optimizer, through its own global hook."""

    def stepped(_optimizer: object, _args: object, _kwargs: object) -> None:
        if events.on:
            try:
                now = time_ns()
                events.add(OPTIMIZER, 0, now, now)
            except Exception as error:
                events.fail(error)

    module.register_optimizer_step_post_hook(stepped)


def _like(function: Any, original: Any) -> Any:  # noqa: ANN401
    """The function under the name of the one that it replaces."""
    from functools import wraps

    return wraps(original)(function)


def _in_worker() -> bool:
    """Whether this is a worker of a DataLoader: what it iterates over is no wait of training."""
    module = sys.modules.get("torch.utils.data._utils.worker")
    return getattr(module, "_worker_info", None) is not None


def _description(loader: Any, iterator: Any) -> dict[str, object]:  # noqa: ANN401
    """What tells one loader from another; nothing is called that a program could notice."""
    dataset = getattr(iterator, "_dataset", None)
    return {
        "class": type(loader if loader is not None else iterator).__name__,
        "dataset": type(dataset).__name__,
        "batches": _batches(iterator),
        "batch_size": _number(getattr(loader, "batch_size", None)),
        "workers": _number(getattr(iterator, "_num_workers", None)),
    }


def _batches(iterator: Any) -> int | None:  # noqa: ANN401
    """Batches of an epoch. The length of an iterable dataset is not asked for: that may warn."""
    if getattr(iterator, "_dataset_kind", None) != 0:
        return None
    try:
        return len(iterator._index_sampler)
    except Exception:
        return None


def _number(value: object) -> int | None:
    return value if type(value) is int else None
