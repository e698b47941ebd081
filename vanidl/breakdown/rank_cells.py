"""Every window of one rank with steps: how much of each tile, step and part went to each cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vanidl.breakdown import input_wait, windows
from vanidl.breakdown.assumptions import (
    ALL_TRACED_THERE,
    FOLLOWS,
    NOT_MAPPED,
    ONE_CLOCK,
    ONE_THREAD,
    OPERATORS_COMPUTE,
    TRACED_DELAYS_NEXT,
)
from vanidl.breakdown.causes import (
    BLOCKED,
    CAUSES,
    COMMUNICATION,
    COMPUTE,
    COPY,
    DELIVERY,
    DEVICE_IDLE,
    HOST_CPU,
    INPUT_CPU,
    QUEUED,
    STORAGE,
    TOO_FEW_CORES,
    TRACING,
    WAITING_FOR_PEERS,
    WORKERS,
    narrow_bounds,
)
from vanidl.breakdown.input_wait import FREE, FREE_PARTS, Bounds, Served
from vanidl.breakdown.sources.collectives import PeerWaits
from vanidl.breakdown.sources.tracer import bound_tracing
from vanidl.breakdown.windows import PART_NAMES, PHASE_NAMES, Tiles
from vanidl.model import intervals
from vanidl.model.intervals import EMPTY, Intervals
from vanidl.model.ordering import find_distinct
from vanidl.model.trace import SpanKind, Spans, Trace
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]
Mask = NDArray[np.bool_]

IDLE_QUEUED = f"{DEVICE_IDLE}.{QUEUED}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of the processes of one rank.

    `whole`: every call of storage was traced, or counted: `slack_ns` at most, at unknown times.
    """

    of_process: Mapping[int, Served]
    whole: bool
    slack_ns: int
    maps_unseen: bool  # page faults of mapped files are in no record
    assume: frozenset[str]  # what may be assumed
    peers: PeerWaits | None = None  # None: ranks cannot be paired
    all_traced: bool = False  # no call was counted only; what the tracer does not see is no matter


@dataclass(frozen=True, slots=True)
class RankCells:
    """Every tile of one rank by cause, consistent in each; ns.

    `low` and `high`: name of a cell -> at least and at most of each tile. `free` is how much of
    `high` of storage calls that were traced may have had or not, `free_parts` the same of its
    parts: what `slack_ns`, where it is known, does not bound. `assumed`: assumption -> the tiles
    whose cells rest on it.
    """

    tiles: Tiles
    low: Mapping[str, Int64Array]
    high: Mapping[str, Int64Array]
    free: Int64Array
    free_parts: Int64Array
    slack_ns: int | None
    assumed: Mapping[str, Mask]


@dataclass(frozen=True, slots=True)
class Activity:
    """What a rank did inside its run, by time: disjoint sets, each outside of those before it.

    `seen`: when a profiler that sees what computes was at work; outside of it nothing is known.
    """

    compute: Intervals
    communication: Intervals
    copy: Intervals
    by_device: bool
    seen: Intervals
    may_compute: Intervals
    """`compute`, and what of calls lies within: they may be of other threads, or times."""
    peers: PeerWaits | None = None
    """Of `communication` what was waiting for other ranks; None where that is not known."""


def divide_tiles(
    trace: Trace, position: int, tiles: Tiles, spans: Spans, known: Evidence
) -> RankCells:
    """The cells of all tiles of one rank."""
    # What profilers saw; where devices worked no call was felt.
    trainer = trace.ranks[position]
    of_process = dict(known.of_process)
    waits = Intervals(tiles.wait_start, tiles.wait_end)
    did = find_activity(spans, of_process[trainer], waits)
    if known.peers is not None:
        bare = [intervals.intersect(times, did.communication)
                for times in (known.peers.waits, known.peers.unpaired)]  # fmt: skip
        did = replace(did, peers=PeerWaits(*bare))
    felt = None
    if did.by_device:
        busy = intervals.merge(did.compute, did.copy)
        of_process[trainer] = input_wait.subtract_covered(of_process[trainer], busy)
        felt = intervals.subtract(waits, busy)
    own = of_process[trainer]

    # Outside of input waits: by calls and work, tile by tile.
    fetches = trace.fetches.pick(trace.fetches.trainer == trainer)
    cells = _compute_tile_cells(
        tiles,
        own,
        did,
        several=len(trace.ranks) > 1,
        computing=OPERATORS_COMPUTE in known.assume,
        of_others=own.is_threaded or input_wait.has_workers(trace, trainer, fetches),
        in_part=any(trace.profiles[source].device_in_part for source in spans.sources),
    )

    # Input waits: by what the fetch that was late had been at.
    assumed = _find_assumed(trace, position, tiles, own, did, known)
    if len(tiles.wait_start):
        step = np.full(len(tiles.wait_start), -1)
        if len(fetches):
            in_step = np.flatnonzero((tiles.wait >= 0) & (tiles.step >= 0))
            step[tiles.wait[in_step]] = tiles.step[in_step]
        divided = input_wait.divide_waits(
            trace, position, *waits, of_process, felt, known.assume, step
        )
        _place_waits(cells, divided.bounds, tiles)
        waiting = tiles.wait >= 0
        assumed = {
            what: waiting & rows[tiles.wait] for what, rows in divided.assumed.items()
        } | assumed
    _mark_workers(cells, tiles, spans, own)
    cells, on_next = _take_tracing_out(cells, trace, position, tiles, known)
    assumed = assumed | ({TRACED_DELAYS_NEXT: on_next} if on_next.any() else {})

    # Each tile is filled exactly; parts are no more than the cause that they are of.
    none = np.zeros(len(tiles.start), np.int64)
    free, free_parts = (cells.pop(key, (none, none))[1] for key in (FREE, FREE_PARTS))
    causes = [cause for cause in CAUSES if cause in cells]
    low, high = narrow_bounds(
        tiles.length, {c: cells[c][0] for c in causes}, {c: cells[c][1] for c in causes}
    )
    bounded: dict[tuple[str, int, int], tuple[Int64Array, Int64Array]] = {}
    for name, (below, above) in cells.items():
        if name not in low:
            whole = name.partition(".")[0]
            pair = whole, id(below), id(above)  # the same ones are the same here, too
            if pair not in bounded:
                least = np.minimum(below, high[whole])
                bounded[pair] = least, np.minimum(np.maximum(above, least), high[whole])
            low[name], high[name] = bounded[pair]
    if trainer in trace.queued and DEVICE_IDLE in low:
        _split_idle(low, high, tiles, trace.queued[trainer])
    slack_ns = known.slack_ns if known.whole else None
    return RankCells(tiles, low, high, free, free_parts, slack_ns, assumed)


def _take_tracing_out(
    cells: Bounds, trace: Trace, position: int, tiles: Tiles, known: Evidence
) -> tuple[Bounds, Mask]:
    """The cells with what the tracer took, which was measured as part of any of the others.

    With it the tiles of which that rests on TRACED_DELAYS_NEXT.
    """
    least, most, on_next = bound_tracing(
        trace,
        position,
        tiles,
        whole=known.all_traced or ALL_TRACED_THERE in known.assume,
        as_one=ONE_CLOCK in known.assume,
        threaded=known.of_process[trace.ranks[position]].is_threaded,
        delays_next=TRACED_DELAYS_NEXT in known.assume,
    )
    if not most.any():
        return cells, np.zeros_like(on_next)
    lower = {name: (np.maximum(low - most, 0), high) for name, (low, high) in cells.items()}
    for name in (FREE, FREE_PARTS):  # sums of calls are open by as much
        lower[name] = lower[name][0], lower[name][1] + most
    return lower | {TRACING: (least, most)}, on_next


def _find_assumed(
    trace: Trace, position: int, tiles: Tiles, own: Served, did: Activity, known: Evidence
) -> dict[str, Mask]:
    """What the cells of a rank rest on beside what was recorded, whatever its waits rest on."""
    may_call = own.slack_ns > 0 or not own.whole or not tiles.waits_known
    rests_on = {
        NOT_MAPPED: known.whole and known.maps_unseen,
        ONE_THREAD: own.one_thread,
        ALL_TRACED_THERE: bool(trace.tracer_call_ns) and not known.all_traced,
        ONE_CLOCK: ONE_CLOCK in known.assume and input_wait.has_open_clock(trace, position),
        OPERATORS_COMPUTE: OPERATORS_COMPUTE in known.assume
        and len(did.seen.start) > 0
        and may_call,
    }
    every = np.ones(len(tiles.start), bool)
    assumed = {what: every for what, holds in rests_on.items() if holds}
    return assumed | ({FOLLOWS: tiles.follows} if tiles.follows.any() else {})


def _split_idle(
    low: dict[str, Int64Array], high: dict[str, Int64Array], tiles: Tiles, queued: Intervals
) -> None:
    """Idle time in which work was in the queue is a part of idle time, as far as that is open."""
    least, most = low[DEVICE_IDLE], high[DEVICE_IDLE]
    part = np.minimum(intervals.covered_within(queued, tiles.start, tiles.end), most)
    low[IDLE_QUEUED], high[IDLE_QUEUED] = np.maximum(part - (most - least), 0), part


def _mark_workers(cells: Bounds, tiles: Tiles, spans: Spans, own: Served) -> None:
    """Workers that are started and stopped where no batch is waited for, calls inside and all.

    Whether calls were recorded moves nothing of it. Of a wait for a batch its fetch says how much
    was the start of a worker; where waits are not marked any time may be one.
    """
    mine = np.flatnonzero(spans.kind == SpanKind.WORKERS)
    if not len(mine) or not tiles.waits_known:
        return
    handling = intervals.union(spans.start[mine], spans.end[mine])
    without_batch = (tiles.wait < 0) | (tiles.part == windows.EPOCH_END)
    covered = np.where(without_batch, intervals.covered_within(handling, tiles.start, tiles.end), 0)
    low, high = cells[WORKERS]
    cells[WORKERS] = np.maximum(low, covered), np.maximum(high, covered)

    # Calls inside are part of that handling: storage has so much less for sure.
    total = np.zeros(len(tiles.start), np.int64)
    for name, times in own.parts:
        if len(times.start):
            _, inside = own.within_all(times, handling, tiles.start, tiles.end)
            inside = np.minimum(inside, covered)
            total += inside
            cells[name] = np.maximum(cells[name][0] - inside, 0), cells[name][1]
    cells[STORAGE] = np.maximum(cells[STORAGE][0] - total, 0), cells[STORAGE][1]


def find_activity(spans: Spans, own: Served | None, waits: Intervals) -> Activity:
    """What profiles say of one rank, less its waits and calls where no device was recorded."""

    def union_of(kind: SpanKind) -> Intervals:
        mine = np.flatnonzero(spans.kind == kind)
        return intervals.union(spans.start[mine], spans.end[mine]) if len(mine) else EMPTY

    kernels = union_of(SpanKind.KERNEL)
    operators = union_of(SpanKind.OP)
    by_device = bool(len(kernels.start))
    compute = may_compute = kernels
    if not by_device and len(operators.start):
        compute = may_compute = intervals.subtract(operators, waits)
        for _, times in () if own is None else own.parts:
            compute = intervals.subtract(compute, times) if len(times.start) else compute
    communication, copy = union_of(SpanKind.COMMUNICATION), union_of(SpanKind.COPY)
    if len(communication.start):
        # What an operator covers is the operator's, and not less so where it called storage.
        communication = intervals.subtract(communication, operators if not by_device else compute)
    if len(copy.start):
        copy = intervals.subtract(intervals.subtract(copy, compute), communication)
    computing = np.flatnonzero((spans.kind == SpanKind.KERNEL) | (spans.kind == SpanKind.OP))
    # It sees from the first of its events to the last, its marks of steps among them.
    each = find_distinct(spans.source[computing]).tolist()
    first, last = np.zeros(len(each), np.int64), np.zeros(len(each), np.int64)
    for i, one in enumerate(each):
        its = spans.source == one
        first[i], last[i] = spans.start[its].min(), spans.end[its].max()
    seen = intervals.union(first, last)
    return Activity(compute, communication, copy, by_device, seen, may_compute)


@dataclass(frozen=True, slots=True)
class _Laid:
    """What calls and profiles say of every tile, ns; waits hold what devices did only.

    `calls`: kinds of calls, at least and at most. `moved`: what of `storage` is open as clocks and
    threads are. What is nowhere is `zeros` itself: many tiles of many ranks are mostly that.
    """

    zeros: Int64Array
    calls: Bounds
    storage: Int64Array
    moved: Int64Array
    compute: Int64Array
    most_compute: Int64Array
    communication: Int64Array
    copy: Int64Array

    @property
    def is_computing(self) -> bool:
        """Whether anything computed, or may have."""
        return self.most_compute is not self.zeros

    def rest_of(self, length: Int64Array, waiting: Mask) -> Int64Array:
        """What is left of every tile outside of waits."""
        rest = length
        for taken in (self.compute, self.communication, self.copy, self.storage):
            rest = rest if taken is self.zeros else rest - taken
        return np.where(waiting, 0, rest).clip(0)


def _measure_calls_and_work(
    tiles: Tiles, own: Served, did: Activity, *, computing: bool, felt: bool
) -> _Laid:
    """The time in calls and of what profilers saw.

    `computing`: operators call no storage. `felt`: no call may lie in a wait that is not marked,
    which would be of the fetch that was late, whatever the training thread called meanwhile.
    """
    length, start, end, waiting = tiles.length, tiles.start, tiles.end, tiles.wait >= 0
    zeros = np.zeros(len(length), np.int64)

    def cover(times: Intervals) -> Int64Array:
        return intervals.covered_within(times, start, end) if len(times.start) else zeros

    compute, communication, copy = (cover(t) for t in (did.compute, did.communication, did.copy))
    calls: Bounds = {name: (zeros, zeros) for name, _ in own.parts}
    storage = most = shifted = moved = zeros
    for name, times in own.parts:
        if len(times.start):
            least, highest = own.within(times, start, end)
            shifted = shifted + highest - least
            least = least if felt and name not in own.unsure else zeros
            calls[name] = np.where(waiting, 0, least), np.where(waiting, 0, highest)
            storage, most = storage + calls[name][0], most + calls[name][1]
    if most is not zeros:
        moved = np.minimum(most, length) - storage
    most_compute = compute
    if compute is not zeros or moved is not zeros:
        inside = np.minimum(shifted, moved)  # of operators, at most
        if not did.by_device and not computing:
            inside = inside + (own.slack_ns if own.whole and tiles.waits_known else compute)
        most_compute = np.minimum(compute + moved, cover(did.may_compute))
        compute = np.maximum(compute - inside, 0)
    if communication is not zeros:
        # Traced calls inside of collectives are of the calls.
        communication = np.minimum(communication, length - compute - storage).clip(0)
        communication[waiting] = 0
    if not did.by_device:
        compute, copy, most_compute = (
            ns if ns is zeros else np.where(waiting, 0, ns) for ns in (compute, copy, most_compute)
        )
    return _Laid(zeros, calls, storage, moved, compute, most_compute, communication, copy)


def _compute_tile_cells(
    tiles: Tiles,
    own: Served,
    did: Activity,
    *,
    several: bool,
    of_others: bool,
    in_part: bool,
    computing: bool,
) -> Bounds:
    """At least and at most of every tile by cause; causes that nothing tells apart share arrays.

    `in_part`: work of devices was left out, so that a step without any may have had some.
    `computing`: operators call no storage.
    """
    felt = tiles.waits_known or not of_others
    laid = _measure_calls_and_work(tiles, own, did, computing=computing, felt=felt)
    zeros, moved, communication = laid.zeros, laid.moved, laid.communication
    open_ns = laid.rest_of(tiles.length, tiles.wait >= 0)
    cells: Bounds = {}
    slack = np.minimum(open_ns, own.slack_ns + moved) if own.whole else open_ns
    cells[FREE] = cells[FREE_PARTS] = zeros, moved
    if of_others and own.whole:
        # Where waits are not marked any time may be one, for whatever a worker, or thread, was at.
        unmarked = (tiles.phase == windows.UNOBSERVED) | (not tiles.waits_known)
        slack = np.where(unmarked, open_ns, slack)
        cells[FREE] = cells[FREE_PARTS] = zeros, np.where(unmarked, open_ns, moved)
    cells[STORAGE] = laid.storage, _add_slack(laid.storage, slack, zeros)
    for name, (least, highest) in laid.calls.items():
        most = _add_slack(least, slack, zeros)
        cells[name] = least, most if highest is zeros else np.maximum(most, highest)
    profiled = _find_profiled(tiles, did, laid, in_part=in_part)
    if len(did.copy.start):
        cells[COPY] = laid.copy, laid.copy
    # Beside the model operators are the loop's own work, unless they are a device's.
    beside = (tiles.part == windows.PREPARE) | (tiles.part == windows.REST)
    beside &= not did.by_device
    may_compute = np.where(profiled | beside, 0, open_ns) if (profiled | beside).any() else open_ns
    cells[COMPUTE] = zeros, may_compute
    if laid.is_computing:
        compute, most_compute = (
            np.where(beside, 0, ns) for ns in (laid.compute, laid.most_compute)
        )
        cells[COMPUTE] = compute, np.maximum(compute + may_compute, most_compute)
    cells[COMMUNICATION] = communication, communication
    if several:
        # A profiler that saw collectives of the rank, or its devices, saw all of them: no other
        # time is in one.
        seen = profiled & (did.by_device or bool(len(did.communication.start)))
        others = np.where(seen, 0, open_ns) if seen.any() else open_ns
        # Of ranks that are not paired all of it may be either.
        waited, either = zeros, communication
        if did.peers is not None:
            waited, either = (
                intervals.covered_within(times, tiles.start, tiles.end)
                for times in (did.peers.waits, did.peers.unpaired)
            )
            waited = np.minimum(waited, communication)
            either = np.minimum(either, communication - waited)
        moved_ns = zeros if either is communication else communication - waited - either
        most = either if waited is zeros else waited + either
        cells[WAITING_FOR_PEERS] = waited, _add_slack(most, others, zeros)
        most = communication if waited is zeros else communication - waited
        cells[COMMUNICATION] = moved_ns, _add_slack(most, may_compute, zeros)
    if did.by_device:
        cells[DEVICE_IDLE] = zeros, np.where(profiled, open_ns, 0)
        open_ns = np.where(profiled, 0, open_ns)
    for cause in (HOST_CPU, TOO_FEW_CORES, BLOCKED):
        cells[cause] = zeros, open_ns
    if laid.is_computing and beside.any():
        least, most = (np.where(beside, ns, 0) for ns in (laid.compute, laid.most_compute))
        cells[HOST_CPU] = least, np.maximum(least + open_ns, most)
    outside_steps = np.where(tiles.step < 0, open_ns, 0) if tiles.waits_known else open_ns
    for cause in (INPUT_CPU, *input_wait.OF_CPU, DELIVERY, WORKERS):
        cells[cause] = zeros, outside_steps
    return cells


def _add_slack(least: Int64Array, slack: Int64Array, zeros: Int64Array) -> Int64Array:
    """So much more; of what is nowhere the rest itself, so that it stays one array."""
    return slack if least is zeros else least + slack


def _find_profiled(tiles: Tiles, did: Activity, laid: _Laid, *, in_part: bool) -> Mask:
    """Tiles of steps of which a profiler saw all that computed."""
    profiled = np.zeros(len(tiles.start), bool)
    if len(did.seen.start):
        profiled = (tiles.phase == windows.TRAINING) | (tiles.phase == windows.INFERENCE)
        profiled &= np.isin(tiles.part, windows.BETWEEN_WAITS)
        profiled &= intervals.covered_within(did.seen, tiles.start, tiles.end) == tiles.length
    if in_part:
        worked = np.zeros(tiles.steps + 1, np.int64)
        np.add.at(worked, tiles.step, laid.compute + laid.communication + laid.copy)
        profiled &= worked[tiles.step] > 0
    return profiled


def _place_waits(cells: Bounds, divided: Bounds, tiles: Tiles) -> None:
    """Puts the cells of waits into their tiles; of a wait that is cut only the upper ends hold."""
    mine = np.flatnonzero(tiles.wait >= 0)
    wait, length = tiles.wait[mine], tiles.length[mine]
    is_whole = length == (tiles.wait_end - tiles.wait_start)[wait]
    as_is = len(wait) == len(tiles.wait_start) and bool(is_whole.all())  # no wait is cut
    zeros = np.zeros(len(tiles.start), np.int64)
    # Causes that nothing tells apart share their arrays: each is laid once.
    laid: dict[tuple[int, int, bool], Int64Array] = {}

    def lay(values: Int64Array, others: Int64Array, *, above: bool) -> Int64Array:
        key = id(values), id(others), above
        if key not in laid:
            side = others.copy()
            if above:
                side[mine] = np.minimum(values if as_is else values[wait], length)
            else:
                side[mine] = values if as_is else np.where(is_whole, values[wait], 0)
            laid[key] = side
        return laid[key]

    for cause, (low, high) in divided.items():
        below, above = cells.get(cause, (zeros, zeros))
        cells[cause] = lay(low, below, above=False), lay(high, above, above=True)


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of one rank in order of time, one entry each in every array; times in ns.

    A part of a step is one window, however often a save or a validation cuts it. `step` is the
    number of the step, -1 outside of steps; `epoch` -1 where nothing says. `low` and `high`: name
    of a cell, as "storage.read" -> at least and at most. `assumed`: what the cells of a window
    rest on beside what was recorded -> of which windows.
    """

    phase: Int64Array  # index into PHASE_NAMES
    part: Int64Array  # index into PART_NAMES
    epoch: Int64Array
    step: Int64Array
    start_ns: Int64Array  # since the epoch
    end_ns: Int64Array
    length_ns: Int64Array
    low: Mapping[str, Int64Array]
    high: Mapping[str, Int64Array]
    assumed: Mapping[str, NDArray[np.bool_]]

    def __len__(self) -> int:
        return len(self.start_ns)

    def columns(self, since_ns: int) -> dict[str, NDArray[np.generic]]:
        """As a table: times in seconds since an instant, of each cell both ends."""
        phases, parts = np.array(PHASE_NAMES, object), np.array(PART_NAMES, object)
        columns: dict[str, NDArray[np.generic]] = {
            "phase": phases[self.phase],
            "part": parts[self.part],
            "epoch": self.epoch,
            "step": self.step,
            "start_s": (self.start_ns - since_ns) / 1e9,
            "end_s": (self.end_ns - since_ns) / 1e9,
            "window_s": self.length_ns / 1e9,
        }
        for name, low in self.low.items():
            columns[f"{name}_at_least_s"] = low / 1e9
            columns[f"{name}_at_most_s"] = self.high[name] / 1e9
        return columns


def gather_windows(cells: RankCells) -> Windows:
    """The windows that the tiles of one rank make up."""
    tiles = cells.tiles
    # Tiles outside of steps are windows of their own, unless their neighbour is of the same kind.
    same = (tiles.phase[1:] == tiles.phase[:-1]) & (tiles.part[1:] == tiles.part[:-1])
    run = np.append(0, np.cumsum(~(same & (tiles.step[1:] == tiles.step[:-1]))))
    place = len(tiles.number) * len(PART_NAMES) + run
    key = np.where(tiles.step >= 0, tiles.step * len(PART_NAMES) + tiles.part, place)
    _, first, row = np.unique(key, return_index=True, return_inverse=True)
    # In the order of time.
    order = np.argsort(first, kind="stable")
    rank = np.argsort(order)
    row, first = rank[row], first[order]
    count = len(first)

    def total(values: Int64Array) -> Int64Array:
        return np.bincount(row, values, count).astype(np.int64)

    # When each ends, and its sums: causes that share an array are added up once.
    last = np.zeros(count, np.int64)
    np.maximum.at(last, row, tiles.end)
    sums = {id(v): total(v) for side in (cells.low, cells.high) for v in side.values()}
    low = {name: sums[id(v)] for name, v in cells.low.items()}
    high = {name: sums[id(v)] for name, v in cells.high.items()}
    step = tiles.step[first]
    number = np.append(tiles.number, -1)
    return Windows(
        phase=tiles.phase[first],
        part=tiles.part[first],
        epoch=tiles.epoch[first],
        step=number[np.where(step >= 0, step, len(tiles.number))],
        start_ns=tiles.start[first],
        end_ns=last,
        length_ns=total(tiles.length),
        low=low,
        high=high,
        assumed={what: np.bincount(row, where, count) > 0 for what, where in cells.assumed.items()},
    )
