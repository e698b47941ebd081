"""Pages and slices of runs that were opened before, in the user's own cache folder.

What lies there is input: of another owner, open to others' writing, damaged or of another
version, it counts as not there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from vanidl import __version__
from vanidl.encoding.budget import read_whole
from vanidl.errors import InputError, VanidlError
from vanidl.serve.store import VERSION, Store, open_store

MOST_RUNS = 8
"""Runs that are kept; the one that was opened longest ago goes first."""

_PAGE, _DIGEST = "page.html", "page.sha256"
_EDGE_NBYTES = 1 << 16


def default_folder() -> Path:
    """`vanidl/view` in the user's cache folder."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(named) if named and Path(named).is_absolute() else Path.home() / ".cache"
    return base / "vanidl" / "view"


def compute_key(files: Iterable[Path], options: str) -> str:
    """Names a run by its files and how they are read.

    Of each file: its name, size, time of change, and the content at both ends.
    """
    digest = hashlib.sha256(f"{VERSION} {__version__} {options}".encode("utf-8", "surrogateescape"))
    for path in sorted(files):
        digest.update(os.fsencode(path) + b"\0" + _describe_file(path))
    return digest.hexdigest()


def _describe_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            head = file.read(_EDGE_NBYTES)
            file.seek(max(about.st_size - _EDGE_NBYTES, 0))
            ends = hashlib.sha256(head + file.read(_EDGE_NBYTES)).hexdigest()
    except OSError:  # reading the run will say so
        return b"unread"
    return f"{about.st_size} {about.st_mtime_ns} {ends}\0".encode()


def open_kept(folder: Path, key: str) -> tuple[bytes, Store] | None:
    """Page and slices that were left under a key; None where there are none to trust."""
    place = folder / key
    try:
        if not all(_is_trusted(path) for path in (folder, place, *place.iterdir())):
            return None
        page = read_whole(place / _PAGE)
        if hashlib.sha256(page).hexdigest() != read_whole(place / _DIGEST).decode("ascii"):
            return None
        store = open_store(place)
        os.utime(place)
    except (OSError, ValueError, InputError):
        return None
    return page, store


def _is_trusted(path: Path) -> bool:
    """Whether it belongs to us and no other may write there."""
    status = path.lstat()
    is_ours = status.st_uid == os.getuid()
    is_open = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return is_ours and not is_open and not stat.S_ISLNK(status.st_mode)


def keep(folder: Path, key: str, page: bytes, write: Callable[[Path], None]) -> tuple[bytes, Store]:
    """Leaves page and slices under a key, whole or not at all, and opens them.

    Raises:
        VanidlError: they cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        made = Path(tempfile.mkdtemp(prefix="new-", dir=folder))
        try:
            write(made)
            (made / _PAGE).write_bytes(page)
            (made / _DIGEST).write_text(hashlib.sha256(page).hexdigest(), encoding="ascii")
            for path in made.iterdir():
                path.chmod(0o600)
            shutil.rmtree(folder / key, ignore_errors=True)
            made.replace(folder / key)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
    except OSError as error:
        raise VanidlError(
            f"cannot write slices to {folder}: {error.strerror or error}; name a folder with room "
            "in the environment variable XDG_CACHE_HOME"
        ) from error
    _drop_old(folder, key)
    return page, open_store(folder / key)


def _drop_old(folder: Path, key: str) -> None:
    """Leaves the newest runs; folders that never became whole go with the rest."""
    with suppress(OSError):
        found = [path for path in folder.iterdir() if path.is_dir() and path.name != key]
        found.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for path in found[MOST_RUNS - 1 :]:
            shutil.rmtree(path, ignore_errors=True)
