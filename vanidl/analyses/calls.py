"""When the processes that train, or fetch batches for them, read and wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.rows import Rows
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.trace import OBJECT, READ, WRITE, SpanKind, Trace

Int64Array = NDArray[np.int64]

_TRAINING_THREAD = 0  # its code; -1 where the tracer tells no threads apart


@dataclass(frozen=True, slots=True)
class Calls:
    """Times of traced reads and writes, each by process; of a training process by its own thread.

    `elsewhere` is when other threads of a training process were in either: they may be what it
    waits for. Where a tracer tells no threads apart all of a process is taken for one thread;
    where it does, and nobody knows which one trains, `threads` has their codes.
    """

    reads: Mapping[int, Intervals] = field(default_factory=dict)
    writes: Mapping[int, Intervals] = field(default_factory=dict)
    elsewhere: Mapping[int, Intervals] = field(default_factory=dict)
    threads: Mapping[int, frozenset[int]] = field(default_factory=dict)

    def of(self, process: int) -> tuple[Intervals, Intervals]:
        """The reads, and the writes outside of them, of one process."""
        reads = self.reads.get(process, intervals.EMPTY)
        writes = self.writes.get(process, intervals.EMPTY)
        return reads, intervals.subtract(writes, reads) if len(writes.start) else writes


@dataclass(frozen=True, slots=True)
class OfProcesses:
    """The reduction for the processes of one trace whose time is accounted for."""

    processes: frozenset[int] = frozenset()
    threads_known: frozenset[int] = frozenset()  # of these code 0 is the thread that trains
    NOTHING: Calls = field(default_factory=Calls)

    def partial(self, rows: Rows, trace: Trace) -> Calls:
        """Those of some rows."""
        del trace
        if not self.processes or not len(rows):
            return self.NOTHING
        process = rows.owner.process[rows.part]
        reads: dict[int, Intervals] = {}
        writes: dict[int, Intervals] = {}
        elsewhere: dict[int, Intervals] = {}
        threads: dict[int, frozenset[int]] = {}
        for each in np.intersect1d(rows.owner.process, list(self.processes)).tolist():
            mine = np.flatnonzero(process == each)
            if each in self.threads_known and rows.layer != OBJECT:
                own = rows.thread[mine] <= _TRAINING_THREAD
                others = mine[~own]
                elsewhere[each] = intervals.union(rows.start[others], rows.end[others])
                mine = mine[own]
            elif rows.layer != OBJECT:
                codes = np.unique(rows.thread[mine])
                threads[each] = frozenset(codes[codes >= 0].tolist())
            for op, times in ((READ, reads), (WRITE, writes)):
                of_op = mine[rows.op[mine] == op]
                times[each] = intervals.union(rows.start[of_op], rows.end[of_op])
        return Calls(reads, writes, elsewhere, threads)

    def combine(self, a: Calls, b: Calls) -> Calls:
        """Those of both; associative and commutative."""
        merge = intervals.merge_by_key
        none: frozenset[int] = frozenset()
        return Calls(
            merge(a.reads, b.reads),
            merge(a.writes, b.writes),
            merge(a.elsewhere, b.elsewhere),
            {
                process: a.threads.get(process, none) | b.threads.get(process, none)
                for process in a.threads.keys() | b.threads.keys()
            },
        )


def of_trace(trace: Trace) -> OfProcesses:
    """The reduction for the ranks with steps, and the processes that work for them."""
    stepping = np.unique(trace.spans.process[trace.spans.kind == SpanKind.STEP]).tolist()
    positions = {int(trace.family[process]) for process in stepping} - {-1}
    members = np.flatnonzero(np.isin(trace.family, sorted(positions))).tolist()
    fetching = np.unique(trace.fetches.process[trace.fetches.process >= 0]).tolist()
    known = {p.process for p in trace.profiles if p.thread_known}
    return OfProcesses(frozenset(members) | frozenset(fetching), frozenset(known))
