"""The What-if: a run's step time under changed input, of any change and a table of usual ones.

What loading and training on each batch took is read off a profiled run. Where fetches were recorded
they are run again as they were. Else what is known is laid out as a run without workers, which is
then run with those that there were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from vanidl.advice.capacity import CoreLoad, Throughput, fit_throughput, measure_core_load
from vanidl.advice.changes import (
    EVERY_WORKER,
    NO_GAIN,
    STARTING_S,
    Change,
    Predicted,
    WhatIf,
    bound_handing_over_s,
    call_of_change,
    can_replay,
)
from vanidl.advice.facts import Facts
from vanidl.advice.request_costs import Reads, collect_reads
from vanidl.analyses.dataloader_batches import PREFETCH_FACTOR
from vanidl.analyses.dataset import read_by_all
from vanidl.analyses.profiled_steps import RankSpans, group_rank_spans
from vanidl.analyses.results import Results
from vanidl.analyses.tracer_limits import exceeds_run_time
from vanidl.breakdown import Breakdown
from vanidl.breakdown.pipelines import Pipeline, record_pipelines
from vanidl.breakdown.rerun import Change as Lengths
from vanidl.breakdown.rerun import Fetched, Settings, measure, replay, rerun
from vanidl.breakdown.windows import INPUT_WAIT, PART_NAMES
from vanidl.errors import UsageError
from vanidl.formatting.units import percent, plural
from vanidl.model import intervals
from vanidl.model.intervals import intersect, subtract
from vanidl.model.trace import STORAGE_LAYERS, SpanKind, Trace
from vanidl.schema.dataclass import dataclass

Array = NDArray[np.float64]
_NEARLY_ALL = 0.95
"""Of the steps: so many must have taken a batch whose fetch was recorded."""
_GUESSES = np.arange(1, 32) / 32  # of what is left of the range, at a time
_ROUNDS = 8


_LOADED = ("dataset", "other")  # kinds of files whose metadata a loader causes


@dataclass(frozen=True, slots=True)
class Batches:
    """One rank's batches in order; arrays have one entry per profiled step, or per recorded fetch.

    Times in seconds. `fetched`: as they were recorded; None where they were not.

    `io_s` (reads and metadata calls) + `decode_s` is how long loading took its reader,
    `compute_s` everything else in the step but the wait for slower ranks. `first` marks the first
    batch of an epoch, for which no worker has read ahead. `again` is the share of a batch that was
    read before: 1 in epochs after the first; where no epoch is known, for all batches the share of
    the bytes read again.
    `nbytes` were read for a batch: the same for all batches with reads; `memory_nbytes` is what the
    mean batch takes in memory, 0 where none was measured.
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
    calls_s: float = 0.0  # of `io_s` that in metadata calls, of the mean batch
    fetched: Fetched | None = None
    a_step: float = 1.0  # batches that a step takes: several where gradients are accumulated
    memory_nbytes: float = 0.0

    @property
    def steps(self) -> float:
        """How many steps these batches are for."""
        return len(self.step_s) / self.a_step


def extract_batches(
    trace: Trace, results: Results, account: Breakdown, read: Reads
) -> tuple[Batches, ...]:
    """One entry per rank of a run that can be replayed."""
    ranks, workers = dict(group_rank_spans(trace)), results.workers
    recorded = _get_recorded_pipelines(trace, ranks)
    since = trace.job.start_ns
    epochs = account.phases.epochs if account.phases else ()
    starts = [since + round(p.start_s * 1e9) for p in epochs]
    rows = account.overlap.per_rank if account.overlap else ()
    # How long each step of a rank waited for its peers, beyond what every rank waits.
    meeting = {p: _measure_exposed_collectives(trace, p, s) for p, s in ranks.items()}
    least = np.min(list(meeting.values()), axis=0)
    # Epochs say which reads are repeated; without them the dataset as a whole does.
    factor = results.dataset.reread_factor if results.dataset else None
    again = 1 - 1 / factor if factor and factor > 1 else 0.0

    batches = []
    for (position, spans), row in zip(ranks.items(), rows, strict=True):
        peers_s = meeting[position] - least
        if recorded is not None:
            of_rank = _make_fetched_batches(
                trace, spans, read, position, starts, recorded[position]
            )
        else:
            # From reads and waits: so many workers at a time, or none, where the rank read itself.
            trainer = trace.ranks[position]
            groups = Counter(w.group for w in (workers.rows if workers else ())
                             if w.trainer == trainer)  # fmt: skip
            count = max(groups.values(), default=0)
            busy = read.of_rank(position).busy
            # The metadata calls of one rank. Where only their sums are known a file is taken to be
            # opened and closed where it is read: as much of them is in waits as of the reads,
            # within what the account leaves open.
            total_s = _sum_metadata_s(trace, position)
            low_s, high_s = (
                row.input_wait_metadata_s or 0.0,
                row.input_wait_metadata_at_most_s or 0.0,
            )
            inside = (
                intervals.intersect(busy, spans.waits).length / busy.length if busy.length else 0.0
            )
            calls = _Calls(min(max(total_s * inside, low_s), high_s), total_s)
            of_rank = _extract_rank_batches(spans, read, position, starts, count)
            of_rank = _add_metadata_calls(of_rank, calls)
        # With compute alone: without what each step waited for slower ranks.
        if of_rank.fetched is not None:
            peers_s = peers_s[_find_steps(spans, of_rank.fetched.wait_end_ns)]
        of_rank = replace(of_rank, compute_s=np.maximum(of_rank.compute_s - peers_s, 0.0))
        if not starts:
            of_rank = replace(of_rank, again=np.full(len(of_rank.again), again))
        batches.append(_calibrate_decoding(of_rank))
    return tuple(batches)


def _find_steps(spans: RankSpans, wait_end: NDArray[np.int64]) -> NDArray[np.intp]:
    """The step in which each wait ended, -1 before the first."""
    return np.searchsorted(spans.steps.start, wait_end, side="right") - 1


def _extract_rank_batches(
    spans: RankSpans, found: Reads, position: int, epochs: list[int], workers: int
) -> Batches:
    low, high = spans.steps.start, spans.steps.end
    read = found.of_rank(position)
    busy = read.busy
    wait = spans.wait_ns(low, high) / 1e9
    # In-process reads are I/O of a step within its waits; of workers an even share.
    in_wait = intervals.covered_within(intervals.intersect(busy, spans.waits), low, high) / 1e9
    io_s = in_wait
    inside = intervals.union(low[:1], high[-1:])
    share = intervals.intersect(busy, inside).length / max(busy.length, 1)
    if workers:
        io_s = np.full(len(low), read.sum_s * share / len(low))
    length = (high - low) / 1e9
    # The first batch of an epoch is read with nothing ahead of it.
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
        _spread_bytes(io_s, read.nbytes / read.sum_s if read.sum_s else 0.0),
        found.latency_share(position),
        share,
    )


@dataclass(frozen=True, slots=True)
class _Calls:
    """Metadata calls of one rank: likely in its waits, and of all its processes in the run."""

    in_waits_s: float
    total_s: float


def _sum_metadata_s(trace: Trace, position: int) -> float:
    """Metadata calls on data files of all processes of one rank; 0 where not credible."""
    members = np.flatnonzero(trace.family == position).tolist()
    # Calls that were timed one by one are exact; else counters of all storage layers.
    if any(p in trace.metadata_calls for p in members):
        none = intervals.EMPTY
        return sum(trace.metadata_calls.get(p, none).length for p in members) / 1e9
    is_data = np.isin(np.array(trace.files.kind, object), _LOADED)
    total_s = 0.0
    for layer in STORAGE_LAYERS:
        table = trace.counters.get(layer)
        seconds = None if table is None else table.seconds.get(f"{layer}_F_META_TIME")
        if table is None or seconds is None:
            continue
        if exceeds_run_time(table, trace):
            return 0.0
        # A shared record counts for each rank alike.
        mine = is_data[table.file]
        own, shared = np.isin(table.process, members) & mine, (table.process < 0) & mine
        total_s += float(seconds[own].clip(0).sum())
        total_s += float(seconds[shared].clip(0).sum()) / max(len(trace.ranks), 1)
    return total_s


def _add_metadata_calls(batch: Batches, calls: _Calls) -> Batches:
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
    # The share of latency is one of all I/O: it is weighed anew.
    latency = batch.latency_share
    if latency is not None and more_s > 0:
        latency = (latency * read_s + more_s) / (read_s + more_s)
    return replace(
        batch,
        io_s=batch.io_s + more,
        decode_s=batch.decode_s if batch.workers else batch.decode_s - more,
        latency_share=latency,
        calls_s=float(more.mean()),
    )


def _spread_bytes(io_s: Array, bytes_per_s: float) -> Array:
    """The bytes of all batches, spread over those with reads."""
    reading = io_s > 0
    dealt: Array = reading * (io_s.sum() * bytes_per_s / max(int(reading.sum()), 1))
    return dealt


def _measure_exposed_collectives(trace: Trace, position: int, spans: RankSpans) -> Array:
    """Collectives of each step that compute does not cover."""
    mine = trace.spans_of(position)
    joined = {
        kind: intervals.union(mine.start[mine.kind == kind], mine.end[mine.kind == kind])
        for kind in (SpanKind.COMMUNICATION, SpanKind.OP, SpanKind.KERNEL)
    }
    # Under kernels or operations a collective costs the step nothing.
    work = intervals.merge(joined[SpanKind.OP], joined[SpanKind.KERNEL])
    bare = intervals.subtract(joined[SpanKind.COMMUNICATION], work)
    seconds: Array = intervals.covered_within(bare, spans.steps.start, spans.steps.end) / 1e9
    return seconds


def _calibrate_decoding(batch: Batches) -> Batches:
    """With the longest decoding under which the batch's rank waits no longer than it did."""
    if not batch.workers or batch.fetched is not None:
        return batch
    laid_out = _make_fetches([batch.io_s], [batch.compute_s], batch.first)
    machine = measure(laid_out, Settings(batch.workers, PREFETCH_FACTOR))
    waited_ns = float(batch.wait_s.sum() + batch.compute_s.sum()) * 1e9
    low, high = 0.0, batch.workers * float(batch.step_s.mean())
    # Each round leaves a 32nd of the range; all guesses of a round are one replay.
    for _ in range(_ROUNDS):
        guesses = low + (high - low) * _GUESSES
        changes = [Lengths({"fetch": [(batch.io_s + guess) * 1e9]}) for guess in guesses]
        short = int((replay(machine, changes) <= waited_ns).sum())
        edges = np.concatenate([[low], guesses, [high]])
        low, high = float(edges[short]), float(edges[short + 1])
    return replace(batch, decode_s=np.full(len(batch.io_s), low))


def step_lengths(
    load_s: Sequence[Array],
    compute_s: Sequence[Array],
    first: NDArray[np.bool_],
    loaders: Sequence[tuple[int, int]],
) -> Array:
    """Length of every step in seconds, shape (steps,), of ranks that end each of them together.

    Args:
        load_s: for each rank how long its batches take to load, shape (steps,).
        compute_s: for each rank the rest of its steps, shape (steps,).
        first: whether a batch is the first of an epoch, before which nothing is read.
        loaders: for each rank (workers, batches ahead of each); 0 workers: in the step itself.
    """
    workers, ahead = zip(*loaders, strict=True)
    settings = Settings(workers, ahead)
    done = rerun(_make_fetches(load_s, compute_s, first), settings)
    # From one wait to the next: ranks end each step together, so one tells for all.
    lengths: Array = np.diff(done.wait_begin_ns[0], append=done.total_ns) / 1e9
    return lengths


def _make_fetches(
    load_s: Sequence[Array], compute_s: Sequence[Array], first: NDArray[np.bool_]
) -> list[Fetched]:
    """A run without workers in which all that takes as long: its batches and steps are known."""
    load_ns, compute_ns = (
        np.round(np.array(s) * 1e9).astype(np.int64) for s in (load_s, compute_s)
    )
    # Ranks meet after each step: the slowest one sets the time of all.
    lengths = (load_ns + compute_ns).max(0)
    met = np.cumsum(lengths)
    begin, epoch = met - lengths, np.cumsum(first, dtype=np.int64)
    # Nobody fetches ahead: a batch is asked for, and made, as the wait for it begins.
    nobody = np.full(len(met), -1)
    return [
        Fetched(
            worker=nobody,
            asked_ns=begin,
            begin_ns=begin,
            end_ns=begin + load,
            ready_ns=begin + load,
            wait_begin_ns=begin,
            wait_end_ns=begin + load,
            epoch=epoch,
            workers=0,
            rank=rank,
            met_ns=met,
            peers_ns=lengths - load - compute,
            last_end_ns=int(met[-1]),
        )
        for rank, (load, compute) in enumerate(zip(load_ns, compute_ns, strict=True))
    ]


def _get_recorded_pipelines(
    trace: Trace, ranks: Mapping[int, RankSpans]
) -> dict[int, Pipeline] | None:
    """The loader of each rank, where the fetches of nearly all its steps were recorded.

    None where a rank has several loaders, they fetched in processes without a log, or it took not
    as many batches as another one.
    """
    if not len(trace.fetches):
        return None
    # The last place, reached by -1, is that of fetches by no known process.
    logged = np.array([*(bool(p.log) for p in trace.processes), False]) & bool(trace.layers_traced)
    pipelines = record_pipelines(trace)
    found = {p.fetched.rank: p for p in pipelines}
    if len(found) < len(pipelines) or found.keys() != ranks.keys():
        return None
    # Fetches of nearly all steps, none of them by a process whose reads are not known.
    for position, pipeline in found.items():
        fetches = trace.fetches.pick(pipeline.row)
        steps = np.unique(_find_steps(ranks[position], fetches.wait_end))
        if len(steps) < _NEARLY_ALL * len(ranks[position].steps) or steps[0] < 0:
            return None
        if (pipeline.row < 0).any() or not logged[fetches.process].all():
            return None
    if len({len(pipeline.row) for pipeline in found.values()}) > 1:
        return None
    return found


def _make_fetched_batches(
    trace: Trace,
    spans: RankSpans,
    read: Reads,
    position: int,
    epochs: list[int],
    pipeline: Pipeline,
) -> Batches:
    """One rank whose fetches were recorded: what was I/O in each of them is known."""
    f, steps, own = pipeline.fetched, spans.steps, read.of_rank(position)
    in_reads, in_calls = np.zeros((2, len(f)))
    # I/O and metadata calls of each fetch, by the process that fetched.
    for process in np.unique(pipeline.process).tolist():
        mine, busy = pipeline.process == process, read.of_fetchers[process]
        calls = intervals.subtract(trace.metadata_calls.get(process, intervals.EMPTY), busy)
        for times, spent in ((busy, in_reads), (calls, in_calls)):
            spent[mine] = intervals.covered_within(times, f.begin_ns[mine], f.end_ns[mine]) / 1e9
    latency, calls_s, reads_s = read.latency_share(position), in_calls.sum(), in_reads.sum()
    # Metadata calls are latency.
    if latency is not None and calls_s > 0:
        latency = float((latency * reads_s + calls_s) / (reads_s + calls_s))
    # What the step around each wait did besides waiting.
    step = _find_steps(spans, f.wait_end_ns)
    wait_s = spans.wait_ns(steps.start, steps.end)[step] / 1e9
    length_s = (steps.end - steps.start)[step] / 1e9
    return Batches(
        io_s=in_reads + in_calls,
        decode_s=(f.end_ns - f.begin_ns) / 1e9 - in_reads - in_calls,
        compute_s=np.maximum(length_s - wait_s, 0),
        wait_s=wait_s,
        step_s=length_s,
        first=np.diff(f.epoch, prepend=f.epoch[0]) > 0,
        again=(np.searchsorted(np.array(epochs, np.int64), f.wait_end_ns) > 1).astype(float),
        workers=f.workers,
        nbytes=_spread_bytes(in_reads, own.nbytes / own.sum_s if own.sum_s else 0.0),
        latency_share=latency,
        fetched=f,
        calls_s=float(in_calls.mean()),
        a_step=len(f) / max(len(np.unique(step)), 1),
        memory_nbytes=trace.fetches.pick(pipeline.row).mean_nbytes or 0.0,
    )


# --- Changes ------------------------------------------------------------------------------------

ASSUMPTIONS = (
    "Compute takes as long as it did: readers take no core from it.",
    "Readers beside each other are as fast as one alone, up to the storage's limit, which the "
    "trace does not show: predictions are what can be gained at most.",
    "Ranks begin each step together; workers restart with each epoch: in the time that they took "
    "where fetches were recorded, else in none.",
    "What is neither reading nor metadata calls (open, stat, close) in loading counts as decoding; "
    "of workers whose fetches were not recorded it is the most that fits the waits that were seen.",
    "Where each rank reads its block, what is not I/O shrinks with it, and the latency of requests "
    "stays. In partial local shuffling a rank reads its part before its first step, 8 reads at "
    "once, and what it exchanges travels while steps compute.",
    f"A change whose step is not {percent(NO_GAIN)} shorter than both the measured one and the "
    "replayed one gains nothing and is left out.",
)

_MOST_WORKERS = (1, 2, 4, 8)
_PER_RANK = " per rank"
_SPLIT = ", each with its part of the stream"
"""Of an IterableDataset: as it is, every worker would yield every sample."""


def what_if(trace: Trace, results: Results, account: Breakdown) -> WhatIf | None:
    """The usual changes; None where steps, input waits or single reads were not recorded.

    Where a thread reads ahead there are no predictions, and the result says why.
    """
    if not can_replay(trace, results, account):
        return None
    read = collect_reads(trace)
    ranks = extract_batches(trace, results, account, read)
    if refused := find_reading_thread(trace, results, read):
        return WhatIf(_compute_mean_step_s(ranks), None, (), (), refused)
    replayed_s = _predict_step_s(ranks, Change())
    alone_s = float(np.max([b.compute_s for b in ranks], axis=0).mean())
    # Every usual change, within what the storage delivers at most.
    rows = [_make_prediction("no input wait at all", alone_s, ranks, replayed_s)]
    changes = _list_usual_changes(ranks, _SPLIT if trace.streams else "") + _list_shared_reading(
        ranks, results, account
    )
    limits = _Limits.of(trace, results, account)
    for name, change in changes:
        best_s, worst_s = _bracket_step_s(ranks, change, limits)
        row = _make_prediction(name, best_s, ranks, replayed_s)
        rows.append(_attach_lever(replace(row, step_at_most_s=worst_s), change, trace))
    # Only those that gain something are shown.
    rows = [r for i, r in enumerate(rows) if i == 0 or not _is_without_gain(r, rows[i - 1])]
    rows = [r for r in rows if r.gain_at_most_s > 0]
    of_streams = (EVERY_WORKER,) if trace.streams else ()
    return WhatIf(_compute_mean_step_s(ranks), replayed_s, tuple(rows), (*ASSUMPTIONS, *of_streams))


def predict(trace: Trace, results: Results, account: Breakdown, change: Change) -> Predicted:
    """Mean step time under one change.

    Raises:
        UsageError: the run lacks steps, input waits or single reads to replay, or a thread
            reads ahead.
    """
    ranks = _extract_replayable(trace, results, account)
    replayed_s = _predict_step_s(ranks, Change())
    return _make_prediction("as asked", _predict_step_s(ranks, change), ranks, replayed_s)


def predict_range(
    trace: Trace, results: Results, account: Breakdown, change: Change
) -> tuple[float, float]:
    """Mean step time under one change at best and at worst, in seconds.

    Raises:
        UsageError: as `predict`.
    """
    ranks = _extract_replayable(trace, results, account)
    limits = _Limits.of(trace, results, account)
    best_s, worst_s = _bracket_step_s(ranks, change, limits)
    return best_s, best_s if worst_s is None else worst_s


def _extract_replayable(trace: Trace, results: Results, account: Breakdown) -> tuple[Batches, ...]:
    if not can_replay(trace, results, account):
        raise UsageError(
            "expected profiled steps with input waits and traced reads, found a run without: "
            "record it with the PyTorch profiler and DXT or DFTracer."
        )
    read = collect_reads(trace)
    if refused := find_reading_thread(trace, results, read):
        raise UsageError(f"expected a run whose loading can be replayed, found that {refused}.")
    return extract_batches(trace, results, account, read)


def _list_usual_changes(ranks: tuple[Batches, ...], of_workers: str) -> list[tuple[str, Change]]:
    most = max(b.workers for b in ranks)
    rows = [
        (f"{plural(n, 'worker')}{_PER_RANK}{of_workers if n > 1 else ''}", Change(workers=n))
        for n in _MOST_WORKERS
        if n > most
    ]
    if most:
        rows.append(("twice as many batches read ahead", Change(ahead=2 * PREFETCH_FACTOR)))
    # What a request costs is not known: storage changes as a whole.
    if ranks[0].latency_share is None:
        rows.append(("storage twice as fast", Change(bandwidth=2, latency=0.5)))
    else:
        rows.append(("twice the bandwidth of storage", Change(bandwidth=2)))
        rows.append(("half the latency of storage", Change(latency=0.5)))
    rows.append(("decoding twice as fast", Change(decode=2)))
    if any(b.again.any() for b in ranks):
        rows.append(("half of the data kept after its first read", Change(kept=0.5)))
        rows.append(("all data kept after its first read", Change(kept=1.0)))
    return rows


def _list_shared_reading(
    ranks: tuple[Batches, ...], results: Results, account: Breakdown
) -> list[tuple[str, Change]]:
    """What several ranks can do about reading."""
    if len(ranks) < 2:
        return []
    epochs = len(account.phases.epochs) if account.phases else 0
    if results.dataset is not None and read_by_all(results.dataset, epochs):
        name = f"each of {len(ranks)} ranks reads its block of a sample (spatial)"
        return [(name, Change(divided=len(ranks)))]
    # Nothing is read twice: an exchange would spare nothing.
    if not any(b.again.any() for b in ranks):
        return []
    return [("each rank keeps its part and exchanges 10 % (pls)", Change(exchanged=0.1))]


def _is_without_gain(row: Predicted, before: Predicted) -> bool:
    """Whether more workers than in the row before change nothing."""
    of_workers = row.lever == before.lever == "workers"
    return of_workers and row.ratio > before.ratio - 0.005


def _make_prediction(
    name: str, step_s: float, ranks: tuple[Batches, ...], replayed_s: float
) -> Predicted:
    now = _compute_mean_step_s(ranks)
    shorter = min(now, replayed_s) - step_s >= NO_GAIN * now
    gain = (now - step_s) * ranks[0].steps if shorter else 0.0
    return Predicted(name, step_s, step_s / now, gain)


def _attach_lever(row: Predicted, change: Change, trace: Trace) -> Predicted:
    """The row with what was changed, of two fields the first, and the loader that changes it."""
    for field in fields(Change):
        if (value := getattr(change, field.name)) != field.default:
            ranks, hosts = len(trace.ranks), len(trace.hosts)
            call = call_of_change(field.name, value, ranks=ranks, hosts=hosts)
            return replace(row, lever=field.name, amount=value, loader=call)
    return row


_AWAKE = 0.5
"""Of its waits: who runs less does not unpack what it waits for."""


@dataclass(frozen=True, slots=True)
class _Limits:
    """What there is at most; None: not known."""

    storage: Throughput | None
    cores: CoreLoad | None
    sleeps: bool = False  # training threads in their waits, more than half of the time

    @classmethod
    def of(cls, trace: Trace, results: Results, account: Breakdown) -> _Limits:
        """Those of a run."""
        seen = Facts(trace, results, account).look_at_part(PART_NAMES[INPUT_WAIT])
        sleeps = seen is not None and seen.running < _AWAKE
        return cls(fit_throughput(trace), measure_core_load(trace), sleeps)


def _bracket_step_s(
    ranks: tuple[Batches, ...], change: Change, limits: _Limits
) -> tuple[float, float | None]:
    """The mean step under a change at best and at worst; None: nothing tells them apart.

    At best the storage serves readers beside each other as one alone, but for a limit that was
    seen, and cores share all work; at worst no more bytes come than often came, of storage at its
    limit than came on average, metadata calls, which a folder or a server may take one at a time,
    are answered no faster, handing over takes its time, and workers start one after the other
    before the first batch.
    """
    if change.workers is None:
        return _predict_step_s(ranks, change), None
    seen = limits.storage
    at_worst, floor_s = change, 0.0
    if seen is not None and change.total_bytes_per_s is None:
        # At best the storage is never idle: fetches at the end share it with fewer others.
        most = seen.peak_bytes_per_s if seen.saturated else seen.limit_bytes_per_s
        at_best = replace(change, total_bytes_per_s=most)
        floor_s = float(_bound_step_s(ranks, at_best).sum()) / max(ranks[0].steps, 1)
        least = seen.busy_bytes_per_s if seen.saturated else seen.peak_bytes_per_s
        at_worst = replace(change, total_bytes_per_s=least)
    best_s = _predict_step_s(_let_arrive_late(ranks) if limits.sleeps else ranks, change)
    best_s, worst_s = max(best_s, floor_s), _predict_step_s(ranks, at_worst)
    # No division of the work makes it less.
    if limits.cores is not None:
        alone_s = float(np.mean([b.compute_s.mean() for b in ranks]))
        threads = len(ranks) * (change.workers + 1)
        best_s = max(best_s, limits.cores.least_step_s(threads))
        # At worst nothing hides what few fetches take beyond others: batches come in order. What
        # they wait for in storage is in no work of cores.
        alone_s += max(_measure_rare_stalls_s(b.decode_s, b.steps) for b in ranks)
        stalls_s = max(_measure_rare_stalls_s(b.io_s, b.steps) for b in ranks)
        worst_s = max(worst_s, limits.cores.bound_step_s(threads, alone_s) + stalls_s)
    calls_s = [b.a_step * b.calls_s / max(b.workers, 1) for b in ranks]
    worst_s = max(worst_s, min(max(calls_s), _compute_mean_step_s(ranks)))
    # What workers cost that were not there.
    steps, new = ranks[0].steps, change.workers - min(b.workers for b in ranks)
    if not ranks[0].workers:
        least_s, most_s = _bound_handing_over_s(ranks)
        worst_s += (most_s - least_s) * ranks[0].a_step
    if new > 0:  # the first fetches while others start, or all are waited for
        best_s, worst_s = best_s + STARTING_S[0] / steps, worst_s + new * STARTING_S[1] / steps
    return best_s, max(best_s, worst_s)


_RARE = 1 / 40
"""Of the fetches: so few are no property of the pipeline."""


def _measure_rare_stalls_s(spent_s: Array, steps: float) -> float:
    """Seconds a step of what the slowest fetches take beyond the usual one."""
    count = max(int(len(spent_s) * _RARE), 1)
    slowest = np.sort(spent_s)[-count:] - np.median(spent_s)
    return float(slowest.clip(0).sum()) / max(steps, 1)


def _let_arrive_late(ranks: tuple[Batches, ...]) -> tuple[Batches, ...]:
    """The ranks, with batches of which it is not known on their way until their waits end.

    Who sleeps meanwhile does not unpack them: they are handed over by their workers, each for
    itself, whose threads may wait for the interpreter's lock.
    """
    found = []
    for batch in ranks:
        f = batch.fetched
        if f is not None and (f.ready_ns < 0).any():
            arrives = np.where(f.ready_ns < 0, f.wait_end_ns, f.ready_ns)
            batch = replace(batch, fetched=replace(f, ready_ns=arrives))
        found.append(batch)
    return tuple(found)


def _bound_handing_over_s(ranks: tuple[Batches, ...]) -> tuple[float, float]:
    return bound_handing_over_s(float(np.mean([b.memory_nbytes for b in ranks])))


def _compute_mean_step_s(ranks: tuple[Batches, ...]) -> float:
    return float(np.mean([b.step_s.mean() for b in ranks]))


def _predict_step_s(ranks: tuple[Batches, ...], change: Change) -> float:
    """Mean length of a step under a change."""
    loaded_s = compute_loads(ranks, change)
    # Batches are handed over only where workers are added.
    is_new = change.workers and not ranks[0].workers
    handing_s = _bound_handing_over_s(ranks)[0] if is_new else 0.0
    pipelines = [b.fetched for b in ranks if b.fetched is not None]
    # Without recorded fetches: a loader of the usual kind delivers the loads.
    if not pipelines:
        queues = [(get_workers(b, change), change.ahead or PREFETCH_FACTOR) for b in ranks]
        computes = [b.compute_s + handing_s for b in ranks]
        return float(step_lengths(loaded_s, computes, ranks[0].first, queues).mean())
    # Else the recorded pipelines are replayed with other loads.
    others = [
        None if get_workers(b, change) == b.workers else get_workers(b, change) for b in ranks
    ]
    settings = Settings(
        workers=others if any(n is not None for n in others) else None,
        prefetch=change.ahead,
        fetch_ns=[seconds * 1e9 for seconds in loaded_s],
    )
    longer_ns = rerun(pipelines, settings).total_ns - measure(pipelines).recorded_ns
    longer_s = longer_ns / 1e9 / ranks[0].steps
    return _compute_mean_step_s(ranks) + longer_s + handing_s * ranks[0].a_step


_AT_ONCE = 8
"""Reads under way at once while the pls loader reads a rank's part (its THREADS)."""
_SERVED = 0.5
"""Of the largest reader's bytes."""


def compute_loads(ranks: Sequence[Batches], change: Change) -> list[Array]:
    """For each rank the seconds that its batches take, shape (steps,)."""
    least = _bound_step_s(ranks, change)
    if change.exchanged is not None:
        return [_compute_exchanged_load(b, change, least) for b in ranks]
    # Divided, a rank that waits for what another reads takes no longer than that one.
    most = max(float(b.nbytes.sum()) for b in ranks)
    served = [change.divided > 1 and float(b.nbytes.sum()) < _SERVED * most for b in ranks]
    return [
        np.zeros_like(least) if is_served else _compute_load(b, change, least)
        for b, is_served in zip(ranks, served, strict=True)
    ]


def get_workers(batch: Batches, change: Change) -> int:
    """Of the batch's rank. Partial local shuffling reads in the training process."""
    if change.workers is not None:
        return change.workers
    return batch.workers if change.exchanged is None else 0


def _compute_load(batch: Batches, change: Change, least: Array) -> Array:
    """Loading where it is done; bytes come no faster than the storage delivers them to all."""
    latency, transfer = _scale_io(batch, change)
    transfer_s = np.maximum(batch.io_s * transfer, least * max(get_workers(batch, change), 1))
    own_s = batch.decode_s / (change.decode * change.divided)
    read: Array = batch.io_s * latency + transfer_s + own_s
    return read * (1 - change.kept * batch.again)


def _scale_io(batch: Batches, change: Change) -> tuple[float, float]:
    """(latency, transfer) then, as shares of the I/O time now.

    Where they cannot be told apart, the change that helps more takes it all.
    """
    per_byte = 1 / (change.bandwidth * change.divided)
    share = batch.latency_share
    if share is None:
        return 0.0, min(change.latency, per_byte)
    return share * change.latency, (1 - share) * per_byte


def _bound_step_s(ranks: Sequence[Batches], change: Change) -> Array:
    """Seconds in which the storage delivers one step to all ranks.

    Where samples are divided, each group of ranks needs what its largest reader reads now:
    either every rank reads all of it, or one does and gives it away.
    """
    nbytes = np.array([b.nbytes for b in ranks])
    if change.total_bytes_per_s is None:
        return np.zeros(nbytes.shape[1])
    whole = nbytes.sum(0)
    if change.divided > 1:
        whole = nbytes.max(0) * max(len(ranks) / change.divided, 1.0)
    seconds: Array = whole / change.total_bytes_per_s
    return seconds


def _compute_exchanged_load(batch: Batches, change: Change, least: Array) -> Array:
    """Partial local shuffling: all that is read comes first, then what its link cannot hide.

    A portion travels while the step after it loads and computes, so that a batch is handed over
    no sooner than the exchange, which began with the step before, has ended.
    """
    new = 1 - batch.again
    alone_s = float((_compute_load(batch, change, np.zeros_like(new)) * new).sum())
    found = np.zeros_like(new)
    found[0] = max(alone_s / _AT_ONCE, float((least * new).sum()))
    if change.exchanged and change.link_bytes_per_s is not None:
        busy = change.exchanged * batch.nbytes / change.link_bytes_per_s
        found[1:] = np.maximum(busy[1:] - batch.compute_s[:-1], 0.0)
    return found


_AHEAD_SHARE = 0.1
"""Of the time of a rank's reads: less is what a loader reads outside its batches."""


def find_reading_thread(trace: Trace, results: Results, read: Reads) -> str:
    """Why the steps of a rank cannot be replayed; "" where no rank is seen to read ahead."""
    working = {w.trainer for w in results.workers.rows} if results.workers else set()
    clock = results.steps.clock if results.steps else None
    # Reads beside a wait by no more than the clocks differ may lie in it.
    slack_ns = round((clock.uncertainty_s or 0.0) * 1e9) if clock else 0
    for position, spans in group_rank_spans(trace).items():
        process = trace.ranks[position]
        if process in working:
            continue
        # Share of the reads in profiled steps, in time, that no wait covers, clocks being unsure.
        busy = read.of_rank(position).busy
        low, high = spans.steps.start, spans.steps.end
        inside = intersect(busy, intervals.union(low, high))
        near = intervals.union(spans.waits.start - slack_ns, spans.waits.end + slack_ns)
        share = subtract(inside, near).length / inside.length if inside.length else 0.0
        if share >= _AHEAD_SHARE:
            return (
                f"{percent(share)} of the dataset reads of {trace.processes[process].label} ran "
                "outside its input waits, and it has no worker processes: a thread of the training "
                "process reads ahead (tf.data, grain, a prefetch thread). How many threads read, "
                "and how many batches ahead, is not recorded, so no step time is predicted; "
                "measure a change with vanidl ab"
            )
    return ""
