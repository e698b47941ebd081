"""Is the I/O hidden behind compute, or does training wait for it?

A rank's busy time splits exactly, in this order: unobserved (outside the profiled window),
in_wait (inside an input wait), hidden (under compute), behind_communication, other (in the
window, under nothing recorded: checkpoint, logging).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from vanidl.analyses.operations import Operations
from vanidl.analyses.profiled_steps import RankSpans, group_rank_spans
from vanidl.model import intervals
from vanidl.model.intervals import Intervals, intersect, subtract
from vanidl.model.ordering import find_distinct
from vanidl.model.trace import Process, Profile, SpanKind, Spans, Trace
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RankOverlap:
    """One rank's window, split. All in seconds.

    io_s = unobserved_s + in_wait_s + hidden_s + behind_communication_s + other_s, exactly.
    The waits are those of training steps, as the account has them: `input_wait_io_s` of them went
    to storage, metadata calls among it, and `input_wait_rest_s` to anything else, such as
    decoding; each the least that it can be, `..._at_most_s` the most. None: not recorded.
    """

    label: str
    rank: int | None
    window_s: float
    io_s: float | None  # busy time of the rank's family
    unobserved_s: float | None
    in_wait_s: float | None
    hidden_s: float | None
    behind_communication_s: float | None
    other_s: float | None
    exposed_s: float | None
    compute_s: float | None  # of what `basis` names
    communication_s: float | None  # collectives not covered by compute
    input_wait_s: float | None
    input_wait_io_s: float | None  # part of the wait that went to storage, at least
    starving_wait_s: float | None  # wait while the device idles; = input_wait_s on basis ops
    input_wait_io_at_most_s: float | None = None
    input_wait_metadata_s: float | None = None
    input_wait_metadata_at_most_s: float | None = None
    input_wait_rest_s: float | None = None
    input_wait_rest_at_most_s: float | None = None
    in_wait_at_least_s: float | None = None  # whatever the clocks leave open
    in_wait_at_most_s: float | None = None
    hidden_at_least_s: float | None = None  # whichever thread called, and of calls not traced
    hidden_at_most_s: float | None = None

    @property
    def unknown_s(self) -> float | None:
        """I/O in the window of which it was not recorded what training did meanwhile."""
        if self.io_s is None or self.unobserved_s is None:
            return None
        known = (self.in_wait_s, self.hidden_s, self.behind_communication_s, self.other_s)
        left_s = self.io_s - self.unobserved_s - sum(part or 0.0 for part in known)
        return max(left_s, 0.0) if None in known else 0.0


@dataclass(frozen=True, slots=True)
class Overlap:
    """Is the I/O hidden behind compute, or does training wait for it?

    `basis`: "device" where any kernel was recorded, else "ops" (CPU operators). "loop" where
    neither was but the loop was marked: I/O is hidden while the training thread neither waits
    for input nor is in I/O itself. "device+loop", "ops+loop": inside profiled windows by kernels
    or operators, elsewhere by the loop. None: nothing was recorded. A wait counts as in_wait
    only while the device is idle, as far as kernels were recorded.
    """

    basis: str | None
    ranks_observed: int
    mean: RankOverlap  # mean over the observed ranks
    per_rank: tuple[RankOverlap, ...]
    hidden_fraction: float | None  # hidden / observed, summed over ranks
    lost_to_input_s: float | None  # sum over steps of the longest wait of any rank
    input_wait_share: float | None  # of the training steps
    accelerator_utilization: float | None  # compute / window: AU of MLPerf Storage; not by loop
    pipeline_share: float | None  # (dataset I/O or preprocessing) / run time; None: unrecorded

    @property
    def has_kernels(self) -> bool:
        """Whether kernels were recorded: a device may compute while training waits for input."""
        return _has_kernels(self.basis)

    @property
    def rests_on_loop(self) -> bool:
        """Whether what was hidden rests on the marked loop, all of it or in part."""
        return _rests_on_loop(self.basis)


class SlowestWaits:
    """The longest input wait of any rank in each step, gathered rank by rank.

    Steps of different ranks are the same step where number and repetition are equal.
    """

    def __init__(self) -> None:
        self._key, self._longest = (np.empty(0, np.int64) for _ in range(2))

    def add(self, number: Int64Array, waited: Int64Array) -> None:
        """The waits of one rank: of steps of these numbers, in order of start."""
        if (number[1:] > number[:-1]).all():
            key = number << _REPETITION_BITS
        else:
            order = np.argsort(number, kind="stable")
            step, at = number[order], np.arange(len(order))
            starts = np.append(True, step[1:] != step[:-1])[: len(step)]
            repetition = at - np.maximum.accumulate(np.where(starts, at, 0))
            key, waited = (step << _REPETITION_BITS) + repetition, waited[order]
        if np.array_equal(key, self._key):  # mostly all ranks have the same steps
            np.maximum(self._longest, waited, out=self._longest)
            return
        every = find_distinct(np.concatenate([self._key, key]))
        longest = np.zeros(len(every), np.int64)
        longest[np.searchsorted(every, self._key)] = self._longest
        place = np.searchsorted(every, key)
        longest[place] = np.maximum(longest[place], waited)
        self._key, self._longest = every, longest

    @property
    def total_s(self) -> float:
        """Their sum: what synchronous training loses to input."""
        return float(self._longest.sum()) / 1e9


_REPETITION_BITS = 31


def summarize_overlap(
    rows: Sequence[RankOverlap], basis: str | None, lost_s: float, steps_ns: float
) -> Overlap | None:
    """The overlap of a run from that of each rank with profiled steps; None where there is none.

    Args:
        rows: of `measure_rank_overlap`.
        basis: what was known of compute.
        lost_s: the longest input waits of all steps.
        steps_ns: the training steps of all ranks together.
    """
    if not rows:
        return None
    observed = _sum(
        [
            None if r.io_s is None or r.unobserved_s is None else r.io_s - r.unobserved_s
            for r in rows
        ]
    )
    window = sum(r.window_s for r in rows)
    waited = _sum([r.input_wait_s for r in rows])
    return Overlap(
        basis,
        len(rows),
        _mean(rows),
        tuple(rows),
        _divide_or_none(_sum([r.hidden_s for r in rows]), observed),
        None if waited is None else lost_s,
        _divide_or_none(waited, steps_ns / 1e9),
        None
        if _rests_on_loop(basis)
        else _divide_or_none(_sum([r.compute_s for r in rows]), window),
        None,  # profiles hold preprocessing of profiled steps only, and this is of the run
    )


def measure_rank_overlap(
    trace: Trace,
    reduced: Operations,
    position: int,
    split: Split,
    basis: str | None,
    missing_ns: int = 0,
) -> RankOverlap:
    """The split of one rank, as a row; its waits are not in it yet.

    `missing_ns`: how long its calls that move data were at most that are in no trace.
    """
    process = trace.processes[trace.ranks[position]]
    spans, did = split.spans, split.did
    busy = reduced.busy.get(position, intervals.EMPTY)
    traced, known = bool(reduced.totals), spans.waits_known
    exposed_s = None
    if split.observed is not None and split.hidden is not None:
        exposed_s = (split.observed.length - split.hidden.length) / 1e9
    row = RankOverlap(
        process.label,
        process.rank,
        spans.windows.length / 1e9,
        busy.length / 1e9 if traced else None,
        None if split.observed is None else (busy.length - split.observed.length) / 1e9,
        _convert_to_s(split.in_wait),
        _convert_to_s(split.hidden),
        _convert_to_s(split.behind_communication),
        _convert_to_s(split.other),
        exposed_s,
        did.compute.length / 1e9 if basis and (known or not spans.marks_loop) else None,
        did.communication.length / 1e9,
        None,
        None,
        None,
    )
    if split.observed is not None:
        # How much I/O was hidden, at least and at most. Where it is not known which calls were of
        # the thread that trains, or when it computed, any of them outside of waits may have been
        # hidden; and so may calls that were not traced.
        rest_ns = subtract(split.observed, split.did.starving).length
        least_ns = 0 if split.hidden is None else split.hidden.length
        traced_ns = rest_ns if split.hidden is None else least_ns
        room_ns = subtract(split.spans.windows, split.did.starving).length
        most_ns = max(min(traced_ns + missing_ns, room_ns), least_ns)
        least_s, most_s = least_ns / 1e9, most_ns / 1e9
        row = replace(row, hidden_at_least_s=least_s, hidden_at_most_s=most_s)
    if split.observed is None or split.in_wait is None:
        return row
    # The I/O that was in waits, and may have been, by its clocks.
    least_s, most_s = bound_by_clocks(trace, position, split.observed, split.did.starving)
    return replace(row, in_wait_at_least_s=least_s, in_wait_at_most_s=most_s)


DEVICE, OPS, LOOP = "device", "ops", "loop"


def find_basis(trace: Trace) -> str | None:
    """What was recorded that says when a run computed."""
    has = {kind: bool((trace.spans.kind == kind).any()) for kind in (SpanKind.KERNEL, SpanKind.OP)}
    computed = DEVICE if has[SpanKind.KERNEL] else OPS if has[SpanKind.OP] else None
    if any(profile.marks_loop and profile.aligned for profile in trace.profiles):
        return LOOP if computed is None else f"{computed}+{LOOP}"
    return computed


def _has_kernels(basis: str | None) -> bool:
    """Whether kernels were recorded: a device may compute while training waits for input."""
    return basis in (DEVICE, f"{DEVICE}+{LOOP}")


def _rests_on_loop(basis: str | None) -> bool:
    """Whether what was hidden rests on the marked loop, all of it or in part."""
    return basis is not None and basis.endswith(LOOP)


@dataclass(frozen=True, slots=True)
class Activity:
    """What one rank did inside its window; compute and wait are disjoint on both bases."""

    compute: Intervals
    starving: Intervals
    communication: Intervals


def _find_rank_activity(
    mine: Spans, spans: RankSpans, trace: Trace, basis: str | None, own_io: Intervals
) -> Activity:
    def within(kind: SpanKind) -> Intervals:
        picked = mine.of_kind(kind)
        return intersect(intervals.union(picked.start, picked.end), spans.windows)

    # A device goes on during a wait; operators within one are those of the loader.
    if _has_kernels(basis):
        compute = within(SpanKind.KERNEL)
        starving = subtract(spans.waits, compute)
    else:
        compute = subtract(within(SpanKind.OP), spans.waits)
        starving = spans.waits
    communication = subtract(within(SpanKind.COMMUNICATION), compute)
    # Outside of profiles a marked loop computes where it neither waits nor calls storage.
    if spans.marks_loop and spans.waits_known:
        going_on = subtract(subtract(spans.windows, spans.waits), own_io)
        compute = intervals.merge(compute, subtract(going_on, _find_profiled_windows(mine, trace)))
    return Activity(compute, starving, communication)


def _find_profiled_windows(spans: Spans, trace: Trace) -> Intervals:
    """The windows in which a profiler recorded compute, beside the marks of the loop."""
    computed = spans.of_kind(SpanKind.KERNEL, SpanKind.OP)
    bounds = [
        (int(computed.start[mine].min()), int(computed.end[mine].max()))
        for source in computed.sources
        if not trace.profiles[source].marks_loop
        for mine in [computed.source == source]
    ]
    low, high = np.array(bounds, np.int64).reshape(-1, 2).T
    return intervals.union(low, high)


@dataclass(frozen=True, slots=True)
class Split:
    """When one rank's observed I/O was in waits, hidden and so on; None: not known."""

    spans: RankSpans
    did: Activity
    observed: Intervals | None
    in_wait: Intervals | None
    hidden: Intervals | None
    behind_communication: Intervals | None
    other: Intervals | None


def split_rank(
    trace: Trace,
    reduced: Operations,
    position: int,
    mine: Spans,
    spans: RankSpans,
    basis: str | None,
    *,
    threads_known: bool = True,
) -> Split:
    """The I/O of one rank with a profiled step.

    Without wait spans the waits are somewhere in the window, unknown; on basis ops even hidden is
    then unknown, because operators of an unmarked loader look like compute: but not where the
    program marks its compute itself. By the loop nothing is known of what is hidden where calls
    may be of another thread than that of training.

    Args:
        trace: the run.
        reduced: its operations.
        position: of the rank in Trace.ranks.
        mine: all spans of it.
        spans: its steps, windows and waits among these.
        basis: of `find_basis`.
        threads_known: whether it is known which calls are of the training thread.
    """
    own_io = reduced.own_busy.get(position, intervals.EMPTY)
    did = _find_rank_activity(mine, spans, trace, basis, own_io)
    if not reduced.totals:
        return Split(spans, did, None, None, None, None, None)
    # Busy time in the profiled window, divided in this order; what cannot be told is None.
    observed = intersect(reduced.busy.get(position, intervals.EMPTY), spans.windows)
    rest = subtract(observed, did.starving)
    hidden = intersect(rest, did.compute)
    exposed = subtract(rest, did.compute)
    waits = spans.waits_known
    can_hide = basis == DEVICE or (basis is not None and (waits or spans.marks_compute))
    can_hide &= threads_known or not (_rests_on_loop(basis) and spans.marks_loop)
    return Split(
        spans,
        did,
        observed,
        intersect(observed, did.starving) if waits else None,
        hidden if can_hide else None,
        intersect(exposed, did.communication) if can_hide else None,
        subtract(exposed, did.communication) if can_hide and waits else None,
    )


def _convert_to_s(part: Intervals | None) -> float | None:
    return None if part is None else part.length / 1e9


def _mean(rows: Sequence[RankOverlap]) -> RankOverlap:
    names = [f.name for f in fields(RankOverlap)][2:]
    totals = [_sum([getattr(row, name) for row in rows]) for name in names]
    return RankOverlap("mean", None, *(_divide_or_none(t, len(rows)) for t in totals))  # type: ignore[arg-type]


def _sum(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) if known and len(known) == len(values) else None


def _divide_or_none(a: float | None, b: float | None) -> float | None:
    return None if a is None or not b else a / b


def bound_by_clocks(
    trace: Trace, position: int, observed: Intervals, starving: Intervals
) -> tuple[float, float]:
    """Seconds of I/O in waits whatever the offsets of the clocks are, and what there may be.

    An operation lay up to `earlier` before and `later` after where it was laid. So it was in a
    wait for sure where all of that is, and may have been where any of that is.

    Args:
        trace: the run.
        position: of the rank in Trace.ranks.
        observed: its I/O in the profiled window.
        starving: its input waits.
    """
    # How far any operation of a rank can lie before and after its place, ns.
    trainer = trace.ranks[position]
    logs = [p for p in trace.processes if p.trainer == trainer and p.clock_evidence]
    spans = trace.spans_of(position)
    with_steps = find_distinct(spans.source[spans.kind == SpanKind.STEP]).tolist()
    own = [
        _bound_clock_offset(p) for i in with_steps if (p := trace.profiles[i]).process == trainer
    ]
    workers = [_bound_clock_offset(p) for p in logs]
    # Adding to a log's times moves its operations later, adding to a profile's the waits.
    earlier, later = (
        max((low for low, _ in workers), default=0) + max((high for _, high in own), default=0),
        max((high for _, high in workers), default=0) + max((low for low, _ in own), default=0),
    )
    sure = _widen_spans(starving, -earlier, -later)
    possible = _widen_spans(starving, later, earlier)
    at_most = min(intersect(observed, possible).length, starving.length)
    return intersect(observed, sure).length / 1e9, at_most / 1e9


def _bound_clock_offset(clock: Process | Profile) -> tuple[int, int]:
    """How far the true offset may lie below and above the one that is used."""
    used = clock.clock_offset_ns
    return max(used - clock.clock_low_ns, 0), max(clock.clock_high_ns - used, 0)


def _widen_spans(spans: Intervals, before: int, after: int) -> Intervals:
    """Each span longer by so much at its start and its end, or shorter; none where none is left."""
    start, end = spans.start - before, spans.end + after
    kept = start < end
    return intervals.union(start[kept], end[kept])


_EVER = np.iinfo(np.int64).min


class Fate(IntEnum):
    """What became of the time of an operation."""

    IN_WAIT = 0
    HIDDEN = 1
    BEHIND_COMMUNICATION = 2
    OTHER = 3  # within the steps, under nothing that was recorded
    UNOBSERVED = 4  # outside the steps that were recorded
    UNKNOWN = 5  # within the steps; what else went on was not recorded


@dataclass(frozen=True, slots=True)
class RankFates:
    """What a rank's I/O comes to at each time, the split of the overlap as a function of time.

    All time in cells: fate[i] holds from start[i] up to start[i + 1], the last for ever.
    """

    start: Int64Array  # ns since the epoch, the first before all time
    fate: NDArray[np.uint8]

    def at(self, times: Int64Array) -> NDArray[np.intp]:
        """The cell that each time lies in."""
        return np.searchsorted(self.start, times, side="right") - 1


NEVER_OBSERVED = RankFates(np.array([_EVER], np.int64), np.array([Fate.UNOBSERVED], np.uint8))
"""The fates of a rank without a profiled step."""


class FatesByRank(Mapping[int, RankFates]):
    """Position in Trace.ranks -> its fates, worked out when asked for; of ranks with steps."""

    def __init__(self, trace: Trace, reduced: Operations) -> None:
        self._trace, self._reduced = trace, reduced
        self._ranks, self._basis = group_rank_spans(trace), find_basis(trace)
        self._fates: dict[int, RankFates] = {}

    def __getitem__(self, position: int) -> RankFates:
        if position not in self._fates:
            spans, mine = self._ranks[position], self._trace.spans_of(position)
            split = split_rank(self._trace, self._reduced, position, mine, spans, self._basis)
            self._fates[position] = _build_fates(split)
        return self._fates[position]

    def __iter__(self) -> Iterator[int]:
        return iter(self._ranks)

    def __len__(self) -> int:
        return len(self._ranks)


def _build_fates(split: Split) -> RankFates:
    windows, did = split.spans.windows, split.did
    unknown = split.other is None
    layers: list[tuple[Intervals, Fate]] = [
        (windows, Fate.UNKNOWN if unknown else Fate.OTHER),
    ]  # the last that covers a time holds
    if split.behind_communication is not None:
        layers.append((did.communication, Fate.BEHIND_COMMUNICATION))
    if split.hidden is not None:
        layers.append((did.compute, Fate.HIDDEN))
    if split.in_wait is not None:
        layers.append((did.starving, Fate.IN_WAIT))
    edges = [edge for spans, _ in layers for edge in spans]
    start = find_distinct(np.concatenate([np.array([_EVER], np.int64), *edges]))
    fate = np.full(len(start), Fate.UNOBSERVED, np.uint8)
    for spans, code in layers:
        fate[_is_covered(spans, start)] = code
    outside = ~_is_covered(windows, start)
    fate[outside] = Fate.UNOBSERVED
    changes = np.append(True, fate[1:] != fate[:-1])
    return RankFates(start[changes], fate[changes])


def _is_covered(spans: Intervals, at: Int64Array) -> NDArray[np.bool_]:
    """Which of the times are covered."""
    if not len(spans.start):
        return np.zeros(len(at), bool)
    last = np.searchsorted(spans.start, at, side="right") - 1
    inside: NDArray[np.bool_] = (last >= 0) & (at < spans.end[np.maximum(last, 0)])
    return inside


def split_busy_by_fate(busy: Intervals, fates: RankFates) -> dict[Fate, Intervals]:
    """The parts of a busy time by what became of them; those that are empty are left out."""
    found = {}
    for fate in Fate:
        cells = np.flatnonzero(fates.fate == fate)
        ends = np.append(fates.start[1:], np.iinfo(np.int64).max)
        part = intervals.intersect(busy, Intervals(fates.start[cells], ends[cells]))
        if len(part.start):
            found[fate] = part
    return found
