"""The cells of every window of one rank with steps: how much of each tile went to each cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.breakdown import input_wait, windows
from vanidl.breakdown.assumptions import (
    FOLLOWS,
    NOT_MAPPED,
    ONE_CLOCK,
    ONE_THREAD,
    OPERATORS_COMPUTE,
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
    STORAGE,
    TOO_FEW_CORES,
    WAITING_FOR_PEERS,
    WORKERS,
    settle,
)
from vanidl.breakdown.input_wait import FREE, FREE_PARTS, Bounds, Served
from vanidl.breakdown.windows import Tiles
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.trace import SpanKind, Spans, Trace

Int64Array = NDArray[np.int64]
Mask = NDArray[np.bool_]


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


def divide_tiles(
    trace: Trace, position: int, tiles: Tiles, spans: Spans, known: Evidence
) -> RankCells:
    """The cells of all tiles of one rank."""
    trainer = trace.ranks[position]
    of_process = dict(known.of_process)
    waits = Intervals(tiles.wait_start, tiles.wait_end)
    did = find_activity(spans, of_process[trainer], waits)
    felt = None
    if did.by_device:
        busy = intervals.merge(did.compute, did.copy)
        of_process[trainer] = input_wait.outside(of_process[trainer], busy)
        felt = intervals.subtract(waits, busy)
    sources = np.unique(spans.source).tolist()
    cells = _tile_cells(
        tiles,
        of_process[trainer],
        did,
        several=len(trace.ranks) > 1,
        computing=OPERATORS_COMPUTE in known.assume,
        of_others=of_process[trainer].is_threaded
        or input_wait.has_workers(
            trace, trainer, trace.fetches.pick(trace.fetches.trainer == trainer)
        ),
        in_part=any(trace.profiles[source].device_in_part for source in sources),
    )
    assumed: dict[str, Mask] = {}
    if len(tiles.wait_start):
        step = np.full(len(tiles.wait_start), -1)
        in_step = (tiles.wait >= 0) & (tiles.step >= 0)
        step[tiles.wait[in_step]] = tiles.step[in_step]
        divided = input_wait.divide_waits(
            trace, position, *waits, of_process, felt, known.assume, step
        )
        _lay_waits(cells, divided.bounds, tiles)
        waiting = tiles.wait >= 0
        assumed = {what: waiting & rows[tiles.wait] for what, rows in divided.assumed.items()}
    _mark_workers(cells, tiles, spans)
    if known.whole and known.maps_unseen:
        assumed[NOT_MAPPED] = np.ones(len(tiles.start), bool)
    if of_process[trainer].one_thread:
        assumed[ONE_THREAD] = np.ones(len(tiles.start), bool)
    if ONE_CLOCK in known.assume and input_wait.has_open_clock(trace, position):
        assumed[ONE_CLOCK] = np.ones(len(tiles.start), bool)
    own = of_process[trainer]
    if (
        OPERATORS_COMPUTE in known.assume
        and len(did.seen.start)
        and (own.slack_ns or not own.whole or not tiles.waits_known)
    ):
        assumed[OPERATORS_COMPUTE] = np.ones(len(tiles.start), bool)
    if tiles.follows.any():
        assumed[FOLLOWS] = tiles.follows

    none = np.zeros(len(tiles.start), np.int64)
    free, free_parts = (cells.pop(key, (none, none))[1] for key in (FREE, FREE_PARTS))
    causes = [cause for cause in CAUSES if cause in cells]
    low, high = settle(
        tiles.length, {c: cells[c][0] for c in causes}, {c: cells[c][1] for c in causes}
    )
    for name, (below, above) in cells.items():
        if name not in low:
            low[name] = np.minimum(below, high[STORAGE])
            high[name] = np.clip(above, low[name], high[STORAGE])
    slack_ns = known.slack_ns if known.whole else None
    return RankCells(tiles, low, high, free, free_parts, slack_ns, assumed)


def _mark_workers(cells: Bounds, tiles: Tiles, spans: Spans) -> None:
    """Workers that are started and stopped where no batch is waited for; calls inside are calls.

    Of a wait for a batch its fetch says how much of it was the start of a worker.
    """
    mine = spans.kind == SpanKind.WORKERS
    handling = intervals.union(spans.start[mine], spans.end[mine])
    covered = intervals.covered_within(handling, tiles.start, tiles.end)
    without_batch = (tiles.wait < 0) | (tiles.part == windows.EPOCH_END)
    spent = np.where(without_batch, covered - cells[STORAGE][0], 0)
    low, high = cells[WORKERS]
    cells[WORKERS] = np.maximum(low, np.minimum(spent, high)), high


def find_activity(spans: Spans, own: Served | None, waits: Intervals) -> Activity:
    """What profiles say of one rank, less its waits and calls where no device was recorded."""

    def union_of(kind: SpanKind) -> Intervals:
        mine = spans.kind == kind
        return intervals.union(spans.start[mine], spans.end[mine])

    kernels = union_of(SpanKind.KERNEL)
    operators = union_of(SpanKind.OP)
    by_device = bool(len(kernels.start))
    compute = kernels
    if not by_device:
        compute = intervals.subtract(operators, waits)
        for _, times in () if own is None else own.parts:
            compute = intervals.subtract(compute, times) if len(times.start) else compute
    communication = intervals.subtract(union_of(SpanKind.COMMUNICATION), compute)
    copy = intervals.subtract(intervals.subtract(union_of(SpanKind.COPY), compute), communication)
    computing = (spans.kind == SpanKind.KERNEL) | (spans.kind == SpanKind.OP)
    # It sees from the first of its events to the last, its marks of steps among them.
    each = np.unique(spans.source[computing]).tolist()
    first, last = np.zeros(len(each), np.int64), np.zeros(len(each), np.int64)
    for i, one in enumerate(each):
        its = spans.source == one
        first[i], last[i] = spans.start[its].min(), spans.end[its].max()
    return Activity(compute, communication, copy, by_device, intervals.union(first, last))


def _tile_cells(
    tiles: Tiles,
    own: Served,
    did: Activity,
    *,
    several: bool,
    of_others: bool,
    in_part: bool,
    computing: bool,
) -> Bounds:
    """At least and at most of every tile by cause; waits hold what devices did only.

    `in_part`: work of devices was left out, so that a step without any may have had some.
    `computing`: operators call no storage.
    """
    length, start, end = tiles.length, tiles.start, tiles.end
    waiting = tiles.wait >= 0
    zeros = np.zeros(len(length), np.int64)
    compute = intervals.covered_within(did.compute, start, end)
    communication = intervals.covered_within(did.communication, start, end)
    cells: Bounds = {}
    storage, most, shifted = zeros.copy(), zeros.copy(), zeros.copy()
    for name, times in own.parts:
        least, highest = own.within(times, start, end)
        shifted += highest - least
        least = zeros if name in own.unsure else least
        cells[name] = np.where(waiting, 0, least), np.where(waiting, 0, highest)
        storage += cells[name][0]
        most += cells[name][1]
    moved = np.minimum(most, length) - storage  # what is open as clocks and threads are
    inside = np.minimum(shifted, moved)  # of operators, at most
    if not did.by_device and not computing:
        inside += own.slack_ns if own.whole and tiles.waits_known else compute
    compute_ns = compute + np.minimum(moved, length - compute)
    compute = np.maximum(compute - inside, 0)
    # Traced calls inside of collectives are of the calls.
    communication = np.minimum(communication, length - compute - storage).clip(0)
    communication[waiting] = 0
    copy = intervals.covered_within(did.copy, start, end)
    if not did.by_device:
        compute, copy = np.where(waiting, 0, compute), np.where(waiting, 0, copy)
        compute_ns = np.where(waiting, 0, compute_ns)
    taken = compute + communication + copy + storage
    open_ns = np.where(waiting, 0, length - taken).clip(0)
    slack = np.minimum(open_ns, own.slack_ns + moved) if own.whole else open_ns
    cells[FREE] = cells[FREE_PARTS] = zeros, moved
    if of_others and own.whole:
        # Where waits are not marked any time may be one, for whatever a worker, or thread, was at.
        unmarked = (tiles.phase == windows.UNOBSERVED) | (not tiles.waits_known)
        slack = np.where(unmarked, open_ns, slack)
        cells[FREE] = cells[FREE_PARTS] = zeros, np.where(unmarked, open_ns, moved)
    cells[STORAGE] = storage, storage + slack
    for name, _ in own.parts:
        cells[name] = cells[name][0], np.maximum(cells[name][0] + slack, cells[name][1])
    of_steps = np.isin(tiles.phase, (windows.TRAINING, windows.INFERENCE))
    profiled = np.isin(tiles.part, windows.BETWEEN_WAITS) & of_steps
    profiled &= intervals.covered_within(did.seen, start, end) == length
    if in_part:
        worked = np.zeros(tiles.steps + 1, np.int64)
        np.add.at(worked, tiles.step, compute + communication + copy)
        profiled &= worked[tiles.step] > 0
    if len(did.copy.start):
        cells[COPY] = copy, copy
    # Beside the model operators are the loop's own work, unless they are a device's.
    beside = np.isin(tiles.part, windows.BESIDE_THE_MODEL) & (not did.by_device)
    host_cpu, most_host_cpu = (np.where(beside, ns, 0) for ns in (compute, compute_ns))
    compute, compute_ns = (np.where(beside, 0, ns) for ns in (compute, compute_ns))
    may_compute = np.where(profiled | beside, 0, open_ns)
    cells[COMPUTE] = compute, np.maximum(compute + may_compute, compute_ns)
    cells[COMMUNICATION] = communication, communication + (may_compute if several else 0)
    if several:
        # A profiler that saw collectives of the rank saw all of them: no other time is in one.
        seen = profiled & bool(len(did.communication.start))
        cells[WAITING_FOR_PEERS] = zeros, communication + np.where(seen, 0, open_ns)
        cells[COMMUNICATION] = zeros.copy(), cells[COMMUNICATION][1]
    if did.by_device:
        cells[DEVICE_IDLE] = zeros, np.where(profiled, open_ns, 0)
        open_ns = np.where(profiled, 0, open_ns)
    for cause in (HOST_CPU, TOO_FEW_CORES, BLOCKED):
        cells[cause] = zeros, open_ns
    cells[HOST_CPU] = host_cpu, np.maximum(host_cpu + open_ns, most_host_cpu)
    outside_steps = np.where((tiles.step < 0) | (not tiles.waits_known), open_ns, 0)
    for cause in (INPUT_CPU, DELIVERY, WORKERS):
        cells[cause] = zeros, outside_steps
    return cells


def _lay_waits(cells: Bounds, divided: Bounds, tiles: Tiles) -> None:
    """Puts the cells of waits into their tiles; of a wait that is cut only the upper ends hold."""
    mine = np.flatnonzero(tiles.wait >= 0)
    wait, length = tiles.wait[mine], tiles.length[mine]
    whole = length == (tiles.wait_end - tiles.wait_start)[wait]
    zeros = np.zeros(len(tiles.start), np.int64)
    laid: dict[tuple[int, int, int, int], tuple[Int64Array, Int64Array]] = {}
    for cause, (low, high) in divided.items():
        others = cells.get(cause, (zeros, zeros))
        key = id(low), id(high), id(others[0]), id(others[1])
        if key not in laid:  # causes that nothing tells apart have the same cells
            below, above = (side.copy() for side in others)
            below[mine] = np.where(whole, low[wait], 0)
            above[mine] = np.minimum(high[wait], length)
            laid[key] = below, above
        cells[cause] = laid[key]
