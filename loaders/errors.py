"""Errors that a user can act on.

    LoadersError
    ├── InputError    a folder, file or device is not what was expected
    ├── MissingError  a package, library or device that the work needs is not there
    └── UsageError    an option contradicts another, or names what is not there

Each message says what was expected, what was found and what to do. Only
`vanidl_loaders.cli.main` catches them.
"""

from __future__ import annotations


class LoadersError(Exception):
    """Base of every error that loaders raises on purpose."""

    exit_status = 1


class InputError(LoadersError):
    """The data are missing, foreign or damaged."""


class MissingError(LoadersError):
    """Something that has to be installed is not."""


class UsageError(LoadersError):
    """The options make no sense together."""

    exit_status = 2
