"""Whole paths of the files that DFTracer's events name.

A name is as the program gave it: relative ones count from the folder that the process was
in, which starts as `cwd` and changes with chdir. A forked child uses hashes that only its
parent's file defines, so all files of a run are searched.
"""

from __future__ import annotations

import posixpath
from collections import ChainMap
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from vanidl.model.trace import FILES_NOT_RECORDED
from vanidl.readers.dftracer.calls import is_call
from vanidl.readers.dftracer.trace_file import Events, Start, TraceFile

Int64Array = NDArray[np.int64]

ALL_FILES = 0
"""The code of what stands for all files of calls that name none."""


class PathTable:
    """All paths of a run, numbered as they come."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {FILES_NOT_RECORDED: ALL_FILES}

    def code(self, path: str) -> int:
        """The number of a path."""
        return self._codes.setdefault(path, len(self._codes))

    def paths(self) -> tuple[str, ...]:
        """Paths in the order of their numbers."""
        return tuple(self._codes)


def names_of(file: TraceFile, everyone: Mapping[str, str]) -> Mapping[str, str]:
    """Hash -> name: the file's own table first, as old hashes are short and can collide."""
    return ChainMap(file.files, dict(everyone))


def paths_of(
    events: Events, names: Mapping[str, str], start: Start | None, table: PathTable
) -> Int64Array:
    """Code of the path of each event of one process, -1 where it names none."""
    changes = _folders(events, names, start)
    moments = np.array([ts for ts, _ in changes[1:]], np.int64)
    stay = np.searchsorted(moments, events.columns["ts"], side="right")
    file = events.columns["file"]
    keys = file * len(changes) + stay
    used, place = np.unique(np.where(file < 0, -1, keys), return_inverse=True)
    codes = [_code(int(key), events, names, changes, table) for key in used]
    return np.array(codes, np.int64)[place] if len(codes) else np.empty(0, np.int64)


def _code(
    key: int,
    events: Events,
    names: Mapping[str, str],
    changes: list[tuple[int, str]],
    table: PathTable,
) -> int:
    if key < 0:
        return -1
    file, stay = divmod(key, len(changes))
    hashed = events.files[file]
    return table.code(_joined(changes[stay][1], names.get(hashed, hashed)))


def _folders(
    events: Events, names: Mapping[str, str], start: Start | None
) -> list[tuple[int, str]]:
    """(time, folder from then on), the first one from the start of the process."""
    folder = names.get(start.cwd, "") if start else ""
    found = [(0, folder)]
    rows = np.flatnonzero(is_call(events, "POSIX", ("chdir",)) & (events.columns["ret"] == 0))
    for row in rows[np.argsort(events.columns["ts"][rows], kind="stable")].tolist():
        file = int(events.columns["file"][row])
        if file >= 0:
            hashed = events.files[file]
            folder = _joined(folder, names.get(hashed, hashed))
            ended = int(events.columns["ts"][row] + events.columns["dur"][row])
            found.append((ended, folder))
    return found


def _joined(folder: str, name: str) -> str:
    if name.startswith("/") or (folder and "/" in name + "/"):
        return posixpath.normpath(posixpath.join(folder or "/", name))
    return name
