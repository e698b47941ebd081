"""Waits for input: calls of `__iter__` and `__next__` of classes that a framework iterates with."""

from __future__ import annotations

import os
from threading import local
from time import time_ns

from . import CEILING_VARIABLE
from .imports import without_own_frames, wraps
from .journal import END, ITER, WAIT
from .loaders import STATE, Loaders, Position, in_worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .hooks import Channel
    from .replay_iterators import Iterators


_NOTHING: dict[str, object] = {}


def _from_memory(channel: Channel) -> Iterators | None:
    """What hands batches out from memory; None where they are to stay real."""
    if not os.environ.get(CEILING_VARIABLE):
        return None
    from .replay_iterators import Iterators

    return Iterators(channel)


class Waits(Loaders):
    """Has classes of loaders and of iterators note what they are asked for.

    Args:
        channel: where the events go.
        describe: (loader or None, its iterator) -> what tells it from others.
        memory: whether `vanidl ceiling` may wrap the iterators.
    """

    def __init__(
        self,
        channel: Channel,
        describe: Callable[[Any, Any], dict[str, object]],
        *,
        memory: bool = True,
    ) -> None:
        super().__init__(channel, describe)
        self._memory = _from_memory(channel) if memory else None
        self._inside = local()  # a loader that makes another's iterator is waited for, not that
        self._watched: dict[type, bool] = {}  # class -> whether each of its iterators is
        self._can_follow: dict[type, bool] = {}

    def note(self, iterator: Any, kind: int, begin: int) -> None:  # noqa: ANN401
        """A call of `__next__` that began then and ends now."""
        end = time_ns()
        try:
            position = iterator.__dict__.get(STATE)
            if position is None or position.session is not self.channel.journal.session:
                if in_worker():
                    return
                position = self.begin(None, iterator)
                iterator.__dict__[STATE] = position
            self.channel.add(position.code | kind, position.number, begin, end)
            position.number += 1
            position.is_over = kind == END
            self.channel.journal.latest = position
        except Exception as error:
            self.channel.fail(error)

    def watch_iter(self, loader_class: Any, name: str = "__iter__") -> None:  # noqa: ANN401
        """Has a class of loaders note each `__iter__`, or what it has in its place."""
        setattr(loader_class, name, self.following(getattr(loader_class, name), lambda it: it))

    def following(self, original: Any, loader_of: Callable[[Any], Any]) -> Any:  # noqa: ANN401
        """A function that returns an iterator, which is followed from now on.

        Args:
            original: the function.
            loader_of: its first argument, or None -> the loader.
        """
        if self._memory is not None:
            original = self._memory.following(original, loader_of)

        @wraps(original)
        def begun(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if getattr(self._inside, "iter", False) or not self.channel.on or in_worker():
                return original(*args, **kwargs)
            begin = time_ns()
            before = self.channel.journal.present.begin(ITER)
            self._inside.iter = True
            try:
                iterator = original(*args, **kwargs)
            finally:
                self._inside.iter = False
                self.channel.journal.present.end(before)
            return self._begun(lambda: loader_of(args[0] if args else None), iterator, begin)

        return begun

    def _begun(self, loader: Callable[[], Any], iterator: Any, begin: int) -> Any:  # noqa: ANN401
        """The iterator, or what follows it."""
        try:
            position = self.begin(loader(), iterator)
            followed = self._follow(iterator, position)
            self.channel.add(position.code | ITER, position.number, begin, time_ns())
        except Exception as error:
            self.channel.fail(error)
            return iterator
        return followed

    def watched_elsewhere(self, iterator_class: type) -> None:
        """Iterators of the class call `note` in a way of their own."""
        self._watched[iterator_class] = True

    def _follow(self, iterator: Any, position: Position) -> Any:  # noqa: ANN401
        """An iterator of a class that can be watched is watched, another one is wrapped."""
        kind = type(iterator)
        if kind not in self._can_follow:
            self._can_follow[kind] = self._can_be_watched(iterator)
        if not self._can_follow[kind]:
            iterator = Wrapped(self, iterator)
        iterator.__dict__[STATE] = position
        return iterator

    def _can_be_watched(self, iterator: Any) -> bool:  # noqa: ANN401
        """Whether its class lets itself be watched, as it then is, or a parent of it."""
        kind = type(iterator)
        if any(self._watched.get(parent) for parent in kind.__mro__):
            return True
        try:
            iterator.__dict__[STATE] = None
            self.watch_next(kind, only_followed=True)
        except (AttributeError, TypeError):  # it is of no class in Python
            return False
        return True

    def watch_next(self, iterator_class: Any, *, only_followed: bool = False) -> None:  # noqa: ANN401
        """Has a class of iterators note each `__next__`.

        Of those that no `__iter__` told of, too, unless they are parts of others.
        """
        channel, original, note = self.channel, iterator_class.__next__, self.note
        journal = channel.journal

        @wraps(original)
        def __next__(iterator: Any) -> Any:  # noqa: ANN401
            position = getattr(iterator, "__dict__", _NOTHING).get(STATE)
            if only_followed and position is None:
                return original(iterator)
            begin = time_ns()
            before = journal.present.begin(WAIT if position is None else position.code | WAIT)
            try:
                batch = original(iterator)
            except BaseException:
                journal.present.end(before)
                if channel.on:
                    note(iterator, END, begin)
                raise
            journal.present.end(before)
            if channel.on:
                note(iterator, WAIT, begin)
            return batch

        iterator_class.__next__ = __next__
        self._watched[iterator_class] = not only_followed

    def watch_stop(self, iterator_class: Any, name: str) -> None:  # noqa: ANN401
        """Has a class of iterators note that workers are stopped: the end of a pass left early.

        At the end of the data that happens in `__next__`, which is noted as a whole.
        """
        original = getattr(iterator_class, name)

        @wraps(original)
        def stop(iterator: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            position = getattr(iterator, "__dict__", _NOTHING).get(STATE)
            begin = time_ns()
            try:
                return original(iterator, *args, **kwargs)
            finally:
                if position is not None and not position.is_over and self.channel.on:
                    self.note(iterator, END, begin)

        setattr(iterator_class, name, stop)


class Wrapped:
    """An iterator in the place of one whose class cannot be watched, as of a generator."""

    def __init__(self, waits: Waits, iterator: Any) -> None:  # noqa: ANN401
        self._waits, self._iterator = waits, iterator

    def __iter__(self) -> Wrapped:
        return self

    def __next__(self) -> Any:  # noqa: ANN401
        begin, present = time_ns(), self._waits.channel.journal.present
        before = present.begin(self.__dict__[STATE].code | WAIT)
        try:
            batch = next(self._iterator)
        except BaseException as error:
            present.end(before)
            if self._waits.channel.on:
                self._waits.note(self, END, begin)
            error.__traceback__ = without_own_frames(error.__traceback__)
            raise
        present.end(before)
        if self._waits.channel.on:
            self._waits.note(self, WAIT, begin)
        return batch

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._iterator, name)
