"""Waits of iterators that the user names: `vanidl record --wait MODULE:NAME`.

A name is a class with an `__iter__` or a `__next__` of its own, or a function that returns an
iterator, as generator functions do. Classes of the program's main file are caught as they are
made, functions of it cannot be.
"""

from __future__ import annotations

import builtins
import os

from . import NAMED_VARIABLE
from .waits import Waits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType
    from typing import Any

    from .hooks import Channel

_KNOWN = ("torchdata.nodes.loader:Loader",)  # each has its line in `hooks.HOOKS`

_MAIN = ("__main__", "__mp_main__")  # and in a spawned process


def hooks() -> Iterator[tuple[str, str]]:
    """Lines as those of `hooks.HOOKS`, one for each module that is named."""
    known = {module for module, _ in _split(_KNOWN)}
    for module in {module for module, _ in _named()} - known - set(_MAIN):
        yield module, "named.watch"


def _named() -> list[tuple[str, str]]:
    return _split((*_KNOWN, *os.environ.get(NAMED_VARIABLE, "").split(",")))


def _split(words: Iterable[str]) -> list[tuple[str, str]]:
    return [(module, name) for module, _, name in (word.partition(":") for word in words) if name]


def watch(module: ModuleType, channel: Channel) -> None:
    """Has what is named of a module note what it is asked for."""
    for where, name in _named():
        if where == module.__name__:
            try:
                _watch(module, name, channel)
            except Exception as error:  # the other names are recorded
                channel.journal.note_failure(f"--wait {where}:{name}", error)


def _watch(module: ModuleType, dotted: str, channel: Channel) -> None:
    owner: Any = module
    *parents, name = dotted.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    found = getattr(owner, name)
    if isinstance(found, type):
        _watch_class(found, channel)
    elif callable(found):
        waits = Waits(channel, lambda *_: {"class": name})
        setattr(owner, name, waits.following(found, lambda _: found))
    else:
        raise TypeError("expected a class that is iterated over or a function, found neither")


def _watch_class(found: Any, channel: Channel) -> None:  # noqa: ANN401
    waits = Waits(channel, _description)
    own = {name for parent in found.__mro__ for name in vars(parent)}
    if not own & {"__iter__", "__next__"}:
        raise TypeError("expected a class that is iterated over, found one that is not")
    if "__next__" in own:
        waits.watch_next(found)
    if "__iter__" in own:
        waits.watch_iter(found)


def _description(loader: Any, iterator: Any) -> dict[str, object]:  # noqa: ANN401
    return {"class": type(loader if loader is not None else iterator).__name__}


def watch_main(channel: Channel) -> None:
    """Classes that are named of the main file, which no import tells of."""
    names = {name for module, name in _named() if module in _MAIN}
    if not names:
        return
    namespace: dict[str, Any] = vars(builtins)
    build = namespace["__build_class__"]

    def building(function: Any, name: str, *bases: Any, **more: Any) -> Any:  # noqa: ANN401
        made = build(function, name, *bases, **more)
        if name in names and getattr(made, "__module__", "") in _MAIN:
            names.discard(name)
            try:
                _watch_class(made, channel)
            except Exception as error:
                channel.journal.note_failure(f"--wait {_MAIN[0]}:{name}", error)
            if not names and namespace["__build_class__"] is building:
                namespace["__build_class__"] = build
        return made

    namespace["__build_class__"] = building
