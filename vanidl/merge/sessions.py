"""Profiles of TensorFlow and JAX: which of a session's files to read, and of which process.

A session is written for two viewers: `.xplane.pb` says when it was and is used where it can be
read, else `.trace.json.gz`. Of TensorFlow's profiles the process is known by the event file
that it keeps beside them, of JAX's by the profile itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from vanidl.merge.jobs import same_host
from vanidl.readers.discover import Found
from vanidl.readers.file_names import event_file_name, log_folder, session_name
from vanidl.readers.records import ProfileTrace
from vanidl.readers.xprof import trace_viewer, xplane

Piece = TypeVar("Piece")

_TRAIN = "train"  # Keras keeps event files of training there, and the profile beside or in it


class Reader(Protocol):
    """Reads files one by one; what cannot be read becomes a notice."""

    def all(self, what: str, read: Callable[[Path], Piece], paths: Sequence[Path]) -> list[Piece]:
        """The pieces of all readable paths."""


@dataclass(frozen=True, slots=True)
class SessionFiles:
    """Files of sessions, and event files that may tell whose they are."""

    xplane: tuple[Path, ...]
    trace_viewer: tuple[Path, ...]
    event_files: tuple[Path, ...]

    @classmethod
    def of(cls, every: Sequence[Found]) -> SessionFiles:
        """Those of several folders together, each once."""
        names = ("xplane", "trace_viewer", "event_files")
        columns = [[p for found in every for p in getattr(found, name)] for name in names]
        return cls(*(tuple(dict.fromkeys(paths)) for paths in columns))


def read_sessions(
    files: SessionFiles, wait_names: Sequence[str], utc_offset_s: int, reader: Reader
) -> list[ProfileTrace]:
    """One profile for each host and session that can be read.

    Args:
        files: the files to read.
        wait_names: regular expressions of spans that are input waits.
        utc_offset_s: local time minus UTC where they were recorded.
        reader: reads the files and keeps notices of those it cannot.
    """
    how: dict[str, Any] = {"wait_names": wait_names, "utc_offset_s": utc_offset_s}
    found = reader.all(
        "TensorFlow and JAX profiles", lambda p: xplane.read_profile(p, **how), files.xplane
    )
    known = {_session(Path(profile.path)) for profile in found}
    rest = [path for path in files.trace_viewer if _session(path) not in known]
    found += reader.all("TensorFlow traces", lambda p: trace_viewer.read_profile(p, **how), rest)
    return [_with_pid(profile, files.event_files) for profile in found]


def _session(path: Path) -> tuple[Path, str]:
    """Folder and host of a profile."""
    name = session_name(path)
    return path.absolute().parent, name.host if name else path.name


def _with_pid(profile: ProfileTrace, event_files: Iterable[Path]) -> ProfileTrace:
    """The profile with the process whose event files lie beside it, where it is one."""
    if profile.pid is not None:
        return profile
    folder = log_folder(profile.path)
    beside = {folder, folder / _TRAIN} if folder else set()
    names = [event_file_name(p) for p in event_files if p.absolute().parent in beside]
    pids = {n.pid for n in names if n and n.pid is not None and same_host(n.host, profile.host)}
    return replace(profile, pid=pids.pop()) if len(pids) == 1 else profile
