"""Which files of a folder say something about a run, told by their names alone.

A single file with an unknown name is known by its first bytes, and so are files of a folder
with an end that formats share with others (`.json`). Nothing else is opened.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from vanidl import readers
from vanidl.errors import InputError
from vanidl.formatting.units import plural
from vanidl.readers.foreign import told_apart, was_changed_into_text
from vanidl.readers.format import FileKind, Format
from vanidl.readers.sniff import Opening

MAX_DEPTH = 6
_MOST_OPENED = 200  # files of a folder: data sets may hold any number with the same end

_RUN_RECORDS = "run_records"
_RUN_RECORD = "run.json"


@dataclass(frozen=True, slots=True)
class Found:
    """Files of a run by kind, each sorted by path.

    `others` counts files of no known kind. `unreadable` are folders that could not be listed,
    `too_deep` folders that lie deeper than was searched.
    """

    root: Path
    files: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)  # name of the kind ->
    run_records: tuple[Path, ...] = ()
    others: int = 0
    unreadable: tuple[Path, ...] = ()
    too_deep: tuple[Path, ...] = ()

    def of(self, known: Format) -> dict[FileKind, tuple[Path, ...]]:
        """The files of one format by kind, without kinds that have none."""
        return {kind: self.files[kind.name] for kind in known.kinds if kind.name in self.files}


@dataclass(frozen=True, slots=True)
class _Names:
    """Which kind of file a name belongs to: pairs of a part of the name and the kind."""

    prefixes: tuple[tuple[str, str], ...]
    suffixes: tuple[tuple[str, str], ...]  # the longest first: `.pt.trace.json` has two
    every_prefix: tuple[str, ...]
    every_suffix: tuple[str, ...]
    perhaps: tuple[str, ...]
    by_content: frozenset[str]
    patterns: tuple[tuple[re.Pattern[str], str], ...]

    @classmethod
    def known(cls) -> _Names:
        """The names of all formats."""
        kinds = [kind for known in readers.FORMATS for kind in known.kinds]
        prefixes = [(kind.prefix, kind.name) for kind in kinds if kind.prefix]
        suffixes = [(suffix, kind.name) for kind in kinds for suffix in kind.suffixes]
        return cls(
            tuple(prefixes),
            tuple(sorted(suffixes, key=lambda pair: -len(pair[0]))),
            tuple(prefix for prefix, _ in prefixes),
            tuple(suffix for suffix, _ in suffixes),
            tuple({suffix for kind in kinds for suffix in kind.perhaps}),
            frozenset(kind.name for kind in kinds if kind.by_content),
            tuple((re.compile(kind.pattern), kind.name) for kind in kinds if kind.pattern),
        )

    def kind(self, name: str) -> str:
        """The kind of a file of this name, "" for none."""
        if name.startswith(self.every_prefix):
            return next(kind for prefix, kind in self.prefixes if name.startswith(prefix))
        if name.endswith(self.every_suffix):
            return next(kind for suffix, kind in self.suffixes if name.endswith(suffix))
        if name == _RUN_RECORD:
            return _RUN_RECORDS
        return next((kind for pattern, kind in self.patterns if pattern.fullmatch(name)), "")


def kind_by_name(name: str) -> str:
    """The kind of a file of this name, "" for none."""
    return _Names.known().kind(name)


def kind_by_content(path: Path) -> str:
    """The kind of a file by its first bytes, "" for none.

    Raises:
        OSError: The file cannot be read.
    """
    opening = Opening(path)
    return next((kind for known in readers.FORMATS if (kind := known.sniff(opening))), "")


def expected() -> str:
    """What a run consists of, for messages: formats that record I/O first."""
    known = sorted(readers.FORMATS, key=lambda one: not one.traces_io)
    return f"expected a run: {', '.join(one.expected for one in known)}"


def find(root: str | Path, *, max_depth: int = MAX_DEPTH) -> Found:
    """Return the files of a run: one file, or a folder and `max_depth` levels below it.

    Hidden folders are left out. Links are followed, but no folder and no linked file counts
    twice, so links that lead back up end there.

    Raises:
        InputError: Nothing is there, it cannot be listed, or it holds no known file.
    """
    path = Path(root)
    search = _searched(path, max_depth)
    return replace(
        _found(path, {kind: _sorted(found) for kind, found in search.files.items()}),
        others=search.others,
        unreadable=_sorted(search.unreadable),
        too_deep=_sorted(search.too_deep),
    )


def find_paths(root: str | Path, *, max_depth: int = MAX_DEPTH) -> Mapping[str, Sequence[str]]:
    """The same files as `find`, as texts by the name of their kind and in no order.

    Of a million files a Path each takes several times the memory of their names.
    """
    return _searched(Path(root), max_depth).files


def _searched(path: Path, max_depth: int) -> _Search:
    try:
        return _in_folder(path, max_depth) if path.is_dir() else _single(path)
    except OSError as error:
        raise InputError(_unreachable(path, error)) from error


def _unreachable(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return f"{path}: expected a log or a folder of a run, found nothing there; check the path"
    why = error.strerror or str(error)
    return f"{path}: {expected()}; it cannot be read ({why}); check its permissions"


def _single(path: Path) -> _Search:
    if not stat.S_ISREG(path.stat().st_mode):  # stat raises where nothing is there
        raise InputError(
            f"{path}: {expected()}; found a pipe, a socket or a device, which is read only once: "
            "save it to a file first"
        )
    names = _Names.known()
    kind = names.kind(path.name)
    if kind in names.by_content:
        kind = _kind_among(str(path)) or kind
    if not kind or was_changed_into_text(Opening(path)):
        if what := told_apart(Opening(path)):
            raise InputError(f"{path}: {expected()}; {what}")
        kind = kind_by_content(path)
    if not kind:
        raise InputError(
            f"{path}: {expected()}; found something that is none of these, neither by its name "
            "nor by its first bytes; give one of them or the folder that holds them"
        )
    return _Search(0, files={kind: [str(path)]})


def strangers(folder: Path) -> dict[Path, str]:
    """Files of a folder that are often taken for logs, and what they are; some, at most."""
    found: dict[Path, str] = {}
    for path in islice(sorted(folder.iterdir()), _MOST_OPENED):
        with suppress(OSError):
            if path.is_file() and (what := told_apart(Opening(path))):
                found[path] = what
    return found


@dataclass(slots=True)
class _Search:
    """What a walk has met so far."""

    max_depth: int
    names: _Names = field(default_factory=_Names.known)
    unknown: list[str] = field(default_factory=list)  # ends that formats share with other files
    shared: list[tuple[str, str]] = field(default_factory=list)  # kind by name, path
    files: dict[str, list[str]] = field(default_factory=dict)  # kind -> paths
    linked: list[tuple[str, str]] = field(default_factory=list)  # kind, path
    others: int = 0
    visited: set[tuple[int, int]] = field(default_factory=set)
    linked_folders: list[tuple[str, int]] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    why_unreadable: str = ""  # the first of them
    too_deep: list[str] = field(default_factory=list)


def _in_folder(root: Path, max_depth: int) -> _Search:
    with os.scandir(root):  # a root that cannot be listed is an error, a folder below is not
        above = root.resolve().parents
        search = _Search(max_depth, visited={_identity(folder) for folder in above})
    _walk(os.fspath(root), 0, search)
    # Folders before links to folders: a file has the path without links where it has one.
    while search.linked_folders:
        search.linked_folders.sort(reverse=True)
        _walk(*search.linked_folders.pop(), search)
    _add_by_content(search)
    _add_linked_files(search)
    if not search.files:
        raise InputError(_nothing(root, search))
    return search


def _found(root: Path, files: dict[str, tuple[Path, ...]]) -> Found:
    return Found(root, run_records=files.pop(_RUN_RECORDS, ()), files=files)


def _sorted(paths: list[str]) -> tuple[Path, ...]:
    return tuple(Path(path) for path in sorted(paths))


def _nothing(root: Path, search: _Search) -> str:
    number = plural(search.others, "other file") if search.others else "no file at all"
    limits = [f"searched {search.max_depth} levels deep"] if search.too_deep else []
    if search.unreadable:
        many = plural(len(search.unreadable), "folder")
        limits.append(f"{many} cannot be listed: {search.why_unreadable}")
    extra = f" ({', '.join(limits)})" if limits else ""
    for path, what in strangers(root).items():
        return f"{root}: {expected()}; in {path.name} {what}"
    return f"{root}: {expected()}; found {number}{extra}; give the folder that holds them"


def _walk(top: str, depth: int, search: _Search) -> None:
    pending = [(top, depth)]
    while pending:
        folder, level = pending.pop()
        try:
            identity = _identity(Path(folder))
            if identity in search.visited:
                continue
            search.visited.add(identity)
            with os.scandir(folder) as entries:
                pending += [(path, level + 1) for path in _folders(entries, level, search)]
        except OSError as error:
            search.unreadable.append(folder)
            search.why_unreadable = search.why_unreadable or error.strerror or str(error)


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


def _folders(entries: Iterator[os.DirEntry[str]], level: int, search: _Search) -> Iterator[str]:
    """Sort the entries of a folder into the search; yield those to descend into."""
    for entry in entries:
        if not _true(entry.is_dir):
            _take_file(entry, search)
        elif entry.name.startswith("."):
            continue
        elif level >= search.max_depth:
            search.too_deep.append(entry.path)
        elif entry.is_symlink():
            search.linked_folders.append((entry.path, level + 1))
        else:
            yield entry.path


def _take_file(entry: os.DirEntry[str], search: _Search) -> None:
    kind = search.names.kind(entry.name)
    if not kind and entry.name.endswith(search.names.perhaps) and _is_own_file(entry):
        search.unknown.append(entry.path)
    elif not kind or not _true(entry.is_file):
        search.others += 1
    elif entry.is_symlink():
        search.linked.append((kind, entry.path))
    elif kind in search.names.by_content:
        search.shared.append((kind, entry.path))
    else:
        search.files.setdefault(kind, []).append(entry.path)


def _is_own_file(entry: os.DirEntry[str]) -> bool:
    return not entry.is_symlink() and _true(entry.is_file)


def _add_by_content(search: _Search) -> None:
    """Sort files with unknown names into the search: as many as can be opened in a moment."""
    unknown = sorted(search.unknown)
    for path in unknown[:_MOST_OPENED]:
        kind = _kind_among(path)
        if kind:
            search.files.setdefault(kind, []).append(path)
        else:
            search.others += 1
    search.others += len(unknown[_MOST_OPENED:])
    for i, (by_name, path) in enumerate(sorted(search.shared)):
        kind = (_kind_among(path) if i < _MOST_OPENED else "") or by_name
        search.files.setdefault(kind, []).append(path)


def _kind_among(path: str) -> str:
    try:
        opening = Opening(Path(path))
        return next((k for known in readers.FORMATS if (k := known.sniff_among(opening))), "")
    except OSError:
        return ""


def _true(question: Callable[[], bool]) -> bool:
    """The answer about an entry; no for a link that leads nowhere or in circles."""
    try:
        return question()
    except OSError:
        return False


def _add_linked_files(search: _Search) -> None:
    if not search.linked:
        return
    known = {os.path.realpath(path) for paths in search.files.values() for path in paths}
    for kind, path in sorted(search.linked):
        target = os.path.realpath(path)
        if target not in known:
            known.add(target)
            search.files.setdefault(kind, []).append(path)
