"""Are these logs whole, and what do they miss? One verdict a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vanidl.errors import InputError
from vanidl.readers import discover, registry
from vanidl.readers.discover import explain_foreign
from vanidl.readers.format import FileKind, Format, Opening, Progress
from vanidl.readers.verdict import FOREIGN, UNREADABLE, Verdict, report_empty

_Entry = tuple[FileKind | None, Path]


def check(paths: Sequence[str | Path], progress: Progress | None = None) -> tuple[Verdict, ...]:
    """One verdict for each log and trace file at the paths, in order of path within each.

    A path is a file, or a folder that is searched as for any command. Nothing raises: what
    cannot be read is a verdict too.
    """
    entries = [entry for path in paths for entry in _entries(Path(path))]
    counter = _Counter(progress, len(entries))
    verdicts: dict[int, Verdict] = {}
    for known in registry.FORMATS:
        verdicts |= _checked(known, entries, counter)
    for i, (kind, path) in enumerate(entries):
        if kind is None:
            counter.step()
            verdicts[i] = _of_no_kind(path)
    return tuple(verdicts[i] for i in range(len(entries)))


class _Counter:
    """Tells of each file before it is checked."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._done, self._total = 0, total

    def step(self) -> None:
        """The next file is about to be checked."""
        if self._progress:
            self._progress("files", self._done, self._total)
        self._done += 1


def _checked(known: Format, entries: Sequence[_Entry], counter: _Counter) -> dict[int, Verdict]:
    """The verdicts on the files of one format, by their place among the entries."""
    mine = [(i, kind, path) for i, (kind, path) in enumerate(entries) if kind in known.kinds]
    if not mine:
        return {}
    verdicts = known.check([(kind, path) for _, kind, path in mine if kind], counter.step)
    return {i: verdict for (i, _, _), verdict in zip(mine, verdicts, strict=True)}


def _entries(path: Path) -> list[_Entry]:
    """(kind, file) for everything at a path."""
    try:
        found = discover.find(path)
    except InputError:
        strangers = discover.find_strangers(path) if path.is_dir() else {}
        return [(None, each) for each in strangers or [path]]
    return [
        (kind, file)
        for known in registry.FORMATS
        for kind, files in found.of(known).items()
        for file in files
    ]


def _told_apart(path: Path) -> str:
    """What a file is that is often taken for a log, "" for others."""
    try:
        return explain_foreign(Opening(path))
    except OSError:
        return ""


def _of_no_kind(path: Path) -> Verdict:
    state, kind = FOREIGN, ""
    why = "neither its name nor its first bytes are those of a log or a profile"
    if path.is_dir():
        kind = "folder"
        why = "expected logs or profiler output in this folder, found none; give another folder"
    elif not path.exists():
        state, why = UNREADABLE, "nothing is there under this name; check the path"
    elif not path.is_file():
        why = "expected a file, found a pipe, a socket or a device: save what it gives to a file"
    elif path.stat().st_size == 0:
        return report_empty(path, kind)
    else:
        why = _told_apart(path) or why
    return Verdict(str(path), kind, state, read=False, missing=(why,))
