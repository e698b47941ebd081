"""Errors that a user can act on.

    LoadersError
    ├── InputError    a folder, file or device is not what was expected
    ├── MissingError  a package, library or device that the work needs is not there
    └── UsageError    an option contradicts another, or names what is not there

Each message says what was expected, what was found and what to do. Only
`vanidl_loaders.cli.main` catches them.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import ClassVar, TypeVar

T = TypeVar("T", bound="Caught")


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


def require_choice(what: str, name: str, known: Iterable[str]) -> None:
    """Refuses a name that is not among those there are.

    Args:
        what: That it names, such as `a loader`.
        name: The name that was given.
        known: All there are.

    Raises:
        UsageError: It is none of them.
    """
    names = list(known)
    if name not in names:
        raise UsageError(f"expected {what} among {', '.join(names)}, found {name}: choose one")


class Caught:
    """As a block: keeps what is raised inside, for another thread or rank to raise.

    Attributes:
        error: What was raised; None: nothing.
    """

    KINDS: ClassVar[type[BaseException]] = BaseException
    """What is kept; all else is raised."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __enter__(self: T) -> T:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self.error = error if isinstance(error, self.KINDS) else None
        return self.error is not None


def counted(number: int, noun: str) -> str:
    """`1 sample`, `2 samples`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


EXTRAS = {
    "torch": "loaders",
    "h5py": "loaders",
    "PIL": "loaders",
    "tensorboard": "loaders",
    "mpi4py": "mpi",
    "mfusepy": "storage",
    "streaming": "peers",
    "webdataset": "peers",
    "numba": "decoders",
    "triton": "decoders",
    "nvidia": "dali",
}
"""Extra of `vanidl-io` that brings each package that is not always installed."""


def report_missing_package(name: str) -> MissingError:
    """What to raise where a package is not installed.

    Args:
        name: As it is imported.
    """
    extra = EXTRAS.get(name)
    install = f"pip install 'vanidl-io[{extra}]'" if extra else "reinstall vanidl-io"
    return MissingError(f"expected the package {name}, found none: {install}")
