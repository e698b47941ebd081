"""The registry of loaders.

A loader is a module with NAME, HELP, add_arguments and open_loader, named in `LOADERS`; it is
imported when asked for, so that a missing package stops only those who use it.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from ..errors import UsageError, require_choice
from .loader import Loader, Settings

if TYPE_CHECKING:
    from ..data.samples import SampleSet

LOADERS: dict[str, str] = {
    "baseline": "vanidl_loaders.baseline",
    "scheduled": "vanidl_loaders.scheduled.loader",
    "pls": "vanidl_loaders.pls.loader",
    "spatial": "vanidl_loaders.spatial.loader",
    "decoded": "vanidl_loaders.decoders.dataset",
    "streaming": "vanidl_loaders.peers.streaming",
    "webdataset": "vanidl_loaders.peers.webdataset",
}
"""Name of each loader -> the module that makes it."""


class LoaderModule(Protocol):
    """What a module named in `LOADERS` offers."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares options of this loader alone; names must not collide with other loaders'."""

    def open_loader(
        self, samples: SampleSet, settings: Settings, options: argparse.Namespace
    ) -> Loader:
        """The loader. `options` holds at least what `add_arguments` declares."""


def find_loader(name: str) -> LoaderModule:
    """The module of a loader.

    Raises:
        UsageError: No loader of that name.
        ModuleNotFoundError: It needs a package that is not installed.
    """
    require_choice("a loader", name, LOADERS)
    return cast(LoaderModule, import_module(LOADERS[name]))


def open_loader(
    name: str, samples: SampleSet, settings: Settings, options: dict[str, Any] | None = None
) -> Loader:
    """A loader by name, its own options at their defaults unless given.

    Raises:
        UsageError: No loader of that name, or no option of that name.
    """
    module = find_loader(name)
    parser = argparse.ArgumentParser(prog=name)
    module.add_arguments(parser)
    chosen = parser.parse_args([])
    for option, value in (options or {}).items():
        if not hasattr(chosen, option):
            raise UsageError(f"expected an option of {name}, found {option}: see --help")
        setattr(chosen, option, value)
    return module.open_loader(samples, settings, chosen)
