"""Reads and writes of the processes that fetch batches: when, and the longest of each fetch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.rows import Rows
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.trace import Trace

Int64Array = NDArray[np.int64]

_NONE = np.empty((0, 5), np.int64)


@dataclass(frozen=True, slots=True)
class FetchReads:
    """What was read and written within fetches.

    Attributes:
        busy: process -> time of its operations that lie in its fetches, or reach into them.
        longest: of each fetch with an operation, ascending: its row in `Trace.fetches`, and of
            its longest operation duration, start (negative), file and bytes.
    """

    busy: Mapping[int, Intervals] = field(default_factory=dict)
    longest: Int64Array = field(default_factory=lambda: _NONE)


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The fetches of one process by start, with their rows in the trace."""

    begin: Int64Array
    end: Int64Array
    row: Int64Array


@dataclass(frozen=True, slots=True)
class OfFetches:
    """The reduction for the fetches of one trace."""

    bounds: Mapping[int, _Bounds] = field(default_factory=dict)  # by process
    NOTHING: FetchReads = field(default_factory=FetchReads)

    def partial(self, rows: Rows, trace: Trace) -> FetchReads:
        """Those of some rows."""
        del trace
        if not self.bounds or not len(rows):
            return self.NOTHING
        process = rows.owner.process[rows.part]
        value = self.NOTHING
        for each in np.intersect1d(rows.owner.process, list(self.bounds)).tolist():
            found = _within(rows, np.flatnonzero(process == each), self.bounds[each])
            value = self.combine(value, FetchReads({each: found[0]}, found[1]))
        return value

    def combine(self, a: FetchReads, b: FetchReads) -> FetchReads:
        """Those of both."""
        busy = dict(a.busy)
        for process, spans in b.busy.items():
            busy[process] = intervals.merge(busy.get(process, intervals.EMPTY), spans)
        return FetchReads(busy, _longest(np.concatenate([a.longest, b.longest])))


def of_trace(trace: Trace) -> OfFetches:
    """The reduction for the fetches of a trace, of processes that are known."""
    fetches, found = trace.fetches, {}
    for process in np.unique(fetches.process[fetches.process >= 0]).tolist():
        rows = np.flatnonzero(fetches.process == process)
        found[process] = _Bounds(fetches.begin[rows], fetches.end[rows], rows)
    return OfFetches(found)


def _within(rows: Rows, mine: NDArray[np.intp], bounds: _Bounds) -> tuple[Intervals, Int64Array]:
    """Of the operations of one process those that lie in a fetch, or reach into one."""
    start, end = rows.start[mine], rows.end[mine]
    place = np.searchsorted(bounds.begin, start, side="right") - 1
    begun = (place >= 0) & (start < bounds.end[place])
    following = np.minimum(place + 1, len(bounds.begin) - 1)
    reaches = begun | (end > bounds.begin[following])
    busy = intervals.union(start[reaches], end[reaches])
    inside = mine[begun]
    columns = (
        bounds.row[place[begun]],
        rows.end[inside] - rows.start[inside],
        -rows.start[inside],  # of two that are as long the first
        rows.file[inside].astype(np.int64),
        rows.nbytes[inside],
    )
    return busy, _longest(np.stack(columns, axis=1))


def _longest(operations: Int64Array) -> Int64Array:
    """Of each fetch the longest operation."""
    order = np.lexsort(operations.T[::-1])
    ordered = operations[order]
    last: Int64Array = ordered[np.append(ordered[1:, 0] != ordered[:-1, 0], True)[: len(ordered)]]
    return last
