"""Profiles for the trace viewer, of TensorFlow and JAX: `HOST.trace.json.gz`.

What TensorFlow wrote before `.xplane.pb`, cut by the writer at a million events. Times count
from the beginning of the profile, so the folder's name is all that places it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vanidl.encoding import json_stream
from vanidl.encoding.budget import whole_number
from vanidl.encoding.text_stream import TextStream
from vanidl.errors import InputError
from vanidl.readers.launches import NOT_LAUNCHED
from vanidl.readers.names import compile_wait_names, parse_session_name
from vanidl.readers.records import ProfileTrace
from vanidl.readers.xprof import profile
from vanidl.readers.xprof.profile import (
    NO_STEP,
    WAIT_NAMES,
    Label,
    SessionEvents,
    Writer,
    build_profile,
)

SOURCE = "trace-viewer"

_EXPECTED = "expected a TensorFlow or JAX trace"
_REMEDY = "give a *.trace.json.gz file from plugins/profile, or the .xplane.pb beside it"
_NUMBER = (int, float)
_LONGEST_US = 1e12
_LARGEST_STEP = 2**31 - 1


def read_trace(
    path: str | Path, *, wait_names: Sequence[str] = (), utc_offset_s: int = 0
) -> ProfileTrace:
    """The spans of one trace, sorted by start; of a cut file those before the cut.

    Args:
        path: The trace.
        wait_names: Regular expressions, searched in names of events of the host, that mark
            input waits beside `span_kinds.WAIT_NAMES`.
        utc_offset_s: Local time minus UTC where it was recorded.

    Raises:
        InputError: The file cannot be read, is no such trace, or holds nothing of use.
        UsageError: One of `wait_names` is no regular expression.
    """
    waits = compile_wait_names(wait_names, WAIT_NAMES)
    content = _Content()
    losses = content.read(Path(path))
    if not content.rows:
        raise InputError(f"{path}: {_EXPECTED}, found {content.instead(losses)}; {_REMEDY}")
    events = content.events()
    name = parse_session_name(path)
    writer = Writer(Path(path), SOURCE, name.host if name else "", None, losses)
    placed = profile.place_by_folder(Path(path), events, utc_offset_s)
    return build_profile(events, writer, waits, placed)


class _Content:
    """Complete events of a trace, and the names of its planes and lines."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, float, int, int]] = []  # start, duration (us), label, step
        self.has_events = False
        self.planes: dict[str, str] = {}
        self.lines: dict[tuple[str, str], str] = {}
        self.keys: dict[tuple[str, str, str, bool, bool], int] = {}

    def read(self, path: Path) -> tuple[str, ...]:
        """Take everything in; a sentence for each loss."""
        text = TextStream(path)
        try:
            with json_stream.catch_unreadable(path, text, _EXPECTED, _REMEDY):
                for item in json_stream.members(text, array_key="traceEvents", budget=text.budget):
                    if item.key == "traceEvents" and isinstance(item, json_stream.Elements):
                        self.has_events = True
                        self._add_events(item.values)
        except json_stream.CutJson as error:
            return (text.damage or error.loss,)
        return (text.damage,) if text.damage else ()

    def _add_events(self, values: Iterable[Any]) -> None:
        for event in values:
            if not isinstance(event, dict):
                continue
            if event.get("ph") == "X":
                self._add(event)
            elif event.get("ph") == "M":  # the name of a process or of a thread
                arguments = event.get("args")
                name = arguments.get("name") if isinstance(arguments, dict) else None
                plane, line = _get_lane(event)
                if event.get("name") == "process_name":
                    self.planes[plane] = str(name)
                elif event.get("name") == "thread_name":
                    self.lines[plane, line] = str(name)

    def _add(self, event: dict[str, Any]) -> None:
        start, duration, name = event.get("ts"), event.get("dur", 0), event.get("name")
        times = (start, duration)
        if not isinstance(name, str) or not all(type(t) in _NUMBER for t in times):
            return
        if not (abs(start) < _LONGEST_US and 0 <= duration < _LONGEST_US):  # type: ignore[arg-type]
            return
        arguments = event.get("args")
        details: dict[str, Any] = arguments if isinstance(arguments, dict) else {}
        # The number of a step, which the viewer's arguments hold as text.
        value = details.get("step_num")
        number = whole_number(str(value)) if isinstance(value, int | str) else None
        step = NO_STEP if number is None else min(number, _LARGEST_STEP)
        # The viewer shows the type of an operator; its whole name is beside it.
        whole = details.get("long_name")
        name = whole if isinstance(whole, str) and not whole.startswith("%") else name
        lane = _get_lane(event)
        key = (*lane, name, step != NO_STEP, "hlo_op" in details)
        label = self.keys.setdefault(key, len(self.keys))
        self.rows.append((start, duration, label, step))  # type: ignore[arg-type]

    def events(self) -> SessionEvents:
        """All events, in nanoseconds."""
        columns = np.array(self.rows, np.float64).T
        start = np.rint(columns[0] * 1000).astype(np.int64)
        end = np.rint((columns[0] + columns[1]) * 1000).astype(np.int64)
        labels = [
            Label(self.planes.get(plane, ""), self.lines.get((plane, line), line), *own)
            for plane, line, own in ((key[0], key[1], key[2:]) for key in self.keys)
        ]
        label, step = columns[2].astype(np.int64), columns[3].astype(np.int64)
        never = np.full(len(start), NOT_LAUNCHED)
        return SessionEvents(start, end, label, step, tuple(labels), never)

    def instead(self, losses: tuple[str, ...]) -> str:
        """What the file holds in place of events."""
        what = "no event with a time" if self.has_events else "JSON without an array traceEvents"
        return "; ".join([what, *losses])


def _get_lane(event: dict[str, Any]) -> tuple[str, str]:
    return str(event.get("pid")), str(event.get("tid"))
