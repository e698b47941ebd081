"""The merged timeline for Perfetto and chrome://tracing: one JSON file, written as a stream.

Trace Event Format, JSON object form. Times are microseconds since the start of the job, or of
what came before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from datetime import datetime, timezone
from heapq import heappop, heappush
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.dataloader_batches import Deliveries, find_deliveries
from vanidl.analyses.timeline import Timeline
from vanidl.errors import UsageError
from vanidl.files import atomic
from vanidl.formatting.units import plural
from vanidl.frames import storable
from vanidl.model.run_facts import describe_ending
from vanidl.model.selection import select
from vanidl.model.trace import READ, Part, SpanKind, Spans, Trace
from vanidl.run import Run
from vanidl.schema.dataclass import dataclass
from vanidl.viewer.lanes import FlatLanes

Int64Array = NDArray[np.int64]


# Tracks on which no two slices cross: viewers drop slices that overlap without nesting.


_NEVER, _FOREVER = -(2**63), 2**63  # before and behind any instant
_FEW = 8  # lanes that are looked through in turn


class NestedLanes:
    """Lanes for spans that may contain each other, as calls do."""

    def __init__(self) -> None:
        self._open: list[list[int]] = []  # ends of the spans around, outermost first; few lanes
        self._more = _ManyLanes()

    def place(self, start: Int64Array, end: Int64Array) -> Int64Array:
        """Lane of each span; sorted by start, of equal ones the longest first."""
        rows = zip(start.tolist(), end.tolist(), strict=True)
        return np.array([self._take(begin, finish) for begin, finish in rows], np.int64)

    def _take(self, start: int, end: int) -> int:
        for lane, around in enumerate(self._open):
            while around and around[-1] <= start:
                around.pop()
            # Into the first lane that is free, or whose innermost span holds this one.
            if not around or end <= around[-1]:
                around.append(end)
                return lane
        if len(self._open) < _FEW:
            self._open.append([end])
            return len(self._open) - 1
        return _FEW + self._more.take(start, end)


class _ManyLanes:
    """The same for thousands of lanes: what each still takes stands in a tree of maxima."""

    def __init__(self) -> None:
        self._open: list[list[int]] = []
        self._ends: list[tuple[int, int]] = []  # heap of (end, lane) of all open spans
        self._width = 1
        self._room = [_NEVER, _NEVER]  # tree: node n lies over 2n and 2n + 1, lanes are leaves

    def take(self, start: int, end: int) -> int:
        """The first lane whose innermost span is over, or holds this one."""
        while self._ends and self._ends[0][0] <= start:
            lane = heappop(self._ends)[1]
            around = self._open[lane]
            while around and around[-1] <= start:
                around.pop()
            self._set(lane, around[-1] if around else _FOREVER)
        # The tree finds the first lane with room without looking at each; without one, a new one.
        if self._room[1] < end:
            lane = self._add_lane()
        else:
            node = 1
            while node < self._width:
                node = 2 * node + (self._room[2 * node] < end)
            lane = node - self._width
        self._open[lane].append(end)
        heappush(self._ends, (end, lane))
        self._set(lane, end)
        return lane

    def _add_lane(self) -> int:
        """A new lane; the tree is laid out anew where it has no leaf left."""
        lane = len(self._open)
        self._open.append([])
        if lane == self._width:
            leaves = self._room[self._width :]
            self._width *= 2
            self._room = [_NEVER] * self._width + leaves + [_NEVER] * len(leaves)
            for node in range(self._width - 1, 0, -1):
                self._room[node] = max(self._room[2 * node], self._room[2 * node + 1])
        return lane

    def _set(self, lane: int, room: int) -> None:
        node = self._width + lane
        self._room[node] = room
        while node := node // 2:
            self._room[node] = max(self._room[2 * node], self._room[2 * node + 1])


# Tracks of the merged timeline: a process of the run is a process, a thread or a stream a thread.
#
# The format has whole numbers for both; what they are called stands in metadata events.

EPOCHS, STEPS, WAITS, HOST, DEVICE, TRANSFERS = range(6)
"""Groups of tracks of a process, from top to bottom."""


@dataclass(frozen=True, slots=True)
class Track:
    """One line of slices: `thread` tells those of a group apart, `lane` crossing slices."""

    process: int  # index into Trace.processes
    group: int  # STEPS, WAITS, ...
    name: str
    thread: int = 0
    lane: int = 0


@dataclass(slots=True)
class Tracks:
    """Numbers of tracks, given as they are asked for."""

    _numbers: dict[Track, int] = field(default_factory=dict)

    def number(self, track: Track) -> int:
        """The thread number of a track, from 1 in the order of first use."""
        return self._numbers.setdefault(track, len(self._numbers) + 1)

    def metadata(self) -> Iterator[str]:
        """Events that name all tracks so far and say in which order they are shown."""
        ranked = sorted(self._numbers, key=lambda t: (t.process, t.group, t.thread, t.lane))
        for place, track in enumerate(ranked):
            pid, tid = get_process_number(track.process), self._numbers[track]
            name = track.name if not track.lane else f"{track.name} ({track.lane + 1})"
            yield _encode_metadata("thread_name", pid, tid, name=name)
            yield _encode_metadata("thread_sort_index", pid, tid, sort_index=place)


def get_process_number(process: int) -> int:
    """The process number of Trace.processes[process]; 0 is the whole job."""
    return process + 1


def name_processes(trace: Trace) -> Iterator[str]:
    """Events that name the processes, a rank's trainer before its workers."""
    yield _encode_metadata("process_name", 0, 0, name="job")
    yield _encode_metadata("process_sort_index", 0, 0, sort_index=-1)
    order = sorted(range(len(trace.processes)), key=lambda i: _place(trace, i))
    for place, i in enumerate(order):
        # Host, rank and process: `node01, rank 3, process 4711`.
        process = trace.processes[i]
        trainer = None if process.trainer is None else trace.processes[process.trainer]
        rank = trainer.rank if trainer else process.rank
        parts = [process.host] if process.host else []
        parts += [] if rank is None else [f"rank {rank}"]
        what = "process" if process.role == "trainer" else process.role
        parts += [what if process.pid is None else f"{what} {process.pid}"]
        yield _encode_metadata("process_name", get_process_number(i), 0, name=", ".join(parts))
        yield _encode_metadata("process_sort_index", get_process_number(i), 0, sort_index=place)


def _place(trace: Trace, i: int) -> tuple[int, bool, int]:
    family = int(trace.family[i])
    return (family if family >= 0 else len(trace.ranks), trace.processes[i].role != "trainer", i)


def _encode_metadata(what: str, pid: int, tid: int, **arguments: str | int) -> str:
    known = {k: storable(v) if isinstance(v, str) else v for k, v in arguments.items()}
    event = {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": known}
    return json.dumps(event, separators=(",", ":"))


# Bandwidth over time as counter events ("C"): of the job, and of each rank.

NAME = "bandwidth (MB/s)"

_EVENT = f'{{"ph":"C","pid":%d,"tid":0,"name":"{NAME}","ts":%.3f,"args":{{"read":%s,"write":%s}}}}'


def encode_bandwidth(trace: Trace, timeline: Timeline | None, zero_ns: int) -> Iterator[str]:
    """Megabytes (10**6 bytes) a second, spread over bins as in `Timeline`; none without bins.

    An event where a value changes. Ranks have one each where every rank has a row of its own.
    """
    if timeline is None:
        return
    shift_us = (trace.job.start_ns - zero_ns) / 1000
    job = timeline.job
    yield from _encode_rates(0, job.edges_s, (job.bytes_read, job.bytes_written), shift_us)
    # Ranks that share a row have no curve of their own.
    if timeline.ranks != len(timeline.row_labels) - ("no rank" in timeline.row_labels):
        return
    for row, process in enumerate(trace.ranks):
        moved = (timeline.bytes_read[row], timeline.bytes_written[row])
        yield from _encode_rates(get_process_number(process), timeline.edges_s, moved, shift_us)


def _encode_rates(
    pid: int,
    edges_s: NDArray[np.float64],
    moved: tuple[NDArray[np.int64], NDArray[np.int64]],
    shift_us: float,
) -> Iterator[str]:
    width_s = np.diff(edges_s)
    rates = np.stack([nbytes / width_s / 1e6 for nbytes in moved])
    rates = np.concatenate([rates, [[0.0], [0.0]]], axis=1)  # back to nothing at the end
    changed = np.flatnonzero((np.diff(rates, axis=1, prepend=-1.0) != 0).any(axis=0))
    times = (edges_s[changed] * 1e6 + shift_us).tolist()
    for at, read, write in zip(times, *rates[:, changed].tolist(), strict=True):
        yield _EVENT % (pid, at, repr(round(read, 6)), repr(round(write, 6)))


# Arrows from the last read of a batch to the step that took it ("s" and "f" events).

_ARROW = '{"ph":"%s","cat":"batch","name":"batch","id":%d,"pid":%d,"tid":%d,"ts":%d.%03d%s}'


class Flows:
    """Batches that workers delivered; learns the tracks of their reads as these are written.

    Args:
        whole: the run, from which follows who read what for which step.
        seen: the part of it that is exported: arrows need both ends in it.
        zero_ns: where the export's times count from.
    """

    def __init__(self, whole: Trace, seen: Trace, zero_ns: int) -> None:
        self._zero_ns = zero_ns
        self._ends = [_select_within_steps(each, seen) for each in find_deliveries(whole)]
        self._found: list[tuple[int, int, int, int, int]] = []  # worker, tid, read, trainer, taken

    def meet(self, part: Part, track: Int64Array) -> None:
        """Note which of these operations ended a batch, and their tracks."""
        for each in self._ends:
            mine = each.worker == part.process
            read_ns, taken_ns = each.read_ns[mine], each.taken_ns[mine]
            # The row of the operation that begins with each last read, if this part has it.
            row = np.searchsorted(part.start, read_ns)
            inside = row < len(part)
            rows = row[inside]
            here = (part.start[rows] == read_ns[inside]) & (part.op[rows] == READ)
            ends = zip(
                track[rows][here].tolist(), read_ns[inside][here].tolist(),
                taken_ns[inside][here].tolist(), strict=True,
            )  # fmt: skip
            self._found += [
                (part.process, tid, read, each.trainer, taken) for tid, read, taken in ends
            ]

    def text(self, tracks: Tracks) -> Iterator[str]:
        """Two events an arrow, of those whose reads were met."""
        for number, (worker, tid, read_ns, trainer, taken_ns) in enumerate(self._found, 1):
            # A read that ended behind the fetch brought something else.
            if read_ns <= taken_ns:
                step = tracks.number(Track(trainer, STEPS, "steps"))
                yield _ARROW % (
                    "s",
                    number,
                    get_process_number(worker),
                    tid,
                    *self._time(read_ns),
                    "",
                )
                end = (get_process_number(trainer), step, *self._time(taken_ns), ',"bp":"e"')
                yield _ARROW % ("f", number, *end)

    def _time(self, ns: int) -> tuple[int, int]:
        return divmod(ns - self._zero_ns, 1000)


def _select_within_steps(each: Deliveries, seen: Trace) -> Deliveries:
    """Those that a step which is exported took."""
    spans = seen.spans
    steps = spans.pick((spans.kind == SpanKind.STEP) & (spans.process == each.trainer))
    if not len(steps):
        return each.pick(np.zeros(len(each), bool))
    step = np.searchsorted(steps.start, each.taken_ns, side="right") - 1
    keep = (step >= 0) & (each.taken_ns < steps.end[step])
    return each.pick(keep)


# Operations and spans as complete events ("X"), a block of rows at a time.
#
# Times are microseconds with three decimals, so that nanoseconds are exact.

BLOCK_ROWS = 1 << 16  # spans that become text at once

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
        pid = get_process_number(part.process)
        head = f'{{"ph":"X","pid":{pid},"tid":%d,"cat":"{part.layer}","name":"%s"'

        # The text before each operation is made once for each track and kind.
        heads = {
            (track, op): head % (track, _OPERATIONS[op])
            for track in np.unique(rows.track).tolist()
            for op in (0, 1)
        }
        files = self._files
        offsets: Sequence[object] = part.offset.tolist()
        # An offset that was not recorded is null, not -1.
        if (part.offset < 0).any():
            offsets = ["null" if offset < 0 else offset for offset in part.offset.tolist()]
        keys = zip(rows.track.tolist(), part.op.tolist(), strict=True)
        columns = zip(
            [heads[key] for key in keys], *_split_times(rows),
            [files[f] for f in part.file.tolist()], offsets, part.nbytes.tolist(), strict=True,
        )  # fmt: skip
        return [_OPERATION % row for row in columns]

    def _numbers(self, part: Part) -> Int64Array:
        numbers = np.empty(len(part), np.int64)
        for thread in np.unique(part.thread).tolist():
            # A track for each thread that did the operations; those that overlap have lanes.
            mine = part.thread == thread
            key = (part.process, part.layer, thread)
            lanes = self._lanes.setdefault(key, FlatLanes())
            name = f"{part.layer} I/O" + ("" if thread < 0 else f", thread {thread}")
            found = lanes.place(part.start[mine], part.end[mine])
            numbers[mine] = _assign_lane_numbers(
                self._tracks, Track(part.process, TRANSFERS, name, thread), found
            )
        return numbers


def encode_spans(trace: Trace, tracks: Tracks, zero_ns: int) -> Iterator[list[str]]:
    """One event a span of a profiler, process by process and track by track, in blocks."""
    names = [json.dumps(storable(name)) for name in trace.spans.names]
    order = np.lexsort((-trace.spans.end, trace.spans.start, trace.spans.process))
    bounds = np.flatnonzero(np.diff(trace.spans.process[order], prepend=-1, append=-1))
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        mine = trace.spans.pick(order[low:high])
        for track, rows in _split_into_tracks(mine):
            yield from _encode_track(mine.pick(rows), track, names, (tracks, zero_ns))


def _split_into_tracks(mine: Spans) -> Iterator[tuple[Track, Int64Array]]:
    """The tracks of one process, and which of its spans each holds."""
    process = int(mine.process[0])
    rest = np.ones(len(mine), bool)
    for group, name, kind in _OF_KINDS:
        yield from _yield_track(Track(process, group, name), mine.kind == kind)
        rest &= mine.kind != kind
    for thread in np.unique(mine.thread[rest]).tolist():
        rows = rest & (mine.thread == thread)
        group, what = _classify_thread(set(np.unique(mine.kind[rows]).tolist()))
        yield from _yield_track(Track(process, group, f"{what} {thread}", thread), rows)


def _yield_track(track: Track, mask: NDArray[np.bool_]) -> Iterator[tuple[Track, Int64Array]]:
    if mask.any():
        yield track, np.flatnonzero(mask)


def _classify_thread(kinds: set[int]) -> tuple[int, str]:
    if kinds & {SpanKind.KERNEL, SpanKind.COPY}:
        return DEVICE, "device stream"
    return (DEVICE, "collectives") if kinds == {SpanKind.COMMUNICATION} else (HOST, "thread")


def _encode_track(
    mine: Spans, track: Track, names: Sequence[str], place: tuple[Tracks, int]
) -> Iterator[list[str]]:
    tracks, zero_ns = place
    lanes = NestedLanes()
    for low in range(0, len(mine), BLOCK_ROWS):
        block = mine.pick(np.arange(low, min(low + BLOCK_ROWS, len(mine))))
        # Spans of a track that overlap without nesting go to further lanes: the format knows none
        # other.
        numbers = _assign_lane_numbers(tracks, track, lanes.place(block.start, block.end))
        rows = Rows(block.start - zero_ns, block.end - block.start, numbers)
        head = f'{{"ph":"X","pid":{get_process_number(track.process)},"tid":%d,"cat":"%s","name":%s'
        kinds = [_CATEGORIES[SpanKind(kind)] for kind in block.kind.tolist()]
        texts = [names[name] for name in block.name.tolist()]
        heads = map(head.__mod__, zip(numbers.tolist(), kinds, texts, strict=True))
        steps = [f',"args":{{"number":{n}}}' if n >= 0 else "" for n in block.step.tolist()]
        yield [_SPAN % row for row in zip(heads, *_split_times(rows), steps, strict=True)]


def _assign_lane_numbers(tracks: Tracks, track: Track, lanes: Int64Array) -> Int64Array:
    """The thread number of each lane of a track."""
    used, which = np.unique(lanes, return_inverse=True)
    numbers = [tracks.number(replace(track, lane=lane)) for lane in used.tolist()]
    return np.array(numbers, np.int64)[which]


def _split_times(rows: Rows) -> tuple[list[int], list[int], list[int], list[int]]:
    """Start and duration, each as whole microseconds and the nanoseconds beside them."""
    start, start_ns = np.divmod(rows.start, 1000)
    duration, duration_ns = np.divmod(rows.duration, 1000)
    return start.tolist(), start_ns.tolist(), duration.tolist(), duration_ns.tolist()


def write(run: Run, path: Path) -> list[tuple[str, str]]:
    """Operations, spans, bandwidth and what ties them together; gzip where the name says so.

    Raises:
        UsageError: there is neither an operation nor a span to write.
        VanidlError: the file cannot be written.
    """
    trace = select(run.trace, run.selection)
    events = _Events(run, trace)
    if not trace.io and not len(trace.spans):
        raise UsageError(
            "--to chrome: no single operation was traced and no step profiled: there is nothing "
            "to put on a timeline."
        )
    # One object, written as it comes: the events of a large run are never all in memory.
    with atomic.streamed_file(path) as file:
        zero_ns = events.zero_ns
        zero = datetime.fromtimestamp(zero_ns // 10**9, timezone.utc)
        ending = describe_ending(trace.ending)
        export = {
            "command": storable(trace.job.command),
            **({"ending": storable(ending)} if ending else {}),
            "zero": f"{zero:%Y-%m-%dT%H:%M:%S}.{zero_ns % 10**9:09d}Z",
            "zero_ns": zero_ns,
            "clocks": [
                {
                    "profile": storable(Path(profile.path).name),
                    "method": profile.clock_method,
                    "uncertainty_s": profile.clock_uncertainty_ns / 1e9,
                }
                for profile in trace.profiles
            ],
        }
        head = json.dumps(export, separators=(",", ":"))
        file.write(f'{{"displayTimeUnit":"ms","otherData":{head},"traceEvents":[\n'.encode())
        # One event a line, with a comma between.
        blocks = events.blocks()
        separator = ""
        for block in blocks:
            file.write((separator + ",\n".join(block)).encode())
            separator = ",\n"
        file.write(b"\n]}\n")
    return [(name, plural(count, "event")) for name, count in events.counts.items()]


class _Events:
    """All events of a run in turn, counted by what they are."""

    def __init__(self, run: Run, trace: Trace) -> None:
        self._run, self._trace = run, trace
        self._tracks = Tracks()
        self.zero_ns = find_zero_ns(trace)
        self.counts: dict[str, int] = {}

    def blocks(self) -> Iterator[list[str]]:
        """The events in blocks, none of them empty."""
        trace, named, zero_ns = self._trace, self._tracks, self.zero_ns
        timeline = self._run.results.timeline
        arrows = Flows(self._run.trace, trace, zero_ns)
        yield from self._counted("process names", [list(name_processes(trace))])
        yield from self._counted("spans", encode_spans(trace, named, zero_ns))
        yield from self._counted("operations", self._operations(arrows))
        yield from self._counted("arrows", _group_events(arrows.text(named)))
        yield from self._counted(
            "bandwidth", _group_events(encode_bandwidth(trace, timeline, zero_ns))
        )
        yield from self._counted("track names", _group_events(named.metadata()))

    def _operations(self, arrows: Flows) -> Iterator[list[str]]:
        writer = Operations(self._trace, self._tracks, self.zero_ns)
        for part, rows in writer.blocks(self._trace.io):
            arrows.meet(part, rows.track)
            yield writer.text(part, rows)

    def _counted(self, name: str, blocks: Iterable[list[str]]) -> Iterator[list[str]]:
        self.counts[name] = 0
        for block in blocks:
            self.counts[name] += len(block)
            yield block


def _group_events(events: Iterator[str]) -> Iterator[list[str]]:
    while block := list(islice(events, BLOCK_ROWS)):
        yield block


def find_zero_ns(trace: Trace) -> int:
    """The start of the job, or of the first operation or span where one began before."""
    starts = [int(part.start[0]) for part in trace.io if len(part)]
    starts += [int(trace.spans.start[0])] if len(trace.spans) else []
    return min([trace.job.start_ns, *starts])
