"""Batches of loaders: who fetched each, what it read for it, and how long that took.

`vanidl record` knows which process fetched a batch, and when. What that process read meanwhile,
and its metadata calls, is the I/O of the batch; the rest of getting its samples (`__getitem__`) is
decoding, or whatever else it did. Reads of other batches, by other workers, do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.reducing import Rows
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.trace import Fetches, Trace
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_UNTRACED = 0.01  # of the fetching: more of it by processes without a log, and I/O is not known
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
            # Of the operations of one process those that lie in a fetch, or reach into one.
            mine = np.flatnonzero(process == each)
            bounds = self.bounds[each]
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
            found = busy, _keep_longest(np.stack(columns, axis=1))
            value = self.combine(value, FetchReads({each: found[0]}, found[1]))
        return value

    def combine(self, a: FetchReads, b: FetchReads) -> FetchReads:
        """Those of both."""
        busy = dict(a.busy)
        for process, spans in b.busy.items():
            busy[process] = intervals.merge(busy.get(process, intervals.EMPTY), spans)
        return FetchReads(busy, _keep_longest(np.concatenate([a.longest, b.longest])))


def make_reduction(trace: Trace) -> OfFetches:
    """The reduction for the fetches of a trace, of processes that are known."""
    fetches, found = trace.fetches, {}
    for process in np.unique(fetches.process[fetches.process >= 0]).tolist():
        rows = np.flatnonzero(fetches.process == process)
        found[process] = _Bounds(fetches.begin[rows], fetches.end[rows], rows)
    return OfFetches(found)


def _keep_longest(operations: Int64Array) -> Int64Array:
    """Of each fetch the longest operation."""
    order = np.lexsort(operations.T[::-1])
    ordered = operations[order]
    last: Int64Array = ordered[np.append(ordered[1:, 0] != ordered[:-1, 0], True)[: len(ordered)]]
    return last


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """One entry a fetch, by start; seconds, nan: not recorded, or never taken.

    samples_s + collate_s = reads_s + metadata_s + decoding_s + collating_s. Without single
    metadata calls these are part of `decoding_s`.
    """

    rank: Int64Array  # position in Trace.ranks
    name: Int64Array  # index into Fetches.names
    epoch: Int64Array
    batch: Int64Array
    worker: Int64Array  # -1: the training process itself
    samples: Int64Array
    start_s: Floats  # since the start of the job
    samples_s: Floats  # in `__getitem__`, I/O included
    collate_s: Floats
    reads_s: Floats
    metadata_s: Floats
    decoding_s: Floats
    collating_s: Floats
    wait_s: Floats  # of the wait that took it
    longest_read_s: Floats
    longest_read_nbytes: Int64Array
    longest_read_file: Int64Array  # index into Trace.files, -1 for none

    def __len__(self) -> int:
        return len(self.rank)


@dataclass(frozen=True, slots=True)
class LoaderFetches:
    """Means over the batches of one loader, in seconds; None: not recorded."""

    name: str
    batches: int
    workers: int
    samples_s: float
    collate_s: float
    reads_s: float | None
    metadata_s: float | None
    decoding_s: float | None
    wait_s: float | None


@dataclass(frozen=True, slots=True)
class Fetching:
    """What is known of the fetches of a run."""

    batches: FetchedBatches
    names: tuple[str, ...]
    loaders: tuple[LoaderFetches, ...]
    io_recorded: bool  # a tracer saw what the fetching processes read, but for very few


def finish(reads: FetchReads, trace: Trace) -> Fetching | None:
    """What is known of the fetches; None where none were recorded."""
    fetches = trace.fetches
    if not len(fetches):
        return None
    rank = trace.family[fetches.trainer].astype(np.int64)
    stages = _Stages.of(trace, reads)
    batches = _make_batches(trace, rank, stages, reads)
    length = fetches.end - fetches.begin
    # Fetches by processes without a trace: of a few of them numbers still hold.
    missing = int(length[~stages.traced].sum())
    recorded = bool(stages.traced.any()) and missing <= _UNTRACED * int(length.sum())
    loaders = tuple(_summarize_loader(batches, k, name) for k, name in enumerate(fetches.names))
    used = tuple(each for each in loaders if each.batches)
    return Fetching(batches, fetches.names, used, recorded)


@dataclass(frozen=True, slots=True)
class _Stages:
    """What the fetching processes were at; `traced`: which fetches are of processes with a log."""

    fetches: Fetches
    reads: Mapping[int, Intervals]
    metadata: Mapping[int, Intervals]  # outside reads and writes; empty: not timed one by one
    traced: Mask

    @classmethod
    def of(cls, trace: Trace, reads: FetchReads) -> _Stages:
        fetches = trace.fetches
        logged = [bool(p.log) for p in trace.processes]
        traced = np.array([*logged, False])[fetches.process] & bool(trace.layers_traced)
        metadata = {
            process: intervals.subtract(calls, reads.busy.get(process, intervals.EMPTY))
            for process, calls in trace.metadata_calls.items()
        }
        return cls(fetches, reads.busy, metadata, traced)

    def within(
        self,
        sets: Mapping[int, Intervals],
        rows: NDArray[np.intp],
        low: Int64Array,
        high: Int64Array,
    ) -> Int64Array:
        """For each of some fetches how much of [low, high) its process was in the sets."""
        found, process = np.zeros(len(rows), np.int64), self.fetches.process[rows]
        for each in np.unique(process[process >= 0]).tolist():
            mine = process == each
            spans = sets.get(each, intervals.EMPTY)
            found[mine] = intervals.covered_within(spans, low[mine], high[mine])
        return found


def _make_batches(
    trace: Trace, rank: Int64Array, stages: _Stages, reads: FetchReads
) -> FetchedBatches:
    fetches, rows = trace.fetches, np.arange(len(trace.fetches))
    begin, collate, end = fetches.begin, fetches.collate, fetches.end
    taken = fetches.wait_end >= 0
    in_reads = stages.within(stages.reads, rows, begin, end)
    in_calls = stages.within(stages.metadata, rows, begin, end)
    in_collate = stages.within(stages.reads, rows, collate, end)
    in_collate += stages.within(stages.metadata, rows, collate, end)
    # -1: no file.
    longest = np.zeros((len(rows), 3), np.int64)
    longest[:, 1] = -1
    longest[reads.longest[:, 0]] = reads.longest[:, [1, 3, 4]]
    # What a fetch does before it collates, less its calls in that time.
    decoding = collate - begin - (in_reads + in_calls - in_collate)
    return FetchedBatches(
        rank=rank,
        name=fetches.name,
        epoch=fetches.epoch,
        batch=fetches.batch,
        worker=fetches.worker,
        samples=fetches.samples,
        start_s=(begin - trace.job.start_ns) / 1e9,
        samples_s=(collate - begin) / 1e9,
        collate_s=(end - collate) / 1e9,
        reads_s=_mask_unknown_s(stages.traced, in_reads),
        metadata_s=_mask_unknown_s(stages.traced & bool(stages.metadata), in_calls),
        decoding_s=_mask_unknown_s(stages.traced, decoding),
        collating_s=_mask_unknown_s(stages.traced, end - collate - in_collate),
        wait_s=_mask_unknown_s(taken, fetches.wait_end - fetches.wait_begin),
        longest_read_s=_mask_unknown_s(stages.traced, longest[:, 0]),
        longest_read_file=longest[:, 1],
        longest_read_nbytes=longest[:, 2],
    )


def _mask_unknown_s(known: Mask, ns: Int64Array) -> Floats:
    return np.where(known, ns / 1e9, np.nan)


def _summarize_loader(batches: FetchedBatches, name: int, title: str) -> LoaderFetches:
    mine = batches.name == name

    def mean(column: Floats) -> float | None:
        known = column[mine][~np.isnan(column[mine])]
        return float(known.mean()) if len(known) else None

    return LoaderFetches(
        name=title,
        batches=int(mine.sum()),
        workers=len(np.unique(batches.worker[mine & (batches.worker >= 0)])),
        samples_s=mean(batches.samples_s) or 0.0,
        collate_s=mean(batches.collate_s) or 0.0,
        reads_s=mean(batches.reads_s),
        metadata_s=mean(batches.metadata_s),
        decoding_s=mean(batches.decoding_s),
        wait_s=mean(batches.wait_s),
    )
