"""`python -m vanidl_loaders list`: the workloads and loaders, and what each needs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..errors import MissingError, report_missing_package
from ..loader.registry import LOADERS, LoaderModule, find_loader

if TYPE_CHECKING:
    from ..workloads.registry import Workload

NAME = "list"
HELP = "list workloads and loaders"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No options."""


def run(_options: argparse.Namespace) -> int:
    """Prints two lists; exit status 0."""
    from ..workloads.registry import WORKLOADS, find_workload

    _list("workloads", WORKLOADS, find_workload)
    _list("loaders", LOADERS, find_loader)
    return 0


def _list(title: str, names: Iterable[str], find: Callable[[str], Workload | LoaderModule]) -> None:
    sys.stdout.write(f"{title}\n")
    for name in names:
        sys.stdout.write(f"  {name:<12}{_find_help(find, name)}\n")


def _find_help(find: Callable[[str], Workload | LoaderModule], name: str) -> str:
    try:
        return find(name).HELP
    except ModuleNotFoundError as error:
        return f"not available: {report_missing_package(str(error.name).partition('.')[0])}"
    except MissingError as error:
        return f"not available: {error}"
