"""Whose fault an input wait is: that of the fetch that made its batch late, whole.

What lies inside a wait is only what happened to come last. From the wait's start to the end of
the fetch, the wait is divided in the proportions of all that the worker did since the batch was
asked of it; what comes after is delivery, as far as the worker was idle. Without workers all of a
wait is the fetch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.calls import Calls
from vanidl.breakdown import assumptions
from vanidl.breakdown.assumptions import ASKED_AS_IT_WAITED, SOME_WORKER
from vanidl.breakdown.causes import (
    BLOCKED,
    DELIVERY,
    INPUT_CPU,
    METADATA,
    READ,
    STORAGE,
    SYNC,
    TOO_FEW_CORES,
    WORKERS,
    WRITE,
)
from vanidl.model import call_kinds, intervals
from vanidl.model.fetches import Fetches
from vanidl.model.intervals import Intervals
from vanidl.model.trace import Trace

Int64Array = NDArray[np.int64]
Bounds = dict[str, tuple[Int64Array, Int64Array]]
"""Cause, or cause and part as "storage.read" -> at least and at most of each window, ns."""

FREE = "storage at unknown times"
"""The key of traced calls of storage that a wait may have been for, or not."""

FREE_PARTS = "parts of storage at unknown times"
"""The same of calls of which the kind is not known either."""

_OF_FETCHES = (INPUT_CPU, BLOCKED, TOO_FEW_CORES)
"""What a fetch can be at outside of storage."""

_OPEN = "open"  # what each of these may have had


@dataclass(frozen=True, slots=True)
class Served:
    """When one process was in calls of storage, each kind outside of those before it.

    `whole`: no other call of it was in storage but for `slack_ns` in all, at unknown times; where
    not whole the calls are a lower bound.
    """

    reads: Intervals
    writes: Intervals
    metadata: Intervals
    syncs: Intervals
    whole: bool
    slack_ns: int

    @property
    def parts(self) -> tuple[tuple[str, Intervals], ...]:
        """The kinds of calls by the name of their cell."""
        kinds = (
            (READ, self.reads),
            (WRITE, self.writes),
            (METADATA, self.metadata),
            (SYNC, self.syncs),
        )
        return tuple((f"{STORAGE}.{part}", times) for part, times in kinds)


def served(trace: Trace, calls: Calls, process: int, whole: bool, slack_ns: int) -> Served:
    """The calls of one process."""
    reads, writes = calls.of(process)
    metadata = trace.metadata_calls.get(process, intervals.EMPTY)
    syncs = trace.calls.get(process, {}).get(call_kinds.SYNC, intervals.EMPTY)
    for data in (reads, writes):
        metadata = intervals.subtract(metadata, data) if len(metadata.start) else metadata
        syncs = intervals.subtract(syncs, data) if len(syncs.start) else syncs
    syncs = intervals.subtract(syncs, metadata) if len(syncs.start) else syncs
    return Served(reads, writes, metadata, syncs, whole, slack_ns)


def outside(of: Served, covered: Intervals) -> Served:
    """The calls as far as nothing else covers them."""
    if not len(covered.start):
        return of
    reads, writes, metadata, syncs = (intervals.subtract(times, covered) for _, times in of.parts)
    return Served(reads, writes, metadata, syncs, of.whole, of.slack_ns)


@dataclass(frozen=True, slots=True)
class Divided:
    """At least and at most of waits by cause, and of which of them something was assumed."""

    bounds: Bounds
    assumed: dict[str, NDArray[np.bool_]] = field(default_factory=dict)

    def assume(self, what: str, rows: NDArray[np.bool_]) -> None:
        """Notes that the bounds of some waits rest on it."""
        if rows.any():
            self.assumed[what] = self.assumed.get(what, False) | rows


@dataclass(frozen=True, slots=True)
class Waits:
    """Input waits of one rank; `mine` are those looked at, `row` is of the fetch each took."""

    mine: NDArray[np.bool_]
    row: Int64Array
    start: Int64Array
    end: Int64Array
    felt: Intervals | None


def divide_waits(
    trace: Trace,
    position: int,
    start: Int64Array,
    end: Int64Array,
    of_process: Mapping[int, Served],
    felt: Intervals | None,
    assume: frozenset[str] = assumptions.ALL,
) -> Divided:
    """At least and at most of each input wait of one rank by cause.

    Args:
        trace: the run.
        position: of the rank in Trace.ranks.
        start: of each wait, ns since the epoch; disjoint, ascending.
        end: of each wait.
        of_process: the calls of each process that trains or fetches.
        felt: the waits less what a device computed or copied meanwhile; None: all of them.
        assume: what may be assumed.
    """
    trainer = trace.ranks[position]
    fetches = trace.fetches.pick(trace.fetches.trainer == trainer)
    taken = fetches.pick(fetches.wait_end > fetches.wait_begin)
    row = _fetch_of_waits(taken, start, end)
    length = _felt_within(felt, start, end)
    bounds = {cause: (np.zeros_like(length), np.zeros_like(length)) for cause in _names()}
    divided = Divided(bounds)
    known = row >= 0
    own = np.zeros(len(start), bool)
    own[known] = taken.worker[row[known]] < 0
    if not has_workers(trace, trainer, fetches):
        own |= ~known
    _within_the_process(bounds, own, start, end, length, of_process[trainer])
    waits = Waits(known & ~own, row, start, end, felt)
    _by_workers(divided, waits, taken, fetches, of_process, trace, assume)
    lost = ~known & ~own
    if lost.any():
        _by_some_worker(divided, lost, start, end, length, of_process, trace, trainer, assume)
    # Which of these a fetch was at takes an account of its time: each may be all that is open.
    opened = bounds.pop(_OPEN)
    bounds |= dict.fromkeys(_OF_FETCHES, opened)
    return divided


def _names() -> tuple[str, ...]:
    parts = (f"{STORAGE}.{part}" for part in (READ, WRITE, METADATA, SYNC))
    return (STORAGE, *parts, DELIVERY, WORKERS, FREE, FREE_PARTS, _OPEN)


def _felt_within(felt: Intervals | None, start: Int64Array, end: Int64Array) -> Int64Array:
    return end - start if felt is None else intervals.covered_within(felt, start, end)


def _fetch_of_waits(taken: Fetches, start: Int64Array, end: Int64Array) -> Int64Array:
    """The row of the fetch whose batch each wait took, -1 for none: that which ended last."""
    row = np.full(len(start), -1)
    if len(taken) and len(start):
        place = np.searchsorted(start, (taken.wait_begin + taken.wait_end) // 2, side="right") - 1
        inside = (place >= 0) & (taken.wait_end <= end[np.maximum(place, 0)])
        rows = np.flatnonzero(inside)
        rows = rows[np.argsort(taken.end[rows], kind="stable")]
        row[place[rows]] = rows  # of several the last one assigned ended last
    return row


def has_workers(trace: Trace, trainer: int, fetches: Fetches) -> bool:
    """Whether other processes fetched for a rank, or may have."""
    return bool((fetches.worker >= 0).any()) or any(
        p.role == "worker" and p.trainer == trainer for p in trace.processes
    )


def _within_the_process(
    bounds: Bounds,
    mine: NDArray[np.bool_],
    start: Int64Array,
    end: Int64Array,
    length: Int64Array,
    own: Served,
) -> None:
    """Waits whose fetch ran in the training thread: its calls are the storage, the rest is open."""
    if not mine.any():
        return
    low, high = start[mine], end[mine]
    total = np.zeros(len(low), np.int64)
    open_ns = length[mine].copy()
    for name, times in own.parts:
        spent = intervals.covered_within(times, low, high)
        bounds[name][0][mine] += spent
        total += spent
    open_ns = np.maximum(open_ns - total, 0)
    slack = np.minimum(open_ns, own.slack_ns) if own.whole else open_ns
    for name, _ in own.parts:
        bounds[name][1][mine] = bounds[name][0][mine] + slack
    bounds[STORAGE][0][mine] = total
    bounds[STORAGE][1][mine] = total + slack
    bounds[_OPEN][1][mine] = open_ns


def _by_some_worker(
    divided: Divided,
    lost: NDArray[np.bool_],
    start: Int64Array,
    end: Int64Array,
    length: Int64Array,
    of_process: Mapping[int, Served],
    trace: Trace,
    trainer: int,
    assume: frozenset[str],
) -> None:
    """Waits for batches of which nobody knows who fetched them.

    Who waits finds the queue empty, so that every worker is at work. It was one of them that the
    wait was for: what that did meanwhile lies between the least and the most of any (assumed to
    be like all that its fetch did). Without the log of each worker nothing is known.
    """
    bounds, low, high, free = divided.bounds, start[lost], end[lost], length[lost]
    workers = [
        (process, each)
        for process, each in enumerate(trace.processes)
        if each.role == "worker" and each.trainer == trainer
    ]
    least = np.full(len(low), np.iinfo(np.int64).max)
    most = np.zeros(len(low), np.int64)
    seen = np.zeros(len(low), bool)
    whole, slack_ns = bool(workers), 0
    for process, each in workers:
        calls = of_process.get(process)
        if calls is None or not calls.whole or not each.log:
            whole = False
            continue
        alive = (each.start_ns is None) | (low >= (each.start_ns or 0))
        alive &= (each.end_ns is None) | (high <= (each.end_ns or 0))
        spent = sum(
            (intervals.covered_within(times, low, high) for _, times in calls.parts),
            np.zeros(len(low), np.int64),
        )
        slack_ns = max(slack_ns, calls.slack_ns)
        least = np.where(alive, np.minimum(least, spent), least)
        most = np.where(alive, np.maximum(most, spent), most)
        seen |= alive
    known = seen & whole & (SOME_WORKER in assume)
    rests = np.zeros(len(lost), bool)
    rests[lost] = known
    divided.assume(SOME_WORKER, rests)
    least, most = np.where(known, np.minimum(least, free), 0), np.where(known, most, free)
    most = np.minimum(np.maximum(most, least), free)
    slack = np.minimum(free - most, slack_ns)
    bounds[STORAGE][0][lost] = least
    bounds[STORAGE][1][lost] = most + slack
    for part in (READ, WRITE, METADATA, SYNC):
        bounds[f"{STORAGE}.{part}"][1][lost] = most + slack
    bounds[FREE][1][lost] = most - least
    bounds[FREE_PARTS][1][lost] = most
    for cause in (DELIVERY, WORKERS, _OPEN):
        bounds[cause][1][lost] = free - least


def _by_workers(
    divided: Divided,
    these: Waits,
    taken: Fetches,
    fetches: Fetches,
    of_process: Mapping[int, Served],
    trace: Trace,
    assume: frozenset[str],
) -> None:
    """Waits for batches of workers, worker by worker."""
    bounds, mine, row = divided.bounds, these.mine, these.row
    start, end, felt = these.start, these.end, these.felt
    asked, is_known = _asked_ns(taken, start, row)
    divided.assume(ASKED_AS_IT_WAITED, mine & ~is_known & (ASKED_AS_IT_WAITED in assume))
    process = np.where(row >= 0, taken.process[np.maximum(row, 0)], -1) if len(taken) else row
    for each in np.unique(process[mine]).tolist():
        waits = np.flatnonzero(mine & (process == each))
        low, high = start[waits], end[waits]
        ready = np.clip(taken.end[row[waits]], low, high)
        late, delivered = _felt_within(felt, low, ready), _felt_within(felt, ready, high)
        at_work = _fetching(fetches, each)
        since = np.minimum(asked[waits], low)
        begun = trace.processes[each].start_ns if each >= 0 else None
        first = int(at_work.start[0]) if len(at_work.start) else 0
        starting = np.zeros(len(waits), np.int64)
        if begun is not None and begun < first:
            # The process came to be for this loader: its start is part of what made the batch late.
            starting = np.clip(np.minimum(first, ready) - np.maximum(begun, since), 0, None)
        until = np.maximum(taken.end[row[waits]], since)
        worked = intervals.covered_within(at_work, since, until)
        calls = of_process.get(each)
        parts = (
            {}
            if calls is None
            else {
                name: intervals.covered_within(intervals.intersect(times, at_work), since, until)
                for name, times in calls.parts
            }
        )
        did = worked + starting
        if ASKED_AS_IT_WAITED not in assume:
            unknown = ~is_known[waits]
            _leave_open(bounds, waits[unknown], late[unknown])
            late = np.where(unknown, 0, late)
        _share(bounds, waits, late, did, starting, worked, parts, calls)
        _deliver(bounds, waits, delivered, at_work, ready, high, calls)


def _leave_open(bounds: Bounds, waits: Int64Array, late: Int64Array) -> None:
    """What made these late began nobody knows when: it may have been anything."""
    for cause in (WORKERS, STORAGE, _OPEN, FREE, FREE_PARTS):
        bounds[cause][1][waits] += late
    for part in (READ, WRITE, METADATA, SYNC):
        bounds[f"{STORAGE}.{part}"][1][waits] += late


def _share(
    bounds: Bounds,
    waits: Int64Array,
    late: Int64Array,
    did: Int64Array,
    starting: Int64Array,
    worked: Int64Array,
    parts: Mapping[str, Int64Array],
    calls: Served | None,
) -> None:
    """Divides the part of waits before a fetch ended in the proportions of what its worker did."""
    whole = np.maximum(did, 1)

    def portion(of: Int64Array) -> Int64Array:
        return np.floor(late * (of / whole)).astype(np.int64)  # what is left over stays open

    nobody = did == 0
    of_start = np.where(nobody, 0, portion(starting))
    bounds[WORKERS][0][waits] += of_start
    bounds[WORKERS][1][waits] += np.where(nobody, late, of_start)
    shares = {name: portion(np.minimum(spent, worked)) for name, spent in parts.items()}
    in_storage = sum(shares.values(), np.zeros(len(waits), np.int64))
    bounds[STORAGE][0][waits] += in_storage
    open_ns = np.maximum(late - of_start - in_storage, 0)
    if calls is None or not calls.whole:
        slack = open_ns
    else:
        most = np.full(len(waits), calls.slack_ns, np.int64)
        slack = np.minimum(open_ns, portion(np.minimum(most, whole)))
    bounds[STORAGE][1][waits] += in_storage + slack
    for part in (READ, WRITE, METADATA, SYNC):
        name = f"{STORAGE}.{part}"
        share = shares.get(name, 0)
        bounds[name][0][waits] += share
        bounds[name][1][waits] += share + slack
    bounds[_OPEN][1][waits] += open_ns


def _deliver(
    bounds: Bounds,
    waits: Int64Array,
    delivered: Int64Array,
    at_work: Intervals,
    ready: Int64Array,
    high: Int64Array,
    calls: Served | None,
) -> None:
    """What follows a fetch: delivery as far as its worker was idle, and may be its next work."""
    busy = np.minimum(intervals.covered_within(at_work, ready, high), delivered)
    bounds[DELIVERY][0][waits] += delivered - busy
    bounds[DELIVERY][1][waits] += delivered
    most = np.zeros(len(waits), np.int64)
    for name, times in () if calls is None else calls.parts:
        spent = np.minimum(intervals.covered_within(times, ready, high), busy)
        bounds[name][1][waits] += spent
        most += spent
    if calls is None or not calls.whole:
        most = busy
    bounds[STORAGE][1][waits] += np.minimum(most, busy)
    bounds[FREE][1][waits] += np.minimum(most, busy)
    bounds[FREE_PARTS][1][waits] += np.minimum(most, busy)
    bounds[_OPEN][1][waits] += busy


def _fetching(fetches: Fetches, process: int) -> Intervals:
    mine = fetches.process == process
    return intervals.union(fetches.begin[mine], fetches.end[mine])


def _asked_ns(
    taken: Fetches, start: Int64Array, row: Int64Array
) -> tuple[Int64Array, NDArray[np.bool_]]:
    """When the batch of each wait was asked of its worker, and whether that is known.

    A loader asks for a batch when it hands over the one that lies workers x prefetch_factor
    before it; for its first ones when it begins an epoch. What is not known is the wait's start.
    """
    asked, is_known = start.copy(), np.zeros(len(start), bool)
    known = np.flatnonzero(row >= 0)
    if not len(known):
        return asked, is_known
    of_wait = row[known]
    for name in np.unique(taken.name[of_wait]).tolist():
        mine = known[taken.name[of_wait] == name]
        for epoch in np.unique(taken.epoch[row[mine]]).tolist():
            waits = mine[taken.epoch[row[mine]] == epoch]
            batches = np.flatnonzero((taken.name == name) & (taken.epoch == epoch))
            batches = batches[np.argsort(taken.wait_end[batches], kind="stable")]
            ahead = int(taken.ahead[batches].max())
            if ahead <= 0:
                continue
            place = np.searchsorted(
                taken.wait_end[batches], taken.wait_end[row[waits]], side="left"
            )
            before = np.maximum(place - ahead, 0)
            born = int(min(start[waits].min(), taken.wait_begin[batches[0]]))
            moment = np.where(place >= ahead, taken.wait_end[batches[before]], born)
            asked[waits] = np.minimum(moment, start[waits])
            is_known[waits] = True
    return asked, is_known
