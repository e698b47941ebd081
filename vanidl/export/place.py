"""Folders that appear under their name only when they are whole."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vanidl.errors import UsageError, VanidlError
from vanidl.figures.labels import printable


@contextmanager
def folder(target: Path) -> Iterator[Path]:
    """A new folder to write into, renamed to the target at the end; on failure nothing is left.

    Raises:
        UsageError: there is something under that name already.
        VanidlError: it cannot be written.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(
            f"-o {printable(str(target))}: expected a new or empty folder, found something in its "
            "place; choose another name or remove it."
        )
    with _new(target) as made:
        part = made / "folder"
        part.mkdir()
        yield part
        part.replace(target)


@contextmanager
def _new(target: Path) -> Iterator[Path]:
    """A folder beside the target, on the same file system, gone at the end."""
    made: Path | None = None
    try:
        prefix = f".{target.name[:60]}."
        made = Path(tempfile.mkdtemp(dir=target.parent, prefix=prefix, suffix=".part"))
        yield made
    except OSError as error:
        reason = error.strerror or str(error)
        raise VanidlError(
            f"cannot write {printable(str(target))}: {reason}; choose another place with -o"
        ) from error
    finally:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
