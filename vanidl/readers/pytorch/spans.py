"""What the events of a PyTorch profiler trace mean to the analyses.

What counts as communication, from the most to the least certain evidence:

- kernels of NCCL, RCCL and others (`names.COLLECTIVES`) on a device, and spans that a backend
  puts around the transfer on its own thread (`gloo:all_reduce`): always. Where no kernel has such
  a name: kernels on streams that calls of collectives launch on.
- `nccl:all_reduce` on the CPU: the launch of device kernels, over long before the transfer.
  Only where the trace has no such kernels.
- operators (`c10d::allreduce_`, `record_param_comms`): the call that hands the work to a
  backend. Only where nothing of the above was recorded; never compute.

The old dialect has one category for operators and annotations. There `What#which` is an
annotation, as are all of PyTorch's own; operators have no `#`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vanidl.model.intervals import union
from vanidl.model.ordering import stable_order
from vanidl.model.trace import INFERENCE, SpanKind
from vanidl.readers.launches import NOT_LAUNCHED
from vanidl.readers.names import SAMPLING, classify_kernel
from vanidl.readers.pytorch.columns import (
    COPY_CATEGORIES,
    CPU_CATEGORIES,
    KERNEL_CATEGORIES,
    EventTable,
)

# What a trace says of the loops around its steps: loaders that are created, steps of validation.
#
# `iter(DataLoader)` has no span. It draws a seed for its workers (`aten::random_`, then
# `aten::item`), starts them, and the first `__next__` follows: all of that is waiting for input.
# Lightning's profiler calls `step()` after steps of validation as well; its spans name those of
# training.

Int64Array = NDArray[np.int64]
Mask = NDArray[np.bool_]

LOADER = re.compile(r"enumerate\(DataLoader\)#.*\.__next__")
_SEED, _ITEM = re.compile(r"aten::random_"), re.compile(r"aten::item")
_WORK = re.compile(rf"(?!{SAMPLING.pattern}\Z)[^#]*")
_OPERATORS = ("cpu_op", "Operator")
_NEVER, _LATE = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_GRADIENT = re.compile(r"autograd::engine|[Bb]ackward|Optimizer\.|optimizer")
_MANY_OPERATORS = 20  # kinds: of public traces of whole steps the smallest have 29
_TRAINING = re.compile(r"(.*\W)?training_step")


def extend_to_creation(table: EventTable) -> EventTable:
    """The table with first waits of a loader that begin where the loader was created."""
    waits = _find_rows(table, lambda c, n: c in CPU_CATEGORIES and bool(LOADER.fullmatch(n)))
    seeds = _find_rows(table, lambda _, n: n == "aten::random_")
    if not len(waits) or not len(seeds):
        return table
    start, duration = table.start_ns.copy(), table.duration_ns.copy()
    label = table.label.copy()
    labels = {label: i for i, label in enumerate(table.labels)}
    for lane in np.unique(table.lane[waits]).tolist():
        mine = waits[table.lane[waits] == lane]
        created = _find_creation(table, mine, lane)
        known = created > _NEVER
        first = mine[known]
        duration[first] += start[first] - created[known]
        start[first] = created[known]
        for row in first.tolist():
            category, name = table.labels[label[row]]
            label[row] = labels.setdefault((category, f"iter(DataLoader), {name}"), len(labels))
    return replace(table, start_ns=start, duration_ns=duration, label=label, labels=tuple(labels))


def _find_creation(table: EventTable, waits: Int64Array, lane: int) -> Int64Array:
    """For each wait of a thread, in order of start: when its loader was created, or _NEVER.

    That is the first seed drawn since the wait before, with nothing computed after it.
    """
    start = table.start_ns[waits]
    before = np.append(_NEVER, (start + table.duration_ns[waits])[:-1])
    seeds, items, work = (_find_operators(table, lane, which) for which in (_SEED, _ITEM, _WORK))
    last_work = np.append(_NEVER, work)[np.searchsorted(work, start)]
    at = np.searchsorted(seeds, np.maximum(last_work, before))
    drawn = np.minimum(np.append(seeds, _LATE)[at], start)
    taken = np.searchsorted(items, start) > np.searchsorted(items, drawn)
    found: Int64Array = np.where((drawn < start) & taken, drawn, _NEVER)
    return found


def _find_operators(table: EventTable, lane: int, name: re.Pattern[str]) -> Int64Array:
    """Starts of the operators of a thread with a name that matches, in order."""
    rows = _find_rows(table, lambda c, n: c in _OPERATORS and bool(name.fullmatch(n)))
    found: Int64Array = table.start_ns[rows[table.lane[rows] == lane]]
    return found


def find_elsewhere(table: EventTable, kind: NDArray[np.uint8]) -> Mask:
    """Waits for PyTorch's loaders, and steps, of threads that do not train.

    A thread that reads ahead into a queue waits for nobody, and one that evaluates beside the
    training marks steps of its own: where one of several threads with steps has an optimizer, the
    others do not train. A process whose steps nobody marked keeps all its waits.
    """
    marked = np.unique(table.lane[kind == SpanKind.STEP])
    pids = np.array([pid for _, pid, _ in table.lanes] or [""])
    optimizes = _find_rows(table, lambda _, n: n.startswith("Optimizer.step"))
    with_optimizer = np.intersect1d(marked, table.lane[optimizes])
    trains = np.isin(pids[marked], pids[with_optimizer])
    training = np.union1d(with_optimizer, marked[~trains])
    loader = np.array([_is_loader(name) for _, name in table.labels] or [False])[table.label]
    waits = (kind == SpanKind.INPUT_WAIT) & loader & np.isin(pids[table.lane], pids[marked])
    other: Mask = ~np.isin(table.lane, training) & (waits | (kind == SpanKind.STEP))
    return other


def _is_loader(name: str) -> bool:
    return bool(LOADER.fullmatch(name))


def find_validation(table: EventTable, step: Mask) -> Mask:
    """Which of the steps do not train: they hold no step of training where others do."""
    trains = _find_starts(table, _TRAINING.fullmatch)
    end = table.start_ns + table.duration_ns
    holds = np.searchsorted(trains, end) > np.searchsorted(trains, table.start_ns)
    return step & ~holds if (step & holds).any() else np.zeros(len(table), bool)


def infer_purpose(table: EventTable, own: Mask, kind: NDArray[np.uint8]) -> str:
    """What the steps of a process are for: `INFERENCE`, or "" for training and where it is open.

    Autograd's engine and optimizers have operators of their own in every trace of PyTorch. Where
    a process has steps and operators of many kinds and none of these, it computes no gradient.
    Traces that were reduced or made have few kinds of operators, and say nothing.
    """
    if not (kind[own] == SpanKind.STEP).any():
        return ""
    used = [table.labels[code] for code in np.unique(table.label[own]).tolist()]
    if any(_GRADIENT.search(name) for _, name in used):
        return ""
    operators = {name for category, name in used if category in _OPERATORS}
    return INFERENCE if len(operators) >= _MANY_OPERATORS else ""


def measure_impossible_overlap(table: EventTable, rows: Int64Array) -> tuple[int, int]:
    """For how long kernels of one stream ran beside each other, and how long streams were busy; ns.

    A stream runs what it is given in turn; what one call launched, as a CUDA graph, may overlap.

    Args:
        table: The events.
        rows: Those that are kernels, copies apart.
    """
    order = rows[np.lexsort((table.start_ns[rows], table.lane[rows]))]
    start, lane, launch = table.start_ns[order], table.lane[order], table.launch_ns[order]
    end = start + table.duration_ns[order]
    overlapping_ns = busy_ns = 0
    for first, last in _find_runs(lane):
        ended = np.append(_NEVER, np.maximum.accumulate(end[first:last])[:-1])
        beside = np.clip(np.minimum(ended, end[first:last]) - start[first:last], 0, None)
        beside[0] = 0
        at_once = np.append(False, launch[first + 1 : last] == launch[first : last - 1])
        at_once &= launch[first:last] != NOT_LAUNCHED
        overlapping_ns += int(beside[~at_once].sum())
        busy_ns += union(start[first:last], end[first:last]).length
    return overlapping_ns, busy_ns


def _find_runs(values: NDArray[np.int32]) -> Iterator[tuple[int, int]]:
    """First place of each run of equal values, and the place behind it."""
    borders = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    return pairwise(borders) if len(values) else iter(())


def _find_starts(table: EventTable, is_named: Callable[[str], object]) -> Int64Array:
    found: Int64Array = table.start_ns[_find_rows(table, lambda _, n: bool(is_named(n)))]
    return found


def _find_rows(table: EventTable, wanted: Callable[[str, str], bool]) -> Int64Array:
    """Events whose label is wanted, in order of start."""
    chosen = np.array([wanted(*label) for label in table.labels] or [False])
    rows = np.flatnonzero(chosen[table.label])
    return rows[stable_order(table.start_ns[rows])]


NONE = 255
"""Kind of an event that no analysis uses."""

_STEP = re.compile(r"ProfilerStep#(\d{1,9})")
_EPOCH = re.compile(r"epoch[ _#:=-]*\d{1,9}", re.IGNORECASE)
_LAUNCH = re.compile(r"_?c10d(_functional)?::|record_param_comms$")
_HOST_LAUNCH = re.compile(r"nccl:|rccl:")
_BACKEND = re.compile(r"(gloo|c10d|mpi|ucc):")

# Classes beside SpanKind, settled once all events are known.
_DEVICE_COMMUNICATION, _HOST_COMMUNICATION, _OPERATOR_COMMUNICATION = 100, 101, 102


def classify_events(table: EventTable, waits: Sequence[re.Pattern[str]]) -> NDArray[np.uint8]:
    """Kind of each event, a `SpanKind` or `NONE`.

    `waits` are searched in the names of CPU events; a match is an input wait.
    """
    classes = [_classify_label(category, name, waits) for category, name in table.labels]
    kind = np.array(classes, np.uint8)[table.label]
    present = set(np.unique(kind).tolist())
    communication = int(SpanKind.COMMUNICATION)
    if not present & {communication, _DEVICE_COMMUNICATION}:
        streams = _find_streams_of_calls(table, kind)
        kind[streams] = _DEVICE_COMMUNICATION
        present |= {_DEVICE_COMMUNICATION} if streams.any() else set()
    ladder = (_DEVICE_COMMUNICATION, _HOST_COMMUNICATION, _OPERATOR_COMMUNICATION)
    # Where a device worked, collectives are on it: calls hand them over, or do nothing, as those of
    # a single rank.
    found = SpanKind.KERNEL in present
    for rung in ladder:
        on_device = rung == _DEVICE_COMMUNICATION
        kind[kind == rung] = NONE if found and not on_device else communication
        # Spans of a backend stand beside kernels and launches of another one.
        found = found or rung in present
        found = found or (rung == _HOST_COMMUNICATION and communication in present)
    return kind


def _find_streams_of_calls(table: EventTable, kind: NDArray[np.uint8]) -> Mask:
    """Kernels on streams that calls of collectives use, where no kernel's name says what it is.

    Those are the streams of which such calls launched most kernels.
    """
    calls = (kind == _HOST_COMMUNICATION) | (kind == _OPERATOR_COMMUNICATION)
    kernels = np.flatnonzero((kind == SpanKind.KERNEL) & (table.launch_ns != NOT_LAUNCHED))
    within: Mask = np.zeros(len(table), bool)
    if not calls.any() or not len(kernels):
        return within
    called = union(table.start_ns[calls], (table.start_ns + table.duration_ns)[calls])
    launch = table.launch_ns[kernels]
    last = np.searchsorted(called.start, launch, side="right") - 1
    inside = (last >= 0) & (launch <= called.end[np.maximum(last, 0)])
    lanes = table.lane[kernels]
    of_calls = np.bincount(lanes, inside) > 0.5 * np.bincount(lanes)
    within[kernels] = of_calls[lanes]
    return within


def number_steps(table: EventTable) -> NDArray[np.int32]:
    """Number of the profiled step of each event that is one, else -1."""
    numbers = [
        -1 if (step := _read_step_number(*label)) is None else step for label in table.labels
    ]
    return np.array(numbers, np.int32)[table.label]


def _read_step_number(category: str, name: str) -> int | None:
    match = None if category in KERNEL_CATEGORIES else _STEP.fullmatch(name)
    return int(match[1]) if match else None


def _classify_label(category: str, name: str, waits: Sequence[re.Pattern[str]]) -> int:
    if category == "collective_comm":
        return _DEVICE_COMMUNICATION
    if category in COPY_CATEGORIES:
        return SpanKind.COPY
    if category in KERNEL_CATEGORIES:
        kind = classify_kernel(name)
        return _DEVICE_COMMUNICATION if kind == SpanKind.COMMUNICATION else kind
    if _STEP.fullmatch(name):
        return SpanKind.STEP
    if any(wait.search(name) for wait in waits):
        return SpanKind.INPUT_WAIT
    return _classify_host_label(category, name)


def _classify_host_label(category: str, name: str) -> int:
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
