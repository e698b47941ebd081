"""Profiled steps: how long each took, what of it waited for input, what was read and written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses import timeline
from vanidl.analyses.operations import Operations, add_sparse
from vanidl.analyses.reducing import Rows
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.ordering import find_distinct
from vanidl.model.trace import (
    FROM_COMPUTE,
    WRITE,
    ClockReason,
    Profile,
    SpanKind,
    Spans,
    Trace,
    UndatedSteps,
)
from vanidl.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class StepTable:
    """One row a profiled step and rank, sorted by (rank position, start); equal lengths.

    Times in seconds, starts and ends since the start of the job. `busy_s` is the time of the
    rank's family in I/O *during the step*, whichever step the data is for.
    """

    rank: NDArray[np.int32]  # position in Trace.ranks
    step: NDArray[np.int32]
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    input_wait_s: NDArray[np.float64]  # nan where not recorded
    busy_s: NDArray[np.float64]  # nan where no I/O was traced
    undated_s: NDArray[np.float64] | None = None  # durations, where starts and ends are nan

    @property
    def duration_s(self) -> NDArray[np.float64]:
        """How long each step took."""
        return self.end_s - self.start_s if self.undated_s is None else self.undated_s


@dataclass(frozen=True, slots=True)
class ClockEvidence:
    """How a profile's times were put on the clock of the I/O.

    `offset_s` was added to its times; the true offset lies in [low_s, high_s], at most
    `uncertainty_s` away. Method "none": its steps have no times; "not aligned": how the
    clocks differ is not known. Of both, offset and interval are None. `evidence` says why.
    """

    method: str
    offset_s: float | None
    uncertainty_s: float | None
    low_s: float | None = None
    high_s: float | None = None
    evidence: tuple[ClockReason, ...] = ()
    label: str = ""  # of the rank
    path: str = ""  # of the profile
    workers_uncertainty_s: float | None = None  # of the least certain log of its workers

    @property
    def within_s(self) -> float | None:
        """How far off any operation of the rank may lie, those of its workers included."""
        both = (self.uncertainty_s, self.workers_uncertainty_s)
        return max((s for s in both if s is not None), default=None)

    @property
    def workers_least(self) -> bool:
        """Whether a log of a worker is less certain than the profile."""
        return (self.workers_uncertainty_s or 0.0) > (self.uncertainty_s or 0.0)


@dataclass(frozen=True, slots=True)
class LogClock:
    """What was added to the times of one log, whose start may have been taken late.

    The true offset lies in [low_s, high_s]. Process and log have it apart from all others.
    """

    label: str
    path: str
    offset_s: float
    uncertainty_s: float
    low_s: float
    high_s: float
    evidence: tuple[ClockReason, ...]


@dataclass(frozen=True, slots=True)
class DeviceSteps:
    """How long devices were at the steps that events were recorded for, over all ranks.

    `device_s` is the most that they were busy; `host_s` what the processes took for the same.
    """

    steps: int
    device_s: float
    host_s: float


@dataclass(frozen=True, slots=True)
class LoaderWaits:
    """What training waited for one loader, over all ranks; known where the loop was marked."""

    name: str  # "DataLoader 0 (Images, training)"
    waits: int
    wait_s: float


@dataclass(frozen=True, slots=True)
class Steps:
    """Profiled steps over all ranks, in seconds."""

    source: str
    per_rank_min: int
    per_rank_max: int
    ranks: int
    mean_s: float
    median_s: float
    p99_s: float
    clock: ClockEvidence  # the least certain
    table: StepTable
    clocks: tuple[ClockEvidence, ...] = ()  # of every profile
    steps_from: str = ""  # "input waits" where some were not marked but derived from those
    log_clocks: tuple[LogClock, ...] = ()  # of every log with an offset of its own
    loaders: tuple[LoaderWaits, ...] = ()  # empty where waits do not tell which loader
    device: DeviceSteps | None = None  # where the recorder saw one
    counted: int | None = None  # of a rank, profiled or not; None: not more than were profiled


@dataclass(frozen=True, slots=True)
class RankSpans:
    """What profilers saw of one rank.

    `windows` run from the first to the last step of each trace; of one that marked no step, or
    the loop of the whole process, from its first span to its last.
    """

    steps: Spans
    windows: Intervals
    waits: Intervals
    waits_known: bool
    marks_loop: bool = False  # its profile marks the loop of the whole process
    marks_compute: bool = False  # its operators are the compute that the program marks, no other

    def wait_ns(self, start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
        """Input wait inside each window [start[i], end[i])."""
        return intervals.covered_within(self.waits, start, end)


class SpansByRank(Mapping[int, RankSpans]):
    """Position in Trace.ranks -> its spans, worked out when asked for: one rank is held at a time.

    Who asks for the same rank again and again keeps them: `dict(rank_spans(trace))`.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._positions = trace.stepping

    def __getitem__(self, position: int) -> RankSpans:
        if position not in self._positions:
            raise KeyError(position)
        return gather_rank_spans(self._trace, self._trace.spans_of(position))

    def __iter__(self) -> Iterator[int]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)


def group_rank_spans(trace: Trace) -> SpansByRank:
    """What profilers saw of each rank with a profiled step."""
    return SpansByRank(trace)


def finish(reduced: Operations, trace: Trace) -> Steps | None:
    """Statistics over all steps of all ranks; None where no step was profiled or timed."""
    ranks = group_rank_spans(trace)
    if not ranks:
        return measure_undated(trace)

    # The steps of every rank, and the profiles that they come from.
    traced = bool(reduced.totals)
    blocks, used = [], set[int]()
    for position, spans in ranks.items():
        busy = reduced.busy.get(position, intervals.EMPTY)
        blocks.append(_make_rows(position, spans, trace, busy, traced))
        used.update(find_distinct(spans.steps.source).tolist())
    table = StepTable(*(np.concatenate(column) for column in zip(*blocks, strict=True)))
    duration = table.duration_s
    counts = [len(block[0]) for block in blocks]
    sources = [trace.profiles[s] for s in sorted(used)]
    programs = {
        f"{p.source}, steps from {p.steps_from}" if p.steps_from else p.source for p in sources
    }
    # Steps by an event file, where these are more than were profiled; work of devices.
    counted = trace.steps_counted
    devices = [profile.device for profile in trace.profiles if profile.device is not None]
    device = None
    if devices:
        device = DeviceSteps(
            sum(each.steps for each in devices),
            sum(each.device_ns for each in devices) / 1e9,
            sum(each.host_ns for each in devices) / 1e9,
        )
    return Steps(
        " + ".join(sorted(programs)), min(counts), max(counts), len(ranks), float(duration.mean()),
        float(np.median(duration)), float(np.percentile(duration, 99)),
        find_worst_clock(trace), table, list_clocks(trace),
        next((p.steps_from for p in sources if p.steps_from), ""),
        list_log_clocks(trace), sum_loader_waits(trace),
        counted=counted if counted is not None and counted > max(counts) else None, device=device,
    )  # fmt: skip


def measure_undated(trace: Trace) -> Steps | None:
    """Steps of which only durations are known, over all ranks; None where there are none.

    Starts and ends in the table are nan: durations do not say when, so nothing that needs a
    place in time (waits, I/O during a step, overlap) is computed from them.
    """
    family = trace.family
    found = [(int(family[d.process]), d) for d in trace.step_durations]
    found = sorted(((rank, d) for rank, d in found if rank >= 0), key=lambda row: row[0])
    if not found:
        return None
    rank = np.concatenate([np.full(len(d.step), position, np.int32) for position, d in found])
    duration_s = np.concatenate([d.duration_ns for _, d in found]) / 1e9
    missing = np.full(len(rank), np.nan)
    table = StepTable(
        rank, np.concatenate([d.step for _, d in found]), missing, missing, missing, missing,
        duration_s,
    )  # fmt: skip
    counts = np.unique(rank, return_counts=True)[1]
    return Steps(
        " + ".join(sorted({d.source for _, d in found})),
        int(counts.min()),
        int(counts.max()),
        len(counts),
        float(duration_s.mean()),
        float(np.median(duration_s)),
        float(np.percentile(duration_s, 99)),
        _describe_undated_clock(trace, found),
        table,
        list_clocks(trace),
    )


def _describe_undated_clock(
    trace: Trace, found: Sequence[tuple[int, UndatedSteps]]
) -> ClockEvidence:
    """Not aligned, where the steps are of profiles with times of their own."""
    ranks = {rank for rank, _ in found}
    for profile, clock in zip(trace.profiles, list_clocks(trace), strict=True):
        if not profile.aligned and int(trace.family[profile.process]) in ranks:
            return clock
    return ClockEvidence("none", None, None)


def sum_loader_waits(trace: Trace) -> tuple[LoaderWaits, ...]:
    """The waits for each loader, in order of its name, from profiles that mark the loop."""
    marking = [i for i, profile in enumerate(trace.profiles) if profile.marks_loop]
    spans = trace.spans
    waits = spans.pick((spans.kind == SpanKind.INPUT_WAIT) & np.isin(spans.source, marking))
    counts = np.bincount(waits.name, minlength=len(spans.names))
    taken = np.bincount(waits.name, waits.end - waits.start, minlength=len(spans.names))
    return tuple(
        LoaderWaits(spans.names[k], int(counts[k]), float(taken[k]) / 1e9)
        for k in np.flatnonzero(counts).tolist()
    )


def gather_rank_spans(trace: Trace, spans: Spans) -> RankSpans:
    """What profilers saw of one rank, from all spans of it, a step among them."""
    steps = spans.of_kind(SpanKind.STEP)
    waiting = np.flatnonzero(spans.kind == SpanKind.INPUT_WAIT)
    profiles = {source: trace.profiles[source] for source in steps.sources}
    bounds = [_find_window(trace, spans, source) for source in profiles]
    low, high = np.array(bounds, np.int64).T
    known = all(profile.has_wait_spans for profile in profiles.values())
    loop = any(profile.marks_loop for profile in profiles.values())
    windows = intervals.union(low, high)
    inside = intervals.intersect(intervals.union(spans.start[waiting], spans.end[waiting]), windows)
    marked = all(profile.steps_from == FROM_COMPUTE for profile in profiles.values())
    return RankSpans(steps, windows, inside, known, loop, marked)


def _find_window(trace: Trace, spans: Spans, source: int) -> tuple[int, int]:
    """What one trace shows of its rank; not beyond the part of the run that is looked at."""
    profile = trace.profiles[source]
    if spans.sources != [source]:
        spans = spans.pick(spans.source == source)
    if not profile.steps_from and not profile.marks_loop:
        spans = spans.of_kind(SpanKind.STEP)
        return int(spans.start.min()), int(spans.end.max())
    return (
        max(int(spans.start.min()), trace.job.start_ns),
        min(int(spans.end.max()), trace.job.end_ns),
    )


def _make_rows(
    position: int, spans: RankSpans, trace: Trace, busy: Intervals, traced: bool
) -> tuple[NDArray[np.generic], ...]:
    steps = spans.steps
    since = trace.job.start_ns
    missing = np.full(len(steps), np.nan)
    wait = spans.wait_ns(steps.start, steps.end) / 1e9 if spans.waits_known else missing
    in_io = intervals.covered_within(busy, steps.start, steps.end) / 1e9 if traced else missing
    return (
        np.full(len(steps), position, np.int32), steps.step,
        (steps.start - since) / 1e9, (steps.end - since) / 1e9, wait, in_io,
    )  # fmt: skip


def find_worst_clock(trace: Trace) -> ClockEvidence:
    """The least certain of the clocks of the profiles that are aligned, workers' logs included."""
    aligned = [_make_clock_evidence(trace, p) for p in trace.profiles if p.aligned]
    return max(aligned, key=lambda c: (c.uncertainty_s or 0.0) + (c.workers_uncertainty_s or 0.0))


def list_log_clocks(trace: Trace) -> tuple[LogClock, ...]:
    """The clock of every log whose start may have been taken late, in order of processes."""
    return tuple(
        LogClock(
            label=p.label,
            path=p.log,
            offset_s=p.clock_offset_ns / 1e9,
            uncertainty_s=p.clock_uncertainty_ns / 1e9,
            low_s=p.clock_low_ns / 1e9,
            high_s=p.clock_high_ns / 1e9,
            evidence=p.clock_evidence,
        )
        for p in trace.processes
        if p.clock_evidence
    )


def list_clocks(trace: Trace) -> tuple[ClockEvidence, ...]:
    """The clock of every profile."""
    return tuple(_make_clock_evidence(trace, profile) for profile in trace.profiles)


def _make_clock_evidence(trace: Trace, profile: Profile) -> ClockEvidence:
    label = trace.processes[profile.process].label
    if not profile.aligned:
        return ClockEvidence(
            profile.clock_method, None, None, None, None, profile.clock_evidence, label,
            profile.path,
        )  # fmt: skip
    # Workers have clocks of their own: the least certain one is named.
    unsure = [
        p.clock_uncertainty_ns
        for p in trace.processes
        if p.trainer == profile.process and p.role == "worker" and p.clock_evidence
    ]
    worker_uncertainty_s = max(unsure) / 1e9 if unsure else None
    return ClockEvidence(
        profile.clock_method,
        profile.clock_offset_ns / 1e9,
        profile.clock_uncertainty_ns / 1e9,
        profile.clock_low_ns / 1e9,
        profile.clock_high_ns / 1e9,
        profile.clock_evidence,
        label,
        profile.path,
        worker_uncertainty_s,
    )


Int64Array = NDArray[np.int64]

SLOWEST = 3
AMOUNTS = 4  # reads, writes, bytes read, bytes written


@dataclass(frozen=True, slots=True)
class StepSums:
    """What single operations moved during steps, and which files they took longest for.

    Bytes of an operation are spread in proportion to time, in exact integers, and operations count
    where they start, as in the timeline: over all steps and the time outside them they add up to
    the totals. Sparse sums: `amounts[i]` of step row `row[i]`, and `spent` ns at `key` = row, file.
    """

    row: Int64Array
    amounts: Int64Array  # shape (n, 4): reads, writes, bytes read, bytes written
    key: Int64Array
    spent: Int64Array


_NONE = np.empty(0, np.int64)
NO_SUMS = StepSums(_NONE, np.empty((0, AMOUNTS), np.int64), _NONE, _NONE)


@dataclass(frozen=True, slots=True)
class _StepCells:
    """The time of one rank in cells between the borders of its steps."""

    bounds: Int64Array
    row: Int64Array  # cell -> row of the step table, -1 outside steps


@dataclass(frozen=True, slots=True)
class OfSteps:
    """The reduction for the steps of one trace."""

    cells: dict[int, _StepCells] = field(default_factory=dict)  # position in Trace.ranks -> cells
    NOTHING: StepSums = NO_SUMS

    def partial(self, rows: Rows, trace: Trace) -> StepSums:
        """The sums of some rows."""
        value = NO_SUMS
        for position, own in rows.by_position(self.cells.keys()):
            # The sums of the rows of one rank.
            cells = self.cells[position]
            files = len(trace.files)
            row, amounts = _sum_amounts(own, cells)
            spent = timeline.split_by_bin(own.start, own.end, own.duration, cells.bounds)
            key, total = _NONE, _NONE
            for owner, at, share in spent:
                inside = (cells.row[at] >= 0) & (share > 0)
                keys = cells.row[at[inside]] * files + own.file[owner[inside]]
                key, total = add_sparse((key, total), _sum_by_key(keys, share[inside]))
            step_sums = StepSums(row, amounts, key, total)
            value = self.combine(value, step_sums)
        return value

    def combine(self, a: StepSums, b: StepSums) -> StepSums:
        """The sums of both."""
        row, amounts = _add_amounts((a.row, a.amounts), (b.row, b.amounts))
        return StepSums(row, amounts, *add_sparse((a.key, a.spent), (b.key, b.spent)))


def make_step_sums_reduction(trace: Trace) -> OfSteps:
    """The reduction for the steps of a trace, in the order of its step table."""
    cells, before = {}, 0
    for position, spans in group_rank_spans(trace).items():
        # Cells of steps in order of start; where two overlap, time counts in the later one.
        borders = np.unique(np.concatenate([spans.steps.start, spans.steps.end]))
        bounds = np.concatenate([borders[:1] - 1, borders, borders[-1:] + 1])
        step = np.searchsorted(spans.steps.start, bounds[:-1], side="right") - 1
        inside = (step >= 0) & (bounds[:-1] < spans.steps.end[np.maximum(step, 0)])
        cells[position] = _StepCells(bounds, np.where(inside, step + before, -1))
        before += len(spans.steps)
    return OfSteps(cells)


def _sum_amounts(rows: Rows, cells: _StepCells) -> tuple[Int64Array, Int64Array]:
    """(rows ascending, their amounts) of the operations of one rank."""
    write = (rows.op == WRITE).astype(np.int64)
    row = cells.row[timeline.find_bin(rows.start, cells.bounds)]
    blocks = [(row, np.stack([1 - write, write, 0 * write, 0 * write], axis=1))]
    for owner, at, share in timeline.split_by_bin(rows.start, rows.end, rows.nbytes, cells.bounds):
        wrote = write[owner]
        moved = np.stack([0 * share, 0 * share, share * (1 - wrote), share * wrote], axis=1)
        blocks.append((cells.row[at], moved))
    at_row = np.concatenate([r for r, _ in blocks])
    amounts = np.concatenate([a for _, a in blocks])
    inside = at_row >= 0
    return _add_amounts((_NONE, NO_SUMS.amounts), (at_row[inside], amounts[inside]))


def _add_amounts(
    a: tuple[Int64Array, Int64Array], b: tuple[Int64Array, Int64Array]
) -> tuple[Int64Array, Int64Array]:
    keys, place = np.unique(np.concatenate([a[0], b[0]]), return_inverse=True)
    total = np.zeros((len(keys), AMOUNTS), np.int64)
    np.add.at(total, place.ravel(), np.concatenate([a[1], b[1]]))
    return keys, total


def _sum_by_key(keys: Int64Array, values: Int64Array) -> tuple[Int64Array, Int64Array]:
    distinct, place = np.unique(keys, return_inverse=True)
    total = np.zeros(len(distinct), np.int64)
    np.add.at(total, place.ravel(), values)
    return distinct, total


def find_slowest_files(
    sums: StepSums, steps: int, trace: Trace
) -> tuple[tuple[tuple[str, float], ...], ...]:
    """Of each step the files with most time in I/O."""
    if not len(sums.key):
        return ((),) * steps
    found: list[tuple[tuple[str, float], ...]] = [()] * steps
    row, file = np.divmod(sums.key, max(len(trace.files), 1))
    order = np.lexsort((file, -sums.spent, row))
    row, file, spent = row[order], file[order], sums.spent[order]
    place = np.arange(len(row)) - np.searchsorted(row, row)
    for i in np.flatnonzero(place < SLOWEST):
        found[row[i]] += ((trace.files.path[int(file[i])], int(spent[i]) / 1e9),)
    return tuple(found)
