"""Calls a function once a module has been imported by the program, and imports nothing itself."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def after(
    hooks: dict[str, Callable[[ModuleType], None]], failed: Callable[[Exception], None]
) -> None:
    """Calls each hook with its module, right after that has run; `failed` with its error."""
    sys.meta_path.insert(0, _Finder(hooks, failed))


class _Finder:
    """Finds nothing itself: it has the others find a module, and is called when that has run."""

    def __init__(
        self,
        hooks: dict[str, Callable[[ModuleType], None]],
        failed: Callable[[Exception], None],
    ) -> None:
        self._hooks = hooks
        self._failed = failed

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """The spec that the other finders have for a module that a hook is for."""
        hook = self._hooks.pop(name, None)
        if hook is None:
            return None
        others = [other for other in sys.meta_path if other is not self]
        found = (other.find_spec(name, path, target) for other in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            try:
                self._follow(spec.loader, hook)
            except Exception as error:
                self._failed(error)
        return spec

    def _follow(self, loader: Loader, hook: Callable[[ModuleType], None]) -> None:
        """Has a loader call the hook when it has run its module, once.

        The loader stays what it is, so that nobody who looks at the module sees another.
        """
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module")
            run(module)
            try:
                hook(module)
            except Exception as error:
                self._failed(error)

        vars(loader)["exec_module"] = exec_module
