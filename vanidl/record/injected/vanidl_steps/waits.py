"""Waits for input: what a program asks its loaders for, and where each of their passes is.

Calls of `__iter__` and `__next__` of classes that a framework iterates with; a loader made again
for each pass is one with those before it.
"""

from __future__ import annotations

import os
import sys
from threading import local
from time import time_ns
from weakref import ref

from . import CEILING_VARIABLE
from .journal import (
    END,
    EPOCH_SHIFT,
    ITER,
    LOADER_SHIFT,
    NOTHING,
    SINCE,
    WAIT,
    enter_thread,
    this_thread,
)
from .registry import replaces, without_own_frames, wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .registry import Channel
    from .replay import Iterators

STATE = "_vanidl_state"
_OWNER = "_vanidl_owner"

_DEEPEST = 100  # frames that are looked at

_now = local()


class as_role:
    """Loaders that this thread begins within are for that: training, evaluation, setup."""

    def __init__(self, role: str) -> None:
        self._role, self._before = role, ""

    def __enter__(self) -> None:
        self._before = current_role()
        _now.role = self._role

    def __exit__(self, *_: object) -> None:
        _now.role = self._before


def current_role() -> str:
    """What the loaders are for that this thread begins now; "" where nothing tells."""
    return getattr(_now, "role", "")


def trains(channel: Channel) -> None:
    """Says of the loader that gave the latest batch that its batches are trained on."""
    position = channel.journal.latest
    if channel.on and isinstance(position, Position) and position.description:
        try:
            description, position.description = position.description, None
            if "role" not in description:
                description["role"] = "training"
                channel.describe(description)
        except Exception as error:
            channel.fail(error)


class Position:
    """Where one iterator is: its loader, its epoch, and how many batches it gave."""

    __slots__ = ("code", "description", "is_over", "number", "session", "wait")

    def __init__(self, session: object, loader: int, epoch: int) -> None:
        self.session = session
        self.code = loader << LOADER_SHIFT
        self.wait = self.code | WAIT
        self.number = epoch << EPOCH_SHIFT
        self.description: dict[str, object] | None = None  # of the loader, as long as it may change
        self.is_over = False  # whether the iterator was asked beyond its last batch


class _Known:
    """A loader that has been used, and where: the code that began its first iterator."""

    __slots__ = (
        "data",
        "description",
        "epochs",
        "iterator",
        "loader",
        "number",
        "place",
        "position",
    )

    def __init__(
        self, number: int, loader: object, description: dict[str, object], place: int
    ) -> None:
        self.number, self.epochs, self.place = number, 0, place
        self.iterator: Callable[[], object] = _gone
        self.position: Position | None = None
        self.description = {"loader": number, **description}
        self.loader = reference(loader)
        self.data = reference(getattr(loader, "dataset", None))


class Loaders:
    """The loaders of one kind that this process has used.

    A new loader for each pass with nothing changed counts as the one before it, once that is gone
    or its pass is over: over the same data, or begun by the same code.

    Args:
        channel: where their events go.
        describe: (loader or None, its iterator) -> what tells it from others.
    """

    def __init__(self, channel: Channel, describe: Callable[[Any, Any], dict[str, object]]) -> None:
        self.channel = channel
        self._describe = describe
        self._forget()

    def _forget(self) -> None:
        self._session = self.channel.journal.session
        self._by_id: dict[tuple[int, str], _Known] = {}
        self._by_description: dict[str, list[_Known]] = {}

    def begin(self, loader: Any, iterator: Any) -> Position:  # noqa: ANN401
        """The position of an iterator that a loader, if one is known, has just begun."""
        if self._session is not self.channel.journal.session:
            self._forget()
        used, loader = loader, stands_for(loader)
        key = (id(loader), current_role())
        known = self._by_id.get(key)
        if loader is None or known is None or known.loader() is not loader:
            known = self._by_id[key] = self._new(loader, self._describe(used, iterator))
        position = Position(self._session, known.number, known.epochs)
        position.description = known.description
        known.epochs += 1
        known.position, known.iterator = position, _unless_held(iterator)
        return position

    def _new(self, loader: Any, description: dict[str, object]) -> _Known:  # noqa: ANN401
        if current_role():
            description["role"] = current_role()
        alike = self._by_description.setdefault(repr(description), [])
        place = _calling_code()
        found = next((one for one in alike if _again(one, loader, place)), None)
        if found is not None:
            found.loader = reference(loader)
            return found
        made = _Known(self.channel.journal.new_loader(), loader, description, place)
        self.channel.describe(made.description)
        self.channel.journal.open_now()  # within a wait, not between two
        if loader is not None:
            alike.append(made)
        return made


def in_place_of(owner: object, loader: Any) -> None:  # noqa: ANN401
    """Says that a loader is one of those that another makes, one for each pass."""
    loader.__dict__[_OWNER] = ref(owner)


def stands_for(loader: Any) -> Any:  # noqa: ANN401
    """The loader that made this one for a pass, or itself."""
    owner = getattr(loader, "__dict__", {}).get(_OWNER)
    return loader if owner is None else owner()


def _again(known: _Known, loader: object, place: int) -> bool:
    """Whether a loader takes the place of one that is gone, or whose pass is over."""
    if loader is None:
        return False
    data = getattr(loader, "dataset", None)
    if known.loader() is None and known.data() is data is not None:
        return True
    over = known.position is None or known.position.is_over or known.iterator() is None
    return over and known.place == place


def _calling_code() -> int:
    """A number for the lines of code that led here, but for those of the recorder itself."""
    frame, lines = sys._getframe(2), list[tuple[str, int]]()
    while frame is not None and len(lines) < _DEEPEST:
        if frame.f_globals.get("__package__") != __package__:
            lines.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back  # type: ignore[assignment]
    return hash(tuple(lines))


def _gone() -> None:
    """What a reference to nothing gives."""


def _unless_held(iterator: object) -> Callable[[], object]:
    """A reference that keeps nothing alive; to what allows none, as if it were gone."""
    try:
        return ref(iterator)
    except TypeError:
        return _gone


def reference(thing: object) -> Callable[[], object]:
    """A weak reference where the thing allows one, else a strong one."""
    try:
        return ref(thing)
    except TypeError:  # it allows none
        return lambda: thing


def in_worker() -> bool:
    """Whether this is a worker of a loader: what it iterates over is no wait of training."""
    torch = sys.modules.get("torch.utils.data._utils.worker")
    if getattr(torch, "_worker_info", None) is not None:
        return True
    grain = sys.modules.get("grain._src.python.dataset.transformations.process_prefetch")
    return grain is not None and bool(grain.is_in_worker_process())


_NOTHING: dict[str, object] = {}


def _from_memory(channel: Channel) -> Iterators | None:
    """What hands batches out from memory; None where they are to stay real."""
    if not os.environ.get(CEILING_VARIABLE):
        return None
    from .replay import Iterators

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
        if not self.channel.on:
            return
        try:
            position = iterator.__dict__.get(STATE)
            # Its pass was not seen to begin, or in another session.
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
            # A loader that makes the iterator of another is waited for, not that one.
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

    def waiting(self, function: Any) -> Any:  # noqa: ANN401
        """A function that returns an iterator, or a batch with each call: its first one shows it.

        A batch is handed on as it is, whatever can be done with it: tensors can be iterated over.
        None says that there are no more.
        """
        following = self.following(function, lambda _: function)
        calls, present = _Calls(), self.channel.journal.present

        @wraps(function)
        def wait(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if calls.give_batches is False:
                return following(*args, **kwargs)
            if not self.channel.on or in_worker():
                return function(*args, **kwargs)
            begin, before = time_ns(), present.begin(WAIT)
            try:
                result = function(*args, **kwargs)
            finally:
                present.end(before)
            # The first result shows what it gives.
            if calls.give_batches is None:
                calls.give_batches = not hasattr(type(result), "__next__")
            if calls.give_batches:
                self.note(calls, END if result is None else WAIT, begin)
                return result
            if self._memory is not None:
                return self.following(lambda *_, **__: result, lambda _: function)(*args, **kwargs)
            return self._begun(lambda: function, result, begin)

        return wait

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
        original, present = iterator_class.__next__, self.channel.journal.present

        @replaces(original)
        def __next__(iterator: Any) -> Any:  # noqa: ANN401
            position = getattr(iterator, "__dict__", _NOTHING).get(STATE)
            if only_followed and position is None:
                return original(iterator)
            begin = time_ns()
            before = present.begin(WAIT if position is None else position.wait)
            try:
                batch = original(iterator)
            except BaseException as error:
                present.end(before)
                self.note(iterator, END, begin)
                error.__traceback__ = without_own_frames(error.__traceback__)
                raise
            present.end(before)
            self.note(iterator, WAIT, begin)
            return batch

        iterator_class.__next__ = __next__
        self._watched[iterator_class] = not only_followed

    def watch_steps(self, iterator_class: Any) -> None:  # noqa: ANN401
        """The same, where what the program does between two of them is a step.

        Lines of that may be sampled. All of it is one function, in each step: see `Journal.add`.
        """
        channel, original, note = self.channel, iterator_class.__next__, self.note
        journal, present, due = channel.journal, channel.journal.present, channel.journal.due
        extend, unknown = journal.rows.extend, Position(None, 0, 0)

        @replaces(original)
        def __next__(iterator: Any) -> Any:  # noqa: ANN401
            try:
                position = iterator._vanidl_state
            except AttributeError:
                position = unknown
            if due.in_step:
                journal.lines.end_step()

            # As `Present.begin` does, where the same call was the one before.
            begin, code = time_ns(), position.wait
            before = None
            if present.code is code and not present.goes_on:
                present.words[SINCE], present.goes_on = begin - present.ahead_ns, True
            else:
                before = present.begin(code)
            try:
                batch = original(iterator)
            except BaseException as error:
                present.end(before or NOTHING)
                note(iterator, END, begin)
                error.__traceback__ = without_own_frames(error.__traceback__)
                raise

            # As `Present.end` and, of an iterator that is known, `note` do.
            end = time_ns()
            if before is None:
                present.words[SINCE], present.goes_on = present.ahead_ns - end, False
            else:
                present.end(before)
            if channel.on and position.session is journal.session:
                now = this_thread() or enter_thread()
                extend((code, position.number, begin, end, now.ident))
                position.number += 1
                journal.latest = position
                if end >= journal.flush_ns:
                    journal.flush()
            else:
                note(iterator, WAIT, begin)
            if end >= due.step_ns:
                journal.lines.begin_step()
            return batch

        iterator_class.__next__ = __next__
        self._watched[iterator_class] = True

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


class Widened:
    """A generator that hands a loader's batches on, and works on them: waits for it are whole."""

    def __init__(self, channel: Channel, generator: Any) -> None:  # noqa: ANN401
        self._channel, self._generator = channel, generator

    def __iter__(self) -> Widened:
        return self

    def __next__(self) -> Any:  # noqa: ANN401
        begin = time_ns()
        try:
            return next(self._generator)
        except BaseException as error:
            error.__traceback__ = without_own_frames(error.__traceback__)
            raise
        finally:
            if self._channel.on:
                try:
                    self._channel.journal.widen(begin, time_ns())
                except Exception as error:
                    self._channel.fail(error)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._generator, name)


class _Calls:
    """Stands for the iterator of a function each call of which gives a batch."""

    def __init__(self) -> None:
        self.give_batches: bool | None = None  # None: it was not called yet


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
