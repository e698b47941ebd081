"""How the batches of a PyTorch DataLoader map to its workers, and to the waits that take them.

The loader deals batches to its W workers in turn: batch k of an epoch is the (k // W)-th of
worker k mod W, and is read before the k-th `__next__` of that epoch returns. The call after the
last batch finds nothing (StopIteration), shows as a step with two waits, and comes before every
read of the next epoch, for which the workers are started again.

`find_deliveries` tells which reads went into which step of a trace: as the fetches were recorded,
else by `infer_deliveries`. That tries every number of batches per epoch among which the reads
divide evenly, and every mapping of batches to waits. A mapping is known where it is the only one
that breaks none of these rules: mostly that takes a profile that holds the end of an epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vanidl.model.trace import POSIX, READ, Part, Process, SpanKind, Trace, concatenate_parts
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]

PREFETCH_FACTOR = 2
"""Batches that a worker prepares ahead unless the loader's `prefetch_factor` is set."""

Generation = tuple[Part, ...]
"""What the workers of one epoch read, worker by worker in the order of their start."""

_MOST_MAPPINGS = 50_000  # of batches to waits: half a second
_WRAPPED = 16_384  # process ids further apart than that began again from the smallest
_MOST_READS = 500_000  # of one worker: more are not worth their memory


@dataclass(frozen=True, slots=True)
class EpochBatches:
    """The batches of one epoch in order: who read each, and when."""

    worker: Int64Array  # index into Trace.processes
    first_start: Int64Array  # start of the batch's first read
    last_start: Int64Array  # and of its last one
    end: Int64Array  # when its reads are over


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Batches that workers read for one training process, one entry per batch in every array.

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
class _Waits:
    """Input waits of one training process, sorted by start."""

    start: Int64Array
    end: Int64Array
    stops: Int64Array  # rows that are known to have found the end of an epoch
    in_step: NDArray[np.bool_]
    slack_ns: int  # how far the clock of the profile, or of a worker's log, may be off


@dataclass(frozen=True, slots=True)
class _Calls:
    """The calls of `__next__` in order, each epoch's last without a batch (-1)."""

    worker: Int64Array
    read_ns: Int64Array  # start of the batch's last read
    ready_ns: Int64Array  # end of the batch's reads
    epoch: Int64Array


def split_generations(workers: Iterable[tuple[Process, Part]]) -> list[Generation]:
    """Reads of workers that lived at the same time, epoch by epoch.

    Empty where the epochs have different numbers of workers. Workers are numbered in the order
    of their process ids: the starts of their logs may each be late by more than lies between.

    Args:
        workers: each worker that read, and its reads.
    """
    lives = sorted(workers, key=lambda life: (_get_lifetime(life[0]), life[1].process))
    groups: list[list[tuple[Process, Part]]] = []
    first_end = 0
    for process, reads in lives:
        start_ns, end_ns = _get_lifetime(process)
        # Workers that begin when one of the group has ended are of the next epoch.
        if not groups or start_ns >= first_end:
            groups.append([])
            first_end = end_ns
        first_end = min(first_end, end_ns)
        groups[-1].append((process, reads))
    return [_sort_by_fork(g) for g in groups] if len({len(g) for g in groups}) == 1 else []


def _get_lifetime(process: Process) -> tuple[int, int]:
    return process.start_ns or 0, process.end_ns or 0


def _sort_by_fork(generation: Sequence[tuple[Process, Part]]) -> Generation:
    """In the order in which the workers were forked."""
    pids = [process.pid for process, _ in generation if process.pid is not None]
    # Numbers far apart have wrapped around: then their order says nothing.
    known = len(set(pids)) == len(generation) and max(pids) - min(pids) < _WRAPPED
    if not known:
        return tuple(reads for _, reads in generation)
    return tuple(r for _, r in sorted(generation, key=lambda each: each[0].pid or 0))


def select_equal_reads(reads: Part) -> Part:
    """Reads of the size that moves most bytes: samples, without headers and indices."""
    sizes, which = np.unique(reads.nbytes, return_inverse=True)
    most = np.bincount(which, weights=reads.nbytes).argmax()
    return reads.rows(reads.nbytes == sizes[most])


def enumerate_divisions(epochs: Sequence[Generation], waits: int) -> Iterator[tuple[int, int]]:
    """(batches per epoch, reads per batch) wherever the reads divide evenly.

    Args:
        epochs: the generations of workers.
        waits: waits that were recorded, each for a batch or for the end of an epoch.
    """
    counts = [[len(reads) for reads in generation] for generation in epochs]
    if any(of_epoch != counts[0] for of_epoch in counts):
        return
    # Batches and the end of each epoch have to make up the waits; each worker has one at least.
    least = max(-(-waits // len(counts)) - 1, len(counts[0]))
    for batches in range(least, sum(counts[0]) + 1):
        per_batch = _find_reads_per_batch(counts[0], batches)
        if per_batch:
            yield batches, per_batch


def _find_reads_per_batch(counts: Sequence[int], batches: int) -> int:
    """Reads of each batch, the last one perhaps fewer; 0 where the counts do not divide so.

    Of a single worker the most even split counts: no other one shows how long batches are.
    """
    workers = len(counts)
    # Batches are dealt in turn: the first workers may have one more.
    dealt = [-(-(batches - i) // workers) for i in range(workers)]
    size = max(-(-count // own) for count, own in zip(counts, dealt, strict=True))
    last = (batches - 1) % workers
    fits = all(
        size * (own - 1) < count <= size * own if i == last else count == size * own
        for i, (count, own) in enumerate(zip(counts, dealt, strict=True))
    )
    return size if fits else 0


def deal_to_workers(generation: Generation, batches: int, per_batch: int) -> EpochBatches:
    """The batches of an epoch, dealt to its workers in turn."""
    worker, first_start, last_start, end = np.empty((4, batches), np.int64)
    for i, reads in enumerate(generation):
        mine = slice(i, None, len(generation))
        first = np.arange(0, len(reads), per_batch)
        worker[mine] = reads.process
        first_start[mine] = reads.start[first]
        last_start[mine] = reads.start[np.append(first[1:], len(reads)) - 1]
        end[mine] = np.maximum.reduceat(reads.end, first)
    return EpochBatches(worker, first_start, last_start, end)


def find_epoch_ends(
    wait_start: Int64Array, step_start: Int64Array, step_end: Int64Array
) -> Int64Array:
    """Rows of the waits that found the end of an epoch: the first of two in one step.

    None where steps do not have one wait each else.
    """
    first = np.searchsorted(wait_start, step_start)
    counts = np.searchsorted(wait_start, step_end) - first
    if not len(counts) or np.median(counts) != 1:
        return np.empty(0, np.int64)
    rows: Int64Array = first[counts == 2].astype(np.int64)
    return rows


def find_deliveries(trace: Trace) -> tuple[Deliveries, ...]:
    """What is known, for each training process with waits and workers."""
    known = get_recorded_deliveries(trace)
    told = {each.trainer for each in known}
    return (*known, *(each for each in infer_deliveries(trace, without=told)))


def get_recorded_deliveries(trace: Trace) -> tuple[Deliveries, ...]:
    """Of each training process whose workers' fetches were recorded: batches with reads."""
    fetches = trace.fetches
    taken = (fetches.worker >= 0) & (fetches.process >= 0) & (fetches.wait_end >= 0)
    fetches = fetches.pick(taken)
    fetches = fetches.pick(np.argsort(fetches.wait_end, kind="stable"))
    reads = _collect_data_reads(trace, set(fetches.process.tolist()))
    last = np.full(len(fetches), -1, np.int64)
    for process, own in reads.items():
        mine = fetches.process == process
        # The last read that began before the fetch ended, if it is one of this fetch.
        place = np.searchsorted(own.start, fetches.end[mine]) - 1
        start = np.append(own.start, -1)[place]
        last[mine] = np.where(start >= fetches.begin[mine], start, -1)
    has = last >= 0
    return tuple(
        Deliveries(
            trainer,
            fetches.process[has & mine].astype(np.int32),
            last[has & mine],
            fetches.wait_end[has & mine],
        )
        for trainer in np.unique(fetches.trainer[has]).tolist()
        for mine in [fetches.trainer == trainer]
    )


def infer_deliveries(trace: Trace, without: Collection[int] = ()) -> tuple[Deliveries, ...]:
    """What follows from the order of reads and waits, but for some training processes."""
    served = {p.trainer for p in trace.processes if p.role == "worker"}
    waits = {
        process: found
        for process in trace.ranks
        if process in served
        and process not in without
        and (found := _collect_waits(trace, process))
    }
    workers = {
        i: p.trainer
        for i, p in enumerate(trace.processes)
        if p.role == "worker" and p.trainer in waits
    }
    # The order of reads and waits is as certain as the least certain clock among them.
    for i, trainer in workers.items():
        unsure = trace.processes[i].clock_uncertainty_ns
        waits[trainer] = replace(waits[trainer], slack_ns=max(waits[trainer].slack_ns, unsure))
    reads = _sample_reads(trace, set(workers))
    known = []
    for trainer, own in waits.items():
        mine = [(trace.processes[i], part) for i, part in reads.items() if workers[i] == trainer]
        known.append(_infer_of_trainer(trainer, own, split_generations(mine)))
    return tuple(each for each in known if each is not None)


def _infer_of_trainer(
    trainer: int, waits: _Waits, epochs: Sequence[Generation]
) -> Deliveries | None:
    if not epochs:
        return None
    divided = list(enumerate_divisions(epochs, len(waits.start)))
    if len(epochs) * sum(batches + 1 for batches, _ in divided) > _MOST_MAPPINGS:
        return None  # too many to try them all
    fits = [
        (calls, shift)
        for calls in (_make_calls(epochs, batches, per_batch) for batches, per_batch in divided)
        for shift in _enumerate_shifts(calls, waits)
    ]
    # Several mappings that fit say nothing.
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


def _collect_waits(trace: Trace, trainer: int) -> _Waits | None:
    mine = trace.spans.pick(trace.spans.process == trainer)
    waits, steps = (mine.pick(mine.kind == k) for k in (SpanKind.INPUT_WAIT, SpanKind.STEP))
    if not len(waits) or not len(steps):
        return None

    # The step in which each wait begins; before the first one it is -1.
    step = np.searchsorted(steps.start, waits.start, side="right") - 1
    return _Waits(
        start=waits.start,
        end=waits.end,
        stops=find_epoch_ends(waits.start, steps.start, steps.end),
        in_step=(step >= 0) & (waits.start < steps.end[step]),
        slack_ns=max(
            trace.profiles[s].clock_uncertainty_ns for s in np.unique(waits.source).tolist()
        ),
    )


def _sample_reads(trace: Trace, workers: set[int]) -> dict[int, Part]:
    """Reads of samples of each of these processes that has some.

    None of any where one has too many.
    """
    found = _collect_data_reads(trace, workers)
    return {process: select_equal_reads(reads) for process, reads in found.items()}


def _collect_data_reads(trace: Trace, workers: set[int]) -> dict[int, Part]:
    """The same of all reads of data files."""
    is_data = trace.files.is_data
    found: dict[int, list[Part]] = {process: [] for process in sorted(workers)}
    for part in trace.io if workers else ():  # once, as parts may have to be read from disk
        if part.layer == POSIX and part.process in workers:
            reads = found[part.process]
            reads.append(part.rows((part.op == READ) & is_data[part.file]))
            if sum(map(len, reads)) > _MOST_READS:
                return {}
    joined = {p: concatenate_parts(p, POSIX, parts) for p, parts in found.items()}
    return {process: reads for process, reads in joined.items() if len(reads)}


def _make_calls(epochs: Sequence[Generation], batches: int, per_batch: int) -> _Calls:
    dealt = [deal_to_workers(generation, batches, per_batch) for generation in epochs]
    return _Calls(
        worker=_append_ends([epoch.worker for epoch in dealt]),
        read_ns=_append_ends([epoch.last_start for epoch in dealt]),
        ready_ns=_append_ends([epoch.end for epoch in dealt]),
        epoch=np.repeat(np.arange(len(epochs)), batches + 1),
    )


def _append_ends(epochs: Sequence[Int64Array]) -> Int64Array:
    """A column over all epochs, with the call that found the end of each."""
    return np.concatenate([np.append(column, -1) for column in epochs])


def _enumerate_shifts(calls: _Calls, waits: _Waits) -> Iterator[int]:
    """Numbers of calls before the first wait that break no rule."""
    for shift in range(len(calls.worker) - len(waits.start) + 1):
        mine = slice(shift, shift + len(waits.start))
        has_batch = calls.worker[mine] >= 0
        # A batch is taken only after it was read.
        ready = calls.ready_ns[mine] <= waits.end + waits.slack_ns
        in_order = (ready | ~has_batch).all() and not has_batch[waits.stops].any()
        if in_order and _is_started_anew(calls, waits, mine):
            yield shift


def _is_started_anew(calls: _Calls, waits: _Waits, mine: slice) -> bool:
    """Whether the reads of each epoch come after the call that ended the one before."""
    for row in np.flatnonzero(calls.worker[mine] < 0).tolist():
        later = calls.epoch > calls.epoch[mine][row]
        ready = calls.ready_ns[later & (calls.worker >= 0)]
        if len(ready) and int(ready.min()) < int(waits.end[row]) - waits.slack_ns:
            return False
    return True
