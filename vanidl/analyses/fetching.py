"""What training waited for, batch by batch: reads, decoding, collating, or the delivery.

`vanidl record` knows which process fetched a batch, when, and which input wait took it. What
that process read meanwhile, and its metadata calls, is the I/O of the batch; the rest of getting
its samples (`__getitem__`) is decoding. Reads of other batches, which other workers do ahead
during the same wait, do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.fetch_reads import FetchReads
from vanidl.analyses.overlap import IO_WAIT, OTHER_WAIT, UNKNOWN_WAIT, Split
from vanidl.analyses.wait_metadata import total_s
from vanidl.model import intervals
from vanidl.model.fetches import Fetches
from vanidl.model.intervals import Intervals
from vanidl.model.trace import Trace

Int64Array = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

HALF = 0.5
WORKERS_WAIT = "workers"
"""A wait for workers to be started, or for batches that they had made already."""

_UNTRACED = 0.01  # of the fetching: more of it by processes without a log, and I/O is not known


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
class WaitParts:
    """The input waits of one rank, in seconds, by what the batch that they took was at.

    reads_s + metadata_s + decoding_s + collating_s = samples_s + collate_s; those two with
    not_begun_s, delivery_s and rest_s make wait_s. None: not recorded.
    """

    label: str
    wait_s: float
    batches: int
    samples_s: float  # its samples were got
    collate_s: float
    not_begun_s: float  # nobody had begun to fetch it
    delivery_s: float  # it was fetched: on its way from the worker, or being pinned
    rest_s: float  # of no fetch: workers being started, the end of an epoch being found
    reads_s: float | None
    metadata_s: float | None
    metadata_at_most_s: float  # of what is taken for decoding, where calls were timed in sum
    decoding_s: float | None
    collating_s: float | None

    @property
    def mostly(self) -> str:
        """What half of the wait or more is: `IO_WAIT`, `OTHER_WAIT`, `WORKERS_WAIT`; or unknown.

        Of a wait that is less than half I/O for sure, the larger of the other two.
        """
        half = HALF * self.wait_s
        of_workers = self.not_begun_s + self.delivery_s + self.rest_s
        if self.reads_s is None or self.decoding_s is None:
            return WORKERS_WAIT if of_workers >= half else UNKNOWN_WAIT
        in_io = self.reads_s + (self.metadata_s or 0.0)
        if in_io >= half:
            return IO_WAIT
        if in_io + self.metadata_at_most_s >= half:
            return UNKNOWN_WAIT
        made = self.decoding_s + (self.collating_s or 0.0)
        return WORKERS_WAIT if of_workers > made else OTHER_WAIT


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
    mean: WaitParts | None  # over the ranks; None where no wait took a known fetch
    per_rank: tuple[WaitParts, ...]

    @property
    def io_recorded(self) -> bool:
        """Whether a tracer saw what the fetching processes read."""
        return self.mean is not None and self.mean.reads_s is not None


def finish(reads: FetchReads, splits: Mapping[int, Split], trace: Trace) -> Fetching | None:
    """What is known of the fetches; None where none were recorded."""
    fetches = trace.fetches
    if not len(fetches):
        return None
    rank = trace.family[fetches.trainer].astype(np.int64)
    stages = _Stages.of(trace, reads)
    batches = _batches(trace, rank, stages, reads)
    rows = tuple(
        _wait_parts(trace, position, split, np.flatnonzero(rank == position), stages)
        for position, split in splits.items()
        if split.spans.waits_known and ((rank == position) & (fetches.wait_end >= 0)).any()
    )
    loaders = tuple(_loader(batches, k, name) for k, name in enumerate(fetches.names))
    used = tuple(each for each in loaders if each.batches)
    return Fetching(batches, fetches.names, used, _mean(rows) if rows else None, rows)


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


def _batches(trace: Trace, rank: Int64Array, stages: _Stages, reads: FetchReads) -> FetchedBatches:
    fetches, rows = trace.fetches, np.arange(len(trace.fetches))
    begin, collate, end = fetches.begin, fetches.collate, fetches.end
    taken = fetches.wait_end >= 0
    in_reads = stages.within(stages.reads, rows, begin, end)
    in_calls = stages.within(stages.metadata, rows, begin, end)
    in_collate = stages.within(stages.reads, rows, collate, end)
    in_collate += stages.within(stages.metadata, rows, collate, end)
    longest = np.zeros((len(rows), 3), np.int64)
    longest[:, 1] = -1
    longest[reads.longest[:, 0]] = reads.longest[:, [1, 3, 4]]
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
        reads_s=_where(stages.traced, in_reads),
        metadata_s=_where(stages.traced & bool(stages.metadata), in_calls),
        decoding_s=_where(stages.traced, decoding),
        collating_s=_where(stages.traced, end - collate - in_collate),
        wait_s=_where(taken, fetches.wait_end - fetches.wait_begin),
        longest_read_s=_where(stages.traced, longest[:, 0]),
        longest_read_file=longest[:, 1],
        longest_read_nbytes=longest[:, 2],
    )


def _where(known: Mask, ns: Int64Array) -> Floats:
    return np.where(known, ns / 1e9, np.nan)


def _wait_parts(
    trace: Trace, position: int, split: Split, rows: NDArray[np.intp], stages: _Stages
) -> WaitParts:
    """The waits of one rank in its window; what two of them share counts in the first."""
    fetches = trace.fetches
    rows = rows[fetches.wait_end[rows] >= 0]
    rows = rows[np.lexsort((fetches.wait_end[rows], fetches.wait_begin[rows]))]
    low, high = _inside(split, fetches.wait_begin[rows], fetches.wait_end[rows])
    begin, collate, end = (getattr(fetches, c)[rows] for c in ("begin", "collate", "end"))
    got = np.clip(begin, low, high), np.clip(collate, low, high)
    collated = got[1], np.clip(end, got[1], high)
    in_samples = [stages.within(s, rows, *got) for s in (stages.reads, stages.metadata)]
    in_collate = [stages.within(s, rows, *collated) for s in (stages.reads, stages.metadata)]
    samples_s, collate_s = _total(got[1] - got[0]), _total(collated[1] - collated[0])
    before_s, after_s = _total(got[0] - low), _total(high - collated[1])
    known = _traced(stages, rows)
    calls = bool(stages.metadata)
    wait_s = split.spans.waits.length / 1e9
    decoding_s = samples_s - _total(in_samples[0] + in_samples[1])
    return WaitParts(
        label=trace.processes[trace.ranks[position]].label,
        wait_s=wait_s,
        batches=int((high > low).sum()),
        samples_s=samples_s,
        collate_s=collate_s,
        not_begun_s=before_s,
        delivery_s=after_s,
        rest_s=max(wait_s - samples_s - collate_s - before_s - after_s, 0.0),
        reads_s=_total(in_samples[0] + in_collate[0]) if known else None,
        metadata_s=_total(in_samples[1] + in_collate[1]) if known and calls else None,
        metadata_at_most_s=0.0 if calls else min(total_s(trace, position), decoding_s),
        decoding_s=decoding_s if known else None,
        collating_s=collate_s - _total(in_collate[0] + in_collate[1]) if known else None,
    )


def _inside(split: Split, start: Int64Array, end: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Waits as far as they lie in the window of their rank, after the one before."""
    windows = split.spans.windows
    before = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, end))[:-1]
    low = np.maximum(start, before)
    place = np.searchsorted(windows.end, low, side="right")
    inside = place < len(windows.end)
    place = np.minimum(place, len(windows.end) - 1)
    low = np.maximum(low, windows.start[place])
    high = np.minimum(end, windows.end[place])
    return low, np.where(inside, np.maximum(low, high), low)


def _traced(stages: _Stages, rows: NDArray[np.intp]) -> bool:
    """Whether what was read in some fetches is known, but for very few."""
    length = stages.fetches.end[rows] - stages.fetches.begin[rows]
    missing = int(length[~stages.traced[rows]].sum())
    return bool(missing <= _UNTRACED * int(length.sum())) and bool(stages.traced[rows].any())


def _total(ns: Int64Array) -> float:
    return int(ns.sum()) / 1e9


def _mean(rows: tuple[WaitParts, ...]) -> WaitParts:
    values: dict[str, Any] = {}
    for name in (f.name for f in fields(WaitParts) if f.name != "label"):
        column = [getattr(row, name) for row in rows]
        values[name] = None if None in column else sum(column) / len(rows)
    return WaitParts(label="mean", **values)


def _loader(batches: FetchedBatches, name: int, title: str) -> LoaderFetches:
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
