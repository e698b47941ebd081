"""Events of a PyTorch profiler trace as columns, reduced block by block.

Names, categories, processes and threads become codes, times become integers, so that what
is kept of an event is some thirty bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.readers.launches import match_launches
from vanidl.schema.dataclass import dataclass

CPU_CATEGORIES = ("cpu_op", "user_annotation", "Operator")
COPY_CATEGORIES = ("gpu_memcpy", "gpu_memset", "Memcpy", "Memset")
KERNEL_CATEGORIES = (
    *("kernel", "Kernel", "mtia_ccp_events", "hpu_op", "collective_comm"),
    *COPY_CATEGORIES,
)
"""Work on a device: of CUDA, ROCm and XPU, of MTIA, of Gaudi, and collectives that a device reports
by themselves (libkineto's ActivityType.cpp); copies, of both dialects."""

LAUNCH_CATEGORIES = (
    *("cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime", "mtia_runtime"),
    *("privateuse1_runtime", "privateuse1_driver", "glow_runtime", "Runtime"),
)
"""Calls of the host that hand work to a device: both have the same number `correlation`."""

# A tuple: membership is by equality, so that a category that cannot be hashed is no error.
_KEPT = CPU_CATEGORIES + KERNEL_CATEGORIES
# Sets, where it is tried first whether all can be.
_HASHED, _ON_DEVICE, _LAUNCHES = map(frozenset, (_KEPT, KERNEL_CATEGORIES, LAUNCH_CATEGORIES))

# Base, start and duration together stay below the largest int64 of nanoseconds.
_MAX_START_US = 4e15
_MAX_DURATION_US = 2e15

_Row = tuple[Any, Any, Any, Any, Any, Any, int]
_LARGEST_CORRELATION = 2**62


@dataclass(frozen=True, slots=True)
class EventTable:
    """Events in the order of the file: one entry per event in every array.

    `label` is an index into `labels`, pairs (category, name); `lane` one into `lanes`,
    triples (category is a device's, process, thread).
    """

    start_ns: NDArray[np.int64]  # as the file counts: from its base time
    duration_ns: NDArray[np.int64]
    label: NDArray[np.int32]
    lane: NDArray[np.int32]
    labels: tuple[tuple[str, str], ...]
    lanes: tuple[tuple[bool, str, str], ...]
    launch_ns: NDArray[np.int64]  # of work on a device: when it was handed over; else NOT_LAUNCHED

    def __len__(self) -> int:
        return len(self.start_ns)


class EventColumns:
    """Collects the complete events of the kept categories from blocks of parsed events.

    Attributes:
        seen: number of elements added, of any kind.
        refused: number of events left out as a field is missing or impossible.
        untimed: number of events left out as their start and duration are 0.
        of_devices: number of events left out for either reason that were work on a device.
        launches: whether a call handed a kernel to a device.
    """

    def __init__(self) -> None:
        self.seen = 0
        self.refused = 0
        self.untimed = 0
        self.of_devices = 0
        self.launches = False
        # One code for category, name, process and thread: one look-up an event.
        self._sources: dict[tuple[str, str, Any, Any], int] = {}
        self._columns: tuple[list[NDArray[Any]], ...] = ([], [], [], [])
        self._launches: tuple[list[NDArray[Any]], ...] = ([], [])  # correlation, start

    def add(self, values: Sequence[Any]) -> None:
        """Reduce a block of elements of `traceEvents` to columns."""
        rows = _select_rows(values)
        self.seen += len(values)
        # Rows whose fields are of the right types: mostly all are, and the types of each say so.
        sound = rows
        if not all({type(row[i]) for row in rows} <= types for i, types in _FIELDS):
            sound = [row for row in rows if _is_sound(row)]
            self.refused += len(rows) - len(sound)
            self.of_devices += sum(
                row[0] in KERNEL_CATEGORIES for row in rows if not _is_sound(row)
            )

        # A row of each event whose times can be; comparisons with NaN are false.
        if sound:
            categories, event_names, pids, tids, ts, dur, correlations = zip(*sound, strict=True)
            spans_us = _to_floats((ts, dur))
            possible = (np.abs(spans_us[0]) < _MAX_START_US) & (spans_us[1] >= 0)
            possible &= spans_us[1] < _MAX_DURATION_US
            self.refused += int(possible.size - possible.sum())
            self.of_devices += sum(categories[i] in _ON_DEVICE for i in np.flatnonzero(~possible))
            keys = zip(categories, event_names, pids, tids, strict=True)
            source = _encode(keys, self._sources)[possible]
            start, duration = _to_nanoseconds(spans_us[:, possible])
            row = (start, duration, source, np.array(correlations, np.int64)[possible])
            for column, block in zip(self._columns, row, strict=True):
                column.append(block)

        # When calls handed work to devices.
        if launches := _find_launches(values):
            names, correlation, start_us = zip(*launches, strict=True)
            self.launches = self.launches or any("launch" in str(name).lower() for name in names)
            times = _to_floats((start_us, start_us))[0]
            possible = np.abs(times) < _MAX_START_US
            self._launches[0].append(np.array(correlation, np.int64)[possible])
            self._launches[1].append(_to_nanoseconds(times[possible]))

    def table(self) -> EventTable:
        """All events added; call once, it hands the memory over.

        Work on a device that took no time at time 0 was not timed (pytorch/pytorch#188481): then
        no event there was.
        """
        start, duration, source, correlation = map(_take_all, self._columns)
        on_device = np.array([key[0] in KERNEL_CATEGORIES for key in self._sources] or [False])
        untimed = (start == 0) & (duration == 0)
        if untimed.any() and on_device[source[untimed]].any():
            self.untimed = int(untimed.sum())
            self.of_devices += int(on_device[source[untimed]].sum())
            start, duration, source, correlation = (
                column[~untimed] for column in (start, duration, source, correlation)
            )
        # Labels and lanes, numbered: once for each source, then for its events.
        labels: dict[tuple[str, str], int] = {}
        lanes: dict[tuple[bool, str, str], int] = {}
        label = _encode(((category, name) for category, name, _, _ in self._sources), labels)
        lane = _encode(
            (
                (category in KERNEL_CATEGORIES, str(pid), str(tid))
                for category, _, pid, tid in self._sources
            ),
            lanes,
        )
        launch = match_launches(correlation, *map(_take_all, self._launches))
        return EventTable(
            start, duration, label[source], lane[source], tuple(labels), tuple(lanes), launch
        )


def _to_floats(times: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Times as floats; integers that are too large for one become NaN."""
    try:
        return np.array(times, np.float64)
    except OverflowError:
        return np.array(
            [[t if abs(t) <= _MAX_START_US else np.nan for t in row] for row in times], np.float64
        )


def _take_all(blocks: list[NDArray[Any]]) -> NDArray[Any]:
    joined = np.concatenate(blocks) if blocks else np.empty(0, np.int32)
    blocks.clear()
    return joined


def _select_rows(values: Sequence[Any]) -> list[_Row]:
    try:
        return [
            (cat, e["name"], e["pid"], e["tid"], e["ts"], e["dur"],
             _get_correlation(e) if cat in _ON_DEVICE else -1)
            for e in values
            if e["ph"] == "X" and (cat := e["cat"]) in _HASHED
        ]  # fmt: skip
    except (KeyError, TypeError):  # an element without a field, or that is no object
        return [
            (
                e["cat"],
                *(e.get(key) for key in ("name", "pid", "tid", "ts", "dur")),
                _get_correlation(e),
            )
            for e in values
            if type(e) is dict and e.get("ph") == "X" and e.get("cat") in _KEPT
        ]


def _get_correlation(event: Any) -> int:  # noqa: ANN401
    """The number that work on a device has in common with the call that launched it, else -1."""
    arguments = event.get("args")
    number = arguments.get("correlation") if type(arguments) is dict else None
    return number if type(number) is int and 0 < number < _LARGEST_CORRELATION else -1


def _find_launches(values: Sequence[Any]) -> list[tuple[object, int, float]]:
    """Name, correlation and start of the calls that hand work to a device."""
    try:
        calls = [e for e in values if e.get("cat") in _LAUNCHES]
    except (AttributeError, TypeError):  # an element that is no object, a category that is no text
        calls = [e for e in values if type(e) is dict and e.get("cat") in LAUNCH_CATEGORIES]
    return [
        (e.get("name"), number, e["ts"])
        for e in calls
        if e.get("ph") == "X"
        and type(e.get("ts")) in _NUMBER
        and (number := _get_correlation(e)) >= 0
    ]


_NUMBER = frozenset((int, float))
_FIELDS = (
    (1, frozenset((str,))),
    (2, frozenset((int, str))),
    (3, frozenset((int, str, type(None)))),
    (4, _NUMBER),
    (5, _NUMBER),
)


def _is_sound(row: _Row) -> bool:
    return all(type(row[i]) in types for i, types in _FIELDS)


def _encode(keys: Iterable[Any], known: dict[Any, int]) -> NDArray[np.int32]:
    return np.array([known.setdefault(key, len(known)) for key in keys], np.int32)


def _to_nanoseconds(us: NDArray[np.float64]) -> NDArray[np.int64]:
    """Nearest nanosecond of microseconds.

    The whole part is scaled as an integer: a float holds the product only up to 2**53 ns.
    With three decimals the result is exact below 2**43 us, which is 101 days: times relative
    to the base time, which is at most three months back, are.
    """
    whole = np.floor(us)
    part: NDArray[np.int64] = np.rint((us - whole) * 1000).astype(np.int64)
    return whole.astype(np.int64) * 1000 + part
