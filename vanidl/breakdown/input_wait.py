"""Whose fault an input wait is: that of the fetch that made its batch late, whole.

What lies inside a wait is only what happened to come last. From the wait's start to the end of
the fetch, the wait is divided in the proportions of all that the worker did since the batch was
asked of it; what comes after is delivery, as far as the worker was idle. Without workers all of a
wait is the fetch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.operations import Calls
from vanidl.breakdown import assumptions
from vanidl.breakdown.assumptions import ASKED_AS_IT_WAITED, ONE_CLOCK, ONE_THREAD, SOME_WORKER
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
from vanidl.model.intervals import Intervals
from vanidl.model.trace import Fetches, Process, Profile, Trace
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]
Bounds = dict[str, tuple[Int64Array, Int64Array]]
"""Cause, or cause and part as "storage.read" -> at least and at most of each window, ns."""

FREE = "storage at unknown times"
"""The key of traced calls of storage that a wait may have been for, or not."""

FREE_PARTS = "parts of storage at unknown times"
"""The same of calls of which the kind is not known either."""

_OF_FETCHES = (INPUT_CPU, BLOCKED, TOO_FEW_CORES)
"""What a fetch can be at outside of storage."""

OF_CPU = SAMPLES, COLLATE, SAMPLER = (
    f"{INPUT_CPU}.samples",
    f"{INPUT_CPU}.collate",
    f"{INPUT_CPU}.sampler",
)
"""Both parts of a fetch that its marks tell apart, and what of `__next__` is neither."""

_AGREED_NS = 1_000_000  # to which clocks are read at best, whatever the tracers are
_EDGE_NS = 200_000  # by which a call goes on beyond the border of a wait, at least
_THREADED = ("xplane",)  # TensorFlow's profiler: tf.data reads in threads of its own
_CROSSED, _CROSSED_SHARE = 3, 0.02  # borders that show another thread at work; of all borders
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
    early_ns: int = 0
    late_ns: int = 0
    """By how much all calls may lie earlier (below 0) or later on the clock of the marks."""
    unsure: frozenset[str] = frozenset()
    """Kinds of calls that may be of other threads than the one that is looked at."""
    beside: Intervals = intervals.EMPTY
    """Calls that are: of threads that may read ahead for it."""
    one_thread: bool = False
    """Whether no call is unsure because that was assumed."""

    def within(
        self, times: Intervals, start: Int64Array, end: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """How much of each window some of its calls take: at least, and at most."""
        if self.early_ns == self.late_ns == 0:
            spent = intervals.covered_within(times, start, end)
            return spent, spent
        first = start - self.early_ns
        low = intervals.covered_within(times, first, np.maximum(end - self.late_ns, first))
        high = intervals.covered_within(times, start - self.late_ns, end - self.early_ns)
        return low, np.minimum(high, end - start)

    @property
    def is_threaded(self) -> bool:
        """Whether other threads called, or may have."""
        return bool(self.unsure) or len(self.beside.start) > 0

    def within_all(
        self, times: Intervals, of: Intervals, start: Int64Array, end: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """The same of what lies in a set of times, too."""
        begin, stop = of.start - self.early_ns, of.end - self.late_ns
        inner = Intervals(begin[begin < stop], stop[begin < stop])
        outer = intervals.union(of.start - self.late_ns, of.end - self.early_ns)
        low, _ = self.within(intervals.intersect(times, inner), start, end)
        _, high = self.within(intervals.intersect(times, outer), start, end)
        return low, high

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


def collect_storage_calls(
    trace: Trace,
    calls: Calls,
    process: int,
    whole: bool,
    slack_ns: int,
    assume: frozenset[str] = assumptions.ALL,
    waits: Intervals = intervals.EMPTY,
) -> Served:
    """The calls of one process; `waits`: when it waited for input, where it trains."""
    # Each kind of call as far as no kind before it covers it.
    reads, writes = calls.of(process)
    metadata = trace.metadata_calls.get(process, intervals.EMPTY)
    syncs = trace.calls.get(process, {}).get(call_kinds.SYNC, intervals.EMPTY)
    for data in (reads, writes):
        metadata = intervals.subtract(metadata, data) if len(metadata.start) else metadata
        syncs = intervals.subtract(syncs, data) if len(syncs.start) else syncs
    syncs = intervals.subtract(syncs, metadata) if len(syncs.start) else syncs
    early_ns, late_ns = find_shift(trace, process, ONE_CLOCK in assume)
    found = Served(reads, writes, metadata, syncs, whole, slack_ns, early_ns, late_ns)
    if trace.processes[process].role != "trainer":
        return found

    # Whether other threads than that of training called.
    beside = calls.elsewhere.get(process)
    if beside is not None:  # threads were recorded, but not of calls that move no data
        others = len(beside.start) > 0
        unsure = {f"{STORAGE}.{METADATA}", f"{STORAGE}.{SYNC}"}
        if not others and (whole or ONE_THREAD in assume):
            unsure = set()
        return replace(found, unsure=frozenset(unsure), beside=beside, one_thread=not whole)
    margin = max(_EDGE_NS, -early_ns, late_ns)
    several = len(calls.threads.get(process, ())) > 1 or _has_calls_across_waits(
        _unite_calls(found), waits, margin
    )
    several |= any(p.source in _THREADED for p in trace.profiles_of.get(process, ()))
    if several or ONE_THREAD not in assume:
        return replace(found, unsure=frozenset(name for name, _ in found.parts))
    return replace(found, one_thread=len(calls.threads.get(process, ())) != 1)


def _unite_calls(found: Served) -> Intervals:
    """All calls of a process."""
    return _unite([times for _, times in found.parts])


def unite_calls_of_threads(trace: Trace, calls: Calls, process: int) -> Intervals:
    """When any thread of a process was in a traced call of storage."""
    metadata = trace.metadata_calls.get(process, intervals.EMPTY)
    syncs = trace.calls.get(process, {}).get(call_kinds.SYNC, intervals.EMPTY)
    beside = calls.elsewhere.get(process, intervals.EMPTY)
    return _unite([*calls.of(process), metadata, syncs, beside])


def _unite(sets: Sequence[Intervals]) -> Intervals:
    """The times in any of some sets; a set that is alone is not sorted again."""
    every = [times for times in sets if len(times.start)]
    if len(every) < 2:
        return every[0] if every else intervals.EMPTY
    start, end = (np.concatenate(side) for side in zip(*every, strict=True))
    return intervals.union(start, end)


def _has_calls_across_waits(calls: Intervals, waits: Intervals, margin: int) -> bool:
    """Whether calls go on while waits begin or end: no thread calls and waits at once."""
    edges = np.concatenate([waits.start, waits.end])
    if not len(edges) or not len(calls.start):
        return False
    place = np.maximum(np.searchsorted(calls.start, edges, side="right") - 1, 0)
    crossed = (calls.start[place] + margin < edges) & (edges < calls.end[place] - margin)
    return int(crossed.sum()) >= max(_CROSSED, _CROSSED_SHARE * len(edges))


def find_shift(trace: Trace, process: int, as_one: bool) -> tuple[int, int]:
    """By how much calls of a process may lie earlier or later among the marks of its loop.

    `as_one`: what two clocks may always differ by is taken for nothing.
    """
    trainer, one = trace.processes[process].trainer, trace.processes[process]
    early_ns, late_ns = _open_ns(one, as_one)
    profiles = () if trainer is None else trace.profiles_of.get(trainer, ())
    loops = [profile for profile in profiles if profile.has_wait_spans]
    if not loops or not (one.log or one.clock_low_ns or one.clock_high_ns):
        return early_ns, late_ns
    marks = [_open_ns(profile, as_one) for profile in loops]
    early = early_ns - max(late for _, late in marks)
    return early, late_ns - min(early for early, _ in marks)


def _open_ns(clock: Process | Profile, as_one: bool) -> tuple[int, int]:
    """How far the true offset of a clock may lie from the one that was taken."""
    agreed = _AGREED_NS if as_one else 0
    low_ns = clock.clock_low_ns - clock.clock_offset_ns
    high_ns = clock.clock_high_ns - clock.clock_offset_ns
    return (low_ns if low_ns < -agreed else 0), (high_ns if high_ns > agreed else 0)


def has_open_clock(trace: Trace, position: int) -> bool:
    """Whether the calls of a rank may lie elsewhere among its marks than where they were put."""
    members = np.flatnonzero(trace.family == position).tolist()
    return any(find_shift(trace, process, as_one=False) != (0, 0) for process in members)


def subtract_covered(of: Served, covered: Intervals) -> Served:
    """The calls as far as nothing else covers them."""
    if not len(covered.start):
        return of
    reads, writes, metadata, syncs = (intervals.subtract(times, covered) for _, times in of.parts)
    return replace(of, reads=reads, writes=writes, metadata=metadata, syncs=syncs)


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
    """Input waits of one rank; `mine` are those looked at, `row` is of the fetch each took.

    `marked`: every fetch was, so that workers are idle outside of those that are known.
    """

    mine: NDArray[np.bool_]
    row: Int64Array
    start: Int64Array
    end: Int64Array
    felt: Intervals | None
    marked: bool


def is_complete(fetches: Fetches) -> bool:
    """Whether no number is missing among the batches of an iterator, as far as they are known."""
    key = np.stack([fetches.name, fetches.epoch, fetches.batch])[:, fetches.batch >= 0]
    key = np.unique(key, axis=1)
    same = (np.diff(key[:2], axis=1) == 0).all(axis=0)
    return bool((np.diff(key[2])[same] == 1).all())


def divide_waits(
    trace: Trace,
    position: int,
    start: Int64Array,
    end: Int64Array,
    of_process: Mapping[int, Served],
    felt: Intervals | None,
    assume: frozenset[str] = assumptions.ALL,
    step: Int64Array | None = None,
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
        step: that each wait lies in, -1 for none: each step took a batch; None: not known.
    """
    trainer = trace.ranks[position]
    fetches = trace.fetches.pick(trace.fetches.trainer == trainer)
    taken = fetches.pick(fetches.wait_end > fetches.wait_begin)
    row = fetch_of_waits(taken, start, end)
    length = _measure_felt_ns(felt, start, end)
    known = row >= 0
    own = np.zeros(len(start), bool)
    own[known] = taken.worker[row[known]] < 0
    if not has_workers(trace, trainer, fetches):
        own |= ~known
    # Waits whose fetch ran in the training thread; most runs have no others.
    mine: slice | NDArray[np.bool_] = slice(None) if own.all() else own
    times = start[mine], end[mine], length[mine]
    bounds = _divide_own_fetches(*times, ~known[mine], of_process[trainer])
    if not own.all():
        within, nothing = bounds, np.zeros_like(length)
        bounds = {cause: (nothing.copy(), nothing.copy()) for cause in within}
        for cause, sides in within.items():
            for side, values in zip(bounds[cause], sides, strict=True):
                side[mine] = values
    divided = Divided(bounds)
    of_cpu = {part: length.copy() for part in OF_CPU} if known.any() else {}
    if (own & known).any():
        _split_own_fetches(of_cpu, own & known, taken.pick(row[own & known]), start, end)
    of_workers = known & ~own
    if of_workers.any():
        marked = is_complete(fetches)
        if step is not None:
            marked &= bool(np.isin(step[step >= 0], step[known]).all())
        waits = Waits(of_workers, row, start, end, felt, marked)
        _divide_waits_by_worker(divided, of_cpu, waits, taken, fetches, of_process, trace, assume)
    lost = ~known & ~own
    if lost.any():
        _divide_waits_for_unknown_worker(
            divided, lost, start, end, length, of_process, trace, trainer, assume
        )
    # Which of these a fetch was at takes an account of its time: each may be all that is open.
    opened = bounds.pop(_OPEN)
    bounds |= dict.fromkeys(_OF_FETCHES, opened)
    for part in OF_CPU:
        most = np.minimum(of_cpu[part], opened[1]) if of_cpu else opened[1]
        bounds[part] = np.zeros_like(length), most
    nothing = np.zeros_like(length)  # what is nothing is one array: looked at once
    each = {id(side): side for sides in bounds.values() for side in sides}
    one = {key: side if side.any() else nothing for key, side in each.items()}
    for cause, (low, high) in bounds.items():
        bounds[cause] = one[id(low)], one[id(high)]
    return divided


def _split_own_fetches(
    of_cpu: Mapping[str, Int64Array],
    mine: NDArray[np.bool_],
    fetches: Fetches,
    start: Int64Array,
    end: Int64Array,
) -> None:
    """Lowers what the parts of a fetch have at most, where it ran in the wait itself."""
    low, high = start[mine], end[mine]
    edges = [np.clip(at, low, high) for at in (fetches.begin, fetches.collate, fetches.end)]
    of_cpu[SAMPLES][mine], of_cpu[COLLATE][mine] = np.diff(np.stack(edges), axis=0)
    of_cpu[SAMPLER][mine] = high - low - (edges[2] - edges[0])


def _measure_felt_ns(felt: Intervals | None, start: Int64Array, end: Int64Array) -> Int64Array:
    return end - start if felt is None else intervals.covered_within(felt, start, end)


def fetch_of_waits(taken: Fetches, start: Int64Array, end: Int64Array) -> Int64Array:
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
    """Whether other processes fetched for a rank, or may have: no tracer saw it start any."""
    if (fetches.worker >= 0).any():
        return True
    if not len(fetches) and not trace.processes[trainer].log:
        return True
    return trainer in trace.workers_of


def _divide_own_fetches(
    start: Int64Array,
    end: Int64Array,
    length: Int64Array,
    is_unmarked: NDArray[np.bool_],
    own: Served,
) -> Bounds:
    """Waits whose fetch ran in the training thread: its calls are the storage, the rest is open.

    Where other threads called, a wait whose fetch is not marked may have been for one that reads
    ahead: for as much as it was in storage since the wait before. Cells that nothing tells apart
    share their arrays.
    """
    # What the training thread itself called within the waits.
    zeros = np.zeros_like(length)
    least, most, ahead, delivery = zeros, zeros, zeros, zeros
    parts: Bounds = {name: (zeros, zeros) for name, _ in own.parts}
    for name, times in own.parts:
        if len(times.start):
            at_least, at_most = own.within(times, start, end)
            at_least = zeros if name in own.unsure else at_least
            parts[name] = at_least, at_most
            least, most = least + at_least, most + at_most
    most = np.minimum(most, length) if most is not zeros else zeros
    # What a thread that reads ahead may have called for them.
    if own.is_threaded:
        since = np.append(start[:1] - (end[:1] - start[:1]), end[:-1])
        every = intervals.merge(_unite_calls(own), own.beside)
        ahead = np.minimum(own.within(every, np.minimum(since, start), end)[1], length)
        ahead = np.where(is_unmarked, ahead, 0)  # of any kind
        delivery = np.where(is_unmarked, length - least, 0)
        most = np.maximum(most, ahead)
    # Calls that were not traced fill at most the rest.
    rest = length if most is zeros else length - most
    slack = np.minimum(rest, own.slack_ns) if own.whole else rest
    free = zeros if most is zeros else np.maximum(most - least, 0)
    bounds: Bounds = {STORAGE: (least, slack if most is zeros else most + slack)}
    for name, (at_least, at_most) in parts.items():
        spent = at_most if ahead is zeros else np.maximum(at_most, ahead)
        bounds[name] = at_least, slack if spent is zeros else spent + slack
    left = length if least is zeros else np.maximum(length - least, 0)
    return bounds | {
        DELIVERY: (zeros, delivery),
        WORKERS: (zeros, zeros),
        FREE: (zeros, free),
        FREE_PARTS: (zeros, free),
        _OPEN: (zeros, left),
    }


def _divide_waits_for_unknown_worker(
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
    workers = [(process, trace.processes[process]) for process in trace.workers_of.get(trainer, ())]
    least = np.full(len(low), np.iinfo(np.int64).max)
    most = np.zeros(len(low), np.int64)
    seen = np.zeros(len(low), bool)
    whole, slack_ns = bool(workers), 0
    # The least and the most that any worker alive throughout a wait was in storage.
    for process, each in workers:
        calls = of_process.get(process)
        if calls is None or not calls.whole or not each.log:
            whole = False
            continue
        alive = (each.start_ns is None) | (low >= (each.start_ns or 0))
        alive &= (each.end_ns is None) | (high <= (each.end_ns or 0))
        within = [calls.within(times, low, high) for _, times in calls.parts]
        at_least, at_most = (sum(side) for side in zip(*within, strict=True))
        slack_ns = max(slack_ns, calls.slack_ns)
        least = np.where(alive, np.minimum(least, at_least), least)
        most = np.where(alive, np.maximum(most, at_most), most)
        seen |= alive
    # Without the assumption, or a worker's log, the wait is open.
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


def _divide_waits_by_worker(
    divided: Divided,
    of_cpu: Mapping[str, Int64Array],
    these: Waits,
    taken: Fetches,
    fetches: Fetches,
    of_process: Mapping[int, Served],
    trace: Trace,
    assume: frozenset[str],
) -> None:
    """Waits for batches of workers, worker by worker; `of_cpu`: at most of parts of fetches."""
    bounds, mine, row = divided.bounds, these.mine, these.row
    start, end, felt = these.start, these.end, these.felt
    asked, is_known = find_request_times(taken, start, row, complete=these.marked)
    divided.assume(ASKED_AS_IT_WAITED, mine & ~is_known & (ASKED_AS_IT_WAITED in assume))
    process = np.where(row >= 0, taken.process[np.maximum(row, 0)], -1) if len(taken) else row
    for each in np.unique(process[mine]).tolist():
        waits = np.flatnonzero(mine & (process == each))
        low, high = start[waits], end[waits]
        ready = np.clip(taken.end[row[waits]], low, high)
        late, delivered = _measure_felt_ns(felt, low, ready), _measure_felt_ns(felt, ready, high)
        by_worker = fetches.process == each
        at_work = intervals.union(fetches.begin[by_worker], fetches.end[by_worker])
        since = np.minimum(asked[waits], low)
        until = np.maximum(taken.end[row[waits]], since)

        # What the worker did since the batch was asked of it.
        begun = trace.processes[each].start_ns if each >= 0 else None
        first = int(at_work.start[0]) if len(at_work.start) else 0
        starting = np.zeros(len(waits), np.int64)
        if begun is not None and begun < first:
            # The process came to be for this loader: its start is part of what made the batch late.
            starting = np.clip(np.minimum(first, ready) - np.maximum(begun, since), 0, None)
        worked = intervals.covered_within(at_work, since, until)
        calls = of_process.get(each)
        parts = {}
        if calls is not None:
            parts = {n: calls.within_all(times, at_work, since, until) for n, times in calls.parts}
        # Outside of fetches that were marked it was idle, where none is missing; else at anything.
        unmarked = np.zeros(len(waits), np.int64)
        if not these.marked:
            unmarked = np.maximum(until - since - worked, 0)
        if ASKED_AS_IT_WAITED not in assume:
            unknown = ~is_known[waits]
            _leave_open(bounds, waits[unknown], late[unknown])
            late = np.where(unknown, 0, late)
        did = Did(late, starting, worked, unmarked, parts, calls)
        _divide_late_time(bounds, waits, did)

        # How long it was idle while the batch was on its way.
        idle_ns = 0 * delivered
        if these.marked:
            fetching_ns = intervals.covered_within(at_work, ready, high)
            idle_ns = np.maximum(delivered - fetching_ns, 0)
        _attribute_delivery(bounds, waits, delivered, idle_ns, ready, high, calls)
        if not these.marked:
            continue

        # Of what it was at since the batch was asked for, how much was which part of a fetch.
        did_ns = np.maximum(worked + starting, 1)
        told = is_known[waits] | (ASKED_AS_IT_WAITED in assume)
        begin, collate, end_ns = (
            at[by_worker] for at in (fetches.begin, fetches.collate, fetches.end)
        )
        for part, edges in ((SAMPLES, (begin, collate)), (COLLATE, (collate, end_ns))):
            at_it = intervals.union(*edges)
            share = np.minimum(intervals.covered_within(at_it, since, until) / did_ns, 1)
            most = np.ceil(late * share).astype(np.int64) + delivered - idle_ns
            of_cpu[part][waits] = np.where(told, most, of_cpu[part][waits])
        of_cpu[SAMPLER][waits] = np.where(told, delivered, of_cpu[SAMPLER][waits])


@dataclass(frozen=True, slots=True)
class Did:
    """What workers did since batches were asked of them, ns; one entry a wait in every array."""

    late: Int64Array  # of the wait, up to the end of the fetch
    starting: Int64Array
    worked: Int64Array  # inside of fetches
    unmarked: Int64Array  # at anything, starting too
    parts: Mapping[str, tuple[Int64Array, Int64Array]]  # of storage in fetches: at least, at most
    calls: Served | None


def _leave_open(bounds: Bounds, waits: Int64Array, late: Int64Array) -> None:
    """What made these late began nobody knows when: it may have been anything."""
    for cause in (WORKERS, STORAGE, _OPEN, FREE, FREE_PARTS):
        bounds[cause][1][waits] += late
    for part in (READ, WRITE, METADATA, SYNC):
        bounds[f"{STORAGE}.{part}"][1][waits] += late


def _divide_late_time(bounds: Bounds, waits: Int64Array, did: Did) -> None:
    """Divides the part of waits before a fetch ended in the proportions of what its worker did."""
    late, unmarked = did.late, did.unmarked
    is_open = unmarked > 0
    total = did.worked + np.where(is_open, unmarked, did.starting)
    whole = np.maximum(total, 1)

    def portion(of: Int64Array) -> Int64Array:
        return np.floor(late * (np.minimum(of, whole) / whole)).astype(np.int64)

    # The start of a worker: open where it did nothing that was recorded, or was not marked.
    nobody = total == 0
    of_start = portion(did.starting)
    bounds[WORKERS][0][waits] += np.where(nobody | is_open, 0, of_start)
    bounds[WORKERS][1][waits] += np.where(nobody | is_open, late, of_start)

    # Storage and its parts, as large a share of the wait as of the worker's time.
    shares = {
        name: [portion(np.minimum(side, did.worked)) for side in sides]
        for name, sides in did.parts.items()
    }
    in_storage = sum((low for low, _ in shares.values()), np.zeros(len(waits), np.int64))
    moved = sum((high - low for low, high in shares.values()), np.zeros(len(waits), np.int64))
    bounds[STORAGE][0][waits] += in_storage
    # What is left over by rounding stays open.
    open_ns = np.maximum(late - np.where(is_open, 0, of_start) - in_storage, 0)
    # What storage may be at most: all that is open, where calls may lack some.
    if did.calls is None or not did.calls.whole:
        slack = open_ns
    else:
        most = np.full(len(waits), did.calls.slack_ns, np.int64)
        slack = np.minimum(open_ns, portion(np.minimum(most, whole)))
        of_unmarked = np.minimum(portion(unmarked), open_ns)
        moved = np.minimum(moved + of_unmarked, open_ns)
        slack = np.minimum(slack + moved, open_ns)
        bounds[FREE][1][waits] += moved
        bounds[FREE_PARTS][1][waits] += moved
    bounds[STORAGE][1][waits] += in_storage + slack
    for part in (READ, WRITE, METADATA, SYNC):
        name = f"{STORAGE}.{part}"
        share = shares[name][0] if name in shares else 0
        bounds[name][0][waits] += share
        bounds[name][1][waits] += share + slack
    bounds[_OPEN][1][waits] += open_ns


def _attribute_delivery(
    bounds: Bounds,
    waits: Int64Array,
    delivered: Int64Array,
    idle_ns: Int64Array,
    ready: Int64Array,
    high: Int64Array,
    calls: Served | None,
) -> None:
    """What follows a fetch: delivery as far as its worker was idle, and may be its next work."""
    busy = delivered - idle_ns
    bounds[DELIVERY][0][waits] += idle_ns
    bounds[DELIVERY][1][waits] += delivered

    # The calls after the fetch, and what calls that were not recorded may add to them.
    spent = {}
    if calls is not None:
        spent = {n: np.minimum(calls.within(t, ready, high)[1], busy) for n, t in calls.parts}
    known = sum(spent.values(), np.zeros(len(waits), np.int64))
    slack_ns = calls.slack_ns if calls is not None and calls.whole else 1 << 62
    most = np.minimum(known + np.minimum(slack_ns, busy), busy)
    bounds[STORAGE][1][waits] += most
    for part in (READ, WRITE, METADATA, SYNC):
        name = f"{STORAGE}.{part}"
        of_part = np.minimum(spent.get(name, 0) + np.minimum(slack_ns, busy), busy)
        bounds[name][1][waits] += of_part
    bounds[FREE][1][waits] += most
    bounds[FREE_PARTS][1][waits] += most
    bounds[_OPEN][1][waits] += busy


def find_request_times(
    taken: Fetches, start: Int64Array, row: Int64Array, *, complete: bool
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
            number, ends = taken.batch[row[waits]], taken.wait_end[batches]
            in_turn = bool((taken.in_order[batches] != 0).all())
            if complete and (in_turn or (number < 0).any()):
                number = np.searchsorted(ends, taken.wait_end[row[waits]], side="left")
            numbers = np.arange(len(batches)) if complete else taken.batch[batches]
            if not complete and not in_turn:  # by how many others before is not known
                continue
            # The batch that lies so far before, by its number.
            order = np.argsort(numbers, kind="stable")
            place = np.searchsorted(numbers[order], number - ahead)
            before = order[np.minimum(place, len(order) - 1)]
            found = (numbers[before] == number - ahead) & (number >= ahead)
            born = int(min(start[waits].min(), taken.wait_begin[batches[0]]))
            first = (number >= 0) & (number < ahead) & (complete | (numbers.min() == 0))
            moment = np.where(found, ends[before], born)
            asked[waits] = np.where(found | first, np.minimum(moment, start[waits]), start[waits])
            is_known[waits] = found | first
    return asked, is_known
