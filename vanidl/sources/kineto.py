"""Traces of the PyTorch profiler: `*.pt.trace.json`, also compressed with gzip.

Two dialects. Today's: float microseconds relative to `baseTimeNanoseconds`, categories
cpu_op, user_annotation, kernel, with `host_name` and `distributedInfo`. The old one:
absolute integer microseconds, categories Operator and Kernel, host and process in the
file's name only.

What counts as communication, from the most to the least certain evidence:

- kernels of NCCL or RCCL on a device, and spans that a backend puts around the transfer on
  its own thread (`gloo:all_reduce`): always.
- `nccl:all_reduce` on the CPU: the launch of device kernels, over long before the transfer.
  Only where the trace has no such kernels.
- operators (`c10d::allreduce_`, `record_param_comms`): the call that hands the work to a
  backend. Only where nothing of the above was recorded; never compute.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vanidl.errors import InputError, UsageError
from vanidl.sources import json_events
from vanidl.sources.discover import profiler_name
from vanidl.sources.json_text import TextStream
from vanidl.sources.kineto_columns import (
    KERNEL_CATEGORIES,
    EventColumns,
    EventTable,
)
from vanidl.sources.pieces import ProfileTrace
from vanidl.trace import SpanKind

WAIT_NAMES = (r"enumerate\(DataLoader\)#.*\.__next__",)
"""Regular expressions for whole names of spans in which training waits for a batch."""

_STEP = re.compile(r"ProfilerStep#(\d{1,9})")
_DEVICE_COPY = re.compile(r"memcpy|memset", re.IGNORECASE)
_DEVICE_COLLECTIVE = re.compile(r"nccl|rccl", re.IGNORECASE)
_LAUNCH = re.compile(r"_?c10d(_functional)?::|record_param_comms$")
_HOST_LAUNCH = re.compile(r"nccl:|rccl:")
_BACKEND = re.compile(r"(gloo|c10d|mpi|ucc):")

# Classes beside SpanKind, settled once all events are known.
_DEVICE_COMMUNICATION, _HOST_COMMUNICATION, _OPERATOR_COMMUNICATION, _NONE = 100, 101, 102, 255

_WANTED = ("baseTimeNanoseconds", "host_name", "distributedInfo")
_EXPECTED = "expected a trace of the PyTorch profiler"
_REMEDY = "give a file that torch.profiler wrote (*.pt.trace.json or *.pt.trace.json.gz)"


def read_trace(path: str | Path, *, wait_names: Sequence[str] = ()) -> ProfileTrace:
    """Return the spans of one PyTorch profiler trace, sorted by start.

    `wait_names` are regular expressions, searched in names of CPU spans, that mark input
    waits beside `WAIT_NAMES`. Spans of other processes than the trace's own, copies on
    devices, calls of the driver and Python frames are left out. A device stream has a thread
    code of its own. Of a damaged file everything before the damage is used; `losses` says
    what is missing. Without `baseTimeNanoseconds` times are taken as the file has them.

    Raises:
        InputError: The file cannot be read or holds no span of a PyTorch trace.
        UsageError: One of `wait_names` is no regular expression.
    """
    waits = _compiled(wait_names)
    content = _Content(Path(path))
    content.read()
    table = content.events.table()
    if not len(table):
        raise InputError(f"{path}: {_EXPECTED}, found {content.instead()}; {_REMEDY}")
    return _piece(content, table, waits)


def _compiled(wait_names: Sequence[str]) -> list[re.Pattern[str]]:
    try:
        own = [re.compile(name) for name in wait_names]
    except re.error as error:
        raise UsageError(
            f"a name of input waits must be a regular expression, found {error.pattern!r} "
            f"({error}); put a backslash before characters that stand for themselves"
        ) from error
    return [re.compile(rf"(?:{name})\Z") for name in WAIT_NAMES] + own


class _Content:
    """What the text of a trace holds, read once from start to end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events = EventColumns()
        self.header: dict[str, object] = {}
        self.devices: list[object] = []
        self.members: list[str] = []
        self.losses: list[str] = []
        self.broken = 0

    def read(self) -> None:
        text = TextStream(self.path)
        try:
            for item in json_events.members(text, array_key="traceEvents"):
                self._take(item)
        except OSError as error:
            why = f"{self.path}: {_EXPECTED}, found no readable file ({error.strerror})"
            raise InputError(f"{why}; check the path and its permissions") from error
        except json_events.NotJson as error:
            what = f"{error}, {text.damage}" if text.damage else str(error)
            raise InputError(f"{self.path}: {_EXPECTED}, found {what}; {_REMEDY}") from error
        except json_events.CutJson as error:
            self._lose(text.damage or f"the JSON text is cut ({error})")
        else:
            if text.damage:
                self._lose(f"{text.damage}, after the end of the trace")
        self._count_losses()

    def _take(self, item: json_events.Member | json_events.Elements) -> None:
        if item.key not in self.members[-100:]:
            self.members.append(item.key)
        if isinstance(item, json_events.Member):
            self.header[item.key] = item.value if item.key in _WANTED else None
        elif item.key == "traceEvents":
            # A repeated member replaces the earlier one, as in every JSON parser.
            self.events = EventColumns() if item.first else self.events
            self.broken = item.broken + (0 if item.first else self.broken)
            self.events.add(item.values)
        elif item.key == "deviceProperties":
            self.devices = [*([] if item.first else self.devices), *item.values]

    def _lose(self, why: str) -> None:
        self.losses.append(f"{why}; {self.events.seen:,} events before that were read")

    def _count_losses(self) -> None:
        if self.broken:
            self.losses.append(f"{self.broken:,} events that are no JSON were left out")
        if self.events.refused:
            self.losses.append(
                f"{self.events.refused:,} events with a missing or impossible name, process, "
                "time or duration were left out"
            )

    def instead(self) -> str:
        """What the file holds in place of a trace."""
        if "traceEvents" not in self.members:
            some = ", ".join(self.members[:5]) or "nothing"
            what = f"JSON without traceEvents (members: {some})"
        else:
            what = f"{self.events.seen:,} events, none of them a whole one of PyTorch"
        return "; ".join([what, *self.losses])


def _piece(content: _Content, table: EventTable, waits: list[re.Pattern[str]]) -> ProfileTrace:
    named = profiler_name(content.path)
    pid = _own_pid(table, named.pid if named else None)
    kind = _kinds(table, waits)
    own = np.array([device or lane_pid == pid for device, lane_pid, _ in table.lanes])
    keep = np.flatnonzero((kind != _NONE) & own[table.lane])
    keep = keep[np.argsort(table.start_ns[keep], kind="stable")]
    kind, label = kind[keep], table.label[keep]
    start = table.start_ns[keep] + _base_ns(content)
    names, name = _names(table, label)
    _, thread = np.unique(table.lane[keep], return_inverse=True)
    info = content.header.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    host = content.header.get("host_name")
    return ProfileTrace(
        path=str(content.path),
        source="pytorch-profiler",
        host=host if isinstance(host, str) and host else (named.host if named else ""),
        pid=int(pid) if pid.isdecimal() else None,
        rank=_count(info.get("rank")),
        world_size=_count(info.get("world_size")),
        devices=_devices(content.devices, table),
        start_ns=_frozen(start),
        end_ns=_frozen(start + table.duration_ns[keep]),
        step=_frozen(np.where(kind == SpanKind.STEP, _steps(table)[label], -1).astype(np.int32)),
        kind=_frozen(kind),
        thread=_frozen(thread.astype(np.int32)),
        name=_frozen(name),
        names=names,
        losses=tuple(content.losses),
    )
