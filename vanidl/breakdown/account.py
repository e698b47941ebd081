"""Where the time of every rank went: the cells of its run, its mean step, its waits, its phases.

A cell has a key, `rank|mean/window/cause[.part]`, as "mean/step/storage.read". Windows are `run`,
`step` (the mean training step), `input_wait` (the waits of training steps together), the phases
and the parts of the mean step. Everything that prints a duration or share takes it from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses import Results
from vanidl.analyses.coverage import Coverage
from vanidl.breakdown import input_wait, pipelines, windows
from vanidl.breakdown.causes import (
    BLOCKED,
    CAUSES,
    COMMUNICATION,
    COMPUTE,
    DELIVERY,
    DEVICE_IDLE,
    EXCHANGE,
    HOST_CPU,
    INPUT_CPU,
    METADATA,
    OBJECT,
    PHASES,
    READ,
    STORAGE,
    SYNC,
    TOO_FEW_CORES,
    WAITING_FOR_PEERS,
    WORKERS,
    WRITE,
    Cell,
    settle,
)
from vanidl.breakdown.input_wait import FREE, FREE_PARTS, Bounds, Served
from vanidl.breakdown.pipelines import Gains
from vanidl.breakdown.sources import counters, heatmaps
from vanidl.breakdown.sources.counters import ALL, StorageBounds
from vanidl.breakdown.windows import Tiles
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.trace import SpanKind, Spans, Trace
from vanidl.model.warnings import LOWER_BOUNDS, serious_codes

Int64Array = NDArray[np.int64]

MEAN = "mean"
RUN, STEP, WAIT, STEP_PART, PHASE = "run", "step", "input_wait", "step_part", "phase"
EPOCH_END = "epoch_end"
TRACED, MARKED, PROFILED, FETCHED = "traced calls", "marks", "profile", "fetches"
NOT_MAPPED = "no file was mapped into memory: page faults were not recorded"
_COUNTED = {"stdio_untraced"}
"""Calls that are in no trace, and counted."""

_ONE_AT_A_TIME = 1e-3  # sum and union of calls apart by less: they came one at a time
_PARTS = (READ, WRITE, METADATA, SYNC, OBJECT, EXCHANGE)


@dataclass(frozen=True)
class Column:
    """One cell of every rank, summed over its windows, and of their mean, ns."""

    low: Int64Array  # (ranks,)
    high: Int64Array
    mean_low: float
    mean_high: float
    evidence: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Breakdown:
    """The account of a run. `columns`: "window/cause[.part]" -> its cell of every rank.

    Of windows that exist in steps only (`step`, `input_wait`, the parts of steps) the mean is
    over the ranks with steps, of others over all. `steps`: training steps of each rank.
    """

    labels: tuple[str, ...]
    ranks: tuple[int | None, ...]
    window_ns: int
    steps: Int64Array
    columns: Mapping[str, Column]
    layers: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    """Layer -> seconds of reading, writing and metadata, mean over ranks; not added up."""
    outermost: frozenset[str] = frozenset()

    def cell(self, key: str) -> Cell:
        """The cell of a key; nothing, [0, 0], of a cause that cannot be in the window.

        Of `step` and `step_part` it is of the mean step: in whole ns, outwards.

        Raises:
            KeyError: no rank or window of that name.
        """
        who, _, name = key.partition("/")
        column = self.columns.get(name)
        window = name.partition("/")[0]
        if column is None:
            if window not in (RUN, STEP, WAIT, STEP_PART, PHASE):
                raise KeyError(key)
            return Cell(0, 0)
        if who == MEAN:
            low, high = column.mean_low, column.mean_high
        else:
            place = int(who)
            low, high = float(column.low[place]), float(column.high[place])
            if window in (STEP, STEP_PART) and self.steps[place]:
                low, high = low / self.steps[place], high / self.steps[place]
        return Cell(int(np.floor(low)), int(np.ceil(high)), column.evidence, column.assumed)

    def length_ns(self, window: str, who: str = MEAN) -> float:
        """How long a window is: `run`, `step`, or all `input_wait` or `epoch_end`; 0 without."""
        if window == RUN:
            return float(self.window_ns)
        if window in (WAIT, EPOCH_END):
            total = self.columns.get(f"{window}/")
            return 0.0 if total is None else _one(total, who)
        total = self.columns.get(f"{STEP}/")
        if total is None:
            return 0.0
        if who == MEAN:
            return total.mean_low
        return float(total.low[int(who)]) / max(int(self.steps[int(who)]), 1)

    @property
    def steps_ns(self) -> float:
        """All training steps of a rank together, mean over those with steps; 0 without."""
        total = self.columns.get(f"{STEP}/")
        return 0.0 if total is None else float(total.low[self.observed].mean())

    @property
    def waits_known(self) -> bool:
        """Whether the input waits of every rank with steps were recorded."""
        part = self.columns.get(f"{STEP_PART}/{windows.PART_NAMES[windows.INPUT_WAIT]}")
        return part is not None and bool((part.low == part.high)[self.observed].all())

    @property
    def observed(self) -> NDArray[np.bool_]:
        """Which ranks have steps."""
        return self.steps > 0

    def causes_of(self, window: str) -> tuple[str, ...]:
        """The causes with a cell in a window, in the order in which bars show them."""
        return tuple(cause for cause in CAUSES if f"{window}/{cause}" in self.columns)


def _one(column: Column, who: str) -> float:
    return column.mean_low if who == MEAN else float(column.low[int(who)])


def attribute_time(trace: Trace, results: Results) -> Breakdown:
    """The account of a run, from everything that its logs and profiles hold.

    Args:
        trace: the run, as its selection sees it.
        results: its analyses: reductions over its operations, and its coverage.
    """
    ranks = len(trace.ranks)
    window_ns = max(trace.job.end_ns - trace.job.start_ns, 0)
    shown = _serial_processes(trace, results)
    bounds = counters.bound_storage(trace, shown)
    table = _Table(ranks, window_ns)
    steps = np.zeros(ranks, np.int64)
    whole = is_whole(trace, results.coverage)
    by_rank = windows.SpansByRank(trace)
    for position in range(ranks) if len(trace.spans) else ():
        spans = by_rank.of(position)
        tiles = windows.tile_rank(trace, position, spans)
        if tiles is not None:
            steps[position] = tiles.steps
            _account_rank(table, trace, results, position, tiles, spans, whole, bounds)
    table.observed = steps > 0
    _account_runs(table, trace, results, bounds, whole)
    processes = [trace.processes[p] for p in trace.ranks]
    return Breakdown(
        tuple(p.label for p in processes),
        tuple(p.rank for p in processes),
        window_ns,
        steps,
        table.columns(steps, bounds),
        {} if bounds is None else bounds.layers,
        frozenset() if bounds is None else bounds.outermost,
    )


class _Table:
    """Cells of all ranks while they are gathered, ns; sums, not means."""

    def __init__(self, ranks: int, window_ns: int) -> None:
        self.ranks = ranks
        self.window_ns = window_ns
        self.observed = np.zeros(ranks, bool)
        self._low: dict[str, Int64Array] = {}
        self._high: dict[str, Int64Array] = {}
        self._evidence: dict[str, dict[str, None]] = {}
        self._assumed: dict[str, dict[str, None]] = {}

    def add(
        self,
        name: str,
        at: int | slice,
        low: int | Int64Array,
        high: int | Int64Array,
        evidence: Sequence[str] = (),
        assumed: Sequence[str] = (),
    ) -> None:
        """Sets a cell of one rank, or of all."""
        for side, value in ((self._low, low), (self._high, high)):
            side.setdefault(name, np.zeros(self.ranks, np.int64))[at] = value
        self._evidence.setdefault(name, {}).update(dict.fromkeys(evidence))
        self._assumed.setdefault(name, {}).update(dict.fromkeys(assumed))

    def of(self, name: str) -> tuple[Int64Array, Int64Array]:
        """Both ends of a cell of every rank; 0 where nothing was set."""
        none = np.zeros(self.ranks, np.int64)
        return self._low.get(name, none), self._high.get(name, none)

    def columns(self, steps: Int64Array, bounds: StorageBounds | None) -> dict[str, Column]:
        """All cells, consistent within their windows, with means."""
        self._settle(RUN, np.full(self.ranks, self.window_ns, np.int64))
        for window in (STEP, WAIT):
            self._settle(window, self.of(f"{window}/")[0])
        for phase in PHASES:
            self._settle(f"{PHASE}/{phase}", self.of(f"{PHASE}/{phase}")[0], exactly=False)
        columns = {}
        for name, low in self._low.items():
            high, window = self._high[name], name.partition("/")[0]
            of_steps = window in (STEP, WAIT, STEP_PART, EPOCH_END)
            mine = self.observed if of_steps else np.ones(self.ranks, bool)
            per = np.maximum(steps, 1) if window in (STEP, STEP_PART) else np.ones_like(steps)
            count = max(int(mine.sum()), 1)
            mean = [float((side / per)[mine].sum()) / count for side in (low, high)]
            if window == RUN and bounds is not None and not self.observed.any():
                part = name.partition("/")[2].removeprefix(STORAGE).removeprefix(".")
                if name.startswith(f"{RUN}/{STORAGE}") and part in bounds.mean_low:
                    # Sums over ranks know their mean, whatever is open of each rank.
                    mean[0] = max(mean[0], min(bounds.mean_low[part] * 1e9, self.window_ns))
                    mean[1] = max(min(mean[1], bounds.mean_high[part] * 1e9), mean[0])
            evidence, assumed = tuple(self._evidence[name]), tuple(self._assumed[name])
            columns[name] = Column(low, high, mean[0], mean[1], evidence, assumed)
        return columns

    def _settle(self, window: str, length: Int64Array, exactly: bool = True) -> None:
        names = [name for cause in CAUSES if (name := f"{window}/{cause}") in self._low]
        if not names:
            return
        low = {name: self._low[name] for name in names}
        high = {name: self._high[name] for name in names}
        if exactly:
            low, high = settle(length, low, high)
        self._low.update(low)
        self._high.update(high)
        for name in names:
            keys = [key for part in _PARTS if (key := f"{name}.{part}") in self._low]
            # Calls of two threads at once are in two sums: either part may lack what both had.
            both = [self._low[key] for key in keys if not key.endswith(EXCHANGE)]
            excess = np.maximum(sum(both, np.zeros_like(length)) - high[name], 0)
            for key in keys:
                self._low[key] = np.maximum(self._low[key] - excess, 0)
                self._high[key] = np.clip(self._high[key], self._low[key], high[name])


def is_whole(trace: Trace, coverage: Coverage) -> bool:
    """Whether every call of storage was traced or counted, so that no more can have been.

    Only Darshan counts beside tracing, and so knows what its trace lacks. Page faults of mapped
    files it sees in no version of today: that there were none is assumed, and said.
    """
    if not trace.job.counts_apart or (LOWER_BOUNDS - _COUNTED) & serious_codes(coverage.warnings):
        return False
    codes = {notice.code for notice in coverage.warnings}
    traced = [layer for layer in coverage.layers if layer.traced_ops is not None]
    cut = any((layer.traced_fraction or 1.0) < 1 for layer in traced)
    if "reads_not_seen" in codes or not traced or cut:
        return False
    return all(log.whole for log in trace.logs)


def _maps_unseen(coverage: Coverage) -> bool:
    return any(notice.code == "mmap_not_monitored" for notice in coverage.warnings)


def _serial_processes(trace: Trace, results: Results) -> NDArray[np.bool_]:
    """Of each process whether its trace shows that its calls come one at a time."""
    serial = np.zeros(len(trace.processes), bool)
    members = np.bincount(trace.family[trace.family >= 0], minlength=len(trace.ranks))
    for position, process in enumerate(trace.ranks):
        busy, total_ns = results.busy.get(position), results.sum_ns.get(position, 0)
        if busy is not None and members[position] == 1 and total_ns:
            serial[process] = total_ns - busy.length <= _ONE_AT_A_TIME * total_ns
    return serial


def _slack_ns(bounds: StorageBounds | None, trace: Trace, position: int) -> int:
    """How long the processes of a rank were in calls that were counted and not traced, at most."""
    if bounds is None:
        return 0
    untraced_s = float(bounds.untraced[position])
    if any(trace.family[process] == position for process in trace.metadata_calls):
        untraced_s -= float(bounds.high[METADATA][position])
    if any(trace.family[process] == position for process in trace.calls):
        untraced_s -= float(bounds.high[SYNC][position])
    return int(np.ceil(max(untraced_s, 0.0) * 1e9)) if np.isfinite(untraced_s) else 1 << 62


@dataclass(frozen=True)
class _Activity:
    """What a rank did inside its run, by time: disjoint sets, each outside of those before it."""

    compute: Intervals
    communication: Intervals
    by_device: bool
    by_operators: bool


def _activity(spans: Spans, own: Served, waits: Intervals) -> _Activity:
    """What profiles say of one rank."""

    def union_of(kind: SpanKind) -> Intervals:
        mine = spans.kind == kind
        return intervals.union(spans.start[mine], spans.end[mine])

    kernels = union_of(SpanKind.KERNEL)
    operators = union_of(SpanKind.OP)
    by_device = bool(len(kernels.start))
    compute = kernels
    if not by_device:
        compute = intervals.subtract(operators, waits)
        for _, times in own.parts:
            compute = intervals.subtract(compute, times) if len(times.start) else compute
    communication = intervals.subtract(union_of(SpanKind.COMMUNICATION), compute)
    return _Activity(compute, communication, by_device, bool(len(operators.start)))


def _account_rank(
    table: _Table,
    trace: Trace,
    results: Results,
    position: int,
    tiles: Tiles,
    spans: Spans,
    whole: bool,
    bounds: StorageBounds | None,
) -> None:
    """The cells of one rank with steps, tile by tile, added up by window."""
    trainer = trace.ranks[position]
    slack_ns = _slack_ns(bounds, trace, position)
    of_process = _served_by_process(trace, results, position, whole, slack_ns)
    waits = Intervals(tiles.wait_start, tiles.wait_end)
    did = _activity(spans, of_process[trainer], waits)
    felt = None
    if did.by_device:
        of_process[trainer] = input_wait.outside(of_process[trainer], did.compute)
        felt = intervals.subtract(waits, did.compute)
    cells = _tile_cells(trace, tiles, of_process[trainer], did)
    if len(tiles.wait_start):
        divided = input_wait.divide_waits(
            trace, position, tiles.wait_start, tiles.wait_end, of_process, felt
        )
        _lay_waits(cells, divided, tiles)
    assumed = (NOT_MAPPED,) if whole and _maps_unseen(results.coverage) else ()
    _add_up(table, position, tiles, cells, slack_ns if whole else None, assumed)


def _served_by_process(
    trace: Trace, results: Results, position: int, whole: bool, slack_ns: int
) -> dict[int, Served]:
    """The calls of each process of a rank: its own, and those that work for it."""
    return {
        process: input_wait.served(trace, results.calls, process, whole, slack_ns)
        for process in np.flatnonzero(trace.family == position).tolist()
    }


def _tile_cells(trace: Trace, tiles: Tiles, own: Served, did: _Activity) -> Bounds:
    """At least and at most of every tile by cause; waits hold compute only."""
    length, start, end = tiles.length, tiles.start, tiles.end
    waiting = tiles.part == windows.INPUT_WAIT
    zeros = np.zeros(len(length), np.int64)
    compute = intervals.covered_within(did.compute, start, end)
    communication = intervals.covered_within(did.communication, start, end)
    cells: Bounds = {}
    storage = zeros.copy()
    for name, times in own.parts:
        spent = np.where(waiting, 0, intervals.covered_within(times, start, end))
        cells[name] = spent, spent
        storage += spent
    # Traced calls inside of collectives are of the calls.
    communication = np.minimum(communication, length - compute - storage).clip(0)
    communication[waiting] = 0
    if not did.by_device:
        compute = np.where(waiting, 0, compute)
    open_ns = np.where(waiting, 0, length - compute - communication - storage).clip(0)
    slack = np.minimum(open_ns, own.slack_ns) if own.whole else open_ns
    cells[STORAGE] = storage, storage + slack
    for name, _ in own.parts:
        cells[name] = cells[name][0], cells[name][0] + slack
    several = len(trace.ranks) > 1
    in_work = (tiles.part == windows.WORK) & (tiles.phase == windows.TRAINING)
    profiled = in_work & (did.by_device or did.by_operators)
    may_compute = np.where(profiled, 0, open_ns)
    cells[COMPUTE] = compute, compute + may_compute
    cells[COMMUNICATION] = communication, communication + (may_compute if several else 0)
    if several:
        cells[WAITING_FOR_PEERS] = zeros, communication + open_ns
        cells[COMMUNICATION] = zeros.copy(), cells[COMMUNICATION][1]
    if did.by_device:
        cells[DEVICE_IDLE] = zeros, np.where(in_work, open_ns, 0)
        open_ns = np.where(in_work, 0, open_ns)
    for cause in (HOST_CPU, TOO_FEW_CORES, BLOCKED):
        cells[cause] = zeros, open_ns
    outside_steps = np.where(tiles.step < 0, open_ns, 0)
    for cause in (INPUT_CPU, DELIVERY, WORKERS):
        cells[cause] = zeros, outside_steps
    return cells


def _lay_waits(cells: Bounds, divided: Bounds, tiles: Tiles) -> None:
    """Puts the cells of waits into their tiles; of a wait that is cut only the upper ends hold."""
    mine = np.flatnonzero(tiles.wait >= 0)
    wait, length = tiles.wait[mine], tiles.length[mine]
    whole = length == (tiles.wait_end - tiles.wait_start)[wait]
    inside = tiles.part[mine] != windows.NO_PART
    for cause, (low, high) in divided.items():
        zeros = np.zeros(len(tiles.start), np.int64)
        below, above = (side.copy() for side in cells.get(cause, (zeros, zeros)))
        keep = mine[inside]
        below[keep] = np.where(whole, low[wait], 0)[inside]
        above[keep] = np.minimum(high[wait], length)[inside]
        cells[cause] = below, above


def _add_up(
    table: _Table,
    position: int,
    tiles: Tiles,
    cells: Bounds,
    slack_ns: int | None,
    assumed: tuple[str, ...],
) -> None:
    """The cells of all tiles of one rank, consistent in each, summed by window."""
    causes = [cause for cause in CAUSES if cause in cells]
    low, high = settle(
        tiles.length, {c: cells[c][0] for c in causes}, {c: cells[c][1] for c in causes}
    )
    none = np.zeros(len(tiles.start), np.int64)
    free = cells.pop(FREE, (none, none))[1]
    free_parts = cells.pop(FREE_PARTS, (none, none))[1]
    for name, (below, above) in cells.items():
        if name not in low:
            low[name] = np.minimum(below, high[STORAGE])
            high[name] = np.clip(above, low[name], high[STORAGE])
    in_step = tiles.step >= 0
    chosen = {
        RUN: np.ones(len(tiles.start), bool),
        STEP: in_step,
        WAIT: in_step & (tiles.part == windows.INPUT_WAIT),
        EPOCH_END: tiles.part == windows.EPOCH_END,
    }
    unobserved = int(tiles.length[tiles.phase == windows.UNOBSERVED].sum())
    for code, phase in enumerate(windows.PHASE_NAMES[: windows.UNOBSERVED]):
        mine = tiles.phase == code
        spent = int(tiles.length[mine].sum())
        table.add(f"{PHASE}/{phase}", position, spent, spent + unobserved, (MARKED,))
        if spent:
            chosen[f"{PHASE}/{phase}"] = mine
    for window, mine in chosen.items():
        if window in (STEP, WAIT, EPOCH_END):
            total = int(tiles.length[mine].sum())
            table.add(f"{window}/", position, total, total, (MARKED,))
        for name, below in low.items():
            least, most = int(below[mine].sum()), int(high[name][mine].sum())
            if slack_ns is not None and name.startswith(STORAGE):
                beside = free if name == STORAGE else free_parts
                most = min(most, least + slack_ns + int(beside[mine].sum()))
            if window != EPOCH_END and (most or window == RUN):
                table.add(f"{window}/{name}", position, least, most, (_evidence_of(name),), assumed)
    for code in (windows.INPUT_WAIT, windows.WORK):
        mine = in_step & (tiles.part == code)
        spent = int(tiles.length[mine].sum())
        if code == windows.INPUT_WAIT and not tiles.waits_known:
            total = int(tiles.length[in_step].sum())
            table.add(f"{STEP_PART}/{windows.PART_NAMES[code]}", position, 0, total)
            continue
        most = spent if tiles.waits_known else int(tiles.length[in_step].sum())
        low_ns = spent if tiles.waits_known else 0
        table.add(f"{STEP_PART}/{windows.PART_NAMES[code]}", position, low_ns, most, (MARKED,))


def _evidence_of(name: str) -> str:
    """The source that a cell of a rank with steps mostly rests on."""
    cause = name.partition(".")[0]
    if cause == STORAGE:
        return TRACED
    if cause in (COMPUTE, COMMUNICATION, WAITING_FOR_PEERS, DEVICE_IDLE):
        return PROFILED
    return FETCHED if cause in (INPUT_CPU, DELIVERY, WORKERS) else MARKED


def _account_runs(
    table: _Table,
    trace: Trace,
    results: Results,
    bounds: StorageBounds | None,
    whole: bool,
) -> None:
    """What counters and traces say of the storage of whole runs, of every rank."""
    ranks, window_ns = table.ranks, table.window_ns
    stepless = ~table.observed
    if not ranks:
        return
    low, high = np.zeros(ranks, np.int64), np.full(ranks, window_ns, np.int64)
    assumed: tuple[str, ...] = (NOT_MAPPED,) if _maps_unseen(results.coverage) else ()
    evidence: list[str] = []
    if bounds is not None:
        assumed += bounds.assumed
        low = _clipped_ns(bounds.low[ALL], window_ns)
        high = np.maximum(_clipped_ns(bounds.high[ALL], window_ns), low)
        evidence = [counters.EVIDENCE]
    binned = heatmaps.bound_by_bins(trace) if bounds is None and not results.busy else None
    if binned is not None:
        high, evidence = np.maximum(binned, low), [heatmaps.EVIDENCE]
    alone = np.bincount(trace.family[trace.family >= 0], minlength=ranks) <= 1
    traced = np.array([b.length if (b := results.busy.get(p)) else 0 for p in range(ranks)])
    if results.busy:
        evidence.append(TRACED)
        low = np.maximum(low, np.where(alone, traced, 0))
        slack = np.array([_slack_ns(bounds, trace, p) for p in range(ranks)], np.int64)
        if whole and stepless.any():
            high = np.maximum(np.where(alone, np.minimum(high, traced + slack), high), low)
    had_low, had_high = table.of(f"{RUN}/{STORAGE}")
    had_high = np.where(stepless, window_ns, had_high)
    new_low = np.where(stepless, low, np.maximum(had_low, np.minimum(low, had_high)))
    new_high = np.maximum(np.minimum(had_high, high), new_low)
    table.add(f"{RUN}/{STORAGE}", slice(None), new_low, new_high, evidence, assumed)
    if bounds is not None:
        _account_parts(table, bounds, assumed, stepless)
    # Nothing else is known of runs without steps: any cause may have had what storage left.
    rest = np.where(stepless, window_ns - new_low, 0)
    for cause in (COMPUTE, COMMUNICATION, HOST_CPU, TOO_FEW_CORES, BLOCKED):
        name = f"{RUN}/{cause}"
        had_low, had_high = table.of(name)
        if stepless.any():
            table.add(name, slice(None), had_low, np.where(stepless, rest, had_high))


def _account_parts(
    table: _Table, bounds: StorageBounds, assumed: tuple[str, ...], stepless: NDArray[np.bool_]
) -> None:
    """What counters say of the parts of storage of whole runs."""
    whole_window = np.full(table.ranks, table.window_ns, np.int64)
    for part in _PARTS:
        name = f"{RUN}/{STORAGE}.{part}"
        least = _clipped_ns(bounds.low[part], table.window_ns)
        most = np.maximum(_clipped_ns(bounds.high[part], table.window_ns), least)
        had_low, had_high = table.of(name)
        counted_only = part in (SYNC, OBJECT, EXCHANGE)
        had_high = whole_window if counted_only else np.where(stepless, whole_window, had_high)
        lowest = np.minimum(np.maximum(had_low, least), had_high)
        most = np.maximum(np.minimum(had_high, most), lowest)
        if most.any():
            table.add(name, slice(None), lowest, most, (counters.EVIDENCE,), assumed)


def _clipped_ns(seconds: NDArray[np.float64], window_ns: int) -> Int64Array:
    """Whole ns of seconds, not more than a window."""
    return np.rint(np.minimum(seconds, window_ns / 1e9) * 1e9).astype(np.int64)


def open_gains(trace: Trace, results: Results) -> Gains | None:
    """The run, ready to be run again without a cause; None without steps and their waits."""
    bounds = counters.bound_storage(trace, _serial_processes(trace, results))
    whole = is_whole(trace, results.coverage)
    of_process: dict[int, Served] = {}
    for position in range(len(trace.ranks)):
        slack_ns = _slack_ns(bounds, trace, position)
        of_process |= _served_by_process(trace, results, position, whole, slack_ns)
    return pipelines.open_gains(trace, of_process)
