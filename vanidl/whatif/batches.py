"""What loading and training on each batch took, read off a profiled run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses import Results
from vanidl.analyses.dataloader_batches import PREFETCH_FACTOR
from vanidl.analyses.steps import RankSpans, rank_spans
from vanidl.analyses.wait_metadata import total_s
from vanidl.analyses.workers import Workers
from vanidl.model import intervals
from vanidl.model.trace import SpanKind, Trace
from vanidl.whatif.reads import Reads
from vanidl.whatif.replay import replay

Array = NDArray[np.float64]
_FEWEST = 4


@dataclass(frozen=True, slots=True)
class Batches:
    """One rank's batches in order; arrays have one entry per profiled step, in seconds.

    `io_s` (reads and metadata calls) + `decode_s` is how long loading took its reader,
    `compute_s` everything else in the step but the wait for slower ranks. `first` marks the first
    batch of an epoch, for which no worker has read ahead. `again` is the share of a batch that was
    read before: 1 in epochs after the first; where no epoch is known, for all batches the share of
    the bytes read again.
    `nbytes` were read for a batch: the same for all batches with reads.
    `latency_share` is that of requests in `io_s`; None: not known.
    """

    io_s: Array
    decode_s: Array
    compute_s: Array
    wait_s: Array  # as measured, and so is step_s
    step_s: Array
    first: NDArray[np.bool_]
    again: Array
    workers: int
    nbytes: Array
    latency_share: float | None
    inside: float = 1.0  # share of the rank's reads, in time, that lies in the profiled steps


def can_replay(trace: Trace, results: Results) -> bool:
    """Whether steps, input waits and single reads were recorded, on one clock.

    Not where ranks have different numbers of profiled steps, nor for results of a part of the
    time: its steps would not be those of the trace.
    """
    steps, overlap = results.steps, results.overlap
    if steps is None or overlap is None or overlap.mean.input_wait_io_s is None:
        return False
    is_whole = len(steps.table.step) == int((trace.spans.kind == SpanKind.STEP).sum())
    return is_whole and steps.per_rank_min == steps.per_rank_max >= _FEWEST


def batches(trace: Trace, results: Results, read: Reads) -> tuple[Batches, ...]:
    """One entry per rank of a run that can be replayed."""
    ranks, workers = rank_spans(trace), results.workers
    since = trace.job.start_ns
    epochs = results.phases.epochs if results.phases else ()
    starts = [since + round(p.start_s * 1e9) for p in epochs]
    meeting = {p: _communication(trace, p, s) for p, s in ranks.items()}
    least = np.min(list(meeting.values()), axis=0)
    rows = results.overlap.per_rank if results.overlap else ()
    calls = {
        p: _Calls(row.input_wait_metadata_s or 0.0, total_s(trace, p))
        for p, row in zip(ranks, rows, strict=True)
    }
    found = (
        _with_calls(_of_rank(s, read, p, starts, _side_by_side(workers, trace.ranks[p])), calls[p])
        for p, s in ranks.items()
    )
    alone = (
        replace(b, compute_s=np.maximum(b.compute_s - meeting[p] + least, 0.0))
        for p, b in zip(ranks, found, strict=True)
    )
    again = None if starts else _again(results)
    return tuple(_calibrated(_read_again(b, again)) for b in alone)


def _again(results: Results) -> float:
    """Share of the dataset's bytes that had been read before."""
    factor = results.dataset.reread_factor if results.dataset else None
    return 1 - 1 / factor if factor and factor > 1 else 0.0


def _read_again(batch: Batches, again: float | None) -> Batches:
    return batch if again is None else replace(batch, again=np.full(len(batch.again), again))


def _side_by_side(workers: Workers | None, trainer: int) -> int:
    """How many workers a trainer had at a time; 0: it read in its own process."""
    groups = Counter(w.group for w in workers.rows if w.trainer == trainer) if workers else {}
    return max(groups.values(), default=0)


def _of_rank(
    spans: RankSpans, found: Reads, position: int, epochs: list[int], workers: int
) -> Batches:
    low, high = spans.steps.start, spans.steps.end
    read = found.of_rank(position)
    busy = read.busy
    wait = spans.wait_ns(low, high) / 1e9
    in_wait = intervals.covered_within(intervals.intersect(busy, spans.waits), low, high) / 1e9
    io_s = in_wait
    inside = intervals.union(low[:1], high[-1:])
    share = intervals.intersect(busy, inside).length / max(busy.length, 1)
    if workers:
        io_s = np.full(len(low), read.sum_s * share / len(low))
    length = (high - low) / 1e9
    epoch = np.searchsorted(np.array(epochs, np.int64), high, side="left")
    first = np.diff(epoch, prepend=0 if epochs and epochs[0] >= low[0] else epoch[0]) > 0
    return Batches(
        io_s,
        np.zeros(len(low)) if workers else np.maximum(wait - in_wait, 0.0),
        length - wait,
        wait,
        length,
        first,
        (epoch > 1).astype(float),
        workers,
        _evenly(io_s, read.nbytes / read.sum_s if read.sum_s else 0.0),
        found.latency_share(position),
        share,
    )


@dataclass(frozen=True, slots=True)
class _Calls:
    """Metadata calls of one rank: likely in its waits, and of all its processes in the run."""

    in_waits_s: float
    total_s: float


def _with_calls(batch: Batches, calls: _Calls) -> Batches:
    """With metadata calls, which are latency, as a part of `io_s`.

    In the training process they take their part of what is not reading in each wait; of workers
    each batch has as many.
    """
    if batch.workers:
        more = np.full(len(batch.io_s), calls.total_s * batch.inside / len(batch.io_s))
    else:
        bare_s = float(batch.decode_s.sum())
        more = batch.decode_s * (min(calls.in_waits_s / bare_s, 1.0) if bare_s > 0 else 0.0)
    read_s, more_s = float(batch.io_s.sum()), float(more.sum())
    latency = batch.latency_share
    if latency is not None and more_s > 0:
        latency = (latency * read_s + more_s) / (read_s + more_s)
    return replace(
        batch,
        io_s=batch.io_s + more,
        decode_s=batch.decode_s if batch.workers else batch.decode_s - more,
        latency_share=latency,
    )


def _evenly(io_s: Array, bytes_per_s: float) -> Array:
    """The bytes of all batches, spread over those with reads."""
    reading = io_s > 0
    dealt: Array = reading * (io_s.sum() * bytes_per_s / max(int(reading.sum()), 1))
    return dealt


def _communication(trace: Trace, position: int, spans: RankSpans) -> Array:
    """Collectives of each step that compute does not cover."""
    mine = trace.spans.pick(trace.family[trace.spans.process] == position)
    joined = {
        kind: intervals.union(mine.start[mine.kind == kind], mine.end[mine.kind == kind])
        for kind in (SpanKind.COMMUNICATION, SpanKind.OP, SpanKind.KERNEL)
    }
    work = intervals.merge(joined[SpanKind.OP], joined[SpanKind.KERNEL])
    bare = intervals.subtract(joined[SpanKind.COMMUNICATION], work)
    seconds: Array = intervals.covered_within(bare, spans.steps.start, spans.steps.end) / 1e9
    return seconds


def _calibrated(batch: Batches) -> Batches:
    """With the longest decoding under which the batch's rank waits no longer than it did."""
    if not batch.workers:
        return batch
    waited, alone = float(batch.wait_s.sum()), float(batch.compute_s.sum())
    low, high = 0.0, batch.workers * float(batch.step_s.mean())
    queues = [(batch.workers, PREFETCH_FACTOR)]
    for _ in range(40):
        middle = (low + high) / 2
        length = replay([batch.io_s + middle], [batch.compute_s], batch.first, queues)
        low, high = (middle, high) if float(length.sum()) - alone <= waited else (low, middle)
    return replace(batch, decode_s=np.full(len(batch.io_s), low))
