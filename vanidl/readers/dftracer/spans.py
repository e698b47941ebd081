"""What a program said of itself through DFTracer: epochs, steps, waits, compute.

DLIO and programs that use `dftracer.python.ai` mark their loop: a fetch ("fetch.iter", of
older DLIO "loop.iter") is a wait for input, the block that follows it ("fetch.block",
"loop.yield") the rest of the step. Without either, a step lasts until its compute has ended.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vanidl.model.ordering import stable_order
from vanidl.model.trace import FROM_COMPUTE, SpanKind
from vanidl.readers.dftracer.processes import TracedProcess
from vanidl.readers.dftracer.trace_file import ABSENT, Events
from vanidl.readers.records import ProfileTrace, freeze

Int64Array = NDArray[np.int64]

SOURCE = "dftracer"

_LOOPS = ("fetch", "loop", "fetch-data", "<module>")
_WAITS = ("fetch", *(f"{loop}.iter" for loop in _LOOPS))
_BLOCKS = tuple(f"{loop}.{end}" for loop in _LOOPS for end in ("block", "yield"))
_EPOCHS = ("epoch", "epoch.block")
_OLD_EPOCH = "DLIOBenchmark._train"  # one call an epoch, in traces without "epoch.block"
_CHECKPOINTS = ("capture", "restart", "checkpoint", "save_checkpoint", "load_checkpoint")
_OF_A_TRAINER = (SpanKind.STEP, SpanKind.INPUT_WAIT, SpanKind.OP)


def build_profile(process: TracedProcess) -> ProfileTrace | None:
    """The spans of one process; None for one that marked neither loop nor compute.

    A data loader's worker marks what it does as well; it does not train and has no profile.
    """
    spans = _collect_spans(process.events)
    if not np.isin(spans["kind"], _OF_A_TRAINER).any():
        return None
    return ProfileTrace(
        path=process.files[-1],
        source=SOURCE,
        host=process.host,
        pid=process.pid,
        rank=process.rank,
        world_size=process.ranks,
        devices=(),
        start_ns=freeze(spans["start"]),
        end_ns=freeze(spans["end"]),
        step=freeze(spans["step"].astype(np.int32)),
        kind=freeze(spans["kind"].astype(np.uint8)),
        thread=freeze(spans["thread"].astype(np.int32)),
        name=freeze(spans["name"].astype(np.int32)),
        names=(*(name for _, name in process.events.names), "step"),
        losses=(),
        steps_from="" if _marks_steps(process.events) else FROM_COMPUTE,
    )


def _collect_spans(events: Events) -> dict[str, Int64Array]:
    """Columns of all spans, those of steps made from fetches and blocks; sorted by start."""
    kind = _classify_events(events)
    rows = np.flatnonzero(kind >= 0)
    columns, start = events.columns, events.columns["ts"][rows]
    step_start, step_end = _find_steps(events, kind)
    n = len(step_start)
    threads = np.unique(columns["tid"], return_inverse=True)[1]
    spans = {
        "start": np.concatenate([start, step_start]),
        "end": np.concatenate([start + columns["dur"][rows], step_end]),
        "step": np.concatenate([_number_epochs(events, kind, rows), np.arange(n)]),
        "kind": np.concatenate([kind[rows], np.full(n, SpanKind.STEP)]),
        "thread": np.concatenate([threads[rows], np.full(n, -1)]),
        "name": np.concatenate([columns["name"][rows], np.full(n, len(events.names))]),
    }
    order = stable_order(spans["start"])
    return {key: column[order] for key, column in spans.items()}


def _classify_events(events: Events) -> Int64Array:
    """SpanKind of each event, -1 for one that is no span of training."""
    names = events.names
    of_name = [_classify_span(category, name) for category, name in names]
    if SpanKind.EPOCH not in of_name:
        of_name = [
            int(SpanKind.EPOCH) if name == _OLD_EPOCH else kind
            for (_, name), kind in zip(names, of_name, strict=True)
        ]
    return np.array(of_name or [-1], np.int64)[events.columns["name"]]


def _classify_span(category: str, name: str) -> int:
    last = name.rsplit(".", 1)[-1]
    rules = (
        (name in _WAITS, SpanKind.INPUT_WAIT),
        (category == "pipeline" and name in _EPOCHS, SpanKind.EPOCH),
        (category == "compute", SpanKind.OP),
        (category == "ai_framework" and last == "compute", SpanKind.OP),
        (category == "comm", SpanKind.COMMUNICATION),
        (category in ("checkpoint", "ai_framework") and last in _CHECKPOINTS, SpanKind.CHECKPOINT),
        (category in ("data", "reader") and last == "preprocess", SpanKind.PREPROCESS),
    )
    return next((int(kind) for holds, kind in rules if holds), -1)


def _marks_steps(events: Events) -> bool:
    """Whether its loop is marked, by fetches or by what follows them."""
    names = {events.names[code][1] for code in np.unique(events.columns["name"]).tolist()}
    return not names.isdisjoint((*_WAITS, *_BLOCKS))


def _find_steps_by_compute(events: Events, kind: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Starts and ends: from the end of one compute, or where an epoch begins, to that of the next.

    Before the first compute of an epoch lies its first wait, where the epoch is marked.
    """
    rows = np.flatnonzero(kind == SpanKind.OP)
    begin = events.columns["ts"][rows]
    end = np.maximum.accumulate(begin + events.columns["dur"][rows]) if len(rows) else begin
    before = np.append(begin[:1], end[:-1])
    epochs = np.sort(events.columns["ts"][kind == SpanKind.EPOCH])
    last = np.searchsorted(epochs, begin, side="right") - 1
    of_epoch = epochs[np.maximum(last, 0)] if len(epochs) else before
    start = np.where((last >= 0) & (of_epoch > before), of_epoch, before)
    if len(rows) and len(epochs) and last[0] >= 0:
        start[0] = of_epoch[0]
    apart = end > start
    return start[apart], end[apart]


def _find_steps(events: Events, kind: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Starts and ends of steps: from a fetch to the end of the block that follows it."""
    if not _marks_steps(events):
        return _find_steps_by_compute(events, kind)
    is_block = np.array([name in _BLOCKS for _, name in events.names] or [False])
    blocks = np.flatnonzero(is_block[events.columns["name"]])
    waits = np.flatnonzero(kind == SpanKind.INPUT_WAIT)
    wait_start = events.columns["ts"][waits]
    start = events.columns["ts"][blocks]
    before = np.searchsorted(wait_start, start, side="right") - 1
    known = before >= 0
    end = start + events.columns["dur"][blocks]
    return wait_start[before[known]], end[known]


def _number_epochs(events: Events, kind: Int64Array, rows: Int64Array) -> Int64Array:
    """For an epoch the number that it was given, else its place among them; -1 elsewhere."""
    numbers = np.full(len(rows), -1, np.int64)
    epochs = kind[rows] == SpanKind.EPOCH
    given = events.columns["epoch"][rows][epochs]
    numbers[epochs] = np.where(given == ABSENT, np.arange(len(given)), given)
    return numbers
