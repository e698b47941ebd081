"""Which reads of a DataLoader's workers went into which step, where that can be known.

PyTorch deals batches to its W workers in turn: batch k of an epoch is the (k // W)-th of worker
k mod W, and is read before the k-th `__next__` of that epoch returns. The call after the last
batch finds nothing, shows as a step with two waits, and comes before every read of the next
epoch. Where reads divide evenly among batches, every mapping of batches to waits is tried, and
counts as known where it is the only one that breaks none of these rules. Mostly that takes a
profile that holds the end of an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.model.trace import POSIX, READ, Process, SpanKind, Trace

Int64Array = NDArray[np.int64]

_DATASET = "dataset"
_MOST_MAPPINGS = 50_000  # of batches to waits: half a second
_MOST_READS = 500_000  # of one worker: more are not worth their memory


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Batches that workers read for one training process, one entry a batch in every array.

    The last read of the batch starts at `read_ns` in process `worker`; the wait that got it
    ends at `taken_ns`, inside a step of the training process. Times are those of the trace.
    """

    trainer: int  # index into Trace.processes
    worker: NDArray[np.int32]  # index into Trace.processes
    read_ns: Int64Array
    taken_ns: Int64Array

    def __len__(self) -> int:
        return len(self.worker)

    def pick(self, rows: NDArray[np.bool_]) -> Deliveries:
        """Those that a mask picks."""
        return Deliveries(self.trainer, self.worker[rows], self.read_ns[rows], self.taken_ns[rows])


@dataclass(frozen=True, slots=True)
class _Reads:
    """Reads of samples of one worker, sorted by start."""

    process: int
    start: Int64Array
    end: Int64Array


@dataclass(frozen=True, slots=True)
class _Waits:
    """Input waits of one training process, sorted by start."""

    start: Int64Array
    end: Int64Array
    stop: NDArray[np.bool_]  # known to have found the end of an epoch
    in_step: NDArray[np.bool_]
    slack_ns: int  # how far the profile's clock may be off


@dataclass(frozen=True, slots=True)
class _Calls:
    """The calls of `__next__` in order, each epoch's last without a batch (-1)."""

    worker: Int64Array
    read_ns: Int64Array  # start of the batch's last read
    ready_ns: Int64Array  # end of the batch's reads
    epoch: Int64Array


def deliveries(trace: Trace) -> tuple[Deliveries, ...]:
    """What is known, for each training process with waits and workers."""
    waits = {process: found for process in trace.ranks if (found := _waits(trace, process))}
    reads = _reads(trace, {i for i, p in enumerate(trace.processes) if p.trainer in waits})
    known = [
        _of_trainer(process, own, _generations(trace, process, reads))
        for process, own in waits.items()
    ]
    return tuple(each for each in known if each is not None)


def _of_trainer(
    trainer: int, waits: _Waits, generations: Sequence[Sequence[_Reads]]
) -> Deliveries | None:
    if not generations:
        return None
    numbers = _batch_numbers(generations, len(waits.start))
    if len(generations) * sum(b + 1 for b in numbers) > _MOST_MAPPINGS:
        return None  # too many to try them all
    fits = [
        (calls, shift)
        for calls in (_calls(generations, batches) for batches in numbers)
        for shift in _shifts(calls, waits)
    ]
    if len(fits) != 1:
        return None
    calls, shift = fits[0]
    mine = slice(shift, shift + len(waits.start))
    taken = (calls.worker[mine] >= 0) & waits.in_step
    return Deliveries(
        trainer,
        calls.worker[mine][taken].astype(np.int32),
        calls.read_ns[mine][taken],
        waits.end[taken],
    )


def _waits(trace: Trace, trainer: int) -> _Waits | None:
    mine = trace.spans.pick(trace.spans.process == trainer)
    waits, steps = (mine.pick(mine.kind == k) for k in (SpanKind.INPUT_WAIT, SpanKind.STEP))
    if not len(waits) or not len(steps):
        return None
    step = np.searchsorted(steps.start, waits.start, side="right") - 1
    in_step = (step >= 0) & (waits.start < steps.end[step])
    counts = np.bincount(step[in_step], minlength=len(steps))
    first = np.concatenate([[True], step[1:] != step[:-1]])
    # Where steps have one wait, the first of two found the end of an epoch.
    stop = in_step & first & (counts[step] == 2) & (np.median(counts) == 1)
    slack = max(trace.profiles[s].clock_uncertainty_ns for s in np.unique(waits.source).tolist())
    return _Waits(waits.start, waits.end, stop, in_step, slack)


def _generations(trace: Trace, trainer: int, reads: Mapping[int, _Reads]) -> list[list[_Reads]]:
    """Workers that lived at the same time, epoch by epoch; empty where their number differs."""
    workers = [
        (p.start_ns, p.end_ns, p.pid or 0, i)
        for i, p in enumerate(trace.processes)
        if _works_for(p, trainer) and p.start_ns is not None and p.end_ns is not None
    ]
    groups: list[list[_Reads]] = []
    until = 0
    for start_ns, end_ns, _, process in sorted(workers):
        if process not in reads:
            continue
        if not groups or start_ns >= until:
            groups.append([])
            until = end_ns
        until = min(until, end_ns)
        groups[-1].append(reads[process])
    return groups if len({len(group) for group in groups}) == 1 else []


def _works_for(process: Process, trainer: int) -> bool:
    return process.role == "worker" and process.trainer == trainer


def _reads(trace: Trace, processes: set[int]) -> dict[int, _Reads]:
    """Reads of samples of each of these processes that is a worker and has some.

    None of any where one has too many.
    """
    workers = {process for process in processes if trace.processes[process].role == "worker"}
    is_data = np.array([kind == _DATASET for kind in trace.files.kind], bool)
    blocks: dict[int, list[Int64Array]] = {}
    for part in trace.io:  # once, as parts may have to be read from disk
        if part.layer == POSIX and part.process in workers:
            mine = (part.op == READ) & is_data[part.file]
            rows = np.stack([part.start[mine], part.end[mine], part.nbytes[mine]])
            blocks.setdefault(part.process, []).append(rows[:, : _MOST_READS + 1])
    joined = {process: np.concatenate(rows, axis=1) for process, rows in blocks.items()}
    if any(columns.shape[1] > _MOST_READS for columns in joined.values()):
        return {}
    return {process: _usual(process, *c) for process, c in joined.items() if c.shape[1]}


def _usual(process: int, start: Int64Array, end: Int64Array, nbytes: Int64Array) -> _Reads:
    """Reads of the size that moves most bytes: samples, without headers and indices."""
    which = np.unique(nbytes, return_inverse=True)[1]
    usual = which == np.bincount(which, weights=nbytes).argmax()
    return _Reads(process, start[usual], end[usual])


def _batch_numbers(generations: Sequence[Sequence[_Reads]], waits: int) -> list[int]:
    """Numbers of batches an epoch among which the reads divide evenly."""
    counts = [[len(reads.start) for reads in group] for group in generations]
    if any(row != counts[0] for row in counts):
        return []
    least = max(-(-waits // len(counts)) - 1, len(counts[0]))
    return [b for b in range(least, sum(counts[0]) + 1) if _divides(counts[0], b)]


def _divides(counts: Sequence[int], batches: int) -> bool:
    """Whether every batch has the same number of reads, the last one perhaps fewer."""
    workers = len(counts)
    mine = [-(-(batches - i) // workers) for i in range(workers)]
    size = max(-(-count // own) for count, own in zip(counts, mine, strict=True))
    last = (batches - 1) % workers
    return all(
        size * (own - 1) < count <= size * own if i == last else count == size * own
        for i, (count, own) in enumerate(zip(counts, mine, strict=True))
    )


def _calls(generations: Sequence[Sequence[_Reads]], batches: int) -> _Calls:
    width, workers = batches + 1, len(generations[0])
    columns = np.full((3, len(generations) * width), -1, np.int64)
    for epoch, group in enumerate(generations):
        for i, reads in enumerate(group):
            own = -(-(batches - i) // workers)
            first = np.arange(own) * -(-len(reads.start) // own)
            last = np.append(first[1:], len(reads.start)) - 1
            rows = epoch * width + i + workers * np.arange(own)
            columns[0, rows] = reads.process
            columns[1, rows] = reads.start[last]
            columns[2, rows] = np.maximum.reduceat(reads.end, first)
    epochs = np.repeat(np.arange(len(generations)), width)
    return _Calls(columns[0], columns[1], columns[2], epochs)


def _shifts(calls: _Calls, waits: _Waits) -> Iterator[int]:
    """Numbers of calls before the first wait that break no rule."""
    for shift in range(len(calls.worker) - len(waits.start) + 1):
        mine = slice(shift, shift + len(waits.start))
        has_batch = calls.worker[mine] >= 0
        ready = calls.ready_ns[mine] <= waits.end + waits.slack_ns
        in_order = (ready | ~has_batch).all() and not has_batch[waits.stop].any()
        if in_order and _starts_anew(calls, waits, mine):
            yield shift


def _starts_anew(calls: _Calls, waits: _Waits, mine: slice) -> bool:
    """Whether the reads of each epoch come after the call that ended the one before."""
    for row in np.flatnonzero(calls.worker[mine] < 0).tolist():
        later = calls.epoch > calls.epoch[mine][row]
        ready = calls.ready_ns[later & (calls.worker >= 0)]
        if len(ready) and int(ready.min()) < int(waits.end[row]) - waits.slack_ns:
            return False
    return True
