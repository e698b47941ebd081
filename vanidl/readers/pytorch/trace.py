"""Traces of the PyTorch profiler: `*.pt.trace.json`, also compressed with gzip.

Two dialects. Today's: float microseconds relative to `baseTimeNanoseconds`, categories
cpu_op, user_annotation, kernel, with `host_name` and `distributedInfo`. The old one:
absolute integer microseconds, categories Operator and Kernel, host and process in the
file's name only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vanidl.encoding import json_stream
from vanidl.encoding.budget import bounded_name, whole_number
from vanidl.encoding.text_stream import TextStream
from vanidl.errors import InputError
from vanidl.formatting.names import elided
from vanidl.formatting.units import seconds
from vanidl.model.intervals import union
from vanidl.model.ordering import stable_order
from vanidl.model.trace import INFERENCE, SpanKind
from vanidl.readers.launches import NOT_LAUNCHED, find_queued
from vanidl.readers.names import (
    SAMPLING,
    ProfilerName,
    classify_kernel,
    compile_wait_names,
    parse_profiler_name,
)
from vanidl.readers.pytorch.columns import (
    COPY_CATEGORIES,
    CPU_CATEGORIES,
    KERNEL_CATEGORIES,
    EventColumns,
    EventTable,
)
from vanidl.readers.records import ProfileTrace, freeze

# What the events of a PyTorch profiler trace mean to the analyses.
#
# What counts as communication, from the most to the least certain evidence:
#
# - kernels of NCCL, RCCL and others (`names.COLLECTIVES`) on a device, and spans that a backend
#   puts around the transfer on its own thread (`gloo:all_reduce`): always. Where no kernel has such
#   a name: kernels on streams that calls of collectives launch on.
# - `nccl:all_reduce` on the CPU: the launch of device kernels, over long before the transfer.
#   Only where the trace has no such kernels.
# - operators (`c10d::allreduce_`, `record_param_comms`): the call that hands the work to a
#   backend. Only where nothing of the above was recorded; never compute.
#
# The old dialect has one category for operators and annotations. There `What#which` is an
# annotation, as are all of PyTorch's own; operators have no `#`.

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
    # The first wait of each loader begins, and is named, as its creation.
    for lane in np.unique(table.lane[waits]).tolist():
        own_waits = waits[table.lane[waits] == lane]
        created = _find_creation(table, own_waits, lane)
        is_created = created > _NEVER
        first = own_waits[is_created]
        duration[first] += start[first] - created[is_created]
        start[first] = created[is_created]
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
    created: Int64Array = np.where((drawn < start) & taken, drawn, _NEVER)
    return created


def _find_operators(table: EventTable, lane: int, name: re.Pattern[str]) -> Int64Array:
    """Starts of the operators of a thread with a name that matches, in order."""
    rows = _find_rows(table, lambda c, n: c in _OPERATORS and bool(name.fullmatch(n)))
    starts: Int64Array = table.start_ns[rows[table.lane[rows] == lane]]
    return starts


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
    is_loader = np.array([bool(LOADER.fullmatch(name)) for _, name in table.labels] or [False])
    of_loaders = (kind == SpanKind.INPUT_WAIT) & is_loader[table.label]
    waits = of_loaders & np.isin(pids[table.lane], pids[marked])
    other: Mask = ~np.isin(table.lane, training) & (waits | (kind == SpanKind.STEP))
    return other


def find_validation(table: EventTable, step: Mask) -> Mask:
    """Which of the steps do not train: they hold no step of training where others do."""
    trains: Int64Array = table.start_ns[
        _find_rows(table, lambda _, n: bool(_TRAINING.fullmatch(n)))
    ]
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
    # First place of each run of equal values, and the place behind it.
    borders = [0, *(np.flatnonzero(np.diff(lane)) + 1).tolist(), len(lane)]
    runs = pairwise(borders) if len(lane) else iter(())
    for first, last in runs:
        ended = np.append(_NEVER, np.maximum.accumulate(end[first:last])[:-1])
        beside = np.clip(np.minimum(ended, end[first:last]) - start[first:last], 0, None)
        beside[0] = 0
        at_once = np.append(False, launch[first + 1 : last] == launch[first : last - 1])
        at_once &= launch[first:last] != NOT_LAUNCHED
        overlapping_ns += int(beside[~at_once].sum())
        busy_ns += union(start[first:last], end[first:last]).length
    return overlapping_ns, busy_ns


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
    # Work of devices, by its category and the name of the kernel.
    if category == "collective_comm":
        return _DEVICE_COMMUNICATION
    if category in COPY_CATEGORIES:
        return SpanKind.COPY
    if category in KERNEL_CATEGORIES:
        kind = classify_kernel(name)
        return _DEVICE_COMMUNICATION if kind == SpanKind.COMMUNICATION else kind

    # Ranges and operators of the host: steps and waits before all else that a name may be.
    if _STEP.fullmatch(name):
        return SpanKind.STEP
    if any(wait.search(name) for wait in waits):
        return SpanKind.INPUT_WAIT
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


SOURCE = "pytorch-profiler"

WAIT_NAMES = (r"enumerate\(DataLoader\)#.*\.__next__",)
"""Regular expressions for whole names of spans in which training waits for a batch."""

_WANTED = ("baseTimeNanoseconds", "host_name", "distributedInfo", "traceName")
_MAX_BASE_NS = 2**61
# Earlier than 2001: a time that counts from something else than the epoch.
_ABSOLUTE_NS = 10**18
_NAMED_MEMBERS = 5
_NAME_CHARACTERS = 60
_MOST_DEVICES = 1024  # of one host
_MOST_RANKS = 2**31
_FEW = 0.1  # of the events: the rest shows what they would
_LITTLE = 0.01  # of the work of devices: so little left out is said, and changes no answer
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
    return read_traces(path, wait_names=wait_names)[0]


def read_traces(path: str | Path, *, wait_names: Sequence[str] = ()) -> tuple[ProfileTrace, ...]:
    """As `read_trace`, one for each process that marks steps, where several ranks were merged.

    Their devices are given to them in order, where these are as many; else to none of them.

    Raises:
        InputError, UsageError: as `read_trace`.
    """
    waits = compile_wait_names(wait_names, WAIT_NAMES)
    content = _Content(Path(path))
    content.read()
    table = content.events.table()
    content.count_losses()
    if not len(table):
        raise InputError(f"{path}: {_EXPECTED}, found {content.instead()}; {_REMEDY}")
    return _build_profiles(content, table, waits)


class _Content:
    """What the text of a trace holds, read once from start to end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events = EventColumns()
        self.header: dict[str, object] = {}
        self.devices: list[object] = []
        self.others: list[str] = []  # names of the first members that mean nothing here
        self.has_events = False
        self.losses: list[str] = []
        self.slight: list[str] = []  # losses of a few events
        self.broken = 0
        self.is_cut = False

    def read(self) -> None:
        text = TextStream(self.path)
        try:
            with json_stream.catch_unreadable(self.path, text, _EXPECTED, _REMEDY):
                for item in json_stream.members(text, array_key="traceEvents", budget=text.budget):
                    self._take(item)
        except json_stream.TextBehind as error:
            self.losses.append(f"{error}, as of another trace that was written to this file")
        except json_stream.CutJson as error:
            self._lose(text.damage or error.loss)
        else:
            if text.damage:
                self._lose(f"{text.damage}, after the end of the trace")

    def _take(self, item: json_stream.Member | json_stream.Elements) -> None:
        if item.key in _WANTED and isinstance(item, json_stream.Member):
            self.header[item.key] = item.value
        elif item.key == "traceEvents" and isinstance(item, json_stream.Elements):
            self.has_events = True
            # A repeated member replaces the earlier one, as in every JSON parser.
            self.events = EventColumns() if item.first else self.events
            self.broken = item.broken + (0 if item.first else self.broken)
            self.events.add(item.values)
        elif item.key == "deviceProperties" and isinstance(item, json_stream.Elements):
            if item.first:
                self.devices.clear()
            self.devices += item.values[: _MOST_DEVICES - len(self.devices)]
        elif len(self.others) < _NAMED_MEMBERS and item.key not in self.others:
            self.others.append(elided(item.key, limit=_NAME_CHARACTERS))

    @property
    def host(self) -> str:
        """The host as the trace names it, "" where it does not."""
        name = self.header.get("host_name")
        return name if isinstance(name, str) else ""

    @property
    def written_as(self) -> str:
        """The file that the profiler wrote first, "" where the trace does not name it."""
        name = self.header.get("traceName")
        return name if isinstance(name, str) else ""

    @property
    def distributed(self) -> dict[str, object]:
        """`distributedInfo`, empty where there is none."""
        info = self.header.get("distributedInfo")
        return info if isinstance(info, dict) else {}

    @property
    def group(self) -> int:
        """Size of the one process group that there is; 0 where there are several, or none is told.

        `pg_config` names them in `distributedInfo` since PyTorch 2.3.
        """
        groups = self.distributed.get("pg_config")
        only = groups[0] if isinstance(groups, list) and len(groups) == 1 else None
        size = only.get("pg_size") if isinstance(only, dict) else None
        return _to_count(size) or 0

    def base_ns(self, table: EventTable) -> int:
        """Nanoseconds to add to the file's times; a lost base becomes a loss."""
        base = self.header.get("baseTimeNanoseconds")
        # The median, as one absurd time must not decide for all.
        relative = float(np.median(table.start_ns)) < _ABSOLUTE_NS
        if relative and type(base) is int and abs(base) < _MAX_BASE_NS:
            return base
        if relative:
            self.losses.append("baseTimeNanoseconds is missing: times count from an unknown moment")
        return 0

    def _lose(self, why: str) -> None:
        self.is_cut = True
        self.losses.append(f"{why}; {self.events.seen:,} events before that were read")

    def count_losses(self) -> None:
        """Says how many events are left out, and of how many: a few change no number."""
        every = self.events.seen + self.broken
        reasons = {
            "their text is no JSON": self.broken,
            "their name, process, time or duration is missing or impossible": self.events.refused,
            "they have no time (0 for start and duration)": self.events.untimed,
        }
        left_out = sum(reasons.values())
        losses = [
            f"{n:,} of {every:,} events are left out as {why}" for why, n in reasons.items() if n
        ]
        few = left_out <= _FEW * every and not self.events.untimed
        (self.slight if few else self.losses).extend(losses)

    def instead(self) -> str:
        """What the file holds in place of a trace."""
        if not self.has_events:
            some = f" (but {', '.join(self.others)})" if self.others else ""
            what = f"JSON without an array traceEvents{some}"
        else:
            what = f"{self.events.seen:,} events, none of them a whole one of PyTorch"
        return "; ".join([what, *self.losses, *self.slight])


def _build_profiles(
    content: _Content, table: EventTable, waits: list[re.Pattern[str]]
) -> tuple[ProfileTrace, ...]:
    """One for each process that marks steps; of all processes the one that shows them best."""
    named, step, kind = (
        parse_profiler_name(content.path),
        number_steps(table),
        classify_events(table, waits),
    )

    # What is no step or wait of training, or lies behind the cut, means nothing here.
    kind[find_elsewhere(table, kind)] = NONE
    kind[find_validation(table, kind == SpanKind.STEP)] = SpanKind.EVALUATION
    if content.is_cut:
        kind[_find_unfinished_work(content, table, kind)] = NONE
    kind[_find_calls_without_device(content, table, kind)] = NONE

    # One profile a process that marks steps; devices go to them in order.
    table = extend_to_creation(table)
    base_ns = content.base_ns(table)
    start = table.start_ns + base_ns
    stepping = sorted({table.lanes[lane][1] for lane in table.lane[step >= 0]}, key=_order_pids)
    pids = stepping if len(stepping) > 1 else [_find_own_pid(table, step, named)]
    devices = sorted({pid for device, pid, _ in table.lanes if device}, key=_order_pids)
    if len(pids) > 1 and len(devices) not in (0, len(pids)):
        content.losses.append(
            f"{len(pids)} processes are in it and {len(devices)} devices, so which ran on which is "
            "not known: what devices did is left out"
        )
    on_device = np.array([device for device, _, _ in table.lanes], bool)
    _tell_impossible_overlap(content, table, kind)
    lost = content.events.of_devices
    profiles: list[ProfileTrace] = []
    for i, pid in enumerate(pids):
        its = devices if len(pids) == 1 else devices[i : i + 1] * (len(devices) == len(pids))
        own = np.array([p in its if device else p == pid for device, p, _ in table.lanes])
        keep = np.flatnonzero((kind != NONE) & own[table.lane])
        keep = keep[stable_order(table.start_ns[keep])]
        worked = keep[on_device[table.lane[keep]]]
        waited = find_queued(
            table.start_ns[worked],
            table.start_ns[worked] + table.duration_ns[worked],
            table.launch_ns[worked],
        )
        labels, name = _renumber(table.label[keep])
        lanes, thread = _renumber(table.lane[keep])
        trace = ProfileTrace(
            path=str(content.path),
            source=SOURCE,
            host=content.host or _find_host_in_name(table, named),
            pid=whole_number(pid),
            rank=_to_count(content.distributed.get("rank")) if len(pids) == 1 else None,
            world_size=_to_count(content.distributed.get("world_size")),
            devices=_name_devices(content.devices, [table.lanes[i] for i in lanes]),
            start_ns=freeze(start[keep]),
            end_ns=freeze(start[keep] + table.duration_ns[keep]),
            step=freeze(np.where(kind[keep] == SpanKind.EVALUATION, -1, step[keep])),
            kind=freeze(kind[keep]),
            thread=freeze(thread),
            name=freeze(name),
            names=tuple(_make_printable(table.labels[i][1]) for i in labels),
            losses=tuple(content.losses) if not profiles else (),
            slight=tuple(content.slight) if not profiles else (),
            written_as=content.written_as,
            device_in_part=lost > _LITTLE * (lost + int(on_device[table.lane].sum())),
            group=content.group,
            purpose=infer_purpose(table, own[table.lane], kind),
            queued=None if waited is None else waited.shifted(base_ns),
        )
        profiles.append(trace)
    return tuple(profiles)


def _order_pids(pid: str) -> tuple[int, str]:
    return whole_number(pid) or 0, pid


def _find_unfinished_work(
    content: _Content, table: EventTable, kind: NDArray[np.uint8]
) -> NDArray[np.bool_]:
    """Work of devices in a cut trace that lacks the rest of it: no step's share can be told.

    The profiler writes it behind what the CPU did. Where it reaches into the last step, all is
    there.
    """
    of_lane = np.array([on_device for on_device, _, _ in table.lanes], bool)
    device: NDArray[np.bool_] = of_lane[table.lane] & (kind != NONE)
    begun = table.start_ns[kind == SpanKind.STEP]
    late = begun > (table.start_ns[device].max() if device.any() else np.iinfo(np.int64).max)
    if not late.any():
        return np.zeros(len(table), bool)
    content.losses.append(
        f"kernels of the last {late.sum():,} of {begun.size:,} steps are missing, so what the "
        f"device did ({device.sum():,} kernels were left) is in no number"
    )
    return device


def _tell_impossible_overlap(content: _Content, table: EventTable, kind: NDArray[np.uint8]) -> None:
    """Names kernels of one stream that run beside each other, where they do for long."""
    on_device = np.array([device for device, _, _ in table.lanes], bool)
    worked = (kind == SpanKind.KERNEL) | (kind == SpanKind.COMMUNICATION)
    kernels = np.flatnonzero(on_device[table.lane] & worked)
    overlapping_ns, busy_ns = measure_impossible_overlap(table, kernels)
    if overlapping_ns > _FEW * busy_ns:
        content.slight.append(
            f"kernels of one stream run beside each other for {seconds(overlapping_ns / 1e9)} of "
            f"{seconds(busy_ns / 1e9)}, which no stream does: some of their times are wrong, and "
            "each moment is counted once"
        )


def _find_calls_without_device(
    content: _Content, table: EventTable, kind: NDArray[np.uint8]
) -> NDArray[np.bool_]:
    """Operators of steps that handed kernels to a device of which no work is left.

    They are no compute: that ran on the device, and nothing says when.
    """
    on_device = np.array([device for device, _, _ in table.lanes], bool)[table.lane]
    marked = (kind == SpanKind.STEP).any() or (kind == SpanKind.INPUT_WAIT).any()
    if not (content.events.launches and marked) or (on_device & (kind != NONE)).any():
        return np.zeros(len(table), bool)
    if not content.is_cut:
        content.losses.append(
            "kernels were launched and none was recorded, so what the device did is in no number"
        )
    operators: NDArray[np.bool_] = kind == SpanKind.OP
    return operators


def _find_host_in_name(table: EventTable, named: ProfilerName | None) -> str:
    """The host in the file's name: HOST_PID, where that process has spans in the trace.

    A user may name the worker, and end the name in any number.
    """
    pids = {pid for device, pid, _ in table.lanes if not device}
    return named.host if named and (str(named.pid) in pids or named.pid is None) else ""


def _find_own_pid(table: EventTable, step: NDArray[np.int32], named: ProfilerName | None) -> str:
    """The process that was profiled, "" without CPU spans: steps show it best.

    Else it is the one in the file's name where it has spans, else the one with most spans.
    """
    cpu = np.array([not device for device, _, _ in table.lanes])[table.lane]
    lanes = table.lane[(step >= 0) if (step >= 0).any() else cpu]
    counts: dict[str, int] = {}
    for lane, count in enumerate(np.bincount(lanes, minlength=1).tolist()):
        if count:
            pid = table.lanes[lane][1]
            counts[pid] = counts.get(pid, 0) + count
    in_name = str(named.pid) if named else ""
    if in_name in counts:
        return in_name
    return max(counts, key=lambda pid: (counts[pid], pid), default="")


def _renumber(codes: NDArray[np.int32]) -> tuple[list[int], NDArray[np.int32]]:
    """The codes in use, ascending, and each code's place among them."""
    used = np.flatnonzero(np.bincount(codes))
    place = np.zeros(used[-1] + 1 if used.size else 0, np.int32)
    place[used] = np.arange(used.size)
    return used.tolist(), place[codes]


def _name_devices(properties: list[object], lanes: list[tuple[bool, str, str]]) -> tuple[str, ...]:
    """Names of the devices that ran kernels, in their order; of all where no id fits."""
    used = {pid for device, pid, _ in lanes if device}
    named = [p for p in properties if isinstance(p, dict) and isinstance(p.get("name"), str)]
    fitting = [p for p in named if str(p.get("id")) in used]
    return tuple(p["name"] for p in (fitting or named)) if used else ()


def _to_count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < _MOST_RANKS else None


def _make_printable(name: str) -> str:
    """The name without lone surrogates, which no file can hold."""
    return bounded_name(name.encode("utf-8", "replace").decode("utf-8"))
