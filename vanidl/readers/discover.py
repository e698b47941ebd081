"""Which files of a folder say something about a run, told by their names alone.

A single file with an unknown name is known by its first bytes, and so are files of a folder
with an end that formats share with others (`.json`). Nothing else is opened.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from itertools import islice
from pathlib import Path

from vanidl.errors import InputError
from vanidl.formatting.units import plural
from vanidl.readers import registry
from vanidl.readers.format import FileKind, Format, Opening
from vanidl.schema.dataclass import dataclass

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
        kinds = [kind for known in registry.FORMATS for kind in known.kinds]
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


def guess_kind_by_name(name: str) -> str:
    """The kind of a file of this name, "" for none."""
    return _Names.known().kind(name)


def guess_kind_by_content(path: Path) -> str:
    """The kind of a file by its first bytes, "" for none.

    Raises:
        OSError: The file cannot be read.
    """
    opening = Opening(path)
    return next((kind for known in registry.FORMATS if (kind := known.sniff(opening))), "")


def list_expected() -> str:
    """What a run consists of, for messages: formats that record I/O first."""
    formats = sorted(registry.FORMATS, key=lambda one: not one.traces_io)
    return f"expected a run: {', '.join(one.expected for one in formats)}"


def find(root: str | Path, *, max_depth: int = MAX_DEPTH) -> Found:
    """Return the files of a run: one file, or a folder and `max_depth` levels below it.

    Hidden folders are left out. Links are followed, but no folder and no linked file counts
    twice, so links that lead back up end there.

    Raises:
        InputError: Nothing is there, it cannot be listed, or it holds no known file.
    """
    path = Path(root)
    search = _search(path, max_depth)
    files = {kind: _sort_paths(paths) for kind, paths in search.files.items()}
    return Found(
        path,
        run_records=files.pop(_RUN_RECORDS, ()),
        files=files,
        others=search.others,
        unreadable=_sort_paths(search.unreadable),
        too_deep=_sort_paths(search.too_deep),
    )


def find_paths(root: str | Path, *, max_depth: int = MAX_DEPTH) -> Mapping[str, Sequence[str]]:
    """The same files as `find`, as texts by the name of their kind and in no order.

    Of a million files a Path each takes several times the memory of their names.
    """
    return _search(Path(root), max_depth).files


def _search(path: Path, max_depth: int) -> _Search:
    try:
        return _search_folder(path, max_depth) if path.is_dir() else _take_single(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(
            f"{path}: expected a log or a folder of a run, found nothing there; check the path"
        ) from error
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError(
            f"{path}: {list_expected()}; it cannot be read ({why}); check its permissions"
        ) from error


def _take_single(path: Path) -> _Search:
    if not stat.S_ISREG(path.stat().st_mode):  # stat raises where nothing is there
        raise InputError(
            f"{path}: {list_expected()}; found a pipe, a socket or a device, which is read only "
            "once: save it to a file first"
        )
    names = _Names.known()
    kind = names.kind(path.name)
    if kind in names.by_content:
        kind = _guess_kind_among(str(path)) or kind
    if not kind or was_changed_into_text(Opening(path)):
        if what := explain_foreign(Opening(path)):
            raise InputError(f"{path}: expected a run, {what}")
        kind = guess_kind_by_content(path)
    if not kind:
        raise InputError(
            f"{path}: {list_expected()}; found something that is none of these, neither by its "
            "name nor by its first bytes; give one of them or the folder that holds them"
        )
    return _Search(0, files={kind: [str(path)]})


def find_strangers(folder: Path) -> dict[Path, str]:
    """Files of a folder that are often taken for logs, and what they are; some, at most."""
    strangers: dict[Path, str] = {}
    for path in islice(sorted(folder.iterdir()), _MOST_OPENED):
        with suppress(OSError):
            if path.is_file() and (what := explain_foreign(Opening(path))):
                strangers[path] = what
    return strangers


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


def _search_folder(root: Path, max_depth: int) -> _Search:
    with os.scandir(root):  # a root that cannot be listed is an error, a folder below is not
        above = root.resolve().parents
        search = _Search(max_depth, visited={_identify(folder) for folder in above})
    _walk(os.fspath(root), 0, search)
    # Folders before links to folders: a file has the path without links where it has one.
    while search.linked_folders:
        search.linked_folders.sort(reverse=True)
        _walk(*search.linked_folders.pop(), search)
    _add_by_content(search)
    # Links to files last, of those that nothing else led to.
    direct = (path for paths in search.files.values() for path in paths)
    targets = {os.path.realpath(path) for path in direct} if search.linked else set()
    for kind, path in sorted(search.linked):
        target = os.path.realpath(path)
        if target not in targets:
            targets.add(target)
            search.files.setdefault(kind, []).append(path)
    if not search.files:
        raise InputError(_explain_nothing(root, search))
    return search


def _sort_paths(paths: list[str]) -> tuple[Path, ...]:
    return tuple(Path(path) for path in sorted(paths))


def _explain_nothing(root: Path, search: _Search) -> str:
    number = plural(search.others, "other file") if search.others else "no file at all"
    limits = [f"searched {search.max_depth} levels deep"] if search.too_deep else []
    if search.unreadable:
        many = plural(len(search.unreadable), "folder")
        limits.append(f"{many} cannot be listed: {search.why_unreadable}")
    extra = f" ({', '.join(limits)})" if limits else ""
    for path, what in find_strangers(root).items():
        return f"{root}: expected a run, in {path.name} {what}"
    return f"{root}: {list_expected()}; found {number}{extra}; give the folder that holds them"


def _walk(top: str, depth: int, search: _Search) -> None:
    pending = [(top, depth)]
    while pending:
        folder, level = pending.pop()
        try:
            identity = _identify(Path(folder))
            if identity in search.visited:
                continue
            search.visited.add(identity)
            with os.scandir(folder) as entries:
                pending += [(path, level + 1) for path in _sort_entries(entries, level, search)]
        except OSError as error:
            search.unreadable.append(folder)
            search.why_unreadable = search.why_unreadable or error.strerror or str(error)


def _identify(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


def _sort_entries(
    entries: Iterator[os.DirEntry[str]], level: int, search: _Search
) -> Iterator[str]:
    """Sort the entries of a folder into the search; yield those to descend into."""
    for entry in entries:
        if not _is_true(entry.is_dir):
            kind = search.names.kind(entry.name)
            if not kind and entry.name.endswith(search.names.perhaps) and _is_own_file(entry):
                search.unknown.append(entry.path)
            elif not kind or not _is_true(entry.is_file):
                search.others += 1
            elif entry.is_symlink():
                # Links come last: what they lead to may be in the folder as well.
                search.linked.append((kind, entry.path))
            elif kind in search.names.by_content:
                search.shared.append((kind, entry.path))
            else:
                search.files.setdefault(kind, []).append(entry.path)
        elif entry.name.startswith("."):
            continue
        elif level >= search.max_depth:
            search.too_deep.append(entry.path)
        elif entry.is_symlink():
            search.linked_folders.append((entry.path, level + 1))
        else:
            yield entry.path


def _is_own_file(entry: os.DirEntry[str]) -> bool:
    return not entry.is_symlink() and _is_true(entry.is_file)


def _add_by_content(search: _Search) -> None:
    """Sort files with unknown names into the search: as many as can be opened in a moment."""
    unknown = sorted(search.unknown)
    for path in unknown[:_MOST_OPENED]:
        kind = _guess_kind_among(path)
        if kind:
            search.files.setdefault(kind, []).append(path)
        else:
            search.others += 1
    search.others += len(unknown[_MOST_OPENED:])
    for i, (by_name, path) in enumerate(sorted(search.shared)):
        kind = (_guess_kind_among(path) if i < _MOST_OPENED else "") or by_name
        search.files.setdefault(kind, []).append(path)


def _guess_kind_among(path: str) -> str:
    try:
        opening = Opening(Path(path))
        return next((k for known in registry.FORMATS if (k := known.sniff_among(opening))), "")
    except OSError:
        return ""


def _is_true(question: Callable[[], bool]) -> bool:
    """The answer about an entry; no for a link that leads nowhere or in circles."""
    try:
        return question()
    except OSError:
        return False


# Which folders below a folder are runs with I/O.

_MOST_DEEP = 8
_PARTS = {"tb", "plugins", "profile", *(known.name for known in registry.FORMATS)}
"""Folders inside a run's: what one tool wrote."""


def find_runs(root: Path) -> dict[str, Path]:
    """Runs by name, which is their path below `root` ("." for itself), sorted.

    A run is a folder that `vanidl record` left (it holds a run.json), or the topmost folder in
    which logs of a tracer lie; a folder named after the tool that wrote it belongs to the run
    around it.
    """
    try:
        files = find_paths(root, max_depth=_MOST_DEEP)
    except InputError:
        return {}

    def list_folders(kinds: Iterable[str]) -> set[Path]:
        """Those that hold such files: there may be many in one."""
        return {Path(f) for f in {p.rpartition("/")[0] for k in kinds for p in files.get(k, ())}}

    formats = (known for known in registry.FORMATS if known.traces_io)
    kinds = (kind.name for known in formats for kind in known.kinds)
    recorded = list_folders([_RUN_RECORDS])
    # What one tool wrote lies in a folder of its own, inside that of the run.
    traced = set[Path]()
    for folder in list_folders(kinds):
        while folder != root and folder.name in _PARTS:
            folder = folder.parent
        traced.add(folder)
    # Logs belong to the topmost folder of a run: one that lies in no other, nor in a recorded run.
    tops = {folder for folder in traced if not set(folder.parents) & (traced | recorded)}
    named = {
        "." if folder == root else folder.relative_to(root).as_posix(): folder
        for folder in recorded | tops
    }
    return dict(sorted(named.items()))


def is_within(run: Path, roots: Sequence[Path]) -> bool:
    """Whether all files of a run lie below the roots, wherever links lead.

    Raises:
        InputError: the run is gone.
    """
    found = find(run)
    allowed = [root.resolve() for root in roots]
    files = (*found.run_records, *(file for files in found.files.values() for file in files))
    return all(any(file.resolve().is_relative_to(root) for root in allowed) for file in files)


def get_signature(run: Path) -> tuple[tuple[str, int, int], ...]:
    """Path, size and time of change of every file of a run: other values, other content.

    Raises:
        InputError: the run is gone.
    """
    found = find(run)
    paths = [*found.run_records, *(path for paths in found.files.values() for path in paths)]
    states = []
    for path in paths:
        nbytes = changed_ns = -1
        with suppress(FileNotFoundError):  # gone between listing and looking
            known = path.stat()
            nbytes, changed_ns = known.st_size, known.st_mtime_ns
        states.append((str(path), nbytes, changed_ns))
    return tuple(sorted(states))


# Files that are often taken for logs or profiles: what they are, and what to give instead.


@dataclass(frozen=True, slots=True)
class _Way:
    """What such a file is, and the way out; `begins` is a regular expression for its text."""

    what: str
    remedy: str
    begins: str = ""


_PROFILE = "record the training with torch.profiler and give what that exports (*.pt.trace.json)"
_LOG = "give the .darshan file that it was made of"
_DATA = "it is data, or made of it: give the logs of the run"
_LOG_OR_PROFILE = (
    "record the run with vanidl record or Darshan, and its training with torch.profiler"
)
_UTF8 = "convert it: iconv -f UTF-16 -t UTF-8"
_PICKLE = _Way("a pickle, as of PyTorch's memory snapshot", _PROFILE)
_PERFETTO = _Way("a trace of Perfetto", _PROFILE)
_NSIGHT = _Way("a report of Nsight Systems", _PROFILE)

_BY_HEAD: dict[bytes, _Way] = {
    b"\xff\xfe": _Way("UTF-16 text, as a redirect of PowerShell writes it", _UTF8),
    b"\xfe\xff": _Way("UTF-16 text", _UTF8),
    b"PK\x03\x04": _Way("a zip archive", "unpack it and give what is in it"),
    b"\x28\xb5\x2f\xfd": _Way("a file packed by zstd", "unpack it with zstd -d"),
    b"\xfd7zXZ\0": _Way("a file packed by xz", "unpack it with xz -d"),
    b"BZh": _Way("a file packed by bzip2", "unpack it with bzip2 -d"),
    b"SQLite format 3\0": _Way(
        "a database as Nsight Systems and rocprofv3 export",
        "run rocprofv3 with --output-format json, or record the training with torch.profiler "
        "(*.pt.trace.json)",
    ),
    b"\x80\x02": _PICKLE,
    b"\x80\x04": _PICKLE,
    b"\x80\x05": _PICKLE,
    b"%PDF": _Way("a PDF, as of darshan-job-summary", _LOG),
    b"PAR1": _Way("a Parquet file", _DATA),
    b"\x89HDF\r\n": _Way("an HDF5 file", _DATA),
    b"\x93NUMPY": _Way("a NumPy array", _DATA),
    b"\x89PNG": _Way("a picture", _DATA),
    b"\x7fELF": _Way("a program or a library", "give the log that it left"),
    b"\x03BOTF2": _Way("a trace of OTF2, as Score-P writes it", _LOG_OR_PROFILE),
    b"HPCTOOLKIT": _Way("a database of HPCToolkit", _LOG_OR_PROFILE),
}
"""By the first bytes."""

_BY_END: dict[str, _Way] = {
    ".nsys-rep": _NSIGHT,
    ".qdrep": _NSIGHT,
    ".ncu-rep": _Way("a report of Nsight Compute", _PROFILE),
    ".pftrace": _PERFETTO,
    ".perfetto-trace": _PERFETTO,
    ".et": _Way("an execution trace of Chakra, a graph of a workload without times", _PROFILE),
    ".otf2": _Way("a trace of OTF2, as Score-P writes it", _LOG_OR_PROFILE),
}
"""By the end of the name."""

_EVENT = r"\[\s*\{(?:[^{}]|\{[^{}]*\})*"  # the first event of a bare array, up to some member
_BY_TEXT: tuple[_Way, ...] = (
    _Way("a web page", "give the logs that it was made of", r"<!doctype html|<html"),
    _Way("the output of darshan-parser", _LOG, r"# darshan log version"),
    _Way(
        "a log of Darshan 1",
        "darshan-parser of darshan-util 2.x prints what is in it; no vanidl reads it",
        r"1\.2\d\0{4}",
    ),
    _Way("the output of darshan-dxt-parser", _LOG, r"# \*{3,80}\s*# DXT|# DXT, file_id"),
    _Way(
        "a PyTorch execution trace (Chakra), which has no times of devices",
        _PROFILE,
        r'\{[^{}\[]*"schema"\s*:\s*"[\d.]+(-chakra|"[^{}\[]*"nodes"\s*:)',
    ),
    _Way(
        "a workload graph of Chakra, which has no times",
        _PROFILE,
        r'\{\s*"workload_graph"\s*:',
    ),
    _Way("a memory timeline of PyTorch, or bare numbers", _PROFILE, r"\[\s*\[\s*-?\d"),
    _Way(
        "a trace of the profiler of PyTorch before 1.8, which has neither steps nor waits",
        _PROFILE,
        _EVENT + r'"pid"\s*:\s*"(CPU|CUDA) functions"',
    ),
    _Way(
        "a trace whose ts is text, as trace_view.json of torch_npu (Ascend)",
        "write every ts as a number and cat beside it (cpu_op, kernel)",
        _EVENT + r'"ts"\s*:\s*"\d',
    ),
    _Way("a profile of speedscope or py-spy", _PROFILE, r'\{[^{}]*"\$schema"[^{}]*speedscope'),
    _Way(
        "the output of strace",
        "record the run with vanidl record",
        r"(\d{1,9} +)?([\d:.]{5,20} )?\w{2,40}\([^\n]{0,500}\) += -?\d",
    ),
)
"""By how the text begins, packed by gzip or not."""

_BEGINNING = 4096
_REPLACED = b"\xef\xbf\xbd"  # U+FFFD in UTF-8: in place of every byte that is no text
_MANY_REPLACED = 8
_AS_TEXT = _Way(
    "binary content that was changed into text",
    "copy the file again, as binary (each byte that is no text was replaced by U+FFFD)",
)


def explain_foreign(opening: Opening) -> str:
    """What the file is and what to do, `found X; do Y`; "" where it is none of these.

    Raises:
        OSError: It cannot be read.
    """
    text = opening.text[:_BEGINNING].decode("utf-8", "replace")
    ways = [_AS_TEXT] if was_changed_into_text(opening) else []
    ways += [way for start, way in _BY_HEAD.items() if opening.head.startswith(start)]
    ways += [way for end, way in _BY_END.items() if opening.name.endswith(end)]
    ways += [way for way in _BY_TEXT if re.match(way.begins, text, re.IGNORECASE)]
    return f"found {ways[0].what}; {ways[0].remedy}" if ways else ""


def was_changed_into_text(opening: Opening) -> bool:
    """Whether bytes that are no text were lost on the way, as in a copy or a download as text.

    Raises:
        OSError: It cannot be read.
    """
    return not opening.is_json and opening.text[:_BEGINNING].count(_REPLACED) >= _MANY_REPLACED
