"""Sub-commands of `vanidl`: one module each, with NAME, HELP, add_arguments and run."""

from __future__ import annotations

import argparse
from typing import Protocol

from vanidl.commands import ab, check, compare, export, record, report, summary, survey


class Command(Protocol):
    """What a module of this folder offers."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares the options."""

    def run(self, options: argparse.Namespace) -> int:
        """Does the work; the exit status."""


COMMANDS: tuple[Command, ...] = (summary, report, compare, record, ab, check, export, survey)
