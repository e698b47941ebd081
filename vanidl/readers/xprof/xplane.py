"""TensorFlow and JAX profiles of today: `plugins/profile/SESSION/HOST.xplane.pb`.

Times are those of the machine's clock: the profile says when it began. Profiles that do not
are placed by the name of their folder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vanidl.errors import InputError
from vanidl.readers.budget import read_whole
from vanidl.readers.encoding.protobuf import NotProtobuf
from vanidl.readers.file_names import session_name
from vanidl.readers.records import ProfileTrace
from vanidl.readers.xprof import span_kinds, start_time, xspace
from vanidl.readers.xprof.events import NO_STEP, SessionEvents
from vanidl.readers.xprof.profile import Writer, compiled, profile_trace
from vanidl.readers.xprof.span_kinds import NONE, Label
from vanidl.readers.xprof.start_time import Placed
from vanidl.readers.xprof.xspace import ABSENT, Int64Array, Line, Plane, Space

SOURCE = "xplane"

_STEP, _HLO = "step_num", "hlo_op"
_BEGAN_NS, _PID = "profile_start_time", "process_id"
_LARGEST_PID = 2**31 - 1
_EXPECTED = "expected a TensorFlow or JAX profile"
_REMEDY = "give a *.xplane.pb file that TensorFlow's or JAX's profiler wrote"


def read_profile(
    path: str | Path, *, wait_names: Sequence[str] = (), utc_offset_s: int = 0
) -> ProfileTrace:
    """The spans of one profile, sorted by start.

    Of a cut file the planes before the cut are used; `losses` says what is missing. A thread
    or device stream has a code of its own.

    Args:
        path: The profile.
        wait_names: Regular expressions, searched in names of events of the host, that mark
            input waits beside `span_kinds.WAIT_NAMES`.
        utc_offset_s: Local time minus UTC, for profiles that do not say when they began.

    Raises:
        InputError: The file cannot be read, is no such profile, or holds nothing of use.
        UsageError: One of `wait_names` is no regular expression.
    """
    waits = compiled(wait_names)
    try:
        space = xspace.space(memoryview(read_whole(path)))
        collected = _collect(space, waits)
    except OSError as error:
        raise InputError(f"{path}: {_EXPECTED}, found {error.strerror}; check the path") from error
    except NotProtobuf as error:
        raise InputError(f"{path}: {_EXPECTED}, found {error}; {_REMEDY}") from error
    if not collected.seen:
        what = space.loss or "a file without events"
        raise InputError(f"{path}: {_EXPECTED}, found {what}; {_REMEDY}")
    events, refused = start_time.possible(collected.events())
    losses = _losses(space, refused)
    writer = Writer(Path(path), SOURCE, _host(Path(path), space), _pid(space), losses)
    placed = _placed(Path(path), space, events, utc_offset_s)
    return profile_trace(events, writer, waits, placed)


@dataclass(slots=True)
class _Collected:
    """The events that may mean something, line by line."""

    seen: int = 0  # events of any kind
    labels: dict[Label, int] = field(default_factory=dict)
    columns: list[tuple[Int64Array, Int64Array, Int64Array, Int64Array]] = field(
        default_factory=list
    )

    def add(self, plane: Plane, line: Line, waits: Sequence[re.Pattern[str]]) -> None:
        """Keep what has a meaning of one line."""
        self.seen += len(line.start_ns)
        step = line.stats[_STEP]
        numbered, is_hlo = step != ABSENT, line.stats[_HLO] != ABSENT
        key = line.name_code * 4 + numbered * 2 + is_hlo
        different, place = np.unique(key, return_inverse=True)
        labels = [_label(plane, line.name, code) for code in different.tolist()]
        useful = _useful(labels, waits)[place]
        codes = [self.labels.setdefault(label, len(self.labels)) for label in labels]
        self.columns.append(
            (
                line.start_ns[useful],
                line.end_ns[useful],
                np.array(codes, np.int64)[place][useful],
                np.where(numbered, np.maximum(step, NO_STEP), NO_STEP)[useful],
            )
        )

    def events(self) -> SessionEvents:
        """All that was kept."""
        start, end, label, step = (
            np.concatenate(column) for column in zip(*self.columns, strict=True)
        )
        return SessionEvents(start, end, label, step, tuple(self.labels))


def _collect(space: Space, waits: Sequence[re.Pattern[str]]) -> _Collected:
    collected = _Collected()
    for plane in space.planes:
        for encoded in plane.lines:
            collected.add(plane, xspace.line(encoded, plane, (_STEP, _HLO)), waits)
    return collected


def _label(plane: Plane, line: str, key: int) -> Label:
    name = plane.names.get(key >> 2)
    text = name.text if name else ""
    # XLA names events of a device after the whole text of the operation.
    short = name.title if name and text.startswith("%") and name.title else text
    return Label(plane.name, line, short, numbered=bool(key & 2), is_hlo=bool(key & 1))


def _useful(labels: Sequence[Label], waits: Sequence[re.Pattern[str]]) -> NDArray[np.bool_]:
    marked = [label.numbered or span_kinds.is_device_step(label) for label in labels]
    useful: NDArray[np.bool_] = np.array(marked, bool)
    useful |= span_kinds.kinds(labels, waits) != NONE
    return useful


def _losses(space: Space, refused: int) -> tuple[str, ...]:
    losses = [f"{space.loss}; what comes before was read"] if space.loss else []
    losses += [f"the profiler itself reported: {error}" for error in space.errors]
    losses += [f"events left out as their time is impossible: {refused:,}"] if refused else []
    return tuple(losses)


def _placed(path: Path, space: Space, events: SessionEvents, utc_offset_s: int) -> Placed:
    if start_time.is_absolute(events):
        return Placed(0)
    began_ns = [ns for ns in _stats(space, _BEGAN_NS) if start_time.is_epoch(ns)]
    if began_ns:
        return Placed(began_ns[0])
    return start_time.by_folder(path, events, utc_offset_s)


def _host(path: Path, space: Space) -> str:
    if len(space.hosts) == 1:
        return space.hosts[0]
    name = session_name(path)
    return name.host if name else ""


def _pid(space: Space) -> int | None:
    pids = {pid for pid in _stats(space, _PID) if 0 < pid <= _LARGEST_PID}
    return pids.pop() if len(pids) == 1 else None


def _stats(space: Space, name: str) -> list[int]:
    """Values of a statistic of whole planes."""
    return [plane.stats[name] for plane in space.planes if name in plane.stats]
