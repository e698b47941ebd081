"""Events of a TensorFlow or JAX profile -> one `ProfileTrace`, whichever file they came from.

What the events mean, which of them are steps, and where their times count from.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from vanidl.encoding.budget import whole_number
from vanidl.errors import InputError
from vanidl.model.trace import SpanKind
from vanidl.readers.launches import find_queued
from vanidl.readers.names import classify_kernel
from vanidl.readers.records import ProfileTrace, freeze
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]


# What the events of a TensorFlow or JAX profile mean to the analyses.
#
# Steps carry a number (`step_num`): Keras's "Profiled batch", `tf.profiler.experimental.Trace`,
# `jax.profiler.StepTraceAnnotation`. A TPU also writes a line "Steps" for each device.
#
# Waits for input are tf.data's `IteratorGetNext` and the `__next__` of a PyTorch DataLoader in
# JAX's Python trace. Preprocessing is what tf.data runs of the user's functions: their calls, and
# operators on tf.data's own threads. Stages of the pipeline contain their own waits and the reads
# and do not count. Compute on the CPU are operators of TensorFlow ("name:Type") and of XLA.

NONE = 255
"""Kind of an event that no analysis uses."""

WAIT_NAMES = (
    r"IteratorGetNext(AsOptional)?Op::DoCompute",
    r"\$dataloader\.py:\d+ __next__",
    r"enumerate\(DataLoader\)#.*\.__next__",
)
"""Regular expressions for whole names of spans in which training waits for a batch."""

_EVALUATION = re.compile(r"test|valid|eval|predict", re.IGNORECASE)
_DEVICE = re.compile(r"/device:(?!CPU)")
_STREAM = re.compile(r"stream", re.IGNORECASE)
_XLA_OPS, _STEPS = "XLA Ops", "Steps"
_DEVICE_COPY = re.compile(r"memcpy|memset|%?(copy-start|copy-done|infeed|outfeed)", re.IGNORECASE)
_COLLECTIVE = re.compile(
    r"nccl|rccl|\A%?(all-reduce|all-gather|reduce-scatter|(ragged-)?all-to-all"
    r"|collective-(permute|broadcast)|send|recv)\b",
    re.IGNORECASE,
)
_OPERATOR = re.compile(r"[\w.][\w./\\>-]*:(?P<type>[A-Z_]\w*)")
_GET_NEXT = re.compile(r"(MultiDevice)?Iterator")
_COLLECTIVE_TYPE = re.compile(r"Collective|Nccl|Horovod")
_CHECKPOINT_TYPE = re.compile(r"Save|Restore|MergeV2Checkpoints")
_USER_FUNCTION = re.compile(r"InstantiatedCapturedFunction::(?!RunAsync)")
_DATA_POOL = "tf_data_private_threadpool"


@dataclass(frozen=True, slots=True)
class Label:
    """What all events of one name on one thread or stream have in common."""

    plane: str  # "/host:CPU", "/device:GPU:0"
    line: str  # name of the thread or stream
    name: str
    numbered: bool = False  # carries the number of a step
    is_hlo: bool = False  # an operation of XLA


def classify_labels(labels: Sequence[Label], waits: Sequence[re.Pattern[str]]) -> NDArray[np.uint8]:
    """Kind of the events of each label, a `SpanKind` or `NONE`; steps: see `steps`.

    `waits` are searched in the names of events of the host; a match is an input wait.
    """
    kinds = [_classify_label(label, waits) for label in labels]
    # A device's streams say more than the operations that were derived from them.
    streamed = {label.plane for label in labels if _is_stream(label)}
    twice = [label.plane in streamed and label.line == _XLA_OPS for label in labels]
    return np.where(twice, NONE, np.array(kinds, np.uint8)).astype(np.uint8)


def find_steps(labels: Sequence[Label], counts: Sequence[int]) -> NDArray[np.bool_]:
    """Which labels are training steps; `counts` says how many events each has.

    Of several names of numbered events the one with most events, training before evaluation.
    Where the host marked no step, the steps of the first device.
    """
    marked: Counter[str] = Counter()
    for label, count in zip(labels, counts, strict=True):
        if label.numbered and not is_device(label.plane):
            marked[label.name] += count
    ranked = sorted(marked, key=lambda n: (bool(_EVALUATION.search(n)), -marked[n], n))
    if ranked:
        return np.array([label.numbered and label.name == ranked[0] for label in labels], bool)
    planes = sorted({label.plane for label in labels if is_device_step(label)})
    return np.array([is_device_step(x) and x.plane == planes[0] for x in labels], bool)


def is_device(plane: str) -> bool:
    """Whether the plane is an accelerator's."""
    return bool(_DEVICE.match(plane))


def is_device_step(label: Label) -> bool:
    """Whether the label's name is the number of a step, on a device's own line of steps."""
    return is_device(label.plane) and label.line == _STEPS and whole_number(label.name) is not None


def _is_stream(label: Label) -> bool:
    return is_device(label.plane) and bool(_STREAM.match(label.line))


def _classify_label(label: Label, waits: Sequence[re.Pattern[str]]) -> int:
    # Of devices, what their streams did, or XLA's operations.
    if is_device(label.plane):
        if not (_is_stream(label) or label.line == _XLA_OPS):
            return NONE
        if _DEVICE_COPY.match(label.name):
            return SpanKind.COPY
        return (
            SpanKind.COMMUNICATION
            if _COLLECTIVE.search(label.name)
            else classify_kernel(label.name)
        )

    # Of the host, waits first: a name that the user gave may look like anything else.
    if any(wait.search(label.name) for wait in waits):
        return SpanKind.INPUT_WAIT
    if _USER_FUNCTION.match(label.name):
        return SpanKind.PREPROCESS
    if label.is_hlo:
        return SpanKind.COMMUNICATION if _COLLECTIVE.search(label.name) else SpanKind.OP
    operator = _OPERATOR.fullmatch(label.name)
    return (
        NONE
        if operator is None or label.numbered
        else _classify_operator(operator["type"], label.line)
    )


def _classify_operator(kind: str, line: str) -> int:
    if line.startswith(_DATA_POOL):
        return SpanKind.PREPROCESS
    if _GET_NEXT.match(kind):
        return NONE
    if _COLLECTIVE_TYPE.match(kind):
        return SpanKind.COMMUNICATION
    return SpanKind.CHECKPOINT if _CHECKPOINT_TYPE.match(kind) else SpanKind.OP


# Events of a TensorFlow or JAX profile as its readers hand them on.

NO_STEP = -1


@dataclass(frozen=True, slots=True)
class SessionEvents:
    """Events in any order: one entry per event in every array.

    `label` is an index into `labels`, `step` the number that an event carries, else NO_STEP,
    `launch_ns` when work on a device was handed over, else NOT_LAUNCHED. Times count from the
    start of the profile, or from the epoch.
    """

    start_ns: Int64Array
    end_ns: Int64Array
    label: Int64Array
    step: Int64Array
    labels: tuple[Label, ...]
    launch_ns: Int64Array

    def pick(self, rows: NDArray[np.bool_]) -> SessionEvents:
        """The events that a mask picks."""
        columns = (self.start_ns[rows], self.end_ns[rows], self.label[rows], self.step[rows])
        return SessionEvents(*columns, self.labels, self.launch_ns[rows])


# When a TensorFlow or JAX profile was recorded: where its times count from.
#
# Profiles of today say when they began. Older ones, and trace viewer files, count from their
# beginning, and all that is left is the name of the folder: the second at which the profile was
# written, when its last event was over, in the local time of the machine.

_FOLDER = re.compile(r"(\d{4})[_-](\d\d)[_-](\d\d)[_-](\d\d)[_:-](\d\d)(?:[_:-](\d\d))?")
_SECOND_NS = 1_000_000_000
_EPOCH_NS = (10**18, 4 * 10**18)  # 2001 to 2096: times that count from the epoch
_LONGEST_NS = 10**16  # four months: no profile is longer

ABSOLUTE = "absolute"
FOLDER = "second in the folder's name"


@dataclass(frozen=True, slots=True)
class Placed:
    """What to add to a profile's times to make them nanoseconds since the epoch."""

    zero_ns: int
    method: str = ABSOLUTE
    uncertainty_ns: int = 0  # half-width


def is_epoch(ns: int) -> bool:
    """Whether a time can be one since the epoch."""
    low, high = _EPOCH_NS
    return low <= ns < high


def is_absolute(events: SessionEvents) -> bool:
    """Whether the events count from the epoch themselves."""
    # The median, as one absurd time must not decide for all.
    return len(events.start_ns) > 0 and is_epoch(int(np.median(events.start_ns)))


def drop_impossible(events: SessionEvents) -> tuple[SessionEvents, int]:
    """The events whose times can be true, and how many others there were."""
    start, length = events.start_ns, events.end_ns - events.start_ns
    low, high = _EPOCH_NS if is_absolute(events) else (-_LONGEST_NS, _LONGEST_NS)
    good = (start >= low) & (start < high) & (length >= 0) & (length < _LONGEST_NS)
    return events if good.all() else events.pick(good), int(len(good) - good.sum())


def place_by_folder(path: Path, events: SessionEvents, utc_offset_s: int) -> Placed:
    """From the name of the folder and the end of the last event, to +- 1 s.

    Args:
        path: The profile.
        events: Its events, as they count.
        utc_offset_s: Local time minus UTC where it was recorded.

    Raises:
        InputError: The folder's name is no time.
    """
    match = _FOLDER.fullmatch(path.absolute().parent.name)
    if not match:
        raise InputError(
            f"{path}: expected a profile that says when it was recorded, or a folder named after "
            "that time as in plugins/profile/2026_11_21_00_02_36, found neither; keep the folder "
            "that the profiler made"
        )
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups())
    try:
        written = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    except ValueError as error:
        raise InputError(
            f"{path}: expected a folder named after a time, found {match[0]} ({error}); give it "
            "back the name that the profiler chose"
        ) from error
    utc_s = int(written.timestamp())
    written_ns = (utc_s - utc_offset_s) * _SECOND_NS
    last_ns = int(events.end_ns.max(initial=0))
    # The name has whole seconds: the middle of that one is taken.
    return Placed(written_ns + _SECOND_NS // 2 - last_ns, FOLDER, _SECOND_NS)


_Key = TypeVar("_Key")

_LARGEST_STEP = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Writer:
    """The file and the process that was profiled."""

    path: Path
    source: str
    host: str
    pid: int | None
    losses: tuple[str, ...] = ()


def build_profile(
    events: SessionEvents, writer: Writer, waits: Sequence[re.Pattern[str]], placed: Placed
) -> ProfileTrace:
    """The spans of a profile, sorted by start.

    Raises:
        InputError: No event means anything to the analyses.
    """
    # The events that mean something to the analyses, by start, the longer of equal ones first.
    counts = np.bincount(events.label, minlength=len(events.labels)).tolist()
    of_label = classify_labels(events.labels, waits)
    of_label[find_steps(events.labels, counts)] = SpanKind.STEP
    kind = of_label[events.label]
    keep = np.flatnonzero(kind != NONE)
    if not keep.size:
        raise InputError(
            f"{writer.path}: expected a profile with steps, waits for input or operators, found "
            f"{len(kind):,} other events; profile at least one training step"
        )
    keep = keep[np.lexsort((-events.end_ns[keep], events.start_ns[keep]))]

    # The names and threads that are left, numbered anew.
    used, label = np.unique(events.label[keep], return_inverse=True)
    labels = [events.labels[code] for code in used.tolist()]
    name_of, names = _number_values([label.name for label in labels])
    thread_of, _ = _number_values([(label.plane, label.line) for label in labels])

    # The number of each step: what it carries, or, on a device's own line of steps, its name.
    named = [int(x.name) if is_device_step(x) else NO_STEP for x in labels]
    step = np.maximum(events.step[keep], np.array(named, np.int64)[label])
    step[kind[keep] != SpanKind.STEP] = NO_STEP

    # When devices did nothing with work in their queues; None where that is not known.
    of_device = np.array([is_device(label.plane) for label in events.labels], bool)
    worked = keep[of_device[events.label[keep]]]
    waited = find_queued(events.start_ns[worked], events.end_ns[worked], events.launch_ns[worked])
    queued = None if waited is None else waited.shifted(placed.zero_ns)
    return ProfileTrace(
        path=str(writer.path),
        source=writer.source,
        host=writer.host,
        pid=writer.pid,
        rank=None,
        world_size=None,
        devices=tuple(sorted({x.plane for x in labels if is_device(x.plane)})),
        start_ns=freeze(events.start_ns[keep] + placed.zero_ns),
        end_ns=freeze(events.end_ns[keep] + placed.zero_ns),
        step=freeze(np.clip(step, NO_STEP, _LARGEST_STEP).astype(np.int32)),
        kind=freeze(kind[keep]),
        thread=freeze(thread_of[label]),
        name=freeze(name_of[label]),
        names=tuple(map(_make_printable, names)),
        losses=writer.losses,
        clock_method=placed.method,
        clock_uncertainty_ns=placed.uncertainty_ns,
        queued=queued,
    )


def _number_values(values: Sequence[_Key]) -> tuple[NDArray[np.int32], tuple[_Key, ...]]:
    """Each value's place among the different ones, and those."""
    different = {value: i for i, value in enumerate(dict.fromkeys(values))}
    return np.array([different[value] for value in values], np.int32), tuple(different)


def _make_printable(name: str) -> str:
    """The name without lone surrogates, which no file can hold."""
    return name.encode("utf-8", "replace").decode("utf-8")
