"""What the user names: iterators that are waited for, and functions each call of which is a step.

`vanidl record --wait MODULE:NAME` names a class with an `__iter__` or a `__next__` of its own, or a
function that returns an iterator, as generator functions do, or a batch with each call, as the
`get` of a queue; `--train MODULE:NAME` a function. What
is named of the program's main file is caught as it is made: classes by how Python builds them,
functions by a look at the file's names after each of its lines, until all are there.
"""

from __future__ import annotations

import builtins
import os
import sys
from time import time_ns

from . import NAMED_VARIABLE, TRAINS_VARIABLE
from .journal import OPTIMIZER
from .registry import wraps
from .waits import Waits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType, ModuleType
    from typing import Any

    from .registry import Channel

_KNOWN = ("torchdata.nodes.loader:Loader",)  # each has its line in `registry.HOOKS`

_MAIN = ("__main__", "__mp_main__")  # and in a spawned process
FOUND = "named-"
"""A file of this name with what was named behind it is left where that was found."""


def hooks() -> Iterator[tuple[str, str]]:
    """Lines as those of `registry.HOOKS`, one for each module that is named."""
    known = {module for module, _ in _split(_KNOWN)}
    for module in {module for module, _ in (*_waits(), *_trains())} - known - set(_MAIN):
        yield module, "named.watch"


def _waits() -> list[tuple[str, str]]:
    return _split((*_KNOWN, *os.environ.get(NAMED_VARIABLE, "").split(",")))


def _trains() -> list[tuple[str, str]]:
    return _split(os.environ.get(TRAINS_VARIABLE, "").split(","))


def _split(words: Iterable[str]) -> list[tuple[str, str]]:
    return [(module, name) for module, _, name in (word.partition(":") for word in words) if name]


def watch(module: ModuleType, channel: Channel) -> None:
    """Has what is named of a module note what it is asked for."""
    for where, name in dict.fromkeys((*_waits(), *_trains())):
        if where == module.__name__:
            try:
                _watch(module, where, name, channel)
            except Exception as error:  # the other names are recorded
                channel.journal.note_failure(f"{where}:{name}", error)


def _watch(module: Any, where: str, dotted: str, channel: Channel) -> None:  # noqa: ANN401
    owner: Any = module
    *parents, name = dotted.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    found = getattr(owner, name)
    _say_found(where, dotted, channel)
    if (where, dotted) in _trains():
        found = _training(found, channel)
        setattr(owner, name, found)
    # What is named as both is wrapped for both.
    if (where, dotted) not in _waits():
        return
    if isinstance(found, type):
        _watch_class(found, channel)
    elif callable(found):
        waits = Waits(channel, lambda *_: {"class": name})
        setattr(owner, name, waits.waiting(found))
    else:
        raise TypeError("expected a class that is iterated over or a function, found neither")


def _say_found(where: str, name: str, channel: Channel) -> None:
    where = _MAIN[0] if where in _MAIN else where
    try:
        path = os.path.join(channel.journal.folder, f"{FOUND}{where}:{name}")  # noqa: PTH118
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    except OSError:  # who reads the run is told that it was not found, at worst
        pass


def _training(function: Any, channel: Channel) -> Any:  # noqa: ANN401
    """A function each call of which ends a step."""
    if not callable(function) or isinstance(function, type):
        raise TypeError("--train: expected a function, found none")

    @wraps(function)
    def train(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        begin = time_ns()
        result = function(*args, **kwargs)
        if channel.on:
            try:
                channel.add(OPTIMIZER, 0, begin, time_ns())
            except Exception as error:
                channel.fail(error)
        return result

    return train


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
    """What is named of the main file, which no import tells of."""
    names = {name for module, name in (*_waits(), *_trains()) if module in _MAIN}
    if not names:
        return
    namespace: dict[str, Any] = vars(builtins)
    build = namespace["__build_class__"]

    def building(function: Any, name: str, *bases: Any, **more: Any) -> Any:  # noqa: ANN401
        made = build(function, name, *bases, **more)
        if name in names and getattr(made, "__module__", "") in _MAIN:
            names.discard(name)
            _say_found(_MAIN[0], name, channel)
            try:
                _watch_class(made, channel)
            except Exception as error:
                channel.journal.note_failure(f"--wait {_MAIN[0]}:{name}", error)
            if not names and namespace["__build_class__"] is building:
                namespace["__build_class__"] = build
        return made

    namespace["__build_class__"] = building
    # The trace function of a debugger stays.
    if sys.gettrace() is None:
        sys.settrace(_MainFile(names, channel).called)


class _MainFile:
    """Looks for functions among the names of the main file, after each line of it."""

    def __init__(self, names: set[str], channel: Channel) -> None:
        self.names, self.channel = names, channel

    def called(self, frame: FrameType, _event: str, _argument: object) -> Any:  # noqa: ANN401
        """Of all that is called only the file itself is of interest."""
        is_file = frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") in _MAIN
        return self.ran if is_file else None

    def ran(self, frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401
        """A line of the file is about to run, or it is over."""
        for name in list(self.names):
            first, _, rest = name.partition(".")
            found = frame.f_globals.get(first)
            if found is None or (isinstance(found, type) and not rest):
                continue  # classes are caught as they are made
            self.names.discard(name)
            try:
                module = sys.modules[frame.f_globals["__name__"]]
                _watch(module, _MAIN[0], name, self.channel)
            except Exception as error:
                self.channel.journal.note_failure(f"{_MAIN[0]}:{name}", error)
        if not self.names or event == "return":
            sys.settrace(None)
            return None
        return self.ran
