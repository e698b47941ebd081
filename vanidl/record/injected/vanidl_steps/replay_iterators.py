"""Batches of iterators of any kind handed out from memory: what `__iter__` returns is wrapped."""

from __future__ import annotations

from threading import local
from types import GeneratorType

from .registry import wraps
from .replay import Pass, Replays
from .waits import in_worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .registry import Channel

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
            one = self._replays.begin(found, _length(found))
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


def _length(loader: object) -> int | None:
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
