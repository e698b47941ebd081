"""Calls functions once a module has been imported by the program, and imports nothing itself."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    Calls = Sequence[Callable[[ModuleType], None]]


def after(hooks: Mapping[str, Calls]) -> None:
    """Calls each hook with its module, right after that has run; the hooks raise nothing."""
    sys.meta_path.insert(0, _Finder(hooks))


class _Finder:
    """Finds nothing itself: it has the others find a module, and is called when that has run."""

    def __init__(self, hooks: Mapping[str, Calls]) -> None:
        self._hooks = dict(hooks)

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """The spec that the other finders have for a module that a hook is for."""
        hooks = self._hooks.pop(name, None)
        if hooks is None:
            return None
        others = [other for other in sys.meta_path if other is not self]
        found = (other.find_spec(name, path, target) for other in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            _follow(spec.loader, hooks)
        return spec


def _follow(loader: Loader, hooks: Calls) -> None:
    """Has a loader call the hooks when it has run its module, once.

    The loader stays what it is, so that nobody who looks at the module sees another.
    """
    try:
        kept = vars(loader)
    except TypeError:  # nothing can be kept in it
        return
    run = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        kept.pop("exec_module")
        run(module)
        for hook in hooks:
            hook(module)

    kept["exec_module"] = exec_module
