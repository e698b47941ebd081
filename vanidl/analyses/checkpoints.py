"""When checkpoints were written: bursts of writes to checkpoint files."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.rows import Rows
from vanidl.model import intervals
from vanidl.model.counter_totals import prefix_of, record_counts
from vanidl.model.file_kinds import is_named_checkpoint
from vanidl.model.trace import STORAGE_LAYERS, CounterTable, Trace

Int64Array = NDArray[np.int64]

GAP_NS = 250_000_000
_LARGE = 1 << 20  # a file without a telling name counts from this size on
_MOST_NAMES = 3


@dataclass(frozen=True, slots=True)
class Burst:
    """One checkpoint, however many files it has."""

    name: str
    start_ns: int
    end_ns: int
    evidence: str
    nbytes: int  # written
    traced: bool  # False: part of it is known from counters only, without single operations


_Writes = tuple[Int64Array, Int64Array, Int64Array, Int64Array]
"""Start, end, file, bytes."""
_NONE = np.empty(0, np.int64)
NOTHING: _Writes = (_NONE, _NONE, _NONE, _NONE)


@dataclass(frozen=True, slots=True)
class OfWrites:
    """The reduction to the traced writes of checkpoint files, in any order."""

    wanted: NDArray[np.bool_]  # for each file code
    NOTHING: _Writes = NOTHING

    def partial(self, rows: Rows, trace: Trace) -> _Writes:  # noqa: ARG002
        """The writes among the rows."""
        mine = rows.writes.groups(self.wanted[rows.writes.file])
        return mine.start, mine.end, mine.each_row(mine.file), mine.nbytes

    def combine(self, a: _Writes, b: _Writes) -> _Writes:
        """The writes of both."""
        start, end, file, nbytes = (np.concatenate(column) for column in zip(a, b, strict=True))
        return start, end, file, nbytes


def of_trace(trace: Trace) -> OfWrites:
    """The reduction for the checkpoint files of a trace."""
    return OfWrites(_wanted(trace))


def checkpoints(writes: _Writes, trace: Trace) -> tuple[Burst, ...]:
    """Bursts of writes in order of time; pauses up to GAP_NS belong to a burst.

    `writes` are the traced ones. A layer without single operations counts from the first to
    the last write of each file.
    """
    rows = [writes, *(_counted(trace, layer) for layer in STORAGE_LAYERS)]
    start, end, file, nbytes = (np.concatenate(column) for column in zip(*rows, strict=True))
    if len(start) == 0:
        return ()
    bursts = intervals.union(start, np.maximum(end, start + 1) + GAP_NS)
    burst = np.searchsorted(bursts.start, start, side="right") - 1
    untraced = np.arange(len(start)) >= len(rows[0][0])
    return tuple(
        Burst(
            f"checkpoint {i + 1}",
            int(bursts.start[i]),
            int(bursts.end[i]) - GAP_NS,
            _evidence(trace, file[burst == i]),
            int(nbytes[burst == i].sum()),
            not untraced[burst == i].any(),
        )
        for i in range(len(bursts.start))
    )


def _evidence(trace: Trace, files: Int64Array) -> str:
    names = [trace.files.path[code].rsplit("/", 1)[-1] for code in np.unique(files).tolist()]
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"writes to {', '.join(names[:_MOST_NAMES])}{more}"


def _wanted(trace: Trace) -> NDArray[np.bool_]:
    """Checkpoint files that are named so or large: others were only written and never read."""
    written = np.zeros(len(trace.files), np.int64)
    for layer in STORAGE_LAYERS:
        if layer in trace.counters:
            table = trace.counters[layer]
            np.add.at(written, table.file, record_counts(table, "BYTES_WRITTEN"))
    return np.array(
        [
            kind == "checkpoint" and (is_named_checkpoint(path) or written[i] >= _LARGE)
            for i, (path, kind) in enumerate(zip(trace.files.path, trace.files.kind, strict=True))
        ],
        bool,
    )


def _counted(trace: Trace, layer: str) -> _Writes:
    """First to last write of each record of a layer without single operations."""
    table = trace.counters.get(layer)
    if table is None or layer in trace.layers_traced:
        return NOTHING
    prefix = prefix_of(layer)
    low = table.seconds.get(f"{prefix}_F_WRITE_START_TIMESTAMP")
    high = table.seconds.get(f"{prefix}_F_WRITE_END_TIMESTAMP")
    if low is None or high is None:
        return NOTHING
    mine = _wanted(trace)[table.file] & (low > 0) & (high >= low)
    since = _log_start(trace, table)[mine]
    return (
        since + np.round(low[mine] * 1e9).astype(np.int64),
        since + np.round(high[mine] * 1e9).astype(np.int64),
        table.file[mine].astype(np.int64),
        record_counts(table, "BYTES_WRITTEN")[mine],
    )


def _log_start(trace: Trace, table: CounterTable) -> Int64Array:
    """When the log of each record began, ns: its timestamps count from there."""
    starts = [trace.job.start_ns if p.start_ns is None else p.start_ns for p in trace.processes]
    return np.array([*starts, trace.job.start_ns], np.int64)[table.process]
