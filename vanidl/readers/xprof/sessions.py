"""Profiles of TensorFlow and JAX: which of a session's files to read, and of which process.

A session is written for two viewers: `.xplane.pb` says when it was and is used where it can be
read, else `.trace.json.gz`. Of TensorFlow's profiles the process is known by the event file
that it keeps beside them, of JAX's by the profile itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from vanidl.readers.file_names import event_file_name, log_folder, session_name
from vanidl.readers.format import Files, Reading, Records
from vanidl.readers.records import ProfileTrace, same_host
from vanidl.readers.xprof import trace_viewer, xplane
from vanidl.readers.xprof.input_pipeline import read_durations
from vanidl.readers.xprof.kinds import STEP_TABLE, TRACE_VIEWER, XPLANE

_TRAIN = "train"  # Keras keeps event files of training there, and the profile beside or in it


def read(files: Files, reading: Reading) -> Records:
    """One profile for each host and session that can be read, and step tables without times."""
    how: dict[str, Any] = {"wait_names": reading.wait_names, "utc_offset_s": reading.utc_offset_s}
    paths = files.get(XPLANE, ())
    found = reading.each(
        "TensorFlow and JAX profiles", lambda p: xplane.read_profile(p, **how), paths
    )
    known = {_session(Path(profile.path)) for profile in found}
    rest = [path for path in files.get(TRACE_VIEWER, ()) if _session(path) not in known]
    found += reading.each("TensorFlow traces", lambda p: trace_viewer.read_profile(p, **how), rest)
    durations = reading.each("step tables", read_durations, files.get(STEP_TABLE, ()))
    profiles = tuple(_with_pid(profile, reading.every) for profile in found)
    return Records(profiles=profiles, durations=tuple(durations))


def _session(path: Path) -> tuple[Path, str]:
    """Folder and host of a profile."""
    name = session_name(path)
    return path.absolute().parent, name.host if name else path.name


def _with_pid(profile: ProfileTrace, every: Iterable[Path]) -> ProfileTrace:
    """The profile with the process whose event files lie beside it, where it is one."""
    if profile.pid is not None:
        return profile
    folder = log_folder(profile.path)
    beside = {folder, folder / _TRAIN} if folder else set()
    names = [event_file_name(p) for p in every if p.absolute().parent in beside]
    pids = {n.pid for n in names if n and n.pid is not None and same_host(n.host, profile.host)}
    return replace(profile, pid=pids.pop()) if len(pids) == 1 else profile
