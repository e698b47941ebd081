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

from vanidl.formatting.from_logs import clean_text


class VanidlError(Exception):
    """Base of every error that vanidl raises on purpose."""

    exit_status = 1

    def __str__(self) -> str:
        """The message as it may be shown: it may quote a file, its name, or a command."""
        return clean_text(super().__str__())


class InputError(VanidlError):
    """The input is missing, foreign or too damaged to give a number."""


class SeveralJobsError(InputError):
    """A folder holds several unrelated jobs; `table` lists them, one line each."""

    def __init__(self, message: str, table: str = "") -> None:
        super().__init__(message)
        self.table = "\n".join(map(clean_text, table.split("\n")))


class UsageError(VanidlError):
    """The options make no sense together."""

    exit_status = 2


def package_missing(error: ImportError, what: str, name: str, extra: str) -> UsageError:
    """What to raise where an optional package cannot be imported.

    Args:
        error: what the import raised.
        what: the command or option that needs it, and its verb.
        name: of the package.
        extra: of `vanidl-io`, that brings it.
    """
    install = f"pip install 'vanidl-io[{extra}]'"
    if isinstance(error, ModuleNotFoundError):
        return UsageError(f"{what} the package {name}, which is not installed: {install}")
    return UsageError(
        f"{what} the package {name}, which cannot be loaded here ({error}); give the command more "
        f"memory, or reinstall it: {install}"
    )


class CommandError(VanidlError):
    """The command to record cannot be started."""

    exit_status = 127  # as shells have it
