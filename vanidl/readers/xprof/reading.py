"""Profiles of TensorFlow and JAX: which of a session's files to read, and of which process.

A session is written for two viewers: `.xplane.pb` says when it was and is used where it can be
read, else `.trace.json.gz`. Of TensorFlow's profiles the process is known by the event file
that it keeps beside them, of JAX's by the profile itself.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vanidl.encoding.budget import read_whole
from vanidl.encoding.protobuf import NotProtobuf, fields
from vanidl.errors import InputError
from vanidl.readers.format import Files, Reading, Records
from vanidl.readers.names import find_log_folder, parse_event_file_name, parse_session_name
from vanidl.readers.records import ProfileTrace, StepDurations, same_host
from vanidl.readers.xprof import STEP_TABLE, TRACE_VIEWER, XPLANE, trace_viewer, xplane

_TRAIN = "train"  # Keras keeps event files of training there, and the profile beside or in it


def read_sessions(files: Files, reading: Reading) -> Records:
    """One profile for each host and session that can be read, and step tables without times."""
    # Of a session the file that says when it was; else the one of the trace viewer.
    how: dict[str, Any] = {"wait_names": reading.wait_names, "utc_offset_s": reading.utc_offset_s}
    paths = files.get(XPLANE, ())
    sessions = reading.each(
        "TensorFlow and JAX profiles", lambda p: xplane.read_xplane(p, **how), paths
    )
    identities = {_identify_session(Path(profile.path)) for profile in sessions}
    rest = [
        path for path in files.get(TRACE_VIEWER, ()) if _identify_session(path) not in identities
    ]
    sessions += reading.each("TensorFlow traces", lambda p: trace_viewer.read_trace(p, **how), rest)
    durations = reading.each("step tables", read_durations, files.get(STEP_TABLE, ()))
    profiles = tuple(_add_pid(profile, reading.every) for profile in sessions)
    return Records(profiles=profiles, durations=tuple(durations))


def _identify_session(path: Path) -> tuple[Path, str]:
    """Folder and host of a profile."""
    name = parse_session_name(path)
    return path.absolute().parent, name.host if name else path.name


def _add_pid(profile: ProfileTrace, every: Iterable[Path]) -> ProfileTrace:
    """The profile with the process whose event files lie beside it, where it is one."""
    if profile.pid is not None:
        return profile
    folder = find_log_folder(profile.path)
    beside = {folder, folder / _TRAIN} if folder else set()
    names = [parse_event_file_name(p) for p in every if p.absolute().parent in beside]
    pids = {n.pid for n in names if n and n.pid is not None and same_host(n.host, profile.host)}
    return replace(profile, pid=pids.pop()) if len(pids) == 1 else profile


# TensorBoard's old `.input_pipeline.pb`: how long each step took, and nothing on when.
#
# Durations alone cannot be laid over the I/O, so no overlap is claimed from them. Its waits
# for input count tf.data only and are not taken over: in a job that reads elsewhere they are 0
# without meaning it. Message InputPipelineAnalysisResult of tensorflow.profiler.

SOURCE = "tensorboard-input-pipeline"

_STEP_DETAILS, _DETAILS_BODY = 4, 2
_STEP_NUMBER, _STEP_TIME_MS = 1, 2
_LONGEST_MS = 1e12
_EXPECTED = "expected a TensorBoard input pipeline analysis"
_REMEDY = "give a *.input_pipeline.pb file that TensorBoard's profiler wrote"


def read_durations(path: str | Path) -> StepDurations:
    """The duration of every step, in the order of the file.

    Raises:
        InputError: The file cannot be read, is no such analysis, or holds no step.
    """
    try:
        data = read_whole(path)
        rows = [_read_step(detail) for detail in fields(memoryview(data)).messages(_STEP_DETAILS)]
    except OSError as error:
        found = str(error.strerror)
        raise InputError(f"{path}: {_EXPECTED}, found {found}; check the path") from error
    except NotProtobuf as error:
        raise InputError(f"{path}: {_EXPECTED}, found {error}; {_REMEDY}") from error

    # Steps whose duration makes sense, from ms to ns.
    usable = [(step, ms) for step, ms in rows if math.isfinite(ms) and 0 <= ms < _LONGEST_MS]
    if not usable:
        raise InputError(f"{path}: {_EXPECTED}, found one without steps; {_REMEDY}")
    name = parse_session_name(path)
    columns = (
        np.array([step for step, _ in usable], np.int64).astype(np.int32),
        np.array([round(ms * 1e6) for _, ms in usable], np.int64),
    )
    for column in columns:
        column.setflags(write=False)
    return StepDurations(str(path), SOURCE, name.host if name else "", *columns)


def _read_step(detail: memoryview) -> tuple[int, float]:
    """(step number, duration in ms) of one entry, which wraps its message in an Any."""
    bodies = fields(detail).messages(_DETAILS_BODY)
    if not bodies:
        return 0, math.nan
    body = fields(bodies[-1])
    return body.varint(_STEP_NUMBER) & 0x7FFFFFFF, struct.unpack("<d", body.fixed64(_STEP_TIME_MS))[
        0
    ]
