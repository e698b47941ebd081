"""Operations and spans as complete events ("X"), a block of rows at a time.

Times are microseconds with three decimals, so that nanoseconds are exact.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vanidl.export.chrome.lanes import NestedLanes
from vanidl.export.chrome.tracks import (
    DEVICE,
    EPOCHS,
    HOST,
    IO,
    STEPS,
    WAITS,
    Track,
    Tracks,
    number_of,
)
from vanidl.frames import storable
from vanidl.model.trace import Part, SpanKind, Spans, Trace
from vanidl.viewer.lanes import FlatLanes

Int64Array = NDArray[np.int64]

BLOCK_ROWS = 1 << 16

_OPERATION = '%s,"ts":%d.%03d,"dur":%d.%03d,"args":{"file":%s,"offset":%s,"size":%d}}'
_SPAN = '%s,"ts":%d.%03d,"dur":%d.%03d%s}'
_OPERATIONS = ("read", "write")
_OF_KINDS = (
    (EPOCHS, "epochs", SpanKind.EPOCH),
    (STEPS, "steps", SpanKind.STEP),
    (WAITS, "input wait", SpanKind.INPUT_WAIT),
)
_CATEGORIES = {
    SpanKind.STEP: "step",
    SpanKind.INPUT_WAIT: "input_wait",
    SpanKind.OP: "operator",
    SpanKind.KERNEL: "kernel",
    SpanKind.COMMUNICATION: "communication",
    SpanKind.CHECKPOINT: "checkpoint",
    SpanKind.LOAD: "load",
    SpanKind.PREPROCESS: "preprocess",
    SpanKind.EPOCH: "epoch",
    SpanKind.EVALUATION: "validation",
    SpanKind.COPY: "copy",
    SpanKind.VALIDATION: "validation",
    SpanKind.PHASE: "phase",
    SpanKind.FORWARD: "forward",
    SpanKind.BACKWARD: "backward",
    SpanKind.OPTIMIZER: "optimizer",
    SpanKind.WORKERS: "workers",
}


@dataclass(frozen=True, slots=True)
class Rows:
    """Slices to write, one entry a slice in every array."""

    start: Int64Array  # ns since the zero of the export
    duration: Int64Array
    track: Int64Array  # thread number


class Operations:
    """Writes operations; remembers which lanes are taken, as a process has several parts."""

    def __init__(self, trace: Trace, tracks: Tracks, zero_ns: int) -> None:
        self._tracks = tracks
        self._zero_ns = zero_ns
        self._lanes: dict[tuple[int, str, int], FlatLanes] = {}
        self._files = [json.dumps(storable(path)) for path in trace.files.path]

    def blocks(self, parts: Iterable[Part]) -> Iterator[tuple[Part, Rows]]:
        """The parts in blocks of at most BLOCK_ROWS, with their place in the timeline."""
        for part in parts:
            for low in range(0, len(part), BLOCK_ROWS):
                block = part.rows(slice(low, low + BLOCK_ROWS))
                start = block.start - self._zero_ns
                yield block, Rows(start, block.end - block.start, self._numbers(block))

    def text(self, part: Part, rows: Rows) -> list[str]:
        """One event an operation: what, where, when, and file, offset, size."""
        pid = number_of(part.process)
        head = f'{{"ph":"X","pid":{pid},"tid":%d,"cat":"{part.layer}","name":"%s"'
        heads = {
            (track, op): head % (track, _OPERATIONS[op])
            for track in np.unique(rows.track).tolist()
            for op in (0, 1)
        }
        files = self._files
        offsets: Sequence[object] = part.offset.tolist()
        if (part.offset < 0).any():
            offsets = ["null" if offset < 0 else offset for offset in part.offset.tolist()]
        keys = zip(rows.track.tolist(), part.op.tolist(), strict=True)
        columns = zip(
            [heads[key] for key in keys], *_times(rows), [files[f] for f in part.file.tolist()],
            offsets, part.nbytes.tolist(), strict=True,
        )  # fmt: skip
        return [_OPERATION % row for row in columns]

    def _numbers(self, part: Part) -> Int64Array:
        numbers = np.empty(len(part), np.int64)
        for thread in np.unique(part.thread).tolist():
            mine = part.thread == thread
            key = (part.process, part.layer, thread)
            lanes = self._lanes.setdefault(key, FlatLanes())
            name = f"{part.layer} I/O" + ("" if thread < 0 else f", thread {thread}")
            found = lanes.place(part.start[mine], part.end[mine])
            numbers[mine] = _of_lanes(self._tracks, Track(part.process, IO, name, thread), found)
        return numbers


def spans(trace: Trace, tracks: Tracks, zero_ns: int) -> Iterator[list[str]]:
    """One event a span of a profiler, process by process and track by track, in blocks."""
    names = [json.dumps(storable(name)) for name in trace.spans.names]
    order = np.lexsort((-trace.spans.end, trace.spans.start, trace.spans.process))
    bounds = np.flatnonzero(np.diff(trace.spans.process[order], prepend=-1, append=-1))
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        mine = trace.spans.pick(order[low:high])
        for track, rows in _tracks_of(mine):
            yield from _span_text(mine.pick(rows), track, names, (tracks, zero_ns))


def _tracks_of(mine: Spans) -> Iterator[tuple[Track, Int64Array]]:
    """The tracks of one process, and which of its spans each holds."""
    process = int(mine.process[0])
    rest = np.ones(len(mine), bool)
    for group, name, kind in _OF_KINDS:
        yield from _some(Track(process, group, name), mine.kind == kind)
        rest &= mine.kind != kind
    for thread in np.unique(mine.thread[rest]).tolist():
        rows = rest & (mine.thread == thread)
        group, what = _what(set(np.unique(mine.kind[rows]).tolist()))
        yield from _some(Track(process, group, f"{what} {thread}", thread), rows)


def _some(track: Track, mask: NDArray[np.bool_]) -> Iterator[tuple[Track, Int64Array]]:
    if mask.any():
        yield track, np.flatnonzero(mask)


def _what(kinds: set[int]) -> tuple[int, str]:
    if kinds & {SpanKind.KERNEL, SpanKind.COPY}:
        return DEVICE, "device stream"
    return (DEVICE, "collectives") if kinds == {SpanKind.COMMUNICATION} else (HOST, "thread")


def _span_text(
    mine: Spans, track: Track, names: Sequence[str], place: tuple[Tracks, int]
) -> Iterator[list[str]]:
    tracks, zero_ns = place
    lanes = NestedLanes()
    for low in range(0, len(mine), BLOCK_ROWS):
        block = mine.pick(np.arange(low, min(low + BLOCK_ROWS, len(mine))))
        numbers = _of_lanes(tracks, track, lanes.place(block.start, block.end))
        rows = Rows(block.start - zero_ns, block.end - block.start, numbers)
        head = f'{{"ph":"X","pid":{number_of(track.process)},"tid":%d,"cat":"%s","name":%s'
        kinds = [_CATEGORIES[SpanKind(kind)] for kind in block.kind.tolist()]
        texts = [names[name] for name in block.name.tolist()]
        heads = map(head.__mod__, zip(numbers.tolist(), kinds, texts, strict=True))
        steps = [f',"args":{{"number":{n}}}' if n >= 0 else "" for n in block.step.tolist()]
        yield [_SPAN % row for row in zip(heads, *_times(rows), steps, strict=True)]


def _of_lanes(tracks: Tracks, track: Track, lanes: Int64Array) -> Int64Array:
    """The thread number of each lane of a track."""
    used, which = np.unique(lanes, return_inverse=True)
    numbers = [tracks.number(replace(track, lane=lane)) for lane in used.tolist()]
    return np.array(numbers, np.int64)[which]


def _times(rows: Rows) -> tuple[list[int], list[int], list[int], list[int]]:
    """Start and duration, each as whole microseconds and the nanoseconds beside them."""
    start, start_ns = np.divmod(rows.start, 1000)
    duration, duration_ns = np.divmod(rows.duration, 1000)
    return start.tolist(), start_ns.tolist(), duration.tolist(), duration_ns.tolist()
