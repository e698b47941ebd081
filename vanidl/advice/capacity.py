"""What there is at most: bytes a second of a mount to many readers, and seconds of cores.

More readers gain nothing where the storage already delivers all it has, or no core is free.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.advice.request_costs import FEWEST_READS
from vanidl.analyses.profiled_steps import group_rank_spans
from vanidl.analyses.reducing import batch_small_parts, join_columns
from vanidl.model import intervals
from vanidl.model.ordering import stable_order
from vanidl.model.states import TICKS_PER_S
from vanidl.model.trace import READ, Trace
from vanidl.schema.dataclass import dataclass

# --- Storage ------------------------------------------------------------------------------------

_DEPTHS = 64  # reads under way at once; more are taken as these
_OPERATIONS = 2_000_000
_OFTEN = 0.05  # of the reads: what was seen more rarely tells nothing
_DEEPER, _HARDLY_DEEPER = 1.8, 1.4  # times as many reads under way
_REACHED = 0.7  # of what any number of reads would bring


@dataclass(frozen=True, slots=True)
class Throughput:
    """Bytes a second that one mount delivers, by how many reads of it were under way at once.

    `busy_bytes_per_s`: what came on average while any was. `peak_bytes_per_s`: the most that was
    seen often. `limit_bytes_per_s`: what any number of reads
    would bring, None where nothing shows that there is a limit. `saturated`: the peak is near that,
    however many more are under way; None: there never were more and fewer.
    """

    mount: str  # "" where no mount points are known
    busy_bytes_per_s: float
    peak_bytes_per_s: float
    limit_bytes_per_s: float | None
    mean_depth: float
    saturated: bool | None


def fit_throughput(trace: Trace) -> Throughput | None:
    """Of the mount whose dataset reads took most time; None without single reads of one."""
    # Its mount is a column of the files: reads of each mount compete with each other alone.
    mounts = sorted(set(trace.files.mount))
    of_file = np.array([mounts.index(mount) for mount in trace.files.mount], np.int64)
    is_data = trace.files.is_data
    if not is_data.any():
        return None
    # Reads of the dataset, of the first parts that hold enough operations for the fit.
    rows: list[list[NDArray[Any]]] = []
    count = 0
    for parts in batch_small_parts(trace.io):
        file, op, nbytes, start, end = join_columns(parts, "file", "op", "nbytes", "start", "end")
        mine = np.flatnonzero(is_data[file] & (op == READ) & (nbytes > 0))
        rows.append([column[mine] for column in (start, end, nbytes, file)])
        count += len(mine)
        if count >= _OPERATIONS:
            break
    if not count:
        return None
    start, end, size, file = map(np.concatenate, zip(*rows, strict=True))
    # Of the mount with most time in reads.
    if len(mounts) == 1:
        slowest = 0
    else:
        slowest = int(np.bincount(of_file[file], end - start).argmax())
        own = of_file[file] == slowest
        start, end, size = start[own], end[own], size[own]
    return _fit_depths(mounts[slowest], start, end, size) if len(start) >= FEWEST_READS else None


def _fit_depths(
    mount: str, start: NDArray[np.int64], end: NDArray[np.int64], size: NDArray[np.int64]
) -> Throughput:
    """By Little's law: what comes a second is how many are under way / how long each takes.

    How many are under way is counted when one begins. (J. D. C. Little, A proof for the queuing
    formula L = lambda W, 1961.) A server that takes one after the other makes k times as many wait
    k times as long, one that has room serves each as fast as alone.
    """
    order = stable_order(start)
    start, end, size = start[order], np.maximum(end, start + 1)[order], size[order]
    begun = np.searchsorted(start, start, side="right")
    depth = np.minimum(begun - np.searchsorted(np.sort(end), start, side="right"), _DEPTHS)
    lasted = (end - start) / 1e9
    at = np.bincount(depth, minlength=_DEPTHS + 1)
    took_s = np.bincount(depth, lasted, _DEPTHS + 1)
    moved = np.bincount(depth, size * depth, _DEPTHS + 1)
    speed = np.divide(moved, took_s, out=np.zeros_like(took_s), where=took_s > 0)

    depths, mean = np.arange(_DEPTHS + 1), float(depth.mean())
    often = at >= _OFTEN * len(start)
    peak = float(speed[often].max(initial=0.0))
    mean_s = np.divide(took_s, at, out=np.zeros_like(took_s), where=at > 0)
    busy = float(size.sum()) / (intervals.union(start, end).length / 1e9)
    seen, weight = depths[often], at[often].astype(np.float64)
    if len(seen) < 2 or seen[-1] < _HARDLY_DEEPER * seen[0]:
        return Throughput(mount, busy, peak, None, mean, None)
    # A request takes `alone` and `each` more for every other: at most 1 / `each` come a second.
    each, alone = np.polyfit(seen, mean_s[often], 1, w=np.sqrt(weight))
    deepest = float(seen[-1])
    reached = max(each, 0.0) * deepest / max(alone + each * deepest, 1e-12)
    limit = max(float(size.mean() / each), peak) if each > 0 else None
    if seen[-1] < _DEEPER * seen[0]:
        # Of nearly as many reads it tells where chance does not: two deviations of both ends.
        ends = [lasted[depth == end] for end in (seen[0], seen[-1])]
        apart_s = 2 * sqrt(sum(float(each_end.var()) / len(each_end) for each_end in ends))
        least = max(each - apart_s / (deepest - float(seen[0])), 0.0)
        if least * deepest <= _REACHED * float(mean_s[seen[-1]]):
            return Throughput(mount, busy, peak, None, mean, None)
    return Throughput(mount, busy, peak, limit, mean, bool(reached > _REACHED))


# --- Cores --------------------------------------------------------------------------------------

_LEAST_S = 0.5  # of CPU: shorter sums of ticks say nothing
_OF_TICKS = 0.9  # of their sum: each thread has one begun
_SHARED = 0.9  # of the time that a training thread could run: with less others have cores, too


@dataclass(frozen=True, slots=True)
class CoreLoad:
    """What a step asks of the cores of a host: of all ranks and workers there together.

    `rivals` is how many threads of others wanted a core, on average: what training threads were
    kept waiting says it, where a fair scheduler gives all as much, less the run's own threads. They
    may be gone when the run is repeated, so that they make a step longer only at worst.
    """

    cores: float
    work_s: float  # core seconds of a step, at least
    rivals: float = 0.0

    def get_cores(self, threads: int) -> float:
        """How many cores so many threads of the run get: all threads get as much."""
        return max(threads * min(self.cores / (threads + self.rivals), 1.0), 1e-3)

    def least_step_s(self, threads: int) -> float:
        """No step is shorter, however its work is divided, and if nobody else wants the cores."""
        return self.work_s / max(min(threads, self.cores), 1e-3)

    def bound_step_s(self, threads: int, alone_s: float) -> float:
        """How long a step may take where the work is divided greedily, and `alone_s` is in a row.

        (R. L. Graham, Bounds for certain multiprocessing anomalies, 1966.)
        """
        got = self.get_cores(threads)
        return self.work_s / got + max(1 - 1 / got, 0.0) * min(alone_s, self.work_s)


def measure_core_load(trace: Trace) -> CoreLoad | None:
    """Of the host where a step asks most; None where cores or the CPU time of threads are unknown.

    By the ticks of all threads of the processes that train and load, from the first step's begin
    to the last one's end.
    """
    if not trace.cores or not len(trace.states):
        return None
    of_host: dict[str, float] = {}
    ran_s = queued_s = 0.0  # of training threads
    wanted: dict[str, float] = {}  # how many threads of the run wanted a core, of each host
    trainers = list[tuple[str, float]]()  # the same of each training thread
    for position, spans in group_rank_spans(trace).items():
        trainer = trace.ranks[position]
        host, steps = trace.processes[trainer].host, spans.steps
        known = [trace.processes[trainer].pid]
        known += [p.pid for p in trace.processes if p.trainer == trainer]
        pids = {pid for pid in known if pid is not None}
        pids |= {*trace.fetches.pid[trace.fetches.trainer == trainer].tolist()}
        window = np.array([steps.start.min(), steps.end.max()], np.int64)
        used = 0.0
        length_s = max(int(window[1] - window[0]), 1) / 1e9
        for thread in (t for pid in pids for t in trace.states.of_process(host, pid)):
            spent_s = _sum_ticks_s(thread.ticks, window)
            waited_s = float(thread.queued_ns(window[:1], window[1:]).sum()) / 1e9
            used += spent_s
            wanted[host] = wanted.get(host, 0.0) + (spent_s + waited_s) / length_s
            if thread.pid == trace.processes[trainer].pid and thread.is_first:
                ran_s, queued_s = ran_s + spent_s, queued_s + waited_s
                trainers.append((host, (spent_s + waited_s) / length_s))
        if used >= _LEAST_S:
            of_host[host] = of_host.get(host, 0.0) + used * _OF_TICKS / len(steps.start)
    if not of_host:
        return None
    # One thread among so many others gets a core that share of the time; some are of the run.
    share = ran_s / (ran_s + queued_s) if ran_s > 0 else 1.0
    beside = [wanted[host] - own for host, own in trainers]
    own = 1 + sum(beside) / max(len(beside), 1)
    rivals = max(trace.cores / share - own, 0.0) if share < _SHARED else 0.0
    return CoreLoad(trace.cores, max(of_host.values()), rivals)


def _sum_ticks_s(ticks: NDArray[np.int64], window: NDArray[np.int64]) -> float:
    """CPU seconds of a thread from the begin of some time to its end."""
    if not len(ticks):
        return 0.0
    begun, done = np.interp(window, ticks[:, 0], ticks[:, 1:].sum(1))
    return float(done - begun) / TICKS_PER_S
