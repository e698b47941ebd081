"""What a run's step time would be under changed input: any change, and a table of usual ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from vanidl.advice.batches import Array, Batches, batches, can_replay, step_lengths
from vanidl.advice.levers import EVERY_WORKER, NO_GAIN, Change, Predicted, WhatIf, call_of_change
from vanidl.advice.reads import Reads, fit_throughput, reads
from vanidl.analyses import Results
from vanidl.analyses.dataloader_batches import PREFETCH_FACTOR
from vanidl.analyses.dataset import read_by_all
from vanidl.analyses.steps import RankSpans, rank_spans
from vanidl.breakdown import Breakdown
from vanidl.breakdown.rerun import Settings, measure, rerun
from vanidl.errors import UsageError
from vanidl.formatting.units import percent, plural
from vanidl.model import intervals
from vanidl.model.intervals import Intervals, intersect, subtract
from vanidl.model.trace import Trace

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

HANDING_OVER_S = 0.6e-3
"""Of a small batch from a worker to the training process (torch 2.8, two cores): steps of 67 us on
tensors in memory took 675 us with a worker."""
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
    read = reads(trace)
    ranks = batches(trace, results, account, read)
    if refused := find_reading_thread(trace, results, read):
        return WhatIf(_mean_s(ranks), None, (), (), refused)
    replayed_s = _step_s(ranks, Change())
    alone_s = float(np.max([b.compute_s for b in ranks], axis=0).mean())
    rows = [_row("no input wait at all", alone_s, ranks, replayed_s)]
    changes = _usual(ranks, _SPLIT if trace.streams else "") + _shared(ranks, results, account)
    peak = fit_throughput(trace)
    for name, change in changes:
        row = _levered(_row(name, _step_s(ranks, change), ranks, replayed_s), change, trace)
        if peak is not None and change.total_bytes_per_s is None and row.lever == "workers":
            limited = replace(change, total_bytes_per_s=peak.peak_bytes_per_s)
            if peak.saturated:  # then that is what comes of it
                row = _levered(
                    _row(name, _step_s(ranks, limited), ranks, replayed_s), change, trace
                )
            row = replace(row, step_at_most_s=max(_step_s(ranks, limited), row.step_s))
        rows.append(row)
    rows = [r for i, r in enumerate(rows) if i == 0 or not _adds_nothing(r, rows[i - 1])]
    rows = [r for r in rows if r.gain_at_most_s > 0]
    of_streams = (EVERY_WORKER,) if trace.streams else ()
    return WhatIf(_mean_s(ranks), replayed_s, tuple(rows), (*ASSUMPTIONS, *of_streams))


def predict(trace: Trace, results: Results, account: Breakdown, change: Change) -> Predicted:
    """Mean step time under one change.

    Raises:
        UsageError: the run lacks steps, input waits or single reads to replay, or a thread
            reads ahead.
    """
    if not can_replay(trace, results, account):
        raise UsageError(
            "expected profiled steps with input waits and traced reads, found a run without: "
            "record it with the PyTorch profiler and DXT or DFTracer."
        )
    read = reads(trace)
    if refused := find_reading_thread(trace, results, read):
        raise UsageError(f"expected a run whose loading can be replayed, found that {refused}.")
    ranks = batches(trace, results, account, read)
    replayed_s = _step_s(ranks, Change())
    return _row("as asked", _step_s(ranks, change), ranks, replayed_s)


def _usual(ranks: tuple[Batches, ...], of_workers: str) -> list[tuple[str, Change]]:
    most = max(b.workers for b in ranks)
    rows = [
        (f"{plural(n, 'worker')}{_PER_RANK}{of_workers if n > 1 else ''}", Change(workers=n))
        for n in _MOST_WORKERS
        if n > most
    ]
    if most:
        rows.append(("twice as many batches read ahead", Change(ahead=2 * PREFETCH_FACTOR)))
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


def _shared(
    ranks: tuple[Batches, ...], results: Results, account: Breakdown
) -> list[tuple[str, Change]]:
    """What several ranks can do about reading."""
    if len(ranks) < 2:
        return []
    epochs = len(account.phases.epochs) if account.phases else 0
    if results.dataset is not None and read_by_all(results.dataset, epochs):
        name = f"each of {len(ranks)} ranks reads its block of a sample (spatial)"
        return [(name, Change(divided=len(ranks)))]
    if not any(b.again.any() for b in ranks):
        return []
    return [("each rank keeps its part and exchanges 10 % (pls)", Change(exchanged=0.1))]


def _adds_nothing(row: Predicted, before: Predicted) -> bool:
    """Whether more workers than in the row before change nothing."""
    of_workers = row.lever == before.lever == "workers"
    return of_workers and row.ratio > before.ratio - 0.005


def _row(name: str, step_s: float, ranks: tuple[Batches, ...], replayed_s: float) -> Predicted:
    now = _mean_s(ranks)
    shorter = min(now, replayed_s) - step_s >= NO_GAIN * now
    gain = (now - step_s) * len(ranks[0].step_s) if shorter else 0.0
    return Predicted(name, step_s, step_s / now, gain)


def _levered(row: Predicted, change: Change, trace: Trace) -> Predicted:
    """The row with what was changed, of two fields the first, and the loader that changes it."""
    for field in fields(Change):
        if (value := getattr(change, field.name)) != field.default:
            ranks, hosts = len(trace.ranks), len(trace.hosts)
            call = call_of_change(field.name, value, ranks=ranks, hosts=hosts)
            return replace(row, lever=field.name, amount=value, loader=call)
    return row


def _mean_s(ranks: tuple[Batches, ...]) -> float:
    return float(np.mean([b.step_s.mean() for b in ranks]))


def _step_s(ranks: tuple[Batches, ...], change: Change) -> float:
    """Mean length of a step under a change."""
    loaded_s = loads(ranks, change)
    handing_s = HANDING_OVER_S if change.workers and not ranks[0].workers else 0.0
    pipelines = [b.fetched for b in ranks if b.fetched is not None]
    if not pipelines:
        queues = [(workers(b, change), change.ahead or PREFETCH_FACTOR) for b in ranks]
        computes = [b.compute_s + handing_s for b in ranks]
        return float(step_lengths(loaded_s, computes, ranks[0].first, queues).mean())
    others = [None if workers(b, change) == b.workers else workers(b, change) for b in ranks]
    settings = Settings(
        workers=others if any(n is not None for n in others) else None,
        prefetch=change.ahead,
        fetch_ns=[seconds * 1e9 for seconds in loaded_s],
    )
    longer_ns = rerun(pipelines, settings).total_ns - measure(pipelines).recorded_ns
    return _mean_s(ranks) + longer_ns / 1e9 / len(ranks[0].step_s) + handing_s


_AT_ONCE = 8
"""Reads under way at once while the pls loader reads a rank's part (its THREADS)."""
_SERVED = 0.5
"""Of the largest reader's bytes."""


def loads(ranks: Sequence[Batches], change: Change) -> list[Array]:
    """For each rank the seconds that its batches take, shape (steps,)."""
    least = _least_s(ranks, change)
    if change.exchanged is not None:
        return [_exchanged(b, change, least) for b in ranks]
    most = max(float(b.nbytes.sum()) for b in ranks)
    return [
        np.zeros_like(least)
        if change.divided > 1 and _is_served(b, most)
        else _load(b, change, least)
        for b in ranks
    ]


def _is_served(batch: Batches, most_nbytes: float) -> bool:
    """Whether the rank waits for what another reads: as divided, it takes no longer than that."""
    return float(batch.nbytes.sum()) < _SERVED * most_nbytes


def workers(batch: Batches, change: Change) -> int:
    """Of the batch's rank. Partial local shuffling reads in the training process."""
    if change.workers is not None:
        return change.workers
    return batch.workers if change.exchanged is None else 0


def _load(batch: Batches, change: Change, least: Array) -> Array:
    """Loading where it is done; bytes come no faster than the storage delivers them to all."""
    latency, transfer = _slower(batch, change)
    transfer_s = np.maximum(batch.io_s * transfer, least * max(workers(batch, change), 1))
    own_s = batch.decode_s / (change.decode * change.divided)
    read: Array = batch.io_s * latency + transfer_s + own_s
    return read * (1 - change.kept * batch.again)


def _slower(batch: Batches, change: Change) -> tuple[float, float]:
    """(latency, transfer) then, as shares of the I/O time now.

    Where they cannot be told apart, the change that helps more takes it all.
    """
    per_byte = 1 / (change.bandwidth * change.divided)
    share = batch.latency_share
    if share is None:
        return 0.0, min(change.latency, per_byte)
    return share * change.latency, (1 - share) * per_byte


def _least_s(ranks: Sequence[Batches], change: Change) -> Array:
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


def _exchanged(batch: Batches, change: Change, least: Array) -> Array:
    """Partial local shuffling: all that is read comes first, then what its link cannot hide.

    A portion travels while the step after it loads and computes, so that a batch is handed over
    no sooner than the exchange, which began with the step before, has ended.
    """
    new = 1 - batch.again
    alone_s = float((_load(batch, change, np.zeros_like(new)) * new).sum())
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
    slack_ns = round((clock.uncertainty_s or 0.0) * 1e9) if clock else 0
    for position, spans in rank_spans(trace).items():
        process = trace.ranks[position]
        if process in working:
            continue
        share = _outside_waits(spans, read.of_rank(position).busy, slack_ns)
        if share >= _AHEAD_SHARE:
            return (
                f"{percent(share)} of the dataset reads of {trace.processes[process].label} ran "
                "outside its input waits, and it has no worker processes: a thread of the training "
                "process reads ahead (tf.data, grain, a prefetch thread). How many threads read, "
                "and how many batches ahead, is not recorded, so no step time is predicted; "
                "measure a change with vanidl ab"
            )
    return ""


def _outside_waits(spans: RankSpans, busy: Intervals, slack_ns: int) -> float:
    """Share of the reads in profiled steps, in time, that no wait covers, clocks being unsure."""
    low, high = spans.steps.start, spans.steps.end
    inside = intersect(busy, intervals.union(low, high))
    near = intervals.union(spans.waits.start - slack_ns, spans.waits.end + slack_ns)
    return subtract(inside, near).length / inside.length if inside.length else 0.0
