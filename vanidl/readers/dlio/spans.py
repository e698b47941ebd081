"""A rank's steps as spans. DLIO writes how long they took, and when their block was.

Steps follow each other from the beginning of their block; between them lies the barrier, in which
a rank waits for the slowest one. What is left of the block is spread evenly between its steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vanidl.model.trace import SpanKind
from vanidl.readers.dlio.output import EVALUATION, Block, RankOutput
from vanidl.readers.dlio.times import CHECKPOINT, Interval, Times
from vanidl.readers.dlio.utilization import BlockStamps, Slowest
from vanidl.readers.records import ProfileTrace, StepDurations

SOURCE = "dlio"
CLOCK = "local time of the results"

Int64Array = NDArray[np.int64]
Number = int | Int64Array

_LOAD, _COMPUTE, _BARRIER, _CHECKPOINT, _STEP = range(5)
_NAMES = ("load", "compute (emulated)", "barrier", "checkpoint", "step")


@dataclass(slots=True)
class _Spans:
    """Spans as they are found."""

    rows: list[tuple[Int64Array, Int64Array, Int64Array, int, int]] = field(default_factory=list)
    names: list[str] = field(default_factory=lambda: list(_NAMES))
    unsure_ns: int = 0
    steps: int = 0

    def add(
        self, start: Number, end: Number, kind: SpanKind, name: int, number: Number = -1
    ) -> None:
        """Spans of one kind and name; those that take no time are left out."""
        begin, until = np.atleast_1d(start), np.atleast_1d(end)
        numbers = np.broadcast_to(np.asarray(number, np.int64), begin.shape)
        some = until > begin
        self.rows.append((begin[some], until[some], numbers[some], int(kind), name))


def profile(
    output: RankOutput | None, times: Times, world_size: int | None, slowest: Slowest, folder: str
) -> ProfileTrace:
    """The spans of one rank: its steps where it wrote them, its epochs and checkpoints."""
    spans = _spans_of(output, times, slowest)
    start, end, number, kind, name = _columns(spans)
    return ProfileTrace(
        path=output.path if output else times.path,
        source=SOURCE,
        host=output.host if output else "",
        pid=None,
        rank=output.rank if output else times.rank or 0,
        world_size=world_size,
        devices=(),
        start_ns=start,
        end_ns=end,
        step=number.astype(np.int32),
        kind=kind.astype(np.uint8),
        thread=np.zeros(len(start), np.int32),
        name=name.astype(np.int32),
        names=tuple(spans.names),
        losses=(*(output.losses if output else ()), *times.losses),
        clock_method=CLOCK,
        clock_uncertainty_ns=spans.unsure_ns,
        recording=folder,
    )


def _spans_of(output: RankOutput | None, times: Times, slowest: Slowest) -> _Spans:
    """Epochs, checkpoints, and the steps of every block whose time is known."""
    spans = _Spans()
    stamps = BlockStamps.of(times)
    for epoch, found in times.epochs.items():
        spans.names.append(f"epoch {epoch}")
        spans.add(*found.whole, SpanKind.EPOCH, len(spans.names) - 1, epoch)
        for part in (part for name, part in found.parts.items() if CHECKPOINT in name):
            spans.add(*part, SpanKind.CHECKPOINT, _CHECKPOINT)
    for epoch, blocks in output.epochs.items() if output else ():
        for block in blocks:
            when = stamps.of_block.get((epoch, block.name))
            if when is not None and len(block):
                _add_block(spans, block, when, slowest.get((epoch, block.name)))
            spans.steps += 0 if block.name == EVALUATION else len(block)
    return spans


def durations(output: RankOutput) -> StepDurations:
    """How long each training step of a rank took, of a result that does not say when."""
    found = [b.proc for blocks in output.epochs.values() for b in blocks if b.name != EVALUATION]
    length = np.rint(np.concatenate([*found, np.empty(0)]) * 1e9).astype(np.int64)
    step = np.arange(len(length), dtype=np.int32)
    for column in (length, step):
        column.flags.writeable = False
    return StepDurations(output.path, SOURCE, output.host, step, length)


def _add_block(
    spans: _Spans, block: Block, when: Interval, slowest: NDArray[np.float64] | None
) -> None:
    load, proc, compute = (np.rint(c * 1e9) for c in (block.load, block.proc, block.compute))
    behind = np.zeros(len(proc)) if slowest is None else np.rint(slowest * 1e9) - proc
    rest = when[1] - when[0] - float(proc.sum())
    if behind.sum() > max(rest, 0.0):
        behind *= max(rest, 0.0) / behind.sum()
    spare = max(0.0, rest - float(behind.sum()))
    spans.unsure_ns = max(spans.unsure_ns, int(spare))
    n = len(proc)
    lengths = np.concatenate([[0.0], np.cumsum(proc + behind)])
    edges = when[0] + np.rint(lengths + spare * np.arange(n + 1) / n).astype(np.int64)
    start, ready = edges[:-1], edges[:-1] + np.minimum(load, proc).astype(np.int64)
    done = start + proc.astype(np.int64)
    evaluates = block.name == EVALUATION
    number = np.arange(n) + (0 if evaluates else spans.steps)
    spans.add(start, edges[1:], SpanKind.EVALUATION if evaluates else SpanKind.STEP, _STEP, number)
    if not evaluates:
        spans.add(start, ready, SpanKind.INPUT_WAIT, _LOAD)
        spans.add(done, done + behind.astype(np.int64), SpanKind.COMMUNICATION, _BARRIER)
    busy = np.minimum(compute, proc - np.minimum(load, proc)).astype(np.int64)
    spans.add(ready, ready + busy, SpanKind.OP, _COMPUTE)


def _columns(spans: _Spans) -> list[Int64Array]:
    """(start, end, number, kind, name) of all spans, sorted by start."""
    blocks = [
        (start, end, number, np.full(len(start), kind), np.full(len(start), name))
        for start, end, number, kind, name in spans.rows
    ]
    empty = [np.empty(0, np.int64)] * 5
    columns = [np.concatenate(c) for c in zip(*blocks, strict=True)] if blocks else empty
    order = np.argsort(columns[0], kind="stable")
    found = [column[order].astype(np.int64) for column in columns]
    for column in found:
        column.flags.writeable = False
    return found
