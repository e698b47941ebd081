"""What is known around one profile: the logs of its process and workers, event files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vanidl.model.intervals import Intervals
from vanidl.model.trace import POSIX, SpanKind
from vanidl.readers.records import EventRecords, OperationTable, ProfileTrace, TracerLog

if TYPE_CHECKING:
    from vanidl.merge.processes import Cast

Int64Array = NDArray[np.int64]

_ABSOLUTE_NS = 10**18  # earlier than 2001: a time that counts from something else
_GRACE_NS = 1_000_000_000
_COARSE_NS = 100_000_000


@dataclass(frozen=True, slots=True)
class Rows:
    """Operations of one process, in order of start; times in ns since the epoch."""

    start: Int64Array
    end: Int64Array
    nbytes: Int64Array
    file: NDArray[np.uint64]  # the tracer's file ids

    def pick(self, rows: NDArray[np.bool_]) -> Rows:
        """Those that a mask picks."""
        return Rows(self.start[rows], self.end[rows], self.nbytes[rows], self.file[rows])


_NONE = np.empty(0, np.int64)
_NOTHING = Rows(_NONE, _NONE, _NONE, np.empty(0, np.uint64))


@dataclass(frozen=True, slots=True)
class ProcessLog:
    """One process as a log holds it; `mine` are its rows of the POSIX table, None for all."""

    log: TracerLog
    rank: int  # in a shared log
    mine: Int64Array | None = None

    def rows(self, op: int) -> Rows:
        """Its POSIX reads or writes."""
        table = _posix(self.log)
        if table is None:
            return _NOTHING
        if self.mine is None:
            rows = np.flatnonzero(table.op == op)
        else:
            rows = self.mine[table.op[self.mine] == op]
        rows = rows[np.argsort(table.start_ns[rows], kind="stable")]
        return Rows(
            table.start_ns[rows] + self.log.start_ns,
            table.end_ns[rows] + self.log.start_ns,
            table.nbytes[rows],
            table.record_file[table.record[rows]],
        )


def _posix(log: TracerLog) -> OperationTable | None:
    return next((t for t in log.operations if t.layer == POSIX), None)


def _rows_by_rank(log: TracerLog) -> dict[int, Int64Array]:
    """Rank -> its rows of the POSIX table of a shared log, sorted out in one go."""
    table = _posix(log)
    if table is None:
        return {}
    rank = table.record_rank[table.record]
    order = np.argsort(rank, kind="stable")
    ranks, first = np.unique(rank[order], return_index=True)
    return dict(zip(ranks.tolist(), np.split(order, first[1:]), strict=True))


@dataclass(frozen=True, slots=True)
class Scene:
    """One profile, and what may tell how its clock and the logs' differ."""

    profile: ProfileTrace
    own: ProcessLog | None  # the log of the profiled process
    workers: tuple[ProcessLog, ...]
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
        return interval(low, high)


def interval(low: int, high: int) -> Intervals:
    """[low, high] as intervals of whole ns; nothing where low > high."""
    if low > high:
        return Intervals(np.empty(0, np.int64), np.empty(0, np.int64))
    return Intervals(np.array([low], np.int64), np.array([high + 1], np.int64))


def scenes(
    profiles: Sequence[ProfileTrace],
    logs: Sequence[TracerLog],
    people: Cast,
    events: Sequence[EventRecords],
) -> list[Scene]:
    """One scene a profile, in their order."""
    shared = {i: _rows_by_rank(log) for i, log in enumerate(logs) if log.nprocs > 1 and profiles}
    by_process = {
        process: ProcessLog(logs[i], rank, shared[i].get(rank, _NONE) if i in shared else None)
        for (i, rank), process in people.of_log.items()
    }
    found = []
    for profile, process in zip(profiles, people.of_profile, strict=True):
        workers = [
            by_process[i]
            for i, p in enumerate(people.processes)
            if p.trainer == process and p.role == "worker" and i in by_process
        ]
        workers.sort(key=lambda w: (w.log.start_ns, w.log.pid or 0))
        mine = tuple(e for e in events if _of_same_process(e, profile))
        found.append(Scene(profile, by_process.get(process), tuple(workers), tuple(logs), mine))
    return found


def _of_same_process(events: EventRecords, profile: ProfileTrace) -> bool:
    if events.path == profile.path:
        return True
    return events.pid is not None and (events.host, events.pid) == (profile.host, profile.pid)
