"""What the events of a PyTorch profiler trace mean to the analyses.

What counts as communication, from the most to the least certain evidence:

- kernels of NCCL or RCCL on a device, and spans that a backend puts around the transfer on
  its own thread (`gloo:all_reduce`): always.
- `nccl:all_reduce` on the CPU: the launch of device kernels, over long before the transfer.
  Only where the trace has no such kernels.
- operators (`c10d::allreduce_`, `record_param_comms`): the call that hands the work to a
  backend. Only where nothing of the above was recorded; never compute.

The old dialect has one category for operators and annotations. There `What#which` is an
annotation, as are all of PyTorch's own; operators have no `#`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vanidl.model.trace import SpanKind
from vanidl.readers.operator_names import device_kind
from vanidl.readers.pytorch.columns import COPY_CATEGORIES, KERNEL_CATEGORIES, EventTable

NONE = 255
"""Kind of an event that no analysis uses."""

_STEP = re.compile(r"ProfilerStep#(\d{1,9})")
_EPOCH = re.compile(r"epoch[ _#:=-]*\d{1,9}", re.IGNORECASE)
_LAUNCH = re.compile(r"_?c10d(_functional)?::|record_param_comms$")
_HOST_LAUNCH = re.compile(r"nccl:|rccl:")
_BACKEND = re.compile(r"(gloo|c10d|mpi|ucc):")

# Classes beside SpanKind, settled once all events are known.
_DEVICE_COMMUNICATION, _HOST_COMMUNICATION, _OPERATOR_COMMUNICATION = 100, 101, 102


def kinds(table: EventTable, waits: Sequence[re.Pattern[str]]) -> NDArray[np.uint8]:
    """Kind of each event, a `SpanKind` or `NONE`.

    `waits` are searched in the names of CPU events; a match is an input wait.
    """
    classes = [_class(category, name, waits) for category, name in table.labels]
    kind = np.array(classes, np.uint8)[table.label]
    present = set(np.unique(kind).tolist())
    communication = int(SpanKind.COMMUNICATION)
    ladder = (_DEVICE_COMMUNICATION, _HOST_COMMUNICATION, _OPERATOR_COMMUNICATION)
    found = False
    for rung in ladder:
        kind[kind == rung] = NONE if found else communication
        # Spans of a backend stand beside kernels and launches of another one.
        found = found or rung in present
        found = found or (rung == _HOST_COMMUNICATION and communication in present)
    return kind


def steps(table: EventTable) -> NDArray[np.int32]:
    """Number of the profiled step of each event that is one, else -1."""
    numbers = [-1 if (step := _step(*label)) is None else step for label in table.labels]
    return np.array(numbers, np.int32)[table.label]


def _step(category: str, name: str) -> int | None:
    match = None if category in KERNEL_CATEGORIES else _STEP.fullmatch(name)
    return int(match[1]) if match else None


def _class(category: str, name: str, waits: Sequence[re.Pattern[str]]) -> int:
    if category == "collective_comm":
        return _DEVICE_COMMUNICATION
    if category in COPY_CATEGORIES:
        return SpanKind.COPY
    if category in KERNEL_CATEGORIES:
        kind = device_kind(name)
        return _DEVICE_COMMUNICATION if kind == SpanKind.COMMUNICATION else kind
    if _STEP.fullmatch(name):
        return SpanKind.STEP
    if any(wait.search(name) for wait in waits):
        return SpanKind.INPUT_WAIT
    return _host_class(category, name)


def _host_class(category: str, name: str) -> int:
    if _LAUNCH.match(name):
        return _OPERATOR_COMMUNICATION
    if _HOST_LAUNCH.match(name):
        return _HOST_COMMUNICATION
    if _BACKEND.match(name):
        return SpanKind.COMMUNICATION
    annotation = category == "user_annotation" or (category == "Operator" and "#" in name)
    if annotation and _EPOCH.fullmatch(name):
        return SpanKind.EPOCH
    return NONE if annotation else SpanKind.OP
