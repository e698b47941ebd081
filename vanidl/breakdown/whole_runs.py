"""The storage of whole runs, of every rank: by counters, heat maps and busy times.

A run of counters alone has no more: nothing in it has a place in time.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.coverage import Coverage
from vanidl.analyses.results import Results
from vanidl.breakdown import (
    windows,
)
from vanidl.breakdown.account import CALLS, RUN, TRACED, Breakdown, CellTable
from vanidl.breakdown.assumptions import BINS_HOLD_ALL, NOT_MAPPED
from vanidl.breakdown.causes import (
    BLOCKED,
    COMMUNICATION,
    COMPUTE,
    EXCHANGE,
    HOST_CPU,
    METADATA,
    OBJECT,
    STORAGE,
    SYNC,
    TOO_FEW_CORES,
)
from vanidl.breakdown.sources import counters
from vanidl.breakdown.sources.counters import ALL, StorageBounds
from vanidl.model import intervals
from vanidl.model.trace import SpanKind, Trace
from vanidl.model.warnings import (
    DAMAGED,
    LOST_PROCESSES,
    LOWER_BOUNDS,
    UNREAD,
    UNSEEN,
    serious_codes,
)

Int64Array = NDArray[np.int64]

_COUNTED = {"stdio_untraced"}
"""Calls that are in no trace, and counted."""

_UNCOUNTED = DAMAGED | UNREAD | LOST_PROCESSES | UNSEEN - _COUNTED | {"recording_stopped"}
"""Calls that are in no counter either."""

_ONE_AT_A_TIME = 1e-3  # sum and union of calls apart by less: they came one at a time


class Sources:
    """What the account of whole runs is made from: counters are bounded once."""

    def __init__(self, trace: Trace, results: Results, assume: frozenset[str]) -> None:
        self.trace, self.results, self.assume = trace, results, assume
        # Steps have a place in time, which the window of a host has not.
        has_steps = len(trace.spans) > 0 and bool((trace.spans.kind == SpanKind.STEP).any())
        host_ns = 0 if has_steps else windows.measure_hosts_apart(trace)
        self.hosts_apart = host_ns > 0
        self.window_ns = host_ns or max(trace.job.end_ns - trace.job.start_ns, 0)
        self.busy_ns = dict(
            zip(results.busy, intervals.lengths(results.busy.values()), strict=True)
        )
        """Position of a rank -> how long it was in traced calls."""
        shown = find_serial_processes(trace, results, self.busy_ns)
        lost = _UNCOUNTED & serious_codes(results.coverage.warnings)
        complete = not lost and all(log.whole for log in trace.logs)
        self.bounds = counters.bound_storage(trace, shown, assume, complete=complete)
        notices = results.coverage.warnings
        self.maps_unseen = any(notice.code == "mmap_not_monitored" for notice in notices)
        may_be_whole = not self.maps_unseen or NOT_MAPPED in assume
        self.whole = may_be_whole and is_whole(trace, results.coverage)
        self.unseen: set[int] = set()
        """Positions of ranks that were seen in calls which were neither traced nor counted."""
        self.faults_ns = np.zeros(len(trace.ranks), np.int64)
        """For how long, at most, ranks that were seen in page faults of files were in them."""
        self.threaded: set[int] = set()
        """Positions of ranks in which other threads than that of training called, or may have."""

    def slack_ns(self, position: int) -> int:
        """How long the processes of a rank were in calls that were counted and not traced."""
        return bound_untraced_ns(self.bounds, self.trace, position)


def is_whole(trace: Trace, coverage: Coverage) -> bool:
    """Whether every call of storage was traced or counted, so that no more can have been.

    Only Darshan counts beside tracing, and so knows what its trace lacks. Page faults of mapped
    files it sees in no version of today: that there were none is assumed, and said.
    """
    if not trace.job.counts_apart or (LOWER_BOUNDS - _COUNTED) & serious_codes(coverage.warnings):
        return False
    codes = {notice.code for notice in coverage.warnings}
    # Without counters nobody knows what a trace lacks; of counters alone, all of it.
    traced = [(y.traced_ops, y.counted_ops) for y in coverage.layers if y.traced_ops is not None]
    cut = any(counted is None or ops < counted for ops, counted in traced)
    if "reads_not_seen" in codes or cut or not (traced or trace.counters):
        return False
    return all(log.whole for log in trace.logs)


def find_serial_processes(
    trace: Trace, results: Results, busy_ns: Mapping[int, int] | None = None
) -> NDArray[np.bool_]:
    """Of each process whether its trace, which lacks none, shows that calls come one at a time.

    `busy_ns`: of each rank, where that was added up.
    """
    serial = np.zeros(len(trace.processes), bool)
    traced = [layer.traced_fraction for layer in results.coverage.layers]
    # A call that is missing may have been beside another.
    if any(fraction is not None and fraction < 1 for fraction in traced):
        return serial
    cut = {log.path for log in trace.logs if not log.whole}
    members = np.bincount(trace.family[trace.family >= 0], minlength=len(trace.ranks))
    if busy_ns is None:
        busy_ns = {position: busy.length for position, busy in results.busy.items()}
    for position, process in enumerate(trace.ranks):
        length_ns, total_ns = busy_ns.get(position), results.sum_ns.get(position, 0)
        known = trace.processes[process].log not in cut
        # Calls that never overlap take as long as the time with any of them.
        if length_ns is not None and members[position] == 1 and total_ns and known:
            serial[process] = total_ns - length_ns <= _ONE_AT_A_TIME * total_ns
    return serial


def bound_untraced_ns(bounds: StorageBounds | None, trace: Trace, position: int) -> int:
    """How long the processes of a rank were in calls that were counted and not traced, at most."""
    if bounds is None:
        # A tracer that times every call leaves nothing to counters; of others nobody knows.
        members = np.flatnonzero(trace.family == position).tolist()
        return 0 if all(process in trace.calls for process in members) else 1 << 62
    untraced_s = float(bounds.untraced[position])
    if any(trace.family[process] == position for process in trace.metadata_calls):
        untraced_s -= float(bounds.high[METADATA][position])
    if any(trace.family[process] == position for process in trace.calls):
        untraced_s -= float(bounds.high[SYNC][position])
    return int(np.ceil(max(untraced_s, 0.0) * 1e9)) if np.isfinite(untraced_s) else 1 << 62


def attribute_runs(table: CellTable, sources: Sources) -> None:
    """What counters and traces say of the storage of whole runs, of every rank."""
    trace, bounds, busy = sources.trace, sources.bounds, sources.results.busy
    ranks, window_ns = table.ranks, table.window_ns
    stepless = ~table.observed
    if not ranks:
        return
    # From counters, or heatmaps where there are none.
    low, high = np.zeros(ranks, np.int64), np.full(ranks, window_ns, np.int64)
    assumed: tuple[str, ...] = ()
    evidence: list[str] = []
    if bounds is not None:
        assumed = bounds.assumed
        low = _clip_to_window_ns(bounds.low[ALL], window_ns)
        high = np.maximum(_clip_to_window_ns(bounds.high[ALL], window_ns), low)
        evidence = [counters.EVIDENCE]
    binned = None
    if bounds is None and not busy and BINS_HOLD_ALL in sources.assume:
        binned = counters.bound_by_bins(trace)
    if binned is not None:
        high, evidence = np.maximum(binned, low), [counters.OF_HEATMAPS]
        assumed = (BINS_HOLD_ALL,)
    if sources.maps_unseen and NOT_MAPPED in sources.assume:
        assumed = (NOT_MAPPED, *assumed)
    elif sources.maps_unseen:
        high = np.full(ranks, window_ns, np.int64)
    high = np.minimum(high + sources.faults_ns, window_ns)
    high[list(sources.unseen)] = window_ns
    # From single calls, of ranks without other processes.
    alone = np.bincount(trace.family[trace.family >= 0], minlength=ranks) <= 1
    traced = np.array([sources.busy_ns.get(position, 0) for position in range(ranks)])
    if busy:
        evidence.append(TRACED)
        low = np.maximum(low, np.where(alone, traced, 0))
        slack = np.array([sources.slack_ns(p) for p in range(ranks)], np.int64)
        if sources.whole and stepless.any():
            high = np.maximum(np.where(alone, np.minimum(high, traced + slack), high), low)
    # Together with what is known from steps.
    had_low, had_high = table.of(f"{RUN}/{STORAGE}")
    had_high = np.where(stepless, window_ns, had_high)
    # What other threads did is in counters and busy times, and nothing that training felt.
    of_training = np.where(np.isin(np.arange(ranks), list(sources.threaded)), 0, low)
    new_low = np.where(stepless, low, np.maximum(had_low, np.minimum(of_training, had_high)))
    new_high = np.maximum(np.minimum(had_high, high), new_low)
    table.add(f"{RUN}/{STORAGE}", slice(None), new_low, new_high, evidence, assumed)
    if bounds is not None:
        _bound_storage_parts(table, sources, bounds, assumed, stepless)
    # Of runs without steps any cause may have had what storage left, but for what devices did.
    rest = np.where(stepless, window_ns - new_low, 0)
    for cause in (COMPUTE, COMMUNICATION, HOST_CPU, TOO_FEW_CORES, BLOCKED):
        name = f"{RUN}/{cause}"
        had_low, had_high = table.of(name)
        if stepless.any():
            table.add(name, slice(None), had_low, np.where(stepless, rest, had_high))


def _bound_storage_parts(
    table: CellTable,
    sources: Sources,
    bounds: StorageBounds,
    assumed: tuple[str, ...],
    stepless: NDArray[np.bool_],
) -> None:
    """What counters say of the parts of storage of whole runs."""
    whole_window = np.full(table.ranks, table.window_ns, np.int64)
    for part in CALLS:
        name = f"{RUN}/{STORAGE}.{part}"
        least = _clip_to_window_ns(bounds.low[part], table.window_ns)
        # Sums over threads say nothing of the one that trains.
        least[[p for p in sources.threaded if not stepless[p]]] = 0
        most = np.maximum(_clip_to_window_ns(bounds.high[part], table.window_ns), least)
        # Calls that nothing counted may fill the run.
        most[list(sources.unseen)] = table.window_ns
        had_low, had_high = table.of(name)
        counted_only = part in (SYNC, OBJECT, EXCHANGE)
        had_high = whole_window if counted_only else np.where(stepless, whole_window, had_high)
        lowest = np.minimum(np.maximum(had_low, least), had_high)
        most = np.maximum(np.minimum(had_high, most), lowest)
        if most.any():
            table.add(name, slice(None), lowest, most, (counters.EVIDENCE,), assumed)


def _clip_to_window_ns(seconds: NDArray[np.float64], window_ns: int) -> Int64Array:
    """Whole ns of seconds, not more than a window."""
    return np.rint(np.minimum(seconds, window_ns / 1e9) * 1e9).astype(np.int64)


def make_account(table: CellTable, sources: Sources, steps: Int64Array) -> Breakdown:
    """The account that a table of cells holds, with nothing beside them."""
    trace, bounds = sources.trace, sources.bounds
    processes = [trace.processes[p] for p in trace.ranks]
    return Breakdown(
        tuple(p.label for p in processes),
        tuple(p.rank for p in processes),
        sources.window_ns,
        steps,
        table.columns(steps, bounds),
        {} if bounds is None else bounds.layers,
        frozenset() if bounds is None else bounds.outermost,
        hosts_apart=sources.hosts_apart,
        unseen=frozenset(sources.unseen.union(np.flatnonzero(sources.faults_ns).tolist())),
    )
