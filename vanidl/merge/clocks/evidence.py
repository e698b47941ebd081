"""What is known around one profile (its process, workers, event files), and what that tells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from vanidl.merge.clocks.log_clock import LogClock
from vanidl.merge.processes import ProcessTable
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.parts import Parts
from vanidl.model.trace import POSIX, Part, Process, SpanKind, concatenate_parts
from vanidl.readers.records import EventRecords, ProfileTrace, TracerLog
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]

_ABSOLUTE_NS = 10**18  # earlier than 2001: a time that counts from something else
_GRACE_NS = 1_000_000_000
_COARSE_NS = 100_000_000


@dataclass(frozen=True, slots=True)
class TracedProcess:
    """One process that a log knows, and its POSIX operations."""

    number: int  # index into Trace.processes
    process: Process
    log: TracerLog
    rank: int  # in a shared log
    parts: Sequence[Part]  # POSIX only
    file_codes: Mapping[str, int]  # of the whole run
    clock: LogClock  # what its log itself says of its start

    def operations(self, op: int) -> Part:
        """Its POSIX reads or writes, in order of start."""
        found = [part.rows(part.op == op) for part in self.parts]
        return concatenate_parts(self.number, POSIX, found)


@dataclass(frozen=True, slots=True)
class AlignmentInputs:
    """One profile, and what may tell how its clock and the logs' differ."""

    profile: ProfileTrace
    own: TracedProcess | None  # the profiled process
    workers: tuple[TracedProcess, ...]
    logs: tuple[TracerLog, ...]  # all of the run
    events: tuple[EventRecords, ...]  # event files of the profiled process

    @property
    def absolute(self) -> bool:
        """Whether the profile's times count from the epoch."""
        start = self.profile.start_ns
        return len(start) > 0 and int(np.median(start)) >= _ABSOLUTE_NS

    @property
    def identified(self) -> bool:
        """Whether profile and log say themselves that they are of one process."""
        if self.own is None:
            return False
        # A log of many ranks has one process number: ranks tell its processes apart.
        if self.own.log.nprocs > 1:
            return self.profile.rank == self.own.rank
        return self.profile.pid is not None and self.profile.pid == self.own.log.pid

    @property
    def one_axis(self) -> bool:
        """Whether the operations of process and workers are on one clock, to better than 1 s.

        Logs with starts in whole seconds are each wrong by a part of a second of their own.
        """
        logs = [p.log for p in (self.own, *self.workers) if p is not None]
        same = all(log is logs[0] for log in logs)
        return same or all(log.start_resolution_ns < _COARSE_NS for log in logs)

    @property
    def bounds(self) -> tuple[int, int]:
        """First start and last end of the profile's spans, ns on its own clock."""
        return int(self.profile.start_ns.min()), int(self.profile.end_ns.max())

    @property
    def meets_logs(self) -> bool:
        """Whether the profile, as it stands, and the logs have any time in common."""
        first, last = self.bounds
        start = min(log.start_ns for log in self.logs)
        return first <= max(log.end_ns for log in self.logs) and last >= start

    def kind(self, kind: SpanKind) -> tuple[Int64Array, Int64Array]:
        """(starts, ends) of the profile's spans of one kind, in order of start."""
        mine = self.profile.kind == kind
        return self.profile.start_ns[mine], self.profile.end_ns[mine]

    @property
    def lifetime(self) -> Intervals:
        """Offsets that put the profile into the life of its process, a second of grace included.

        Without a whole log of the process: into the time that the logs of the run cover.
        """
        own = self.own is not None and self.own.log.whole
        logs = (self.own.log,) if own and self.own else self.logs
        first, last = self.bounds
        low = min(log.start_ns for log in logs) - _GRACE_NS - first
        high = max(log.end_ns for log in logs) + _GRACE_NS - last
        return make_interval(low, high)


def make_interval(low: int, high: int) -> Intervals:
    """[low, high] as intervals of whole ns; nothing where low > high."""
    if low > high:
        return Intervals(np.empty(0, np.int64), np.empty(0, np.int64))
    return Intervals(np.array([low], np.int64), np.array([high + 1], np.int64))


def find_traced_processes(
    logs: Sequence[TracerLog],
    processes: ProcessTable,
    io: Parts,
    file_codes: Mapping[str, int],
    log_clocks: Mapping[int, LogClock],
) -> dict[int, TracedProcess]:
    """Each process that a log knows, by its index, with the operations that were merged."""
    parts = io.by_process(POSIX)
    return {
        number: TracedProcess(
            number=number,
            process=processes.rows[number],
            log=logs[i],
            rank=rank,
            parts=parts.get(number, ()),
            file_codes=file_codes,
            clock=log_clocks[number],
        )
        for (i, rank), number in processes.iterate_own_logs(logs)
    }


def gather_inputs(
    profiles: Sequence[ProfileTrace],
    processes: ProcessTable,
    logs: Sequence[TracerLog],
    traced: Mapping[int, TracedProcess],
    events: Sequence[EventRecords],
) -> list[AlignmentInputs]:
    """What is known around each profile, in their order."""
    # Workers by the process that they serve.
    workers: dict[int | None, list[TracedProcess]] = defaultdict(list)
    for i, p in enumerate(processes.rows):
        if p.role == "worker" and i in traced:
            workers[p.trainer].append(traced[i])
    return [
        AlignmentInputs(
            profile=profile,
            own=traced.get(number),
            workers=tuple(workers[number]),
            logs=tuple(logs),
            events=tuple(e for e in events if _of_same_process(e, profile)),
        )
        for profile, number in zip(profiles, processes.of_profile, strict=True)
    ]


def _of_same_process(events: EventRecords, profile: ProfileTrace) -> bool:
    if events.path == profile.path:
        return True
    return events.pid is not None and (events.host, events.pid) == (profile.host, profile.pid)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Offsets that one kind of evidence leaves open, and why.

    `offsets` are disjoint intervals in ns; several: it cannot tell them apart. `best_ns` is
    the offset to use where it stays open, None: the middle of what stays open.
    """

    method: str
    offsets: Intervals
    reason: str
    best_ns: int | None = None


def keep_meeting(offsets: Intervals, within: Intervals) -> Intervals:
    """Those of the intervals, whole, that have anything in common with `within`."""
    kept = intervals.covered_within(within, offsets.start, offsets.end) > 0
    return Intervals(offsets.start[kept], offsets.end[kept])
