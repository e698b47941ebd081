"""Files and folders that appear under their name only when they are whole."""

from __future__ import annotations

import errno
import gzip
import importlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from vanidl.errors import UsageError, VanidlError
from vanidl.formatting.names import printable

gzip_writer: Any
try:
    gzip_writer = importlib.import_module("isal.igzip").IGzipFile
except ImportError:  # platforms without a wheel
    gzip_writer = gzip.GzipFile

_FAST = 1  # level of gzip: exports are large, and read once
_OWNER_ONLY = 0o600
_AS_UMASK_SAYS = 0o666


def write_whole(
    target: Path,
    content: bytes | bytearray,
    what: str = "the report",
    *,
    private: bool = False,
    option: str = "-o",
) -> None:
    """Writes beside the target and renames, so that nobody sees half a file.

    A target that is no regular file (a pipe, a device) is written to, not replaced. Who may read
    the file is as the umask says, or only its owner where it is private.

    Raises:
        VanidlError: it cannot be written there; nothing is left behind.
    """
    with _explain_failures(f"{what} to {printable(str(target))}", option):
        if target.exists() and not target.is_file():
            with _open_special(target) as file:
                file.write(content)
            return
        with _make_beside(target) as made:
            part = made / "file"
            part.touch(_OWNER_ONLY if private else _AS_UMASK_SAYS)
            part.write_bytes(content)
            part.replace(target)


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A new folder to write into, renamed to the target at the end; on failure nothing is left.

    Raises:
        UsageError: there is something under that name already.
        VanidlError: it cannot be written.
    """
    name = printable(str(target))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(
            f"-o {name}: expected a new or empty folder, found something in its place; choose "
            "another name or remove it."
        )
    with _explain_failures(name), _make_beside(target) as made:
        part = made / "folder"
        part.mkdir()
        yield part
        part.replace(target)


@contextmanager
def streamed_file(target: Path) -> Iterator[IO[bytes]]:
    """A file to write into, renamed to the target at the end; gzip where its name ends in .gz.

    On failure nothing is left. A target that is no regular file (a pipe, a device) is written
    to, not replaced.

    Raises:
        VanidlError: it cannot be written.
    """
    with _explain_failures(printable(str(target))):
        if target.exists() and not target.is_file():
            with _open_special(target) as file:
                yield file
            return
        # In a folder beside the target, on the same file system: renaming is one step.
        with _make_beside(target) as made:
            part = made / "file"
            with part.open("wb") as raw:
                if target.suffix == ".gz":
                    with gzip_writer("", "wb", _FAST, raw, mtime=0) as file:
                        yield file
                else:
                    yield raw
            part.replace(target)


def _open_special(target: Path) -> IO[bytes]:
    """A pipe or device to write to. A pipe that nobody reads is refused: it would never end."""
    number = os.open(target, os.O_WRONLY | os.O_NONBLOCK)
    os.set_blocking(number, True)
    return os.fdopen(number, "wb")


@contextmanager
def _make_beside(target: Path) -> Iterator[Path]:
    """A folder beside the target, on the same file system, gone at the end."""
    prefix = f".{target.name[:60]}."
    made = Path(tempfile.mkdtemp(dir=target.parent, prefix=prefix, suffix=".part"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def _explain_failures(what: str, option: str = "-o") -> Iterator[None]:
    """An error of the system says what could not be written, where, and by which option."""
    try:
        yield
    except OSError as error:
        unread = error.errno == errno.ENXIO
        # By its number: Arrow has texts of its own.
        told = os.strerror(error.errno) if error.errno else error.strerror or str(error)
        reason = "nobody reads this pipe" if unread else told
        raise VanidlError(
            f"cannot write {what}: {reason}; choose another place with {option}"
        ) from error
