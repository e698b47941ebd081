"""Tracks of the merged timeline: a process of the run is a process, a thread or a stream a thread.

The format has whole numbers for both; what they are called stands in metadata events.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from vanidl.frames import storable
from vanidl.model.trace import Process, Trace

EPOCHS, STEPS, WAITS, HOST, DEVICE, IO = range(6)
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
            pid, tid = number_of(track.process), self._numbers[track]
            name = track.name if not track.lane else f"{track.name} ({track.lane + 1})"
            yield _metadata("thread_name", pid, tid, name=name)
            yield _metadata("thread_sort_index", pid, tid, sort_index=place)


def number_of(process: int) -> int:
    """The process number of Trace.processes[process]; 0 is the whole job."""
    return process + 1


def processes(trace: Trace) -> Iterator[str]:
    """Events that name the processes, a rank's trainer before its workers."""
    yield _metadata("process_name", 0, 0, name="job")
    yield _metadata("process_sort_index", 0, 0, sort_index=-1)
    order = sorted(range(len(trace.processes)), key=lambda i: _place(trace, i))
    for place, i in enumerate(order):
        yield _metadata("process_name", number_of(i), 0, name=_title(trace, trace.processes[i]))
        yield _metadata("process_sort_index", number_of(i), 0, sort_index=place)


def _place(trace: Trace, i: int) -> tuple[int, bool, int]:
    family = int(trace.family[i])
    return (family if family >= 0 else len(trace.ranks), trace.processes[i].role != "trainer", i)


def _title(trace: Trace, process: Process) -> str:
    """Host, rank and process: `node01, rank 3, process 4711`."""
    trainer = None if process.trainer is None else trace.processes[process.trainer]
    rank = trainer.rank if trainer else process.rank
    parts = [process.host] if process.host else []
    parts += [] if rank is None else [f"rank {rank}"]
    what = "process" if process.role == "trainer" else process.role
    parts += [what if process.pid is None else f"{what} {process.pid}"]
    return ", ".join(parts)


def _metadata(what: str, pid: int, tid: int, **arguments: str | int) -> str:
    known = {k: storable(v) if isinstance(v, str) else v for k, v in arguments.items()}
    event = {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": known}
    return json.dumps(event, separators=(",", ":"))
