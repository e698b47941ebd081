"""What the events of a TensorFlow or JAX profile mean to the analyses.

Steps carry a number (`step_num`): Keras's "Profiled batch", `tf.profiler.experimental.Trace`,
`jax.profiler.StepTraceAnnotation`. A TPU also writes a line "Steps" for each device.

Waits for input are tf.data's `IteratorGetNext` and the `__next__` of a PyTorch DataLoader in
JAX's Python trace. Preprocessing is what tf.data runs of the user's functions: their calls, and
operators on tf.data's own threads. Stages of the pipeline contain their own waits and the reads
and do not count. Compute on the CPU are operators of TensorFlow ("name:Type") and of XLA.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.encoding.budget import whole_number
from vanidl.model.trace import SpanKind

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


def kinds(labels: Sequence[Label], waits: Sequence[re.Pattern[str]]) -> NDArray[np.uint8]:
    """Kind of the events of each label, a `SpanKind` or `NONE`; steps: see `steps`.

    `waits` are searched in the names of events of the host; a match is an input wait.
    """
    found = [_kind(label, waits) for label in labels]
    # A device's streams say more than the operations that were derived from them.
    streamed = {label.plane for label in labels if _is_stream(label)}
    twice = [label.plane in streamed and label.line == _XLA_OPS for label in labels]
    return np.where(twice, NONE, np.array(found, np.uint8)).astype(np.uint8)


def steps(labels: Sequence[Label], counts: Sequence[int]) -> NDArray[np.bool_]:
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


def _kind(label: Label, waits: Sequence[re.Pattern[str]]) -> int:
    if is_device(label.plane):
        return _on_device(label)
    if any(wait.search(label.name) for wait in waits):
        return SpanKind.INPUT_WAIT
    if _USER_FUNCTION.match(label.name):
        return SpanKind.PREPROCESS
    if label.is_hlo:
        return SpanKind.COMMUNICATION if _COLLECTIVE.search(label.name) else SpanKind.OP
    operator = _OPERATOR.fullmatch(label.name)
    return NONE if operator is None or label.numbered else _operator(operator["type"], label.line)


def _on_device(label: Label) -> int:
    if not (_is_stream(label) or label.line == _XLA_OPS):
        return NONE
    if _DEVICE_COPY.match(label.name):
        return SpanKind.COPY
    return SpanKind.COMMUNICATION if _COLLECTIVE.search(label.name) else SpanKind.KERNEL


def _operator(kind: str, line: str) -> int:
    if line.startswith(_DATA_POOL):
        return SpanKind.PREPROCESS
    if _GET_NEXT.match(kind):
        return NONE
    if _COLLECTIVE_TYPE.match(kind):
        return SpanKind.COMMUNICATION
    return SpanKind.CHECKPOINT if _CHECKPOINT_TYPE.match(kind) else SpanKind.OP
