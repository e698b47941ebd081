"""What rules claim, and quantities that several of them share, each computed once.

A claim is what a change would take away of a run: words for it, of which the breakdown makes
seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vanidl.advice import frameworks as in_words
from vanidl.advice.changes import EVERY_WORKER, bound_handing_over_s
from vanidl.advice.frameworks import PYTORCH, find_named_frameworks, infer_frameworks
from vanidl.analyses.files import GroupRow
from vanidl.analyses.results import Results
from vanidl.analyses.summary import has_separate_objects
from vanidl.breakdown import Breakdown, attribute_time
from vanidl.breakdown.account import MEAN, WAIT
from vanidl.breakdown.attribution import open_gains
from vanidl.breakdown.causes import BLOCKED, DELIVERY, READ, STORAGE, SYNC
from vanidl.breakdown.costs import PARTS_BESIDE_THE_MODEL
from vanidl.breakdown.windows import EPOCH_END as WAIT_WITHOUT_BATCH
from vanidl.breakdown.windows import (
    INPUT_WAIT,
    NO_PART,
    PART_NAMES,
    PHASE_NAMES,
    TRAINING,
    Tiles,
    tile_rank,
)
from vanidl.model import intervals, states
from vanidl.model.counter_tables import CounterTable
from vanidl.model.intervals import Intervals
from vanidl.model.states import SampledThread
from vanidl.model.trace import MPIIO, OBJECT, POSIX, Part, SpanKind, Trace
from vanidl.model.trace import READ as READ_OP
from vanidl.model.warnings import LOWER_BOUNDS, UNREAD, serious_codes
from vanidl.schema.dataclass import dataclass

if TYPE_CHECKING:
    from vanidl.advice.capacity import Throughput
    from vanidl.advice.request_costs import RequestCost
    from vanidl.breakdown.pipelines import Gains
    from vanidl.model.lines import FunctionLines, PartName

INPUT, LOOP, RUN = "input", "loop", "run"
IMBALANCE, BENCHMARK = "imbalance", "benchmark"
"""Windows of claims: the input waits of training (of runs without them the run), its steps outside
of them, the whole run, what the slowest rank takes more than the mean, the result of a benchmark.
Others are phases and parts of steps by name."""

ANY = ""
"""All of a window, whatever it went to."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a change takes away. The seconds of it come from the breakdown, never from a rule.

    `cause` is a cause with or without its part, as "storage.read"; "": all of the window. `stays`
    is the share of it that is still there after the change, and `within_s` how long the calls of a
    rank took that the change is about, where these are a part of the cause. `surely_s`: of what is
    taken away so much at most is gained for sure. `keeps` says in words what stays.
    """

    cause: str
    window: str = INPUT
    stays: float = 0.0
    within_s: float | None = None
    surely_s: float | None = None
    keeps: str = ""

    @property
    def name(self) -> str:
        """Its cause; of all of a window the window."""
        return self.cause or self.window


_BLOCKS = {f"{BLOCKED}.{part}": kind for part, kind in (
    ("network", states.NETWORK), ("sleep", states.SLEEP), ("child", states.CHILD),
    ("lock", states.LOCK))} | {f"{STORAGE}.{SYNC}": states.SYNC}  # fmt: skip
_AT_WORK = (*states.IN_FILES, states.RUNNING, states.NETWORK)
_COUNTING = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "ramfs"})
"""File systems whose reads from a device the kernel counts, or that have none."""
_MANY_PASSES = 10
_ZEROS = (0.0,) * len(states.IN_FILES)
_FEWEST_SAMPLES = 20
_FEWEST_STEPS = 20
"""Of a rank: with fewer its first wait is no exception."""
_COLLECTIVES = "torch/distributed/"
_TAKEN = 0.1
"""Of the training steps that the training thread waits for a core: less is what any machine has."""
ITS_OWN = 2.0
"""Threads of the run that run or could, on average: with fewer it is not short of cores by itself
on a machine that has two, and other programs or a limit took them."""
_COPIES_S = 2e-3
"""Of collating a batch, nine times in ten: less is no copying of bytes that is worth a change
(some MiB of them, at the 2 to 5 GB/s of one core)."""

MUCH_NBYTES = 16 << 20
MUCH_PICKLED = 4 << 20
"""Of each worker's start: the data set without lists of its samples takes some KiB."""
BOUND_SHARE = 0.10
"""Of the training steps input waits: from there on a run is bound by its input."""
MATTERS = 0.02
"""Share of the observed time from which I/O matters. Below it no rule about the shape of the reads
applies: the effect of a change would be lost in the noise between two runs."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What samples of a thread saw in some of its time.

    `shares` are of the samples, by the kinds of `model.states`; of a kind that is not there none
    was seen. `queued_s` is how long the thread waited for a core, by the kernel's count.
    """

    length_s: float
    samples: int
    shares: Mapping[int, float]
    queued_s: float

    @property
    def running(self) -> float:
        """Of the samples those in which it ran, or could have."""
        return self.shares.get(states.RUNNING, 0.0)

    def least_s(self, kind: int) -> float:
        """Seconds of a kind, at least: two deviations below the share of the samples."""
        return SampledShare(self.shares.get(kind, 0.0), self.samples).least * self.length_s

    @property
    def queued_share(self) -> float:
        """Of the time that in which it waited for a core."""
        return self.queued_s / self.length_s if self.length_s > 0 else 0.0


def look(thread: SampledThread, times: Intervals) -> Seen:
    """What a thread was seen doing within some time."""
    samples = thread.samples
    place = np.searchsorted(times.start, samples.time, side="right") - 1
    # Late samples were not taken at random times: they would bias the shares.
    inside = (place >= 0) & ~samples.late
    inside &= samples.time < times.end[np.maximum(place, 0)] if len(times.end) else False
    kinds, counts = np.unique(samples.kind[inside], return_counts=True)
    count = int(counts.sum())
    queued_s = float(thread.queued_ns(times.start, times.end).sum()) / 1e9
    shares = {int(kind): float(n) / count for kind, n in zip(kinds, counts, strict=True)}
    length_s = times.length / 1e9
    return Seen(length_s, count, shares, min(queued_s, length_s))


def _merge_seen(found: Sequence[Seen]) -> Seen | None:
    """Several threads as one; None of few samples."""
    count = sum(seen.samples for seen in found)
    if count < _FEWEST_SAMPLES:
        return None
    kinds = {kind for seen in found for kind in seen.shares}
    # Weighed by samples: a thread that was looked at rarely says little.
    shares = {k: sum(s.shares.get(k, 0.0) * s.samples for s in found) / count for k in kinds}
    length_s, queued_s = (sum(getattr(s, n) for s in found) for n in ("length_s", "queued_s"))
    return Seen(length_s, count, shares, queued_s)


@dataclass(frozen=True, slots=True)
class SampledShare:
    """A share of some time by so many samples; its ends are two deviations away."""

    middle: float
    samples: int

    @property
    def least(self) -> float:
        """The lower end."""
        return max(self.middle - self._deviations, 0.0)

    @property
    def most(self) -> float:
        """The upper end."""
        return min(self.middle + self._deviations, 1.0)

    @property
    def _deviations(self) -> float:
        return 2 * sqrt(self.middle * (1 - self.middle) / max(self.samples, 1))


@dataclass(frozen=True, slots=True)
class CoreUse:
    """How much of its cores a run asked for while it trained.

    `wanted` is how many of its threads ran or could have, on average, `queued_s` how long the
    training thread of a rank could run and had no core, in its steps and in its input waits.
    """

    wanted: float
    queued_s: float
    queued_in_waits_s: float


@dataclass(frozen=True, slots=True)
class LoopThreads:
    """Threads that a program started while it trained, as its steps end.

    `waits`: the training thread then waits for them. `idle_s` is how long none of them was at work
    from the first one on, `slack_s` how long the steps went on when the last one was done.
    """

    waits: bool
    idle_s: float
    slack_s: float


@dataclass(frozen=True, slots=True)
class BeforeSteps:
    """Reads of the dataset before the first step, and the file that most of it is of."""

    nbytes: int
    unique_nbytes: int
    spent_s: float  # in these reads, of the mean rank
    path: str

    @property
    def again(self) -> float:
        """How many times the same bytes were read."""
        return self.nbytes / max(self.unique_nbytes, 1)


@dataclass(frozen=True, slots=True)
class Copying:
    """Collating in workers: nine batches in ten take `least_s` or more, those of a rank `sum_s`."""

    least_s: float
    sum_s: float
    share: float  # of the fetches

    @property
    def is_much(self) -> bool:
        """Whether batches are large: what takes so long each time are bytes."""
        return self.least_s >= _COPIES_S


@dataclass(frozen=True)
class Facts:
    """One run as the rules look at it. Times in seconds; None: not recorded."""

    trace: Trace
    results: Results
    given: Breakdown | None = None
    given_gains: Gains | None = None

    @cached_property
    def account(self) -> Breakdown:
        """The account of time of the run."""
        return self.given or attribute_time(self.trace, self.results)

    @cached_property
    def serious(self) -> frozenset[str]:
        """Codes of the warnings that are more than worth knowing."""
        return serious_codes(self.results.coverage.warnings)

    @cached_property
    def written_in(self) -> str:
        """The framework that the loop is written in, "" where advice names loaders themselves."""
        return in_words.find_loop_framework(self.trace)

    @cached_property
    def frameworks(self) -> tuple[str, ...]:
        """Whose data loader the run used, likeliest first."""
        data = self.results.dataset
        return infer_frameworks(self.trace, [file.path for file in data.files[:1]] if data else ())

    @property
    def before_workers(self) -> str:
        """What is to be said wherever more workers are advised; "" where there is nothing."""
        return f" {EVERY_WORKER}" if self.trace.streams and PYTORCH in self.frameworks else ""

    @cached_property
    def has_workers(self) -> bool:
        """Whether a process of the run loads batches for another: by their logs, or by fetches."""
        in_logs = any(process.role == "worker" for process in self.trace.processes)
        return in_logs or self.workers_of_rank > 0

    @cached_property
    def workers_of_rank(self) -> int:
        """How many workers fetch for a rank at a time, the most of any; 0: none, or not known."""
        return int(self.trace.fetches.worker.max(initial=-1)) + 1

    @cached_property
    def computing_workers(self) -> int | None:
        """For how many workers of a rank its node has cores, at least one; None: not known."""
        cores, hosts = self.trace.cores, max(len(self.trace.hosts), 1)
        return max(int(cores * hosts // max(len(self.trace.ranks), 1)), 1) if cores else None

    @property
    def starts_workers_anew(self) -> bool:
        """Whether epochs have workers of their own; False of one epoch: nothing is gained there."""
        phases, since = self.account.phases, self.trace.job.start_ns
        middles = [(e.start_s + e.end_s) / 2 for e in phases.epochs] if phases else []
        if len(middles) < 2:
            return False
        # Workers alive in the middle of the last epoch, born after the middle of that before.
        before, last = (since + round(middle * 1e9) for middle in middles[-2:])
        lives = [(p.start_ns, p.end_ns) for p in self.trace.processes if p.role == "worker"]
        known = [(start, end) for start, end in lives if start is not None and end is not None]
        began = [start for start, end in known if start < last < end]
        if began:
            return max(began) > before
        # Nobody recorded when workers lived: those of the last pass have fetched before, or not.
        fetches = self.trace.fetches
        mine = fetches.pick((fetches.worker >= 0) & (fetches.pid >= 0))
        if not len(mine):
            return self.has_workers
        mine = mine.pick(mine.name == np.bincount(mine.name + 1).argmax() - 1)
        is_last = mine.epoch == mine.epoch.max()
        return not np.isin(mine.pid[is_last], mine.pid[~is_last]).any()

    @property
    def by_darshan(self) -> bool:
        """Whether the tracer is Darshan: it has limits, and what `vanidl record` does to them."""
        return self.trace.job.tracer == "darshan"

    @property
    def by_calls(self) -> bool:
        """Whether the tracer is vanidl's own, which sees every call of libc."""
        return self.trace.job.tracer == "vanidl"

    @property
    def lossy(self) -> bool:
        """Whether recorded I/O is only a lower bound."""
        return bool(LOWER_BOUNDS & self.serious) or self.objects_apart

    @property
    def objects_apart(self) -> bool:
        """Whether object storage moved a real part of the bytes and another layer is looked at."""
        return has_separate_objects(self.results.summary)

    @property
    def reads_all_layers(self) -> bool:
        """Whether every module of the logs that records I/O was read: shares of all I/O hold."""
        return not UNREAD & self.serious

    @property
    def window_s(self) -> float | None:
        """Mean profiled window of the observed ranks."""
        overlap = self.account.overlap
        return overlap.mean.window_s if overlap and overlap.mean.window_s > 0 else None

    @property
    def base_s(self) -> float:
        """The time that shares are of: the profiled window, else the run time."""
        if self.account.hosts_apart:
            return self.account.window_ns / 1e9
        return self.window_s or self.trace.job.run_time_s

    @cached_property
    def lost_s(self) -> float | None:
        """What training lost to input waits; on a device only what it stood idle."""
        overlap = self.account.overlap
        if overlap is None or overlap.lost_to_input_s is None:
            return None
        idle = [r.starving_wait_s for r in overlap.per_rank]
        # What a device still had to do meanwhile was not lost.
        if not overlap.has_kernels or None in idle:
            return overlap.lost_to_input_s
        return min(overlap.lost_to_input_s, sum(i or 0.0 for i in idle))

    @cached_property
    def gains(self) -> Gains | None:
        """The recorded run, ready to be run again; None without steps and their waits."""
        return self.given_gains or open_gains(self.trace, self.results, self.account)

    def without_s(self, cause: str) -> float | None:
        """The most that the run gains without a cause; None without steps and their waits."""
        if self.gains is None or self.lost_s is None:
            return None
        return min(self.gains.without(cause).high_ns / 1e9, self.lost_s)

    def bound(self, claim: Claim) -> tuple[float, float] | None:
        """What a rank gains at least and at most by a change, in seconds of the observed time.

        None: no window of that kind, or nothing is known of it.
        """
        account, low_s, high_s = self.account, 0.0, 0.0
        # What the claimed cause takes of the claimed window, at least and at most.
        if claim.window == INPUT and self.gains is not None and self.lost_s is not None:
            gain = self.gains.without(claim.cause or STORAGE)
            known_ns = (claim.surely_s or 0.0) * 1e9  # of all of it nothing else bounds the least
            ends = (gain.low_ns, gain.high_ns) if claim.cause else (known_ns, gain.touchable_ns)
            low_s, high_s = (min(ns / 1e9, self.lost_s) for ns in ends)
        elif claim.window == BENCHMARK:
            high_s = self.trace.job.run_time_s if claim.within_s is None else claim.within_s
        elif claim.window == IMBALANCE:
            column = account.columns.get(f"run/{claim.cause}")
            if column is None or len(account.ranks) < 2:
                return None
            low_s, high_s = (ns / 1e9 for ns in column.bound_imbalance_ns())
            if self.gains is not None and self.lost_s is not None:
                high_s = min(high_s, self.lost_s)
                low_s = 0.0
        elif claim.window in (INPUT, RUN):
            if not claim.cause:
                return None
            low_s, high_s = account.cell(f"{MEAN}/run/{claim.cause}").range_s
        elif (times := self._times_of(claim.window)) is not None:
            low_s, high_s = self._of_window(claim, times)
        else:
            return None
        # Less what stays after the change, and within the limits that the rule knows.
        low_s, high_s = (end * (1 - claim.stays) for end in (low_s, high_s))
        if claim.within_s is not None and claim.within_s < high_s:
            low_s = max(low_s - (high_s - claim.within_s), 0.0)
            high_s = claim.within_s
        if claim.surely_s is not None:
            low_s = min(low_s, claim.surely_s)
        return min(low_s, high_s), high_s

    def _times_of(self, window: str) -> Mapping[int, Intervals] | None:
        """When ranks were in a phase or in parts of their steps; None: nobody was, or knows."""
        phase = PHASE_NAMES.index(window) if window in PHASE_NAMES else None
        part = PART_NAMES.index(window) if window in PART_NAMES else None
        found = {}
        for position, tiles in self._tiles.items():
            rows = (tiles.phase == phase) | (tiles.part == part)
            # The loop is what steps do apart from waiting for input.
            if window == LOOP:
                waits = np.isin(tiles.part, (NO_PART, INPUT_WAIT, WAIT_WITHOUT_BATCH))
                rows = (tiles.phase == TRAINING) & ~waits
            if rows.any():
                found[position] = intervals.union(tiles.start[rows], tiles.end[rows])
        return found or None

    def lengths_s(self, phase: str) -> list[float]:
        """How long each of the phases of a name took, in order, of the rank that has most."""
        times = (self._times_of(phase) or {}).values()
        longest = max(times, key=lambda each: len(each.start), default=intervals.EMPTY)
        return [length_ns / 1e9 for length_ns in (longest.end - longest.start).tolist()]

    @cached_property
    def start_up_s(self) -> float:
        """How long the program took until it trained, imports among it; 0 where it is not known."""
        return max(self.lengths_s("start_up")[:1], default=0.0)

    @property
    def last_step_s(self) -> float:
        """When the last step of any rank ended, since the start of the job; 0 without steps."""
        ends = [int(own.end[own.step >= 0].max(initial=0)) for own in self._tiles.values()]
        return max((max(ends, default=0) - self.trace.job.start_ns) / 1e9, 0.0)

    def find_loop_threads(self, since_s: float) -> LoopThreads | None:
        """What threads that began since then do when the steps are done, of the slowest rank.

        None: there were none, they serve other work, or threads were not sampled.
        """
        since_ns, last_ns = (
            self.trace.job.start_ns + round(at_s * 1e9) for at_s in (since_s, self.last_step_s)
        )
        found = list[LoopThreads]()
        for position in self._tiles:
            main = self.main_thread(position)
            threads = self.trace.states.of_process(main.host, main.pid) if main is not None else ()
            lives = [
                each.samples.time[np.isin(each.samples.kind, _AT_WORK)]
                for each in threads
                if each is not main and (each.samples.time[:1] >= since_ns).all()
            ]
            lives = [life for life in lives if len(life)]
            if main is None or not lives:
                continue
            begun, ended = (np.array([life[end] for life in lives]) for end in (0, -1))
            # Threads that outlive the steps are the loop's only if it waits for them, by a lock.
            seen = look(main, intervals.union(np.array([last_ns]), ended.max(keepdims=True)))
            waits = bool(ended.max() > last_ns) and seen.least_s(states.LOCK) > 0
            if not waits and ended.max() > last_ns:
                continue
            # From the begin of the first to the end of the last what no thread covers.
            idle_ns = ended.max() - begun.min() - intervals.union(begun, ended).length
            slack_ns = max(last_ns - int(ended.max()), 0)
            found.append(LoopThreads(waits, float(idle_ns) / 1e9, slack_ns / 1e9))
        return min(found, key=lambda each: (each.slack_s, each.idle_s), default=None)

    def _of_window(self, claim: Claim, times: Mapping[int, Intervals]) -> tuple[float, float]:
        """What a rank gains without a cause of a phase or part of steps, or without all of it."""
        longest_s = max(each.length for each in times.values()) / 1e9
        if self.gains is None:
            return 0.0, longest_s
        # The share of the window that the cause takes; without a cause all of it.
        shares = (1.0, 1.0)
        if claim.cause and claim.window == LOOP:
            longest_ns = max(longest_s * 1e9, 1)
            low_ns, high_ns = self.in_loop_ns(claim.cause)
            shares = min(low_ns / longest_ns, 1.0), min(high_ns / longest_ns, 1.0)
        elif claim.cause:
            kind = "phase" if claim.window in PHASE_NAMES else "step_part"
            length_ns = self.account.cell(f"{MEAN}/{kind}/{claim.window}").high_ns
            cell = self.account.cell(f"{MEAN}/{kind}/{claim.window}/{claim.cause}")
            shares = cell.low_ns / max(length_ns, 1), cell.high_ns / max(length_ns, 1)
        gain = self.gains.without_times(times, *shares)
        return gain.low_ns / 1e9, gain.high_ns / 1e9

    def in_loop_ns(self, cause: str) -> tuple[float, float]:
        """How much of all training steps of a rank a cause took outside of their input waits."""
        steps = self.steps_of_rank
        of_step = self.account.cell(f"{MEAN}/step/{cause}")
        of_wait = self.account.cell(f"{MEAN}/input_wait/{cause}")
        # Least of the steps less most of the waits, and the other way round.
        # What training threads were seen blocked by, beside the model, at least; 0: not sampled.
        # The account leaves open whether who sleeps on a socket asks a service or object storage:
        # the loop stands still either way. Of several ranks it may wait for another one. Nor does
        # every tracer record what syncs files.
        kind = _BLOCKS.get(cause) if len(self.trace.ranks) == 1 else None
        found = [self.look_at_part(part) for part in PARTS_BESIDE_THE_MODEL if kind is not None]
        loop_ns = sum(seen.least_s(kind) * 1e9 for seen in found if seen is not None and kind)
        low_ns = max(of_step.low_ns * steps - of_wait.high_ns, loop_ns)
        return low_ns, max(of_step.high_ns * steps - of_wait.low_ns, low_ns)

    @property
    def steps_of_rank(self) -> float:
        """Training steps of a rank, mean over those with steps; 0 without."""
        observed = self.account.observed
        return float(self.account.steps[observed].mean()) if observed.any() else 0.0

    @cached_property
    def cores(self) -> CoreUse | None:
        """What the run asked of its cores while it trained; None where threads were not sampled."""
        found = []
        for position, tiles in self._tiles.items():
            main = self.main_thread(position)
            trains = tiles.step >= 0
            if main is None or not trains.any():
                continue
            steps = intervals.union(tiles.start[trains], tiles.end[trains])
            waits = intervals.union(*(ends[trains & (tiles.part == INPUT_WAIT)] for ends in
                                      (tiles.start, tiles.end)))  # fmt: skip
            # How many cores its threads would keep busy, each for as long as it lived in the steps.
            wanted = 0.0
            for thread in self._threads_of(position, main.host):
                if not len(thread.samples):
                    continue
                seen = look(thread, steps)
                lived = intervals.union(thread.samples.time[:1], thread.samples.time[-1:] + 1)
                lived_s = intervals.intersect(lived, steps).length / 1e9
                wanted += seen.running * lived_s / max(seen.length_s, 1e-9)
            # Few samples of the training thread say nothing about its waits for a core.
            own = look(main, steps), look(main, waits)
            if own[0].samples >= _FEWEST_SAMPLES:
                found.append((wanted, own[0].queued_s, own[1].queued_s))
        if not found:
            return None
        return CoreUse(*(float(mean) for mean in np.mean(found, axis=0)))

    def _threads_of(self, position: int, host: str) -> Iterator[SampledThread]:
        """The sampled threads of the processes that load batches for a rank, its own among them."""
        process, fetches = self.trace.ranks[position], self.trace.fetches
        pids = {p.pid for p in self.trace.processes if p.trainer == process}
        pids |= {*fetches.pid[fetches.trainer == process].tolist()}
        return (t for t in self.trace.states.threads if t.pid in pids and t.host == host)

    @cached_property
    def counted_nbytes(self) -> tuple[float, ...]:
        """What each rank and its workers read while it trained, by the kernel's count.

        Through all calls that read, sockets among them; empty where that of some rank is not known.
        """
        return self._count_moved(states.RCHAR)

    @cached_property
    def device_nbytes(self) -> float | None:
        """What devices served of that to all ranks; None: file systems of the data may not count.

        Network file systems and FUSE do not.
        """
        files = self.trace.files
        kinds = {kind for kind, is_data in zip(files.file_system, files.is_data, strict=True)
                 if is_data}  # fmt: skip
        found = self._count_moved(states.READ_BYTES) if kinds and kinds <= _COUNTING else ()
        return sum(found) if found else None

    def _count_moved(self, what: int) -> tuple[float, ...]:
        """One of the kernel's counts over the steps of each rank; empty where one is not known."""
        found = []
        for position, tiles in self._tiles.items():
            main, trains = self.main_thread(position), tiles.step >= 0
            if main is None or not trains.any():
                continue
            window = np.array([tiles.start[trains].min(), tiles.end[trains].max()])
            threads = {t.tid: t for t in (main, *self._threads_of(position, main.host))}
            rows = [t.moved[t.moved[:, 1] == what] for t in threads.values() if t.is_first]
            ends = [np.interp(window, row[:, 0], row[:, 2]) for row in rows if len(row)]
            if not ends:
                return ()
            found.append(float(sum(end - begin for begin, end in ends)))
        # The sum over ranks would be too small where one is missing.
        return tuple(found) if len(found) == len(self.trace.ranks) else ()

    @cached_property
    def readers_at_once(self) -> float:
        """How many threads that fetch were in a read of a file at once, on average; 0: not sampled.

        Of the time in which any of them fetched.
        """
        fetches, read_s = self.trace.fetches, 0.0
        for main, times in self._fetching_threads():
            seen = look(main, times)
            read_s += seen.shares.get(states.READ, 0.0) * seen.length_s
        whole_ns = intervals.union(fetches.begin, fetches.end).length
        return read_s * 1e9 / whole_ns if whole_ns else 0.0

    @property
    def cores_were_taken(self) -> bool:
        """Whether others took the cores: training waits for one, and never asks for many."""
        steps_s = self.account.steps_ns / 1e9
        use = self.cores
        return use is not None and use.wanted < ITS_OWN and use.queued_s >= _TAKEN * steps_s > 0

    @property
    def wait_share(self) -> float:
        """Input waits of the training steps, as on cores of its own where others took them."""
        waits_s, steps_s = self.account.length_ns(WAIT) / 1e9, self.account.steps_ns / 1e9
        if self.cores is not None and self.cores_were_taken:
            waits_s, steps_s = waits_s - self.cores.queued_in_waits_s, steps_s - self.cores.queued_s
        return max(waits_s, 0.0) / steps_s if steps_s > 0 else 0.0

    @cached_property
    def once_s(self) -> float:
        """What the first wait of a rank takes beyond a usual one, mean over ranks; 0 of few steps.

        Workers start and files are opened there: once, however long the run is, unless epochs
        begin anew.
        """
        steps = self.results.steps
        if steps is None or not len(steps.table.step):
            return 0.0
        table, found = steps.table, list[float]()
        for rank in np.unique(table.rank).tolist():
            waits = table.input_wait_s[table.rank == rank]
            if len(waits) < _FEWEST_STEPS or np.isnan(waits).any():
                return 0.0
            found.append(max(float(waits[0] - np.median(waits[1:])), 0.0))
        return float(np.mean(found))

    @property
    def lasting_wait_share(self) -> float:
        """Input waits of the training steps without what comes once, on cores of its own."""
        steps_s = self.account.steps_ns / 1e9
        if self.cores is not None and self.cores_were_taken:
            steps_s -= self.cores.queued_s
        rest_s = steps_s - self.once_s
        return max(self.wait_share * steps_s - self.once_s, 0.0) / rest_s if rest_s > 0 else 0.0

    def look_at_part(self, part: str) -> Seen | None:
        """What the training threads were seen doing in a part of their steps.

        None where no thread was sampled in it, or hardly ever. All ranks are looked at as one.
        """
        code, found = PART_NAMES.index(part), []
        for position, tiles in self._tiles.items():
            rows, main = tiles.part == code, self.main_thread(position)
            if main is not None and rows.any():
                found.append(look(main, intervals.union(tiles.start[rows], tiles.end[rows])))
        return _merge_seen(found)

    @cached_property
    def in_collectives(self) -> float:
        """Share of the loop between its batches that sampled lines spent in torch.distributed."""
        found = self.sampled_share("loop", lambda function: _COLLECTIVES in function.posix_file)
        return 0.0 if found is None else found.middle

    def sampled_share(
        self,
        part_name: PartName,
        is_theirs: Callable[[FunctionLines], bool],
        text: re.Pattern[str] | None = None,
    ) -> SampledShare | None:
        """Of the sampled time of fetches, or of the loop, that in some functions; None: no lines.

        What they call counts with them. Where more of it lies in lines of the program whose text
        matches, these count. A fetch of several samples has looked at each of them: how often these
        lines ran is how many there were.
        """
        part = next((p for p in self.trace.lines if p.name == part_name and p.wall_ns), None)
        if part is None:
            return None
        theirs = {f.key: f for f in part.functions if is_theirs(f)}
        # A function that one of them called is in the time of its caller already.
        outer = [f for f in theirs.values() if f.parent not in theirs and f.lines]
        spent_ns = sum(line.wall_ns for function in outer for line in function.lines)
        runs = max((function.lines[0].hits for function in outer), default=0)
        if text is not None:
            own = [line for f in part.functions if f.own for line in f.lines]
            named = [line for line in own if text.search(line.text)]
            if (named_ns := sum(line.wall_ns for line in named)) > spent_ns:
                spent_ns, runs = named_ns, max(line.hits for line in named)
        return SampledShare(min(spent_ns / part.wall_ns, 1.0), max(part.samples, runs))

    @cached_property
    def seen_fetching(self) -> Seen | None:
        """What threads were seen doing while they fetched; None where hardly any was sampled."""
        return _merge_seen([look(main, times) for main, times in self._fetching_threads()])

    def _fetching_threads(self) -> Iterator[tuple[SampledThread, Intervals]]:
        """Of each process that fetched its first thread, and when it did."""
        fetches = self.trace.fetches
        for pid in np.unique(fetches.pid[fetches.pid >= 0]).tolist():
            mine = fetches.pid == pid
            host = self.trace.processes[int(fetches.trainer[mine][0])].host
            threads = self.trace.states.of_process(host, pid)
            main = next((thread for thread in threads if thread.is_first), None)
            if main is not None:
                yield main, intervals.union(fetches.begin[mine], fetches.end[mine])

    def main_thread(self, position: int) -> SampledThread | None:
        """The thread that trains, where it was sampled."""
        process = self.trace.processes[self.trace.ranks[position]]
        if process.pid is None:
            return None
        threads = self.trace.states.of_process(process.host, process.pid)
        return next((thread for thread in threads if thread.is_first), None)

    @cached_property
    def copying(self) -> Copying:
        """What workers copy of samples into batches, while they collate them."""
        fetches = self.trace.fetches
        mine = (fetches.worker >= 0) & (fetches.collate >= 0) & (fetches.end >= fetches.collate)
        if not mine.any():
            return Copying(0.0, 0.0, 0.0)
        took_s = (fetches.end - fetches.collate)[mine] / 1e9
        whole_s = float((fetches.end - fetches.begin)[mine].sum()) / 1e9
        ranks = max(len(np.unique(fetches.trainer[mine])), 1)
        return Copying(
            float(np.percentile(took_s, 10)), float(took_s.sum()) / ranks,
            float(took_s.sum()) / max(whole_s, 1e-9),
        )  # fmt: skip

    @cached_property
    def batches_nbytes(self) -> float | None:
        """What all batches of the run took in memory.

        None where of a loader none was measured, or those of some ranks were not followed.
        """
        fetches = self.trace.fetches
        if len(np.unique(fetches.trainer)) != len(self.trace.ranks):
            return None
        total = 0.0
        for name in np.unique(fetches.name).tolist():
            of_loader = fetches.pick(fetches.name == name)
            if of_loader.mean_nbytes is None:
                return None
            total += of_loader.mean_nbytes * len(of_loader)
        return total

    @property
    def handing_over_s(self) -> tuple[float, float]:
        """What a step takes to get its batch from a worker, at least and at most.

        Where none was measured, that of a small one.
        """
        return bound_handing_over_s(self.trace.fetches.mean_nbytes or 0.0)

    @property
    def mean_fetch_s(self) -> float:
        """How long a batch took to load and to hand over, at most; 0 without fetches of workers."""
        fetches = self.trace.fetches
        mine = (fetches.worker >= 0) & (fetches.end >= fetches.begin)
        if not mine.any():
            return 0.0
        return float((fetches.end - fetches.begin)[mine].mean()) / 1e9 + self.handing_over_s[1]

    @property
    def hands_over_bytes(self) -> bool:
        """Whether batches are so large that handing them over takes longer than an empty one."""
        waits_s = self.account.cell(f"{MEAN}/{WAIT}/{DELIVERY}").low_ns / 1e9
        return self.copying.is_much or waits_s / max(self.steps_of_rank, 1) >= _COPIES_S

    @property
    def wait_of_step_s(self) -> float:
        """Input wait of the mean step, as on cores of its own; 0 where it is not known."""
        waits_s = self.account.length_ns(WAIT) / 1e9
        if self.cores is not None and self.cores_were_taken:
            waits_s = max(waits_s - self.cores.queued_in_waits_s, 0.0)
        return waits_s / max(self.steps_of_rank, 1)

    @cached_property
    def epochs(self) -> int:
        """How many epochs the run has, as far as evidence marks them."""
        return len(self.account.phases.epochs) if self.account.phases else 0

    @property
    def passes(self) -> int:
        """How many times the samples were gone through, at least once."""
        return max(self.fetched_epochs or self.epochs, 1)

    @property
    def has_aggregators(self) -> bool:
        """Whether ranks let a few of them do the I/O, by MPI-IO: that is no imbalance."""
        table = self.trace.counters.get(MPIIO)
        names = ("MPIIO_COLL_READS", "MPIIO_COLL_WRITES")
        return table is not None and any((table.total(name) or 0) > 0 for name in names)

    @cached_property
    def fetched_samples(self) -> int:
        """Samples that were fetched over the run; 0 without fetches."""
        return int(self.trace.fetches.samples.clip(0).sum())

    @cached_property
    def leaves_passes(self) -> bool:
        """Whether many passes are begun, and left after a batch or two of more that were asked."""
        fetches, passes = self.trace.fetches, max(self.fetched_epochs, self.epochs)
        if not len(fetches) or passes < _MANY_PASSES:
            return False
        # Of the loader with most batches, others are for evaluation and the like.
        mine = fetches.name == np.bincount(fetches.name + 1).argmax() - 1
        taken = int((fetches.wait_end[mine] >= 0).sum())
        return taken <= 2 * passes and taken < int(mine.sum())

    @cached_property
    def pickled_nbytes(self) -> int:
        """What the training process wrote to each worker while it started them, at most.

        By the kernel's count of all its writes, less those to files that were traced; 0 where
        threads were not sampled, or workers were forked.
        """
        spans, found = self.trace.spans, 0.0
        for position in range(len(self.trace.ranks)):
            main, process = self.main_thread(position), self.trace.ranks[position]
            starts = (spans.kind == SpanKind.WORKERS) & (spans.process == process)
            starts &= np.isin(spans.name, [code for code, name in enumerate(spans.names)
                                           if name.startswith("start")])  # fmt: skip
            count = sum(p.role == "worker" and p.trainer == process for p in self.trace.processes)
            if main is None or not starts.any() or not count:
                continue
            # What the count grew by while workers were started; of several ranks the largest.
            rows = main.moved[main.moved[:, 1] == states.WCHAR]
            if not len(rows):
                continue
            begun, done = (np.interp(at[starts], rows[:, 0], rows[:, 2]) for at in
                           (spans.start, spans.end))  # fmt: skip
            found = max(found, float((done - begun).sum()) / count)
        return round(found)

    @cached_property
    def fetched_epochs(self) -> int:
        """How many epochs the loader with most batches was begun for; 0 without fetches."""
        fetches = self.trace.fetches
        if not len(fetches):
            return 0
        mine = fetches.name == np.bincount(fetches.name + 1).argmax() - 1
        return len(np.unique(fetches.epoch[mine]))

    @cached_property
    def _tiles(self) -> dict[int, Tiles]:
        """The training thread of each rank with steps, window by window."""
        of_ranks = enumerate(self.trace.spans_by_rank()) if len(self.trace.spans) else ()
        tiles = {position: tile_rank(self.trace, position, spans) for position, spans in of_ranks}
        return {position: own for position, own in tiles.items() if own is not None}

    @cached_property
    def before_steps(self) -> BeforeSteps | None:
        """What was read of the dataset before the first step; None without steps or such reads.

        Ranks read the same data each: what one of them reads is looked at alone.
        """
        tiles = [own for own in self._tiles.values() if (own.step >= 0).any()]
        if not tiles:
            return None
        first_ns = min(int(own.start[own.step >= 0].min()) for own in tiles)
        # Reads with an offset that ended before the first step, by process and file.
        is_data, found = self.trace.files.is_data, dict[tuple[int, int], list[Part]]()
        for part in self.trace.io:
            rows = (part.op == READ_OP) & (part.end <= first_ns) & (part.offset >= 0)
            rows &= is_data[part.file] & (part.nbytes > 0)
            for file in np.unique(part.file[rows]).tolist() if part.layer == POSIX else ():
                mine = part.rows(rows & (part.file == file))
                found.setdefault((part.process, file), []).append(mine)
        if not found:
            return None
        # Overlapping ranges of a file count once in what differs.
        read, unique = dict[tuple[int, int], int](), 0
        for key, parts in found.items():
            begin = np.concatenate([part.offset for part in parts])
            ends = begin + np.concatenate([part.nbytes for part in parts])
            read[key] = int((ends - begin).sum())
            unique += intervals.union(begin, ends).length
        total = sum(read.values())
        most = self.trace.files.path[max(read, key=lambda key: read[key])[1]]
        data = self.results.dataset
        # A few headers are no scan of the data.
        is_much = total >= MUCH_NBYTES or (data is not None and total >= data.bytes_read / 2)
        spent_s = sum(float((p.end - p.start).sum()) for parts in found.values() for p in parts)
        spent_s /= 1e9 * max(len(self.trace.ranks), 1)
        return BeforeSteps(total, unique, spent_s, most) if is_much else None

    def reading(self, cause: str = STORAGE, stays: float = 0.0, keeps: str = "") -> Claim:
        """The claim that a change makes reading of the dataset cheaper."""
        known = self.gains is not None and self.lost_s is not None
        within_s = None if known else self.dataset_s
        return Claim(cause, stays=stays, within_s=within_s, keeps=keeps)

    @cached_property
    def throughput(self) -> Throughput | None:
        """What the storage delivered to so many readers at once."""
        if not len(self.trace.io):
            return None
        from vanidl.advice.capacity import fit_throughput

        return fit_throughput(self.trace)

    @cached_property
    def request_cost(self) -> RequestCost | None:
        """What a request of the dataset costs, and a byte of it; None where reads do not tell."""
        if not len(self.trace.io):
            return None
        from vanidl.advice.request_costs import fit_request_cost

        return fit_request_cost(self.trace)

    @cached_property
    def transfer_share(self) -> float:
        """Share of the time of dataset reads that bytes take, and not requests as such.

        By reads of different sizes; half, where these do not tell.
        """
        cost = self.request_cost
        data = self.results.dataset
        if cost is None or data is None or not data.bytes_read or not self.reads:
            return 0.5
        latency_s, bytes_s = cost.latency_s * self.reads, cost.s_per_byte * data.bytes_read
        return bytes_s / (latency_s + bytes_s) if latency_s + bytes_s > 0 else 0.5

    def larger_reads(self) -> Claim:
        """The claim that a change makes requests larger: what the bytes take stays."""
        return self.reading(f"{STORAGE}.{READ}", self.transfer_share, "what the bytes take")

    def calls_about(self, cause: str) -> Claim:
        """The claim that a change spares metadata calls on files of the dataset."""
        table, known = self.counters, self.gains is not None and self.lost_s is not None
        within_s = self.timed_metadata_s if known else None
        if within_s is not None:  # stat and the like may be in no trace: samples tell
            within_s = max(within_s, self.account.cell(f"{MEAN}/{WAIT}/{cause}").low_ns / 1e9)
        if not known and table is not None and "POSIX_F_META_TIME" in table.seconds:
            mine = table.seconds["POSIX_F_META_TIME"][self.of_kind(table, self.data_kind)]
            within_s = float(mine.clip(0).sum()) / max(len(self.trace.ranks), 1)
        return Claim(cause, within_s=within_s)

    @cached_property
    def timed_metadata_s(self) -> float | None:
        """What metadata calls of a rank and its workers took while it trained, on average.

        None where calls were not timed one by one, or more of them were made.
        """
        calls, found = self.trace.metadata_calls, []
        for position, tiles in self._tiles.items():
            trains = tiles.step >= 0
            members = np.flatnonzero(self.trace.family == position).tolist()
            if self.lossy or not trains.any() or not any(each in calls for each in members):
                return None
            steps = intervals.union(tiles.start[trains], tiles.end[trains])
            # From the first step to the end of the last: what lies between steps is training, too.
            whole = intervals.union(steps.start[:1], steps.end[-1:])
            own = (calls.get(each, intervals.EMPTY) for each in members)
            found.append(sum(intervals.intersect(each, whole).length for each in own) / 1e9)
        return float(np.mean(found)) if found else None

    @cached_property
    def trains(self) -> bool:
        """Whether the run is seen to train a model: by steps, fetches or a framework's files."""
        if self.results.steps is not None or len(self.trace.fetches) or self.trace.benchmarks:
            return True
        return bool(find_named_frameworks(self.trace))

    @cached_property
    def io_bound_s(self) -> float | None:
        """The most that any change of reading can gain.

        Where input waits are known what the run gains without storage; else the time in which a
        rank, on average, read the dataset.
        """
        gain_s = self.without_s(STORAGE)
        return self.dataset_s if gain_s is None else gain_s

    @property
    def matters(self) -> bool:
        """Whether reading the dataset costs enough to look at how it is read."""
        if self.results.dataset is None or self.io_bound_s is None:
            return False
        if self.gains is None or self.lost_s is None:
            run_s = self.trace.job.run_time_s
            return run_s > 0 and self.io_bound_s >= MATTERS * run_s
        # Of what evidence leaves open half is taken: a bound alone is no reason to look.
        gain = self.gains.without(STORAGE)
        likely_s = min((gain.low_ns + gain.high_ns) / 2e9, self.lost_s)
        seen = self.seen_fetching
        if seen is not None and self.by_calls and not self.lossy:
            # All calls were timed: besides them there are page faults, in which threads sleep.
            asleep = SampledShare(sum(map(seen.shares.get, states.IN_FILES, _ZEROS)), seen.samples)
            likely_s = min(likely_s, gain.low_ns / 1e9 + asleep.most * self.lost_s)
        return self.base_s > 0 and likely_s >= MATTERS * self.base_s

    @cached_property
    def waits_on_storage(self) -> bool:
        """Whether input waits on storage cost enough, by the middle of what is known of them."""
        if self.gains is None or self.lost_s is None:
            return False
        gain = self.gains.without(STORAGE)
        likely_s = min((gain.low_ns + gain.high_ns) / 2e9, self.lost_s)
        return self.base_s > 0 and likely_s >= MATTERS * self.base_s

    @cached_property
    def dataset_s(self) -> float | None:
        """Time a rank on average read dataset files: busy time, else by counters."""
        return self.kind_s(self.data_kind)

    def kind_s(self, kind: str) -> float | None:
        """Time a rank on average read and wrote files of a kind: busy time, else by counters."""
        row = self.group(kind)
        if row is not None and row.busy_s is not None:
            return row.busy_s
        # No operation on such files was traced: counters have the time of POSIX.
        table = self.counters
        names = ("POSIX_F_READ_TIME", "POSIX_F_WRITE_TIME")
        if table is None or names[0] not in table.seconds or not self.trace.ranks:
            return None
        mine = self.of_kind(table, kind)
        spent = (table.seconds[n][mine].clip(0).sum() for n in names if n in table.seconds)
        return float(sum(spent)) / len(self.trace.ranks)

    @property
    def data_kind(self) -> str:
        """The kind of file that is taken for the dataset."""
        return self.trace.files.data_kind

    def group(self, kind: str) -> GroupRow | None:
        """Totals of one kind of file."""
        return next((g for g in self.results.files.by_kind if g.name == kind), None)

    @property
    def counters(self) -> CounterTable | None:
        """Darshan's POSIX counters; None where another layer than files is looked at."""
        return None if self.on_objects else self.trace.counters.get(POSIX)

    @property
    def layer(self) -> str:
        """The layer that is looked at."""
        return self.results.summary.layer

    @property
    def on_objects(self) -> bool:
        """Whether that is object storage."""
        return self.layer == OBJECT

    def of_kind(self, table: CounterTable, *kinds: str) -> NDArray[np.bool_]:
        """Mask of the records whose file is of one of the kinds."""
        return self.of_files(table, lambda code: self.trace.files.kind[code] in kinds)

    def of_files(self, table: CounterTable, wanted: Callable[[int], bool]) -> NDArray[np.bool_]:
        """Mask of the records whose file code is wanted."""
        mask = np.array([wanted(code) for code in range(len(self.trace.files))], bool)
        return mask[table.file] if len(mask) else np.zeros(len(table.file), bool)

    @cached_property
    def reads(self) -> int:
        """Reads of dataset files that moved bytes: an empty one, at the end of a file, is none."""
        data = self.results.dataset
        if data is None:
            return 0
        empty = self._empty_by_counters if data.empty_reads is None else data.empty_reads
        return max(sum(f.reads for f in data.files) - empty, 0)

    @property
    def _empty_by_counters(self) -> int:
        """Reads of 0 to 100 bytes, at most one for each open of a file.

        Counters do not tell empty reads from short ones; neither is a sample.
        """
        table = self.counters
        if table is None or not {"POSIX_SIZE_READ_0_100", "POSIX_OPENS"} <= set(table.counters):
            return 0
        least = np.minimum(table.counters["POSIX_SIZE_READ_0_100"], table.counters["POSIX_OPENS"])
        return int(least[self.of_kind(table, self.data_kind)].clip(0).sum())

    def file_s(self, paths: Collection[str]) -> float:
        """Time in reads, writes and, by the counters, metadata calls of some files, all ranks."""
        spent = sum(r.io_s or 0.0 for r in self.results.files.rows if r.path in paths)
        table = self.counters
        if table is None or "POSIX_F_META_TIME" not in table.seconds:
            return spent
        # More metadata time than the processes ran is an error of the counter.
        if "meta_time_not_credible" in self.serious:
            return spent
        mine = self.of_files(table, lambda code: self.trace.files.path[code] in paths)
        return spent + float(table.seconds["POSIX_F_META_TIME"][mine].clip(0).sum())

    def worth_s(self, spent_s: float, share: float) -> float | None:
        """What a rank can gain of time that all ranks spent in reading; None: not worth a word.

        It is `share` of the run time of each rank or more; where input waits are known, I/O must
        matter, and no more can be gained than was waited for.
        """
        own_s = spent_s / max(len(self.trace.ranks), 1)
        if own_s <= 0 or own_s < share * self.trace.job.run_time_s:
            return None
        if self.lost_s is None:
            return own_s
        return min(own_s, self.io_bound_s or 0.0) if self.matters else None

    @cached_property
    def opens(self) -> int:
        """Opens of dataset files by the counters."""
        data = self.results.dataset
        return sum(f.opens or 0 for f in data.files) if data else 0

    @property
    def mean_read_nbytes(self) -> float:
        """Mean size of a dataset read, 0 without any."""
        data = self.results.dataset
        return data.bytes_read / self.reads if data and self.reads else 0.0

    @property
    def jumps(self) -> float | None:
        """Share of the dataset reads that begin elsewhere than the one before ended.

        A file that is opened again is read from its start: going back there is no jump.
        """
        within = self.results.dataset.within if self.results.dataset else None
        if within is None or not within.ops or within.forward is None or within.backward is None:
            return None
        # Each open but the first of a file takes one step back.
        again = min(max(self.opens - within.first, 0), within.backward) if within.first else 0
        return (within.forward + within.backward - again) / within.ops
