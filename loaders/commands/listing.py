"""`python -m vanidl_loaders list`: the workloads and loaders, and what each needs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from ..errors import MissingError
from ..loader.loader import LOADERS, LoaderModule, find_loader
from ..workloads import WORKLOADS, find_workload
from ..workloads.workload import Workload

_Find = Callable[[str], Workload] | Callable[[str], LoaderModule]

NAME = "list"
HELP = "list workloads and loaders"
_SECTIONS: tuple[tuple[str, dict[str, str], _Find], ...] = (
    ("workloads", WORKLOADS, find_workload),
    ("loaders", LOADERS, find_loader),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No options."""


def run(_options: argparse.Namespace) -> int:
    """Prints two lists; exit status 0."""
    for title, names, find in _SECTIONS:
        sys.stdout.write(f"{title}\n")
        for name in names:
            sys.stdout.write(f"  {name:<12}{_help(find, name)}\n")
    return 0


def _help(find: _Find, name: str) -> str:
    try:
        return find(name).HELP
    except (ModuleNotFoundError, MissingError) as error:
        return f"not available: {error}"
