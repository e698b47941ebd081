"""Metadata calls (open, stat, close, seek) in input waits: neither reading nor decoding.

DFTracer times each of them. Darshan sums them by process and file, which bounds how long they
can have been in the waits; where they were follows from the reads, as a file is opened and
closed where it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.tracer_limits import exceeds_run_time
from vanidl.model import intervals
from vanidl.model.counter_tables import CounterTable
from vanidl.model.intervals import Intervals, intersect, subtract
from vanidl.model.trace import STORAGE_LAYERS, Trace

DATA_KINDS = ("dataset", "other")
"""Kinds of files whose metadata a loader causes: not code, logs and checkpoints."""

Seconds = NDArray[np.float64]
Busy = Mapping[tuple[str, str, int], Intervals]
"""By ("kind", kind, position in Trace.ranks)."""


@dataclass(frozen=True, slots=True)
class WaitMetadata:
    """Metadata calls of one rank in its input waits, outside its reads and writes.

    `likely_s` is exact where each call was timed. From sums by file it is the time of the
    process with most, as far as reads of data files lie in waits; `at_most_s` is all of it.
    """

    likely_s: float
    at_most_s: float


def of_rank(
    trace: Trace, position: int, waits: Intervals, in_io: Intervals, busy: Busy
) -> WaitMetadata | None:
    """The metadata calls of one rank; None where no tracer timed or summed them.

    Args:
        trace: the run.
        position: of the rank in Trace.ranks.
        waits: its input waits.
        in_io: the part of them during which it read or wrote.
        busy: when each rank read or wrote files of each kind.
    """
    bare = subtract(waits, in_io)
    members = np.flatnonzero(trace.family == position).tolist()
    if any(p in trace.metadata_calls for p in members):
        calls = intervals.EMPTY
        for process in members:
            calls = intervals.merge(calls, trace.metadata_calls.get(process, intervals.EMPTY))
        exact = intersect(calls, bare).length / 1e9
        return WaitMetadata(exact, exact)
    summed = _summed(trace)
    if summed is None:
        return None
    shared = float(summed[-1]) / max(len(trace.ranks), 1)
    own, cap = summed[members], bare.length / 1e9
    longest = 0.0 if _doubtful(trace) else float(own.max(initial=0.0)) + shared
    likely = longest * _in_waits(position, waits, busy)
    return WaitMetadata(min(likely, cap), min(float(own.sum()) + shared, cap))


def total_s(trace: Trace, position: int) -> float:
    """Metadata calls of all processes of one rank, summed over the run; 0 where not credible."""
    members = np.flatnonzero(trace.family == position).tolist()
    if any(p in trace.metadata_calls for p in members):
        none = intervals.EMPTY
        return sum(trace.metadata_calls.get(p, none).length for p in members) / 1e9
    summed = _summed(trace)
    if summed is None or _doubtful(trace):
        return 0.0
    return float(summed[members].sum() + summed[-1] / max(len(trace.ranks), 1))


def _summed(trace: Trace) -> Seconds | None:
    """Metadata time of data files by process, last that of records that ranks share."""
    tables = list(_timed_tables(trace))
    if not tables:
        return None
    sums: Seconds = np.sum([_by_process(trace, table) for table in tables], axis=0)
    return sums


def _doubtful(trace: Trace) -> bool:
    return any(exceeds_run_time(table, trace) for table in _timed_tables(trace))


def _timed_tables(trace: Trace) -> Iterator[CounterTable]:
    for layer in STORAGE_LAYERS:
        table = trace.counters.get(layer)
        if table is not None and f"{layer}_F_META_TIME" in table.seconds:
            yield table


def _by_process(trace: Trace, table: CounterTable) -> Seconds:
    """The same of one layer."""
    is_data = np.array([kind in DATA_KINDS for kind in trace.files.kind], bool)
    seconds = table.seconds[f"{table.layer}_F_META_TIME"].clip(0)
    mine = is_data[table.file] if len(is_data) else np.zeros(len(table.file), bool)
    places = len(trace.processes) + 1
    return np.bincount(table.process[mine] % places, seconds[mine], places).astype(np.float64)


def _in_waits(position: int, waits: Intervals, busy: Busy) -> float:
    """Share of a rank's reads of data files, in time, that lies in its input waits."""
    reading = intervals.EMPTY
    for kind in DATA_KINDS:
        reading = intervals.merge(reading, busy.get(("kind", kind, position), intervals.EMPTY))
    return intersect(reading, waits).length / reading.length if reading.length else 0.0
