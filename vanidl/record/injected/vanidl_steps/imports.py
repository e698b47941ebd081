"""Calls functions once a module has been imported by the program, and imports nothing itself.

And puts functions in the place of the program's, so that nobody sees them who does not look.
"""

from __future__ import annotations

import functools
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType, TracebackType
    from typing import Any

    Calls = Sequence[Callable[[ModuleType], None]]


_COROUTINE = 0x80  # of the flags of a function's code


def wraps(original: Any) -> Callable[[Any], Any]:  # noqa: ANN401
    """As `functools.wraps`; errors that pass through are left without the recorder's frames."""

    def decorate(function: Any) -> Any:  # noqa: ANN401
        @functools.wraps(original)
        def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            try:
                return function(*args, **kwargs)
            except BaseException as error:
                error.__traceback__ = without_own_frames(error.__traceback__)
                raise

        @functools.wraps(original)
        async def awaited(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            try:
                return await function(*args, **kwargs)
            except BaseException as error:
                error.__traceback__ = without_own_frames(error.__traceback__)
                raise

        return awaited if function.__code__.co_flags & _COROUTINE else run

    return decorate


def without_own_frames(traceback: TracebackType | None) -> TracebackType | None:
    """What is behind the recorder's frames at the head of a traceback."""
    while traceback is not None and _is_own(traceback):
        traceback = traceback.tb_next
    return traceback


def _is_own(traceback: TracebackType) -> bool:
    return traceback.tb_frame.f_globals.get("__package__") == __package__


def after(hooks: Mapping[str, Calls]) -> Callable[[], list[str]]:
    """Calls each hook with its module, right after that has run; the hooks raise nothing.

    A module that is there already, as a `.pth` file of the site may import it, has run.

    Returns:
        Which modules are there and were not seen: the program has replaced `sys.meta_path`, or
        finds them by itself.
    """
    here = {name: sys.modules[name] for name in hooks if name in sys.modules}
    finder = _Finder({name: hooks[name] for name in hooks if name not in here})
    sys.meta_path.insert(0, finder)
    for name, module in here.items():
        for hook in hooks[name]:
            hook(module)
    return finder.passed_by


class _Finder:
    """Finds nothing itself: it has the others find a module, and is called when that has run."""

    def __init__(self, hooks: Mapping[str, Calls]) -> None:
        self._hooks = dict(hooks)

    def passed_by(self) -> list[str]:
        """The modules that were imported and whose hooks were not called."""
        return [name for name in self._hooks if sys.modules.get(name) is not None]

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """The spec that the other finders have for a module that a hook is for."""
        if name not in self._hooks:
            return None
        others = [other for other in sys.meta_path if other is not self]
        found = (other.find_spec(name, path, target) for other in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            self._follow(name, spec.loader)
        return spec

    def _follow(self, name: str, loader: Loader) -> None:
        """Has a loader call the hooks when it has run its module, once.

        Who only asks whether there is such a module gets a loader as well, and never runs it. The
        loader stays what it is, so that nobody who looks at the module sees another.
        """
        try:
            kept = vars(loader)
        except TypeError:  # nothing can be kept in it
            return
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            kept.pop("exec_module", None)
            run(module)
            for hook in self._hooks.pop(name, ()):
                hook(module)

        kept["exec_module"] = exec_module
