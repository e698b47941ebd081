"""Waits for input: calls of `__iter__` and `__next__` of classes that a framework iterates with."""

from __future__ import annotations

import sys
from functools import wraps
from time import time_ns
from weakref import WeakKeyDictionary

from .journal import END, EPOCH_SHIFT, ITER, LOADER_SHIFT, WAIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .hooks import Channel

_STATE = "_vanidl_state"


class _Position:
    """Where one iterator is: its loader, its epoch, and how many batches it gave."""

    __slots__ = ("code", "number", "session")

    def __init__(self, session: object, loader: int, epoch: int) -> None:
        self.session = session
        self.code = loader << LOADER_SHIFT
        self.number = epoch << EPOCH_SHIFT


class Loaders:
    """The loaders of one kind that this process has used.

    Args:
        channel: where their events go.
        describe: (loader or None, its iterator) -> what tells it from others.
    """

    def __init__(self, channel: Channel, describe: Callable[[Any, Any], dict[str, object]]) -> None:
        self.channel = channel
        self._describe = describe
        self._session = channel.journal.session
        self._known: WeakKeyDictionary[Any, list[int]] = WeakKeyDictionary()  # number, epochs

    def begin(self, loader: Any, iterator: Any) -> _Position:  # noqa: ANN401
        """The position of an iterator that a loader, if one is known, has just begun."""
        journal = self.channel.journal
        if self._session is not journal.session:
            self._session, self._known = journal.session, WeakKeyDictionary()
        known = None if loader is None else self._known.get(loader)
        if known is None:
            known = [journal.new_loader(), 0]
            self.channel.describe({"loader": known[0], **self._describe(loader, iterator)})
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
            if position is None or position.session is not self.channel.journal.session:
                if in_worker():
                    return
                position = self.begin(None, iterator)
            self.channel.add(position.code | kind, position.number, begin, end)
            position.number += 1
        except Exception as error:
            self.channel.fail(error)

    def watch_iter(self, loader_class: Any) -> None:  # noqa: ANN401
        """Has a class of loaders note each `__iter__`."""
        channel, original = self.channel, loader_class.__iter__

        @wraps(original)
        def __iter__(loader: Any) -> Any:  # noqa: ANN401
            begin = time_ns()
            iterator = original(loader)
            if channel.on and not in_worker():
                try:
                    position = self.begin(loader, iterator)
                    channel.add(position.code | ITER, position.number, begin, time_ns())
                except Exception as error:
                    channel.fail(error)
            return iterator

        loader_class.__iter__ = __iter__

    def watch_next(self, iterator_class: Any) -> None:  # noqa: ANN401
        """Has a class of iterators note each `__next__`."""
        channel, original, note = self.channel, iterator_class.__next__, self.note

        @wraps(original)
        def __next__(iterator: Any) -> Any:  # noqa: ANN401
            begin = time_ns()
            try:
                batch = original(iterator)
            except StopIteration:
                if channel.on:
                    note(iterator, END, begin)
                raise
            if channel.on:
                note(iterator, WAIT, begin)
            return batch

        iterator_class.__next__ = __next__


def in_worker() -> bool:
    """Whether this is a worker of a DataLoader: what it iterates over is no wait of training."""
    module = sys.modules.get("torch.utils.data._utils.worker")
    return getattr(module, "_worker_info", None) is not None
