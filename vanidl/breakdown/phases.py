"""Phases of a run: start-up, warm-up, training, tail; epochs and checkpoints within.

Start-up, warm-up, training and tail follow on one another and add up to the run time.
Start-up ends with the first read of a dataset file or the first profiled step. Warm-up ends
with the first profiled step, and goes on through leading steps longer than twice the median.
Training begins with a step of all ranks, at the start of the first of them. The tail begins
after the last of both. What has no evidence is left out, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.operations import Operations
from vanidl.analyses.profiled_steps import RankSpans, Steps
from vanidl.analyses.reducing import batch_small_parts, join_columns
from vanidl.analyses.results import Results
from vanidl.breakdown import epochs
from vanidl.model import intervals
from vanidl.model.counter_totals import count_by_record
from vanidl.model.ordering import sum_by_group
from vanidl.model.trace import WRITE, Trace
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]

_SLOW = 2.0
STAGES = ("start-up", "warm-up", "training", "tail")


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase [start_s, end_s), in seconds since the start of the job.

    Bytes count in the phase in which their operation starts; `bytes_read` are those of
    dataset files. `busy_s` and `input_wait_s` are means over the ranks (observed ranks for
    the wait), `steps` the profiled steps that start in the phase, median over observed ranks;
    both are of the profiled part of the phase. None: not recorded; so are bytes and busy time
    of a phase that reaches beyond the last operation of a process that was not traced further.
    """

    name: str
    start_s: float
    end_s: float
    evidence: str
    steps: int | None
    bytes_read: int | None
    bytes_written: int | None
    busy_s: float | None
    input_wait_s: float | None
    busiest_s: float | None = None  # of a checkpoint: busy time of the rank with most of it


@dataclass(frozen=True, slots=True)
class Phases:
    """Phases that follow on one another, epochs, and checkpoints, each in order of time."""

    stages: tuple[Phase, ...]
    epochs: tuple[Phase, ...]
    checkpoints: tuple[Phase, ...]
    no_epochs: str  # why there are none, "" where there are


_Bounds = tuple[str, int, int, str]
"""Name, begin, end, evidence."""


@dataclass(frozen=True, slots=True)
class Borders:
    """Where the phases of a run begin and end, ns; `why_no_epochs`: "" where there are some."""

    stages: tuple[_Bounds, ...]
    epochs: tuple[_Bounds, ...]
    checkpoints: tuple[_Bounds, ...]
    why_no_epochs: str

    @property
    def each(self) -> tuple[_Bounds, ...]:
        """Those of all phases, in the order in which a rank is measured."""
        return (*self.stages, *self.epochs, *self.checkpoints)

    @property
    def edges(self) -> tuple[Int64Array, Int64Array]:
        """Begin and end of each."""
        begin, end = ([bounds[side] for bounds in self.each] for side in (1, 2))
        return np.array(begin, np.int64), np.array(end, np.int64)


@dataclass(frozen=True, slots=True)
class Measured:
    """What profilers saw of one rank in each phase: for how long, its input waits, its steps."""

    seen_ns: Int64Array
    wait_ns: Int64Array
    steps: Int64Array
    waits_known: bool


def find_borders(trace: Trace, results: Results) -> Borders | None:
    """Where phases begin; None where neither a dataset read nor a profiled step was recorded."""
    data = results.dataset
    first, last = epochs.find_first_read_ns(trace, data), epochs.find_last_read_ns(trace, data)
    steps = _split_steps_by_rank(trace, results.steps)
    if first is None and not steps:
        return None
    stages = tuple(_list_stages(trace, steps, first, last))
    found = epochs.find_epoch_starts(trace, data)
    # An epoch ends where the next one begins, the last one with the training.
    end = next((low for name, low, _, _ in stages if name == "tail"), trace.job.end_ns)
    ends = [*found.starts[1:], end][: len(found.starts)]
    epoch_bounds = tuple(
        (f"epoch {number}", low, max(low, high), found.evidence)
        for number, (low, high) in enumerate(zip(found.starts, ends, strict=True), 1)
    )
    saves = tuple((b.name, b.start_ns, b.end_ns, b.evidence) for b in results.saves)
    return Borders(stages, epoch_bounds, saves, "" if epoch_bounds else found.evidence)


def measure_rank(borders: Borders, spans: RankSpans) -> Measured:
    """What profilers saw of one rank in each phase."""
    (low, high), starts = borders.edges, np.sort(spans.steps.start)
    return Measured(
        intervals.covered_within(spans.windows, low, high),
        spans.wait_ns(low, high),
        np.searchsorted(starts, high) - np.searchsorted(starts, low),
        spans.waits_known,
    )


def summarize_phases(
    trace: Trace, results: Results, borders: Borders, ranks: Sequence[Measured]
) -> Phases:
    """The phases, from what each rank with steps was measured to do in them."""
    reduced, saved = results.operations, results.saves
    rows = _measure_phases(borders, reduced, trace, ranks)
    split = len(borders.stages), len(borders.stages) + len(borders.epochs)
    # Of each checkpoint the busy time of the rank with most.
    low, high = (np.array([b[i] for b in borders.checkpoints], np.int64) for i in (1, 2))
    of_ranks = (busy for position, busy in reduced.busy.items() if position >= 0)
    busiest_ns = intervals.most_covered_within(of_ranks, low, high)
    written = tuple(
        replace(
            row,
            bytes_written=burst.nbytes,
            busiest_s=None if row.busy_s is None else float(most_ns) / 1e9,
        )
        if burst.traced
        else replace(row, bytes_written=burst.nbytes, busy_s=None)
        for row, burst, most_ns in zip(rows[split[1] :], saved, busiest_ns, strict=True)
    )
    return Phases(rows[: split[0]], rows[split[0] : split[1]], written, borders.why_no_epochs)


def _split_steps_by_rank(trace: Trace, steps: Steps | None) -> list[tuple[Int64Array, Int64Array]]:
    """Starts and ends of the steps of each rank, ns; empty where none has a place in time."""
    if steps is None or steps.table.undated_s is not None:
        return []
    table = steps.table
    first = np.flatnonzero(np.diff(table.rank)) + 1
    starts, ends = (np.split(side, first) for side in (table.start_s, table.end_s))

    def since_epoch(seconds: NDArray[np.float64]) -> Int64Array:
        return np.rint(seconds * 1e9).astype(np.int64) + trace.job.start_ns

    return [(since_epoch(a), since_epoch(b)) for a, b in zip(starts, ends, strict=True)]


def _list_stages(
    trace: Trace,
    steps: Sequence[tuple[Int64Array, Int64Array]],
    first: int | None,
    last: int | None,
) -> Iterator[_Bounds]:
    job = trace.job
    step_first = min((int(start.min()) for start, _ in steps), default=None)
    step_last = max((int(end.max()) for _, end in steps), default=None)
    begin = min(t for t in (first, step_first) if t is not None)
    end = max(t for t in (last, step_last) if t is not None)
    # From the first evidence of training to the last, within the job.
    begin, end = (min(max(t, job.start_ns), job.end_ns) for t in (begin, end))
    what = "the first dataset read" if begin == first else "the first profiled step"
    yield "start-up", job.start_ns, begin, f"until {what}"

    # Warm-up goes on until steps have their usual length.
    steady = _find_steady_ns(steps)
    steady = begin if steady is None else min(max(steady, begin), end)
    if steady > begin:
        yield "warm-up", begin, steady, "until steps were profiled and kept the usual length"
    yield "training", steady, end, "until the last dataset read or profiled step"
    yield "tail", end, job.end_ns, "after it"


def _find_steady_ns(steps: Sequence[tuple[Int64Array, Int64Array]]) -> int | None:
    """The start of the first step of usual length that every rank was in; None without steps.

    Ranks begin the same step milliseconds apart: it counts whole from the start of the first.
    """
    usual = [(start, end, end - start <= _SLOW * np.median(end - start)) for start, end in steps]
    all_begun = max((int(start[mine.argmax()]) for start, _, mine in usual), default=None)
    if all_begun is None:
        return None
    return min(
        int(start[mine & (start <= all_begun) & (end > all_begun)].min(initial=all_begun))
        for start, end, mine in usual
    )


def _measure_phases(
    borders: Borders, reduced: Operations, trace: Trace, ranks: Sequence[Measured]
) -> tuple[Phase, ...]:
    low, high = borders.edges
    traced = bool(reduced.totals)
    whole = high <= _find_trace_end_ns(reduced, trace)
    # I/O within the phases, which is whole until the trace ends.
    nbytes = _sum_bytes_within(trace, low, high) if traced else None
    of_ranks = (times for position, times in reduced.busy.items() if position >= 0)
    busy_ns = intervals.covered_within_all(of_ranks, low, high) if traced else None
    # Steps and waits within them.
    known = bool(ranks) and all(one.waits_known for one in ranks)
    nothing = np.zeros(len(low), np.int64)
    observed = sum((one.seen_ns for one in ranks), nothing)
    waits = sum((one.wait_ns for one in ranks), nothing)
    since = trace.job.start_ns
    return tuple(
        Phase(
            name,
            (a - since) / 1e9,
            (b - since) / 1e9,
            evidence,
            int(np.median([one.steps[i] for one in ranks])) if observed[i] else None,
            int(nbytes[0, i]) if nbytes is not None and whole[i] else None,
            int(nbytes[1, i]) if nbytes is not None and whole[i] else None,
            float(busy_ns[i] / max(len(trace.ranks), 1) / 1e9)
            if busy_ns is not None and whole[i]
            else None,
            float(waits[i]) / len(ranks) / 1e9 if known and observed[i] else None,
        )
        for i, (name, a, b, evidence) in enumerate(borders.each)
    )


def _find_trace_end_ns(reduced: Operations, trace: Trace) -> int:
    """Until when no operation is missing from the trace, as far as counters tell."""
    layer = next((part.layer for part in trace.io), None)
    table = trace.counters.get(layer) if layer is not None else None
    forever = int(np.iinfo(np.int64).max)
    if table is None or not trace.job.counts_apart:
        return forever
    ops = count_by_record(table, "READS") + count_by_record(table, "WRITES")
    # Counters that count no more than was traced show that nothing is missing.
    if int(ops.sum()) <= reduced.total.reads + reduced.total.writes:
        return forever

    # How many operations each process misses, and when the last one that it has ended.
    of_process = np.bincount(table.process[table.process >= 0], ops[table.process >= 0])
    missing = of_process.astype(np.int64)
    last = np.full(len(trace.processes), trace.job.start_ns)
    missing = np.pad(missing, (0, len(last) - len(missing)))
    for part in trace.io:
        missing[part.process] -= len(part)
        last[part.process] = max(last[part.process], int(part.end.max()))

    # The first one that is cut bounds all; where only shared records miss some, the last does.
    cut = missing > 0
    return int(last[cut].min() if cut.any() else last.max())


def _sum_bytes_within(trace: Trace, low: Int64Array, high: Int64Array) -> Int64Array:
    """Bytes read from dataset files, and bytes written to any, shape (2, phases)."""
    is_data = trace.files.is_data
    edges = np.unique(np.concatenate([low, high]))
    done = np.zeros((2, len(edges)), np.int64)  # of operations that start before each edge
    for parts in batch_small_parts(trace.io):
        start, nbytes, op, file = join_columns(parts, "start", "nbytes", "op", "file")
        sums = _sum_sorted if len(parts) == 1 else _sum_unsorted
        written = op == WRITE
        for row, mask in enumerate((is_data[file] & ~written, written)):
            if mask.any():
                done[row] += sums(start, nbytes, mask, edges)
    return done[:, np.searchsorted(edges, high)] - done[:, np.searchsorted(edges, low)]


def _sum_unsorted(
    start: Int64Array, values: Int64Array, mask: NDArray[np.bool_], edges: Int64Array
) -> Int64Array:
    """For each edge the sum of the masked values that start before it."""
    before = np.searchsorted(edges, start[mask], "right")
    return np.cumsum(sum_by_group(before, values[mask], len(edges) + 1))[:-1]


def _sum_sorted(
    start: Int64Array, values: Int64Array, mask: NDArray[np.bool_], edges: Int64Array
) -> Int64Array:
    """The same of ascending starts, faster."""
    at = np.searchsorted(start, edges)
    masked = values if mask.all() else values * mask
    pieces = [int(masked[a:b].sum()) for a, b in pairwise([0, *at.tolist()])]
    return np.cumsum(pieces)
