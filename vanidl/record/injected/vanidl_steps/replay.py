"""Batches handed out from memory: what training takes if input is free (`vanidl ceiling`).

The first batches of a loader are real, and copies of them are kept. After these, or after a whole
pass that has fewer, its passes hand out copies of what was kept, and nothing is read: batch k of a
pass is a copy of kept batch k modulo their number, so that neighbours are different memory. Passes
stay as long as they were: as the loader says or, where it does not know its length, as long as
its first whole pass was. The last batch of a pass, which may be a smaller one, is handed out
in the last place, if it was kept; else a batch of full size takes its place. A pass that the
loader began itself ends from memory as well, where its length is known; its workers are stopped.

Every batch that is handed out is one event REPLAY around the making of the copy.
"""

from __future__ import annotations

import os
import sys
from copy import deepcopy
from threading import local
from time import time_ns
from types import GeneratorType

from . import CEILING_VARIABLE
from .journal import REPLAY
from .registry import wraps
from .waits import in_worker, reference, stands_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .registry import Channel

_DEEPEST = 6
_IMMUTABLE = (str, bytes, int, float, complex, bool, type(None))


def copied(value: Any) -> Any:  # noqa: ANN401
    """A copy that is of the same types, on the same device, and pinned where the original is.

    Raises:
        Exception: whatever a type of the program raises that cannot be copied.
    """
    kind = type(value)
    if kind in _IMMUTABLE or _of("tensorflow", "Tensor", value):
        return value
    if kind is dict:
        return {key: copied(inner) for key, inner in value.items()}
    if kind is list:
        return [copied(inner) for inner in value]
    if kind is tuple:
        return tuple([copied(inner) for inner in value])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*(copied(inner) for inner in value))
    if _of("torch", "Tensor", value):
        return _copied_tensor(value)
    if _of("jax", "Array", value):  # deepcopy would take it to the host
        return value.copy()
    return deepcopy(value)


def _of(module: str, name: str, value: object) -> bool:
    """Whether a value is of a class of a module that the program has imported."""
    found = getattr(sys.modules.get(module), name, None)
    return isinstance(found, type) and isinstance(value, found)


def _copied_tensor(tensor: Any) -> Any:  # noqa: ANN401
    """`clone` alone would give memory that is not pinned, which takes longer to the device."""
    import torch

    with torch.no_grad():
        if tensor.device.type == "cpu" and tensor.layout == torch.strided and tensor.is_pinned():
            made = torch.empty_like(tensor, pin_memory=True).copy_(tensor)
        else:
            made = tensor.clone()
    return made.requires_grad_() if tensor.requires_grad else made


def nbytes(value: Any, depth: int = _DEEPEST) -> int:  # noqa: ANN401
    """The memory that a batch takes, near enough for a budget; of what is nested deeper, nothing.

    Objects may hold each other.
    """
    if not depth:
        return 0
    own = getattr(value, "nbytes", None)  # of NumPy, JAX and PyTorch
    if isinstance(own, int):
        return own
    if isinstance(value, dict):
        return sum(nbytes(inner, depth - 1) for inner in value.values())
    if isinstance(value, (list, tuple)):
        return sum(nbytes(inner, depth - 1) for inner in value)
    parts = getattr(value, "__dict__", None)
    if not parts:
        return sys.getsizeof(value)
    return sum(nbytes(inner, depth - 1) for inner in parts.values())


PASS = "_vanidl_pass"


class Replay:
    """What is kept of one loader.

    Attributes:
        on: whether its batches come from memory.
        count: batches of a whole pass, None until one has ended.
        length: batches of the pass in which these began to come from memory.
    """

    def __init__(self, number: int, own: Replays, loader: Any) -> None:  # noqa: ANN401
        self.on = False
        self.count: int | None = None
        self.length: int | None = None
        self.loader = reference(loader)
        self._data = reference(getattr(loader, "dataset", None))
        self._shape = _shape(loader)
        self._own = own
        self._kept: list[tuple[int, Any]] = []  # place in its pass, copy
        self._last: Any = None
        self._has_last = False
        self._seen = 0
        self._refused = False
        self._number = number
        self._text: dict[str, object] = {
            "replay": number,
            "class": type(loader).__name__,
            "dataset": type(getattr(loader, "dataset", None)).__name__,
        }

    def gave_the_like_of(self, loader: Any) -> bool:  # noqa: ANN401
        """Whether its batches are made of the same data in the same way as those of a loader."""
        data = getattr(loader, "dataset", None)
        return data is not None and self._data() is data and self._shape == _shape(loader)

    def say(self, state: str, **more: object) -> None:
        """Leaves in the journal what becomes of this loader."""
        self._text.update(state=state, **more)
        self._own.channel.describe(self._text)

    def knows(self, length: int) -> None:
        """A pass that begins has so many batches: leaves that in the journal once."""
        if not self.on and not self._refused and "length" not in self._text:
            self.say("warm-up", length=length)

    def keep(self, batch: Any, place: int, *, is_last: bool) -> None:  # noqa: ANN401
        """Takes a copy of a batch, as long as the warm-up lasts and the memory suffices."""
        self._seen += 1
        if self.on or self._refused or self._seen > self._own.warm_up:
            return
        size = nbytes(batch)
        if size > self._own.left and self._kept:
            return
        self._own.left -= size
        self._kept.append((place, copied(batch)))
        if is_last:
            self._set_last_apart(place)

    def ended(self, count: int) -> None:
        """A pass has ended that was not handed out from memory."""
        self.count = count
        self._set_last_apart(count - 1)

    def _set_last_apart(self, place: int) -> None:
        """The last batch of a pass may be smaller than the others."""
        if len(self._kept) > 1 and self._kept[-1][0] == place and not self._has_last:
            self._last, self._has_last = self._kept.pop()[1], True

    def ready(self) -> bool:
        """Whether the warm-up is over and there is something to hand out."""
        warm = self._seen >= self._own.warm_up or self.count is not None
        return warm and not self._refused and bool(self._kept)

    def begin(self, length: int) -> None:
        """From now on batches come from memory."""
        self.on, self.length = True, length
        every = [batch for _, batch in self._kept] + ([self._last] if self._has_last else [])
        self.say("on", kept=len(every), nbytes=sum(map(nbytes, every)), length=length)

    def refuse(self, error: Exception) -> None:
        """Batches of this loader cannot be kept, and stay real, unless it is too late."""
        if self.on:
            self._own.channel.fail(error)
            return
        self._refused, self._kept = True, []
        self.say("refused", why=" ".join(f"{type(error).__name__}: {error}".split())[:200])

    def batch(self, place: int, length: int) -> Any:  # noqa: ANN401
        """A copy of what is handed out in a place of a pass."""
        is_last = self._has_last and place == length - 1
        batch = self._last if is_last else self._kept[place % len(self._kept)][1]
        try:
            return copied(batch)
        except Exception as error:  # it could be copied before: memory is short
            self._own.channel.fail(error)
            return batch

    def note(self, begin: int) -> None:
        """A batch was handed out."""
        self._own.channel.add(REPLAY, self._number, begin, time_ns())


def _shape(loader: Any) -> tuple[object, ...]:  # noqa: ANN401
    """What batches look like: their number of samples, and what makes them of these."""
    collate = getattr(loader, "collate_fn", None)
    return type(loader), getattr(loader, "batch_size", None), id(collate)


def stays_real(channel: Channel, name: str, why: str) -> None:
    """Leaves in the journal that a loader cannot come from memory."""
    number = channel.journal.new_replay()
    channel.describe({"replay": number, "class": name, "state": "unsupported", "why": why})


class Pass:
    """One pass over a loader: its place, and whether its batches come from memory.

    `length` is the number of its batches, None as long as that is not known.
    """

    __slots__ = ("_place", "_replay", "length", "on")

    def __init__(self, replay: Replay, length: int | None) -> None:
        self._replay = replay
        self._place = 0
        known = (n for n in (length, replay.count, replay.length) if n is not None)
        self.length = next(known, None)
        self.on = replay.on
        if self.length is not None:
            replay.knows(self.length)
        if not self.on and replay.ready():
            self._switch()

    def next(self, take: Callable[[], Any], stop: Callable[[], object]) -> Any:  # noqa: ANN401
        """The next batch.

        Args:
            take: gives the real one.
            stop: ends what makes further real ones, once none is needed.

        Raises:
            StopIteration: the pass is at its end.
        """
        if self.on:
            return self.hand_out()
        try:
            batch = take()
        except StopIteration:
            self._replay.ended(self._place)
            raise

        # A copy is kept; once there are enough, no more real batches are made.
        try:
            self._replay.keep(batch, self._place, is_last=self._place + 1 == self.length)
            self._place += 1
            if self._replay.ready() and self._switch():
                stop()
        except Exception as error:
            self._replay.refuse(error)
        return batch

    def _switch(self) -> bool:
        if self.length is None:
            return False
        if not self._replay.on:
            self._replay.begin(self.length)
        self.on = True
        return True

    def hand_out(self) -> Any:  # noqa: ANN401
        """A batch from memory.

        Raises:
            StopIteration: the pass is at its end.
        """
        length = self.length or 0
        if self._place >= length:
            raise StopIteration
        begin = time_ns()
        batch = self._replay.batch(self._place, length)
        self._place += 1
        self._replay.note(begin)
        return batch


class Replays:
    """The loaders of one framework in this process."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        warm_up, budget, epoch = os.environ[CEILING_VARIABLE].split(",")
        self.warm_up = max(int(warm_up), 1)
        self._budget = int(budget)
        self.epoch_batches = int(epoch) if epoch else None
        self._forget()

    def _forget(self) -> None:
        self._session = self.channel.journal.session
        self._every: list[Replay] = []
        self.left = self._budget

    def begin(self, loader: Any, length: int | None) -> Pass | None:  # noqa: ANN401
        """A pass over a loader that begins; None where nothing is to be replayed."""
        try:
            if self._session is not self.channel.journal.session:
                self._forget()
            replay = self._of(loader)
            if not (self.channel.on or replay.on):
                return None
            return Pass(replay, self.epoch_batches if length is None else length)
        except Exception as error:
            self.channel.fail(error)
            return None

    def _of(self, loader: Any) -> Replay:  # noqa: ANN401
        """That of a loader, or of one over the same data: many programs make one per pass."""
        loader = stands_for(loader)
        for replay in self._every:
            if replay.loader() is loader:
                return replay
        for replay in self._every:
            if replay.gave_the_like_of(loader):
                replay.loader = reference(loader)
                return replay
        made = Replay(self.channel.journal.new_replay(), self, loader)
        made.say("warm-up", needed=self.warm_up)
        self._every.append(made)
        return made


# Batches of iterators of any kind handed out from memory: what `__iter__` returns is wrapped.

_EQUAL = (str, bytes, int, float, bool, type(None))


class Iterators:
    """The loaders of one module, whose passes are followed."""

    def __init__(self, channel: Channel) -> None:
        self._replays = Replays(channel)
        self._inside = local()  # a loader that makes another's iterator is replayed, not that
        self._calls: list[tuple[tuple[Any, ...], dict[str, Any], object]] = []
        # Another class for each: those who record waits watch the class.
        self._class = type("Replayed", (Replayed,), {})

    def following(self, original: Any, loader_of: Callable[[Any], Any]) -> Any:  # noqa: ANN401
        """A function that returns an iterator, whose batches come from memory once it is warm.

        Args:
            original: the function.
            loader_of: its first argument, or None -> the loader; without one, calls with the same
                arguments are passes over the same.
        """

        @wraps(original)
        def begun(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if getattr(self._inside, "iter", False) or in_worker():
                return original(*args, **kwargs)
            found = loader_of(args[0] if args else None)
            if found is None:
                found = self._of_call(original, args, kwargs)
            one = self._replays.begin(found, _iterator_length(found))
            make = self._making(original, args, kwargs)
            return make() if one is None else self._class(one, make)

        return begun

    def _making(self, original: Any, args: Any, kwargs: Any) -> Callable[[], Any]:  # noqa: ANN401
        def make() -> Any:  # noqa: ANN401
            self._inside.iter = True
            try:
                return original(*args, **kwargs)
            finally:
                self._inside.iter = False

        return make

    def _of_call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:  # noqa: ANN401
        """What stands for the loader of a call of a function with these arguments."""
        for known_args, known_kwargs, found in self._calls:
            if _same(known_args, args) and known_kwargs.keys() == kwargs.keys():
                both = (known_kwargs.values(), kwargs.values())
                if _same(*map(tuple, both)):
                    return found
        made = type(getattr(function, "__name__", "function"), (), {})()
        self._calls.append((args, kwargs, made))
        return made


def _iterator_length(loader: object) -> int | None:
    """Batches of a pass that never comes to its end, as Keras counts them itself."""
    count = getattr(loader, "_num_batches", None)
    return count if type(loader).__name__ == "JAXEpochIterator" and type(count) is int else None


def _same(known: tuple[Any, ...], given: tuple[Any, ...]) -> bool:
    return len(known) == len(given) and all(map(_alike, known, given))


def _alike(a: object, b: object) -> bool:
    return a is b or (type(a) is type(b) and type(a) in _EQUAL and a == b)


class Replayed:
    """One pass: the real iterator until batches come from memory.

    Of a pass that comes from memory from its start there is a real one only for who asks it
    something else.
    """

    def __init__(self, one: Pass, make: Callable[[], Any]) -> None:
        self._one, self._make = one, make
        self._iterator: Any = None if one.on else make()

    def __iter__(self) -> Replayed:
        return self

    def __next__(self) -> Any:  # noqa: ANN401
        return self._one.next(lambda: next(self._iterator), self._stop)

    def _stop(self) -> None:
        """Ends generators and Grain's iterators, with the threads and workers that they have."""
        kind = type(self._iterator)
        if kind is GeneratorType or kind.__module__.startswith("grain."):
            close = getattr(self._iterator, "close", None)
            if close is not None:
                close()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if self.__dict__.get("_iterator") is None:
            if "_make" not in self.__dict__ or name.startswith("__"):
                raise AttributeError(name)
            self._iterator = iter(self._make())
        return getattr(self._iterator, name)
