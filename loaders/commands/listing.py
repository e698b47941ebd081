"""`python -m loaders list`: the workloads and loaders, and what each needs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from loaders.errors import MissingError
from loaders.loading import LOADERS, find_loader
from loaders.workloads import WORKLOADS, find_workload

NAME = "list"
HELP = "list workloads and loaders"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No options."""


def run(options: argparse.Namespace) -> int:
    """Prints two lists; exit status 0."""
    sys.stdout.write("workloads\n")
    for name in WORKLOADS:
        sys.stdout.write(f"  {name:<12}{_help(lambda name=name: find_workload(name).HELP)}\n")
    sys.stdout.write("loaders\n")
    for name in LOADERS:
        sys.stdout.write(f"  {name:<12}{_help(lambda name=name: find_loader(name).HELP)}\n")
    return 0


def _help(find: Callable[[], str]) -> str:
    try:
        return find()
    except (ModuleNotFoundError, MissingError) as error:
        return f"not available: {error}"
