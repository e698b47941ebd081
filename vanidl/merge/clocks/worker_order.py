"""Order of what DataLoader workers read and what the training process takes from them.

`vanidl.analyses.dataloader_batches` says how batches are dealt to workers. What a worker reads
for the k-th batch ends before the k-th `__next__` returns; what it reads for batch k + P W
begins after the k-th `__next__` began, since only then it is asked for; and a new epoch's
workers read after the last `__next__` of the old one, which finds nothing (StopIteration). A
loop that counts its batches does not ask for that one: where no wait shows it, both are tried.
A wrong mapping leaves no offset open: it shows itself.

P is the loader's prefetch_factor. A worker does not idle before it has read its first P
batches, so it is at most the number of batches before the first pause that stands out; where
none does, nothing is known of when a read was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from vanidl.analyses.dataloader_batches import (
    PREFETCH_FACTOR,
    EpochBatches,
    Generation,
    deal_to_workers,
    enumerate_divisions,
    find_epoch_ends,
    select_equal_reads,
    split_generations,
)
from vanidl.formatting.units import plural
from vanidl.merge.clocks.evidence import (
    AlignmentInputs,
    Evidence,
    Int64Array,
    TracedProcess,
    keep_meeting,
)
from vanidl.merge.clocks.log_clock import LogClock
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.trace import READ, Part, SpanKind
from vanidl.schema.dataclass import dataclass

WORKER_ORDER = "order of worker reads"

_PAUSE = 3.0  # times the first gap between two batches of a worker
FEWEST_WAITS = 8
_FEWEST_GAPS = 4
_MOST_CELLS = 20_000_000
NEVER = 2**62  # beyond any time: a border that limits nothing


@dataclass(frozen=True, slots=True)
class Calls:
    """For every `__next__` of the run, what must come before and after it; ns as logged."""

    worker: Int64Array  # that read its batch, -1 where it finds the end of the epoch
    epoch: Int64Array
    ends: Int64Array  # the batch's last read ends, -NEVER where there is none
    asked: Int64Array  # a read that was asked for in it begins, NEVER where there is none
    asked_by_default: Int64Array  # the same if no worker is further ahead than PyTorch's default
    after: Int64Array  # a read that comes after it begins, at the latest
    batches: int
    per_batch: int
    ahead: int  # batches a worker may be ahead, 0 where that is not known


def find_worker_order(inputs: AlignmentInputs, within: Intervals) -> Evidence | None:
    """Offsets in `within` that keep every read in its order with the waits.

    Each worker's log may be late by an amount of its own. None where no worker reads, its
    batches have no visible borders, or no mapping of batches to waits leaves an offset open.
    """
    start, end = inputs.kind(SpanKind.INPUT_WAIT)
    if len(start) < FEWEST_WAITS:
        return None
    stops = find_epoch_ends(start, *inputs.kind(SpanKind.STEP))
    clocks = {worker.number: worker.clock for worker in inputs.workers}
    # What a batch shows itself by: the first of `_UNITS` that leaves an offset open.
    for (unit, _), every in zip(
        _UNITS, deal_batches(inputs.workers, len(start), stops), strict=False
    ):
        found = [
            (low, high, calls)
            for calls in every
            for low, high in _find_open_offsets(calls, clocks, (start, end), stops)
        ]
        offsets = keep_meeting(intervals.union(*_join_bounds(found)), within)
        if len(offsets.start):
            return Evidence(WORKER_ORDER, offsets, _tell_dealing(found[0][2], unit))
    return None


def deal_batches(
    workers: Sequence[TracedProcess], waits: int, stops: Int64Array
) -> Iterator[Iterator[Calls]]:
    """For each unit that batches may be counted in: every way to deal reads to waits.

    Args:
        workers: of one training process.
        waits: waits that were recorded.
        stops: those that are known to have found the end of an epoch.
    """
    # What the workers read, epoch by epoch.
    reading = [(worker.process, worker.operations(READ)) for worker in workers]
    epochs = split_generations((process, reads) for process, reads in reading if len(reads))
    # Where ends of epochs were seen, each epoch has one; else both are tried.
    closings = (True,) if len(stops) else (True, False)
    for _, pick in _UNITS:
        borders = [tuple(pick(reads) for reads in generation) for generation in epochs]
        yield _try_mappings(borders, waits, closings) if epochs else iter(())


def _join_bounds(found: Sequence[tuple[int, int, Calls]]) -> tuple[Int64Array, Int64Array]:
    low = np.array([row[0] for row in found], np.int64)
    return low, np.array([row[1] for row in found], np.int64) + 1


def _tell_dealing(calls: Calls, unit: str) -> str:
    workers = len(np.unique(calls.worker[(calls.epoch == 0) & (calls.worker >= 0)]))
    ahead = calls.ahead * workers
    later = f", and the one {ahead} batches later only after that" if ahead else ""
    return (
        f"batches of {calls.per_batch} {unit}, {calls.batches} per epoch by "
        f"{plural(workers, 'worker')}: each is read before it is taken{later}"
    )


def _join_visits(reads: Part) -> Part:
    """One row for all reads of a file in a row: a file a sample."""
    first = np.flatnonzero(np.concatenate([[True], reads.file[1:] != reads.file[:-1]]))
    return replace(reads.rows(first), end=np.maximum.reduceat(reads.end, first))


_UNITS = (
    ("equal reads", select_equal_reads),
    ("visits of files", _join_visits),
    ("reads", lambda reads: reads),
)


def _try_mappings(
    epochs: Sequence[Generation], waits: int, closings: Sequence[bool]
) -> Iterator[Calls]:
    """Every number of batches per epoch that deals the reads out evenly.

    `closings`: whether an epoch ends with a wait that finds nothing; each is tried.
    """
    for batches, per_batch in enumerate_divisions(epochs, waits):
        for closing in closings:
            cells = (len(epochs) * (batches + closing) - waits + 1) * waits
            # More places than this take too long to try.
            if 0 < cells <= _MOST_CELLS:
                workers = len(epochs[0])
                # The reads as dealt to batches; a wait that finds nothing is asked of no worker.
                dealt = [deal_to_workers(generation, batches, per_batch) for generation in epochs]
                begins = np.array([int(e.first_start.min()) for e in dealt] + [NEVER], np.int64)
                ends = [np.append(e.end, [-NEVER] * closing) for e in dealt]
                ahead = _measure_read_ahead(dealt, workers)

                # Workers of the next epoch read only after the last wait of this one.
                before = np.full(batches - 1 + closing, NEVER, np.int64)
                after = [np.append(before, later) for later in begins[1:]]
                calls = Calls(
                    worker=np.concatenate([np.append(e.worker, [-1] * closing) for e in dealt]),
                    epoch=np.repeat(np.arange(len(dealt)), batches + closing),
                    ends=np.concatenate(ends),
                    asked=_find_asked(
                        dealt, ahead * workers if ahead else batches, closing=closing
                    ),
                    asked_by_default=_find_asked(
                        dealt, (ahead or PREFETCH_FACTOR) * workers, closing=closing
                    ),
                    after=np.concatenate(after),
                    batches=batches,
                    per_batch=per_batch,
                    ahead=ahead,
                )
                yield calls


def _find_asked(dealt: Sequence[EpochBatches], ahead: int, *, closing: bool) -> Int64Array:
    """For each call the start of the reads that were asked for in it: `ahead` batches later."""
    columns = []
    for epoch in dealt:
        later = epoch.first_start[ahead:]
        missing = len(epoch.first_start) + closing - len(later)
        columns.append(np.append(later, np.full(missing, NEVER, np.int64)))
    return np.concatenate(columns)


def _measure_read_ahead(epochs: Sequence[EpochBatches], workers: int) -> int:
    """How many batches a worker reads before it has to be asked for more, 0: not known.

    Two workers must agree on it, so that a single stall at the start is not taken for a pause.
    """
    gaps = [
        e.first_start[i::workers][1:] - e.end[i::workers][:-1]
        for e in epochs
        for i in range(workers)
    ]
    if min(len(g) for g in gaps) < _FEWEST_GAPS:
        return 0
    # While its queue fills a worker goes on at once; later it pauses until it is asked.
    first = max(float(np.median([g[0] for g in gaps])), 1.0)
    usual = float(np.median(np.concatenate([g[len(g) // 2 :] for g in gaps])))
    if usual < _PAUSE * first:
        return 0
    # The border between both lies at their geometric mean.
    pauses = [np.flatnonzero(g > np.sqrt(first * usual)) for g in gaps]
    before = sorted(int(p[0]) + 1 if len(p) else len(g) for p, g in zip(pauses, gaps, strict=True))
    return max(before[min(1, len(before) - 1)], PREFETCH_FACTOR)


def _find_open_offsets(
    calls: Calls,
    clocks: Mapping[int, LogClock],
    waits: tuple[Int64Array, Int64Array],
    stops: Int64Array,
) -> Iterator[tuple[int, int]]:
    """(lowest, highest offset) for every number of calls before the profile that leaves one.

    `clocks` are those of the workers' logs, `stops` the waits that are known to have found the
    end of an epoch.
    """
    start, end = waits
    # Each border of a call as early, or as late, as the clock of its worker's log allows.
    low_ns = np.array([clocks[w].low_ns if w in clocks else 0 for w in calls.worker.tolist()])
    high_ns = np.array([clocks[w].high_ns if w in clocks else 0 for w in calls.worker.tolist()])
    latest = max((clock.high_ns for clock in clocks.values()), default=0)
    ended = np.where(calls.ends > -NEVER, calls.ends + low_ns, -NEVER)
    begun = np.where(calls.asked < NEVER, calls.asked + high_ns, NEVER)
    limits = (ended, begun, np.where(calls.after < NEVER, calls.after + latest, NEVER))
    ends, asked, after = (_slide(column, len(start)) for column in limits)
    # A wait ends after its batch was read, and begins before what it asks for is read.
    low = np.where(ends > -NEVER, ends - end, -NEVER).max(1)
    by_asking = np.where(asked < NEVER, asked - start, NEVER).min(1)
    by_ending = np.where(after < NEVER, after - end, NEVER).min(1)
    high = np.minimum(by_asking, by_ending)
    # Waits that found the end of an epoch took no batch.
    fits = (low <= high) & (low > -NEVER) & (high < NEVER)
    fits &= (ends[:, stops] == -NEVER).all(1)
    for i in np.flatnonzero(fits):
        yield int(low[i]), int(high[i])


def _slide(column: Int64Array, width: int) -> Int64Array:
    windows: Int64Array = np.lib.stride_tricks.sliding_window_view(column, width)
    return windows
