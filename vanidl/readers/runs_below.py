"""Which folders below a folder are runs with I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from vanidl import readers
from vanidl.errors import InputError
from vanidl.readers import discover

MAX_DEPTH = 8
_PARTS = {"tb", "plugins", "profile", *(known.name for known in readers.FORMATS)}
"""Folders inside a run's: what one tool wrote."""


def runs_below(root: Path) -> dict[str, Path]:
    """Runs by name, which is their path below `root` ("." for itself), sorted.

    A run is a folder that `vanidl record` left (it holds a run.json), or the topmost folder in
    which logs of a tracer lie; a folder named after the tool that wrote it belongs to the run
    around it.
    """
    try:
        found = discover.find(root, max_depth=MAX_DEPTH)
    except InputError:
        return {}
    recorded = {path.parent for path in found.run_records}
    traced = {
        _run_around(path.parent, root)
        for known in readers.FORMATS
        if known.traces_io
        for paths in found.of(known).values()
        for path in paths
    }
    folders = recorded | set(_topmost(traced, recorded))
    named = {_name(folder, root): folder for folder in folders}
    return dict(sorted(named.items()))


def _run_around(folder: Path, root: Path) -> Path:
    while folder != root and folder.name in _PARTS:
        folder = folder.parent
    return folder


def _topmost(folders: Iterable[Path], recorded: set[Path]) -> Iterator[Path]:
    """Those that lie in none of the others and in no recorded run."""
    folders = set(folders)
    for folder in folders:
        around = set(folder.parents)
        if not around & (folders | recorded):
            yield folder


def _name(folder: Path, root: Path) -> str:
    return "." if folder == root else folder.relative_to(root).as_posix()


def lies_within(run: Path, roots: Sequence[Path]) -> bool:
    """Whether all files of a run lie below the roots, wherever links lead.

    Raises:
        InputError: the run is gone.
    """
    found = discover.find(run)
    allowed = [root.resolve() for root in roots]
    files = (*found.run_records, *(file for files in found.files.values() for file in files))
    return all(any(file.resolve().is_relative_to(root) for root in allowed) for file in files)


def signature(run: Path) -> tuple[tuple[str, int, int], ...]:
    """Path, size and time of change of every file of a run: other values, other content.

    Raises:
        InputError: the run is gone.
    """
    found = discover.find(run)
    paths = [*found.run_records, *(path for paths in found.files.values() for path in paths)]
    return tuple(sorted(_state(path) for path in paths))


def _state(path: Path) -> tuple[str, int, int]:
    try:
        known = path.stat()
    except FileNotFoundError:  # between listing and looking
        return str(path), -1, -1
    return str(path), known.st_size, known.st_mtime_ns
