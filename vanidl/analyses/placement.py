"""Steps without times, placed between the bursts of reads around them.

A loader that reads a batch at once leaves one burst of reads an iteration. Where there is
one long step fewer than bursts, step k lies between the starts of two bursts; how many bursts
lie before step 0 is the only number at which every step fits between its two. The interval
is longer than the step by its slack, so a step may begin anywhere in it, and what I/O it hid
is known as [low, high] over all places, each step on its own.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.trace import READ, Trace
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]
Floats = NDArray[np.float64]

PlacementVerdict = Literal["hidden", "exposed", "not determined"]

_CLEAR_GAP = 5.0  # between bursts against within them
_PAUSE = 0.01  # of the eighth longest gap: shorter ones are within bursts
_CLEAR_STEP = 1.5  # the shortest long step against the longest other
_FEWEST = 8
_LAGS = range(4)
_ALIKE, _STANDS_OUT = 0.5, 0.25  # correlation at the right lag, and over that at others
_SURE = 0.1  # of the I/O: a narrower range is a verdict
_UNUSUAL = 10.0  # times the median slack: left out of the slope


@dataclass(frozen=True, slots=True)
class RankPlacement:
    """Long steps of one rank between bursts of reads of one file; all arrays equally long.

    `earliest_s` and `latest_s` bound the start of each step, since the start of the job, so
    that it and the shorter steps that follow it end before the next burst; `step_s` is how
    long it took alone, `slack_s` the difference of the bounds. I/O is that of the bursts from
    the first to the last placed step, `before_s` and `after_s` that of the others.
    """

    label: str
    rank: int | None
    path: str
    bursts: int
    lag: int  # step k lies between the starts of bursts k + lag and k + lag + 1
    why: str  # why at that lag, in words
    shortest_step_s: float  # of the long steps
    other_steps: int  # shorter ones, that are not placed
    earliest_s: Floats
    latest_s: Floats
    step_s: Floats
    io_s: float
    hidden_low_s: float
    hidden_high_s: float
    before_s: float
    after_s: float
    slope: float | None  # of slack on the length of the burst: 1 if reads block, 0 if not
    slope_error: float | None  # its standard error

    @property
    def slack_s(self) -> Floats:
        """How much later than its earliest start each step may have begun."""
        return self.latest_s - self.earliest_s

    @property
    def steps(self) -> int:
        """How many steps were placed."""
        return len(self.step_s)


@dataclass(frozen=True, slots=True)
class _Steps:
    """Long steps in order, ns: alone, and with the shorter steps up to the next."""

    alone: Int64Array
    together: Int64Array
    others: int  # how many shorter ones there are


@dataclass(frozen=True, slots=True)
class Placement:
    """What bursts of reads tell of steps without times."""

    per_rank: tuple[RankPlacement, ...]
    io_s: float  # sums over ranks
    hidden_low_s: float
    hidden_high_s: float
    verdict: PlacementVerdict


def finish(trace: Trace) -> Placement | None:
    """Every rank whose steps can be placed; None where there is none."""
    rows = []
    file = _find_busiest_file(trace) if trace.step_durations else None
    for steps in trace.step_durations:
        position = int(trace.family[steps.process])
        if position < 0 or file is None:
            continue
        # Bursts of reads of the file, as many long steps, and how far these are behind.
        reads = intervals.EMPTY
        for part in trace.io:
            if trace.family[part.process] == position:
                mine = (part.op == READ) & (part.file == file)
                reads = intervals.merge(reads, intervals.union(part.start[mine], part.end[mine]))
        bursts = _find_bursts(reads)
        if bursts is None:
            continue
        # A step lies between two bursts, so there is one fewer of them.
        long = _select_long_steps(steps.duration_ns, len(bursts.start) - 1)
        lag = None if long is None else _find_lag(bursts.start, long)
        if long is not None and lag is not None:
            rows.append(_make_placement(trace, _Where(position, file, *lag), reads, bursts, long))
    if not rows:
        return None
    rows.sort(key=lambda row: (row.rank is None, row.rank or 0))
    io_s = sum(row.io_s for row in rows)
    low, high = sum(row.hidden_low_s for row in rows), sum(row.hidden_high_s for row in rows)
    return Placement(tuple(rows), io_s, low, high, _decide_verdict(io_s, low, high))


def _decide_verdict(io_s: float, low: float, high: float) -> PlacementVerdict:
    if low >= (1 - _SURE) * io_s:
        return "hidden"
    return "exposed" if high <= _SURE * io_s else "not determined"


def _find_busiest_file(trace: Trace) -> int | None:
    """The dataset file that the job read most bytes of."""
    read = np.zeros(len(trace.files), np.int64)
    for part in trace.io:
        mine = part.op == READ
        np.add.at(read, part.file[mine], part.nbytes[mine])
    read[~trace.files.is_data] = 0
    return int(read.argmax()) if read.any() else None


def _find_bursts(reads: Intervals) -> Intervals | None:
    """Groups of reads; None where no gap between groups stands out against those within."""
    gaps = reads.start[1:] - reads.end[:-1]
    if len(gaps) < _FEWEST:
        return None
    # The largest drop among sorted gaps divides those between bursts from those within.
    ordered = np.sort(gaps)[::-1].astype(float)
    ratio = ordered[:-1] / np.maximum(ordered[1:], 1)
    ratio[: _FEWEST - 1] = 0
    ratio[ordered[:-1] < _PAUSE * ordered[_FEWEST - 1]] = 0
    at = int(ratio.argmax())
    if ratio[at] < _CLEAR_GAP:
        return None
    border = np.flatnonzero(gaps >= ordered[at])
    first = np.concatenate([[0], border + 1])
    last = np.append(border, len(reads.start) - 1)
    return Intervals(reads.start[first], reads.end[last])


def _select_long_steps(duration_ns: Int64Array, count: int) -> _Steps | None:
    """The `count` longest steps, each with the shorter ones that follow it; None where fewer."""
    order = np.argsort(-duration_ns, kind="stable")
    long, others = np.sort(order[:count]), duration_ns[order[count:]]
    if count < _FEWEST or len(duration_ns) < count:
        return None
    if len(others) and duration_ns[long].min() < _CLEAR_STEP * others.max():
        return None
    return _Steps(duration_ns[long], np.add.reduceat(duration_ns, long), len(others))


def _find_lag(starts: Int64Array, long: _Steps) -> tuple[int, str] | None:
    """(bursts to skip, why): at which every step fits between its two, and no other number does.

    Where several numbers let every step fit, the one at which long steps lie in long
    intervals: their correlation stands out.
    """
    fitting = [lag for lag in _LAGS if (_compute_slack(starts, long, lag) >= 0).all()]
    if len(fitting) == 1:
        return fitting[0], "no other number of bursts before the first step lets every step fit"
    alike = {lag: _compute_correlation(starts, long, lag) for lag in fitting}
    ordered = sorted(fitting, key=lambda lag: -alike[lag])
    if not ordered or alike[ordered[0]] < max(_ALIKE, alike[ordered[1]] + _STANDS_OUT):
        return None
    best, second = alike[ordered[0]], alike[ordered[1]]
    why = "steps and the intervals between bursts vary together here"
    return ordered[0], f"{why}: r = {best:.2f}, against {second:.2f} at most elsewhere"


def _compute_correlation(starts: Int64Array, long: _Steps, lag: int) -> float:
    """Of intervals and the steps in them, unusual intervals left out."""
    slack = _compute_slack(starts, long, lag)
    usual = slack <= _UNUSUAL * max(float(np.median(slack)), 1.0)
    room, step = np.diff(starts[lag:])[usual], long.together[: len(slack)][usual]
    if usual.sum() < _FEWEST or not np.ptp(room) or not np.ptp(step):
        return 0.0
    return float(np.corrcoef(room, step)[0, 1])


def _compute_slack(starts: Int64Array, long: _Steps, lag: int) -> Int64Array:
    """How much longer each interval between bursts is than the steps in it."""
    room = np.diff(starts[lag:])
    slack: Int64Array = room - long.together[: len(room)]
    return slack


@dataclass(frozen=True, slots=True)
class _Where:
    """Whose steps go where."""

    position: int  # in Trace.ranks
    file: int
    lag: int
    why: str


def _make_placement(
    trace: Trace, at: _Where, reads: Intervals, bursts: Intervals, long: _Steps
) -> RankPlacement:
    slack = _compute_slack(bursts.start, long, at.lag)
    first, step = bursts.start[at.lag :][: len(slack)], long.alone[: len(slack)]
    # I/O before the first placed burst, and from there to the burst behind the last placed one.
    borders = np.array([reads.start[0], first[0], bursts.start[at.lag + len(slack)]], np.int64)
    before, inside = intervals.covered_within(reads, borders[:-1], borders[1:]).tolist()
    low, high = _bound_hidden(reads, first, slack, step)
    # A slope of 1: reads block, so that a longer burst delays the step.
    slope, error = _fit_slope(bursts.end[at.lag :][: len(slack)] - first, slack)
    process, since = trace.processes[trace.ranks[at.position]], trace.job.start_ns
    return RankPlacement(
        label=process.label,
        rank=process.rank,
        path=trace.files.path[at.file],
        bursts=len(bursts.start),
        lag=at.lag,
        why=at.why,
        shortest_step_s=float(long.alone.min()) / 1e9,
        other_steps=long.others,
        earliest_s=(first - since) / 1e9,
        latest_s=(first + slack - since) / 1e9,
        step_s=step / 1e9,
        io_s=inside / 1e9,
        hidden_low_s=low / 1e9,
        hidden_high_s=high / 1e9,
        before_s=before / 1e9,
        after_s=(reads.length - before - inside) / 1e9,
        slope=slope,
        slope_error=error,
    )


def _bound_hidden(
    reads: Intervals, first: Int64Array, slack: Int64Array, step: Int64Array
) -> tuple[int, int]:
    """Least and most I/O under the steps, each at the best of its places, ns.

    The I/O under a step is linear between places where one of its ends meets the edge of a
    read, so the extremes lie at those.
    """
    low = high = 0
    for begin, room, length in zip(first.tolist(), slack.tolist(), step.tolist(), strict=True):
        around = _select_touching(reads, begin, begin + room + length)
        near = np.concatenate([around.start, around.end]) - begin
        places = np.concatenate([np.array([0, room], np.int64), near, near - length])
        places = begin + places[(places >= 0) & (places <= room)]
        under = intervals.covered_within(around, places, places + length)
        low, high = low + int(under.min()), high + int(under.max())
    return low, high


def _select_touching(reads: Intervals, low: int, high: int) -> Intervals:
    """The reads that have an instant of [low, high]."""
    first = np.searchsorted(reads.end, low)
    last = np.searchsorted(reads.start, high, side="right")
    return Intervals(reads.start[first:last], reads.end[first:last])


def _fit_slope(burst: Int64Array, slack: Int64Array) -> tuple[float | None, float | None]:
    """Least squares of slack on burst length, unusual slacks left out: (slope, its error)."""
    usual = slack <= _UNUSUAL * np.median(slack)
    x, y = burst[usual] / 1e9, slack[usual] / 1e9
    x, y = x - x.mean(), y - y.mean()
    if len(x) < _FEWEST or not x.any():
        return None, None
    slope = float((x * y).sum() / (x * x).sum())
    rest = y - slope * x
    return slope, float(np.sqrt((rest**2).sum() / (len(x) - 2) / (x * x).sum()))
