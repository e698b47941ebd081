"""Sub-commands of `python -m vanidl_loaders`: modules with NAME, HELP, add_arguments and run.

A module here imports PyTorch, HDF5 or MPI inside its functions only, so that the commands that
need none of them work without.
"""

from __future__ import annotations

import argparse
from typing import Protocol

from . import (
    bench,
    compare,
    convert,
    decode,
    encode,
    inspect,
    launch,
    listing,
    make,
    mount,
    plan,
    train,
)


class Command(Protocol):
    """What a module of this folder offers."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares the options."""

    def run(self, options: argparse.Namespace) -> int:
        """Does the work; the exit status."""


COMMANDS: tuple[Command, ...] = (
    make,
    train,
    bench,
    compare,
    launch,
    listing,
    mount,
    plan,
    convert,
    encode,
    decode,
    inspect,
)
