"""JSON of rocprofv3 -> a `ProfileTrace` for each process in it.

The file is `{"rocprofiler-sdk-tool": [process, ...]}`. Of a process are read `metadata` (host,
process, command), `agents` (the devices, type 2), `kernel_symbols` (names of kernels by number),
`strings` (names of markers), and of `buffer_records` what devices did (`kernel_dispatch`,
`memory_copy`), the program's own ranges (`marker_api`), and the calls that handed work to devices
(`hip_api`, `hsa_api`: both have the same correlation). Times are nanoseconds of the host since
it started (CLOCK_BOOTTIME), so a profile is on a clock of its own. Names: rocprofiler-sdk,
source/include/rocprofiler-sdk/buffer_tracing.h and fwd.h (ROCm 6.4).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from vanidl.encoding import json_stream
from vanidl.encoding.budget import bounded_name
from vanidl.encoding.text_stream import TextStream
from vanidl.errors import InputError
from vanidl.formatting.units import count
from vanidl.model.intervals import Intervals
from vanidl.model.ordering import stable_order
from vanidl.model.trace import SpanKind
from vanidl.readers.launches import find_queued, match_launches
from vanidl.readers.names import classify_kernel, compile_wait_names
from vanidl.readers.records import ProfileTrace, freeze
from vanidl.schema.dataclass import dataclass

SOURCE = "rocprofv3"

_ROOT = "rocprofiler-sdk-tool"
_ENTER = frozenset({_ROOT, "buffer_records", "callback_records"})
_EXPECTED = "expected a profile of rocprofv3"
_REMEDY = "give what rocprofv3 --output-format json wrote (*_results.json)"
_STEP = re.compile(r"ProfilerStep#(\d{1,9})|step[ _#:=-]*(\d{1,9})", re.IGNORECASE)
_GPU = 2  # rocprofiler_agent_type_t
_LATEST_NS = 2**61
_LARGEST_PID = 2**31
_LARGEST_CORRELATION = 2**62
_COPY = "memory copy"


def read_profiles(path: str | Path, *, wait_names: Sequence[str] = ()) -> tuple[ProfileTrace, ...]:
    """What the devices of each process did, and the ranges that it marked, sorted by start.

    Args:
        path: The file, also compressed with gzip.
        wait_names: Regular expressions, searched in the names of ranges, that mark input waits.

    Of a damaged file everything before the damage is used; `losses` says so.

    Raises:
        InputError: The file cannot be read, or is none of rocprofv3's.
        UsageError: One of `wait_names` is no regular expression.
    """
    waits = compile_wait_names(wait_names)
    content, losses = _Content(), []
    text = TextStream(Path(path))
    try:
        with json_stream.catch_unreadable(path, text, _EXPECTED, _REMEDY):
            for item in json_stream.members(text, budget=text.budget, enter=_ENTER):
                content.take(item)
    except json_stream.TextBehind as error:
        losses.append(str(error))
    except json_stream.CutJson as error:
        losses.append(f"{text.damage or error.loss}; what came before was read")
    else:
        if text.damage:
            losses.append(f"{text.damage}, after the end of the profile")

    # A process in which nothing was recorded gives no profile.
    profiles = tuple(
        profile
        for process in content.processes
        if (profile := process.profile(Path(path), waits, tuple(losses))) is not None
    )
    if not profiles:
        found = "; ".join(["no process with a kernel, a copy or a marked range", *losses])
        raise InputError(f"{path}: {_EXPECTED}, found {found}; {_REMEDY}")
    return profiles


@dataclass
class _Rows:
    """Start, end and lane of spans, with the key of their name."""

    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    lane: list[tuple[int, int]] = field(default_factory=list)  # device (-1: host), its stream
    key: list[int] = field(default_factory=list)
    correlation: list[int] = field(default_factory=list)

    def add(self, record: dict[str, Any], lane: tuple[int, int], key: int) -> bool:
        """Whether the record's times can be true; it is added where they are."""
        start, end = record.get("start_timestamp"), record.get("end_timestamp")
        if type(start) is not int or type(end) is not int or not 0 < start <= end < _LATEST_NS:
            return False
        self.start.append(start)
        self.end.append(end)
        self.lane.append(lane)
        self.key.append(key)
        self.correlation.append(_get_correlation(record))
        return True


class _Content:
    """The processes of a file, in its order."""

    def __init__(self) -> None:
        self.processes: list[_Process] = []

    def take(self, item: json_stream.Member | json_stream.Elements) -> None:
        """Take one member, or some elements of one, of the process that is being read."""
        if isinstance(item, json_stream.Member):
            if item.key == "metadata" or not self.processes:
                if self.processes and not self.processes[-1].has_spans():
                    self.processes.pop()  # thousands that did nothing would cost 2 kB each
                self.processes.append(_Process())
            if isinstance(item.value, dict):
                self.processes[-1].describe(item.key, item.value)
            return
        if not self.processes:
            self.processes.append(_Process())
        process = self.processes[-1]
        process.broken += item.broken
        take = {
            "agents": process.take_agents,
            "kernel_symbols": process.take_symbols,
            "kernel_dispatch": process.take_dispatches,
            "memory_copy": process.take_copies,
            "marker_api": process.take_markers,
            "hip_api": process.take_calls,
            "hsa_api": process.take_calls,
        }.get(item.key)
        if take is not None:
            take(record for record in item.values if isinstance(record, dict))


class _Process:
    """One process: what its devices did, and the names that belong to the numbers."""

    def __init__(self) -> None:
        self.host = ""
        self.pid: int | None = None
        self.devices: dict[int, str] = {}  # handle of the agent -> its name
        self.kernels: dict[int, str] = {}
        self.messages: dict[int, str] = {}  # correlation of a marker -> its text
        self.dispatches, self.copies, self.ranges, self.calls = (_Rows() for _ in range(4))
        self.broken = self.refused = 0

    def has_spans(self) -> bool:
        """Whether it makes a profile: calls alone are none."""
        return bool(self.dispatches.start or self.copies.start or self.ranges.start)

    def describe(self, key: str, value: dict[str, Any]) -> None:
        """Host and process from `metadata`; texts of markers from `strings`."""
        if key == "metadata":
            node, pid = value.get("node"), value.get("pid")
            host = node.get("hostname") if isinstance(node, dict) else None
            self.host = bounded_name(host) if isinstance(host, str) else ""
            self.pid = pid if type(pid) is int and 0 < pid < _LARGEST_PID else None
        elif key == "strings" and isinstance(value.get("marker_api"), list):
            for pair in value["marker_api"]:
                if isinstance(pair, dict) and isinstance(pair.get("value"), str):
                    self.messages[_to_number(pair.get("key"))] = bounded_name(pair["value"])

    def take_agents(self, agents: Iterable[dict[str, Any]]) -> None:
        """Names of devices: the product's, else the architecture's."""
        for agent in agents:
            name = agent.get("product_name") or agent.get("name")
            if agent.get("type") == _GPU and isinstance(name, str):
                self.devices[_get_handle(agent, "id")] = bounded_name(name)

    def take_symbols(self, symbols: Iterable[dict[str, Any]]) -> None:
        """Names of kernels, the readable one first."""
        for symbol in symbols:
            name = symbol.get("formatted_kernel_name") or symbol.get("kernel_name")
            if isinstance(name, str):
                self.kernels[_to_number(symbol.get("kernel_id"))] = bounded_name(name)

    def take_dispatches(self, records: Iterable[dict[str, Any]]) -> None:
        """Kernels that ran; a stream of HIP's, where it is not said a queue, is a lane."""
        for record in records:
            info = record.get("dispatch_info")
            info = info if isinstance(info, dict) else {}
            stream = _get_handle(record, "stream_id") if "stream_id" in record else -1
            queue = stream if stream >= 0 else _get_handle(info, "queue_id")
            lane = (_get_handle(info, "agent_id"), queue)
            self.refused += not self.dispatches.add(record, lane, _to_number(info.get("kernel_id")))

    def take_copies(self, records: Iterable[dict[str, Any]]) -> None:
        """Copies to, from and on devices: each belongs to the device at one of its ends."""
        for record in records:
            ends = (_get_handle(record, "dst_agent_id"), _get_handle(record, "src_agent_id"))
            device = next((end for end in ends if end in self.devices), ends[0])
            lane = (device, -2 - max(_get_handle(record, "stream_id"), -1))
            self.refused += not self.copies.add(record, lane, 0)

    def take_markers(self, records: Iterable[dict[str, Any]]) -> None:
        """Ranges of the program; those that have no length are marks."""
        for record in records:
            if record.get("start_timestamp") != record.get("end_timestamp"):
                lane = (-1, _to_number(record.get("thread_id")))
                self.refused += not self.ranges.add(record, lane, _get_correlation(record))

    def take_calls(self, records: Iterable[dict[str, Any]]) -> None:
        """Calls of the host to the devices' libraries."""
        for record in records:
            if _get_correlation(record) > 0:
                self.calls.add(record, (-1, 0), 0)

    def profile(
        self, path: Path, waits: Sequence[re.Pattern[str]], losses: tuple[str, ...]
    ) -> ProfileTrace | None:
        """Its spans; None where it has none."""
        if not self.has_spans():
            return None

        # Names of all spans, and what each means.
        names = [self.kernels.get(key, f"kernel {key}") for key in self.dispatches.key]
        kinds = [classify_kernel(name) for name in names]
        names += [_COPY] * len(self.copies.key)
        kinds += [SpanKind.COPY] * len(self.copies.key)
        steps = [-1] * len(names)
        for key in self.ranges.key:
            name = self.messages.get(key, "")
            step = _STEP.fullmatch(name)
            waiting = any(wait.search(name) for wait in waits)
            own = SpanKind.STEP if step else SpanKind.INPUT_WAIT if waiting else SpanKind.OP
            kinds.append(own)
            steps.append(int(step[1] or step[2]) if step else -1)
            names.append(name or "range")

        # Columns in the order of time; threads and names as codes.
        every = (self.dispatches, self.copies, self.ranges)
        start = np.array([ns for rows in every for ns in rows.start], np.int64)
        order = stable_order(start)
        lanes: dict[tuple[int, int], int] = {}
        lane = [lanes.setdefault(one, len(lanes)) for rows in every for one in rows.lane]
        codes: dict[str, int] = {}
        code = [codes.setdefault(name, len(codes)) for name in names]
        end = np.array([ns for rows in every for ns in rows.end], np.int64)
        used = sorted({device for rows in every[:2] for device, _ in rows.lane})
        left_out = self.broken + self.refused
        lost = (f"{count(left_out)} records have no possible times, and are left out",)
        return ProfileTrace(
            path=str(path),
            source=SOURCE,
            host=self.host,
            pid=self.pid,
            rank=None,
            world_size=None,
            devices=tuple(self.devices[device] for device in used if device in self.devices),
            start_ns=freeze(start[order]),
            end_ns=freeze(end[order]),
            step=freeze(np.array(steps, np.int32)[order]),
            kind=freeze(np.array(kinds, np.uint8)[order]),
            thread=freeze(np.array(lane, np.int32)[order]),
            name=freeze(np.array(code, np.int32)[order]),
            names=tuple(codes),
            losses=losses + (lost if left_out else ()),
            queued=self._find_queued(),
        )

    def _find_queued(self) -> Intervals | None:
        """When devices did nothing with work in their queues; None where calls were not traced."""
        start, end, correlation = (
            np.array([*getattr(self.dispatches, name), *getattr(self.copies, name)], np.int64)
            for name in ("start", "end", "correlation")
        )
        calls = (
            np.array(column, np.int64) for column in (self.calls.correlation, self.calls.start)
        )
        return find_queued(start, end, match_launches(correlation, *calls))


def _get_correlation(record: dict[str, Any]) -> int:
    """The number that a call and what it handed over have in common; -1 for none."""
    correlation = record.get("correlation_id")
    internal = correlation.get("internal") if isinstance(correlation, dict) else correlation
    number = _to_number(internal)
    return number if 0 <= number < _LARGEST_CORRELATION else -1


def _to_number(value: object) -> int:
    """A number as a key; -1 for what is none."""
    return value if type(value) is int else -1


def _get_handle(record: dict[str, Any], key: str) -> int:
    """`{"handle": 7}` under a key."""
    value = record.get(key)
    return _to_number(value.get("handle")) if isinstance(value, dict) else -1
