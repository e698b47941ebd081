"""Errors that a user can act on.

    VanidlError
    ├── InputError            the run cannot be read at all
    │   └── SeveralJobsError  the folder holds more than one run
    ├── UsageError            an option contradicts another, or names what is not there
    └── CommandError          the command to record cannot be started

Each message says what was expected, what was found and what to do. Only
`vanidl.cli.main` catches them.
"""

from __future__ import annotations


class VanidlError(Exception):
    """Base of every error that vanidl raises on purpose."""

    exit_status = 1


class InputError(VanidlError):
    """The input is missing, foreign or too damaged to give a number."""


class SeveralJobsError(InputError):
    """A folder holds several unrelated jobs; `table` lists them, one line each."""

    def __init__(self, message: str, table: str = "") -> None:
        super().__init__(message)
        self.table = table


class UsageError(VanidlError):
    """The options make no sense together."""

    exit_status = 2


class CommandError(VanidlError):
    """The command to record cannot be started."""

    exit_status = 127  # as shells have it
