"""What a run's processes take of memory: peaks, growth, distance to the limit, and of what kind.

Of processes that share pages the proportional sizes add up; between two walks of the kernel over
the pages resident sizes tell what is new. What grows is told apart:

copies      forked workers make private what they shared with their parent: private pages grow, the
            resident ones do not. Reference counts do that to the objects of a Python list.
in flight   shared memory holds batches that wait to be taken: workers x prefetch_factor of them.
growth      the resident memory of processes goes on growing.
steady      none of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vanidl.model.run_facts import HostMemory, Int64Array, ProcessMemory
from vanidl.model.trace import SpanKind, Trace
from vanidl.schema.dataclass import dataclass

Growth = Literal["copies", "in_flight", "growth", "steady"]
LEAST_NBYTES = 32 << 20
"""Growth and batches of less are not worth a word."""
_SHARE = 0.05  # of the level, that growth must be
_MOSTLY = 0.25  # of all memory: above it batches in flight are what there is to say
_AS_MUCH = 0.5  # of private growth that resident growth is at most, where pages are copied
_LEAST_LOOKS, _LEAST_S = 8, 10.0  # for a trend
_HOLDS = 0.5  # of the steeper half's slope, that the flatter one has at least

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MemorySeries:
    """Bytes over time on one host, proportional sizes; one entry a look in every array."""

    host: str
    at_s: FloatArray  # since the job began
    training: FloatArray  # private and proportional, without shared memory
    workers: FloatArray
    other: FloatArray
    shared_memory: FloatArray
    page_cache: FloatArray  # of the control group; nan where that does not say


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of the host with the highest peak.

    `kind`: what makes it grow. Sizes are bytes, None where not known. `series`
    are of all hosts, this one first.
    """

    kind: Growth
    peak_nbytes: int  # of all processes at one time, proportional
    peak_training_nbytes: int
    peak_workers_nbytes: int
    peak_shared_nbytes: int  # batches on their way among them
    workers: int  # that lived at the same time, at most
    copied_nbytes: int  # that workers made private of what they shared
    growth_nbytes_per_s: float | None  # of all at the end, None: no trend that holds
    growth_nbytes_per_epoch: float | None
    limit_nbytes: int | None
    limit_of: str
    left_nbytes: int | None  # to the limit, at the peak; what is available on a machine
    out_of_memory_s: float | None  # after the end, were it to go on so; None: no such trend
    batches_in_flight: int | None  # as loaders ask for them
    series: tuple[MemorySeries, ...]


def finish(trace: Trace) -> Memory | None:
    """The memory of a run; None where it was not looked at."""
    found = [(host, _make_series(host, trace)) for host in trace.memory if len(host.at_ns)]
    if not found:
        return None
    # The host with the highest peak stands for the run.
    host, series = max(found, key=lambda pair: float(_sum_series(pair[1]).max()))
    total = _sum_series(series)

    # What makes it grow, and what is left until the limit.
    workers = [p for p in host.processes if _infer_role(p, trace, host) == "worker"]
    slope = estimate_trend(series.at_s, total)
    copied = sum(_sum_copied(worker) for worker in workers)
    left = _find_least_left(host, total)
    ahead = int(trace.fetches.ahead.max(initial=-1))
    shared_peak = float(series.shared_memory.max())
    return Memory(
        kind=_classify_growth(copied, shared_peak, float(total.max()), slope),
        peak_nbytes=int(total.max()),
        peak_training_nbytes=int(series.training.max()),
        peak_workers_nbytes=int(series.workers.max()),
        peak_shared_nbytes=int(shared_peak),
        workers=_count_concurrent(workers),
        copied_nbytes=copied,
        growth_nbytes_per_s=slope,
        growth_nbytes_per_epoch=_compute_epoch_growth(series, total, trace),
        limit_nbytes=host.limit if host.limit > 0 else None,
        limit_of=host.limit_of,
        left_nbytes=left,
        out_of_memory_s=left / slope if slope and left is not None else None,
        batches_in_flight=ahead if ahead > 0 else None,
        series=(series, *(each for _, each in found if each is not series)),
    )


def estimate_trend(at_s: FloatArray, nbytes: FloatArray) -> float | None:
    """Bytes a second by which something grows at its end; None where no trend holds.

    Looked at are its last two thirds: both halves of them must grow, one at least half as fast as
    the other, and all of it by what is worth a word.
    """
    late = at_s >= at_s[-1] - 2 / 3 * (at_s[-1] - at_s[0]) if len(at_s) else np.zeros(0, bool)
    at_s, nbytes = at_s[late], nbytes[late]
    if len(at_s) < _LEAST_LOOKS or at_s[-1] - at_s[0] < _LEAST_S:
        return None
    middle = (at_s[0] + at_s[-1]) / 2
    slopes = [_fit_slope(at_s[half], nbytes[half]) for half in (at_s <= middle, at_s >= middle)]
    slope = _fit_slope(at_s, nbytes)
    rise = slope * (at_s[-1] - at_s[0])
    holds = min(slopes) > 0 and min(slopes) >= _HOLDS * max(slopes)
    matters = rise >= max(LEAST_NBYTES, _SHARE * float(nbytes.mean()))
    return slope if holds and matters else None


def _fit_slope(at_s: FloatArray, nbytes: FloatArray) -> float:
    centred = at_s - at_s.mean()
    spread = float((centred**2).sum())
    return float((centred * nbytes).sum()) / spread if spread else 0.0


def _classify_growth(copied: int, shared: float, total: float, slope: float | None) -> Growth:
    """What there is to say, the dearest first."""
    if copied >= max(LEAST_NBYTES, _SHARE * total):
        return "copies"
    if shared >= max(LEAST_NBYTES, _MOSTLY * total):
        return "in_flight"
    return "growth" if slope is not None else "steady"


def sum_hosts(host: HostMemory) -> tuple[FloatArray, FloatArray]:
    """Seconds since the epoch, and bytes of all processes of a host then."""
    parts = _sum_by_role(host, lambda _: "other")
    total: FloatArray = parts["other"] + parts["shared"]
    return host.at_ns / 1e9, total


def _make_series(host: HostMemory, trace: Trace) -> MemorySeries:
    parts = _sum_by_role(host, lambda process: _infer_role(process, trace, host))
    cache = np.where(host.group_files >= 0, host.group_files, np.nan).astype(np.float64)
    return MemorySeries(
        host.host,
        (host.at_ns - trace.job.start_ns) / 1e9,
        parts["trainer"],
        parts["worker"],
        parts["other"],
        parts["shared"],
        cache,
    )


def _sum_by_role(host: HostMemory, role: Callable[[ProcessMemory], str]) -> dict[str, FloatArray]:
    """Bytes at the looks by role, and of shared memory."""
    parts = {each: np.zeros(len(host.at_ns)) for each in ("trainer", "worker", "other", "shared")}
    # When pages change hands: a process is new, or was there for the last time.
    edges = [(p.at_ns[0], p.at_ns[-1] + 1) for p in host.processes]
    hands_ns = np.unique(np.array(edges, np.int64))
    for process in host.processes:
        inside, shared = _interpolate_memory(process, host.at_ns, hands_ns)
        parts[role(process)] += inside
        parts["shared"] += shared
    if len(host.dev_shm) and host.dev_shm[0] >= 0:  # batches that nobody has mapped as yet
        handed_over = np.maximum(host.dev_shm - host.dev_shm[0], 0)
        parts["shared"] = np.maximum(parts["shared"], handed_over)
    return parts


def _sum_series(series: MemorySeries) -> FloatArray:
    total: FloatArray = series.training + series.workers + series.other + series.shared_memory
    return total


def _interpolate_memory(
    process: ProcessMemory, at_ns: Int64Array, hands_ns: Int64Array
) -> tuple[FloatArray, FloatArray]:
    """Proportional bytes of a process at some times, without shared memory, and of that.

    What is of others, and does not count, is known at the walks. Between two of them it follows
    resident memory, of which it is a part, as pages of libraries that others have mapped, too;
    where it changed more than that, pages changed hands: when a process came or went (`hands_ns`),
    else bit by bit. Without any walk, shared pages count in full.
    """
    lives = (at_ns >= process.at_ns[0]) & (at_ns <= process.at_ns[-1])
    resident = np.interp(at_ns, process.at_ns, process.resident)
    if not len(process.walked_ns):
        shared = np.interp(at_ns, process.at_ns, process.shared)
        return np.where(lives, resident - shared, 0.0), np.where(lives, 0.0, 0.0)
    # The walks before and after each time, and what changed between them.
    walked = process.walked_ns
    at_walk = np.interp(walked, process.at_ns, process.resident)
    last = np.maximum(np.searchsorted(walked, at_ns, side="right") - 1, 0)
    following = np.minimum(last + 1, len(walked) - 1)
    beside = at_walk - process.proportional
    grown, changed = (each[following] - each[last] for each in (at_walk, beside))
    passed, length = at_ns - walked[last], walked[following] - walked[last]
    # When pages changed hands: at the first such time after the walk, else evenly.
    hand_ns = np.append(hands_ns, np.iinfo(np.int64).max)
    hand_ns = hand_ns[np.searchsorted(hands_ns, walked[last], side="right")]
    by_hands = np.where(
        hand_ns <= walked[following], at_ns >= hand_ns, passed / np.maximum(length, 1)
    )
    # Where resident memory changed by as much, what is of others follows it.
    by_size = (resident - at_walk[last]) / np.where(grown == 0, 1, grown)
    part = np.where(np.abs(grown) >= np.abs(changed), by_size, by_hands)
    of_others = beside[last] + np.clip(part, 0, 1) * changed
    counted = np.maximum(resident - of_others, 0.0)
    shared = np.minimum(process.shared_memory[last], counted)
    return np.where(lives, counted - shared, 0.0), np.where(lives, shared, 0.0)


def _infer_role(process: ProcessMemory, trace: Trace, host: HostMemory) -> str:
    trainers = {p.pid for p in trace.processes if p.role == "trainer" and p.host in ("", host.host)}
    if process.pid in trainers:
        return "trainer"
    return "worker" if process.parent_pid in trainers else "other"


def _sum_copied(worker: ProcessMemory) -> int:
    """Bytes that were shared when it began and are its own by now, as its pages show."""
    if len(worker.walked_ns) < 2:
        return 0
    own = worker.private - worker.private[0]
    resident = np.interp(worker.walked_ns, worker.at_ns, worker.resident)
    grown = np.maximum(resident - resident[0], 0.0)
    at = int(np.argmax(own - grown))
    copied = float(own[at] - grown[at])
    return int(copied) if grown[at] <= _AS_MUCH * max(own[at], 1) else 0


def _count_concurrent(workers: Sequence[ProcessMemory]) -> int:
    """How many lived at the same time, at most."""
    edges = [(int(p.at_ns[0]), 1) for p in workers] + [(int(p.at_ns[-1]) + 1, -1) for p in workers]
    alive, most = 0, 0
    for _, change in sorted(edges):
        alive += change
        most = max(most, alive)
    return most


def _find_least_left(host: HostMemory, total: FloatArray) -> int | None:
    """Bytes to the limit when the least was left."""
    left = []
    if host.limit > 0:
        left.append(host.limit - int(total.max()))
    if host.limit_of != "control group" and (host.available >= 0).any():
        left.append(int(host.available[host.available >= 0].min()))
    return max(min(left), 0) if left else None


def _compute_epoch_growth(series: MemorySeries, total: FloatArray, trace: Trace) -> float | None:
    """Mean growth of the largest size from one epoch to the next; None with fewer than 3."""
    spans = trace.spans
    epochs = np.flatnonzero(spans.kind == SpanKind.EPOCH)
    if not len(epochs):
        return None
    first = spans.process[epochs[0]]
    peaks = list(_iterate_peaks(series, total, trace, epochs[spans.process[epochs] == first]))
    return (peaks[-1] - peaks[1]) / (len(peaks) - 2) if len(peaks) >= 3 else None


def _iterate_peaks(
    series: MemorySeries, total: FloatArray, trace: Trace, epochs: Int64Array
) -> Iterable[float]:
    for row in epochs.tolist():
        start_s = (int(trace.spans.start[row]) - trace.job.start_ns) / 1e9
        end_s = (int(trace.spans.end[row]) - trace.job.start_ns) / 1e9
        within = (series.at_s >= start_s) & (series.at_s <= end_s)
        if within.any():
            yield float(total[within].max())
