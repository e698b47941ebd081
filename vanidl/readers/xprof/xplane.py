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

from vanidl.encoding.budget import read_whole
from vanidl.encoding.protobuf import NotProtobuf
from vanidl.errors import InputError
from vanidl.readers.file_names import session_name
from vanidl.readers.operator_names import compile_wait_names
from vanidl.readers.records import ProfileTrace
from vanidl.readers.xprof import span_kinds, start_time, xspace
from vanidl.readers.xprof.events import NO_STEP, SessionEvents
from vanidl.readers.xprof.profile import Writer, profile_trace
from vanidl.readers.xprof.span_kinds import NONE, Label
from vanidl.readers.xprof.start_time import Placed
from vanidl.readers.xprof.xspace import ABSENT, Int64Array, Line, Plane, Space

SOURCE = "xplane"

_STEP, _HLO = "step_num", "hlo_op"
_BEGAN_NS, _PID = "profile_start_time", "process_id"
_LARGEST_PID = 2**31 - 1
_Key = tuple[int | None, int]  # number of a name, and two bits: a numbered step, of XLA
_USELESS = -1  # code of a label whose events mean nothing
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
    waits = compile_wait_names(wait_names, span_kinds.WAIT_NAMES)
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
    """The events that may mean something: what else there is goes block by block."""

    seen: int = 0  # events of any kind
    labels: dict[Label, int] = field(default_factory=dict)
    columns: tuple[list[Int64Array], ...] = field(
        default_factory=lambda: tuple([] for _ in range(4))
    )

    def add(
        self, plane: Plane, block: Line, known: dict[_Key, int], waits: Sequence[re.Pattern[str]]
    ) -> None:
        """Keep what has a meaning of some events of a line; `known` are its codes of labels."""
        self.seen += len(block.start_ns)
        step = block.stats[_STEP]
        numbered, is_hlo = step != ABSENT, block.stats[_HLO] != ABSENT
        key = block.name_code * 4 + numbered * 2 + is_hlo
        different, place = np.unique(key, return_inverse=True)
        # Names that the plane does not explain are one, so that `known` stays as small as it is.
        keys = [(k >> 2 if k >> 2 in plane.names else None, k & 3) for k in different.tolist()]
        new = list(dict.fromkeys(key for key in keys if key not in known))
        labels = [_label(plane, block.name, *key) for key in new]
        known.update(zip(new, self._codes(labels, waits), strict=True))
        code = np.array([known[key] for key in keys], np.int64)[place]
        useful = code != _USELESS
        numbers = np.where(numbered, np.maximum(step, NO_STEP), NO_STEP)
        for kept, column in zip(
            self.columns, (block.start_ns, block.end_ns, code, numbers), strict=True
        ):
            kept.append(column[useful])

    def _codes(self, labels: Sequence[Label], waits: Sequence[re.Pattern[str]]) -> list[int]:
        return [
            self.labels.setdefault(label, len(self.labels)) if useful else _USELESS
            for label, useful in zip(labels, _useful(labels, waits).tolist(), strict=True)
        ]

    def events(self) -> SessionEvents:
        """All that was kept, which is here no longer."""
        start, end, label, step = map(_emptied, self.columns)
        return SessionEvents(start, end, label, step, tuple(self.labels))


def _emptied(parts: list[Int64Array]) -> Int64Array:
    whole = np.concatenate(parts)
    parts.clear()
    return whole


def _collect(space: Space, waits: Sequence[re.Pattern[str]]) -> _Collected:
    collected = _Collected()
    for plane in space.planes:
        for encoded in plane.lines:
            known: dict[_Key, int] = {}
            for block in xspace.blocks(encoded, plane, (_STEP, _HLO)):
                collected.add(plane, block, known, waits)
    return collected


def _label(plane: Plane, line: str, code: int | None, marks: int) -> Label:
    name = None if code is None else plane.names[code]
    text = name.text if name else ""
    # XLA names events of a device after the whole text of the operation.
    short = name.title if name and text.startswith("%") and name.title else text
    return Label(plane.name, line, short, numbered=bool(marks & 2), is_hlo=bool(marks & 1))


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
