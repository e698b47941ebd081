"""Synthetic training runs whose clocks differ by a known amount.

The loops are those of PyTorch's loader: without workers the waiting process reads inside its
waits; with workers, batch k is read by worker k mod W, at most prefetch_factor batches ahead.
Reads, decoding, hand-over and compute vary at random; each log's start is late as measured:
that of a forked worker by an amount of its own, up to the time of its first read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from tests.makers.records import JOB_START_NS, Io, Span, darshan_log, profile
from vanidl.merge import operations
from vanidl.merge.clocks.align import Clock, align_profile
from vanidl.merge.clocks.evidence import (
    AlignmentInputs,
    TracedProcess,
    find_traced_processes,
    gather_inputs,
)
from vanidl.merge.clocks.late_logs import choose_log_clocks
from vanidl.merge.clocks.log_clock import clock_processes
from vanidl.merge.files import number_files
from vanidl.merge.processes import ProcessTable, identify_processes
from vanidl.model.trace import MAX_PART_ROWS, SpanKind
from vanidl.readers.records import ProfileTrace, TracerLog

SECOND = 1_000_000_000
MS = 1_000_000
TRAINER = 100
FORKED_NS = 500 * MS  # how late the start of a forked process may be


@dataclass(frozen=True)
class Draw:
    """Logs and profiles of one run, and the true offsets of profiles and of workers' logs in ns.

    All are on the clock of the training process's log.
    """

    logs: tuple[TracerLog, ...]
    profiles: tuple[ProfileTrace, ...]
    truth_ns: tuple[int, ...]
    of_logs_ns: dict[str, int] = field(default_factory=dict)  # by path


@dataclass
class Loop:
    """What a training loop did; times in seconds since its process began."""

    reads: dict[int, list[tuple[float, float, int]]]  # worker (or TRAINER) -> start, end, bytes
    lives: dict[int, tuple[float, float]]
    waits: list[tuple[float, float]]
    steps: list[tuple[float, float]]
    end: float


@dataclass(frozen=True)
class Pace:
    """How long things take in one run, medians in seconds."""

    compute: float
    read: float
    decode: float
    lead: float
    collate: float
    reads_a_batch: int

    @staticmethod
    def of(random: np.random.Generator) -> Pace:
        def between(low: float, high: float) -> float:
            return float(np.exp(random.uniform(np.log(low), np.log(high))))

        return Pace(
            between(0.02, 0.3),
            between(1e-4, 5e-3),
            between(5e-5, 2e-3),
            between(1e-4, 1e-3),
            between(2e-4, 5e-3),
            int(random.integers(4, 33)),
        )


def around(random: np.random.Generator, median: float, spread: float = 0.4) -> float:
    return median * random.lognormal(0, spread)


def read_batch(random, pace: Pace, at: float, rows: list) -> float:
    """Reads of one batch from `at` on; when its last sample is decoded."""
    for _ in range(pace.reads_a_batch):
        end = at + around(random, pace.read)
        rows.append((at, end, 65_536))
        at = end + around(random, pace.decode)
    return at


def alone(random: np.random.Generator) -> Loop:
    """The process that waits reads; in some runs it reads a little beside its waits, too."""
    pace, batches = Pace.of(random), int(random.integers(20, 80))
    stray = random.uniform(0, 0.04) if random.random() < 0.3 else 0.0
    rows, waits, steps = start_up(random), [], []
    at = random.uniform(1, 10)
    for _ in range(int(random.integers(1, 4))):
        for _ in range(batches):
            begin = at
            at = read_batch(random, pace, at + around(random, pace.lead), rows)
            at += around(random, pace.collate)
            waits.append((begin, at))
            busy = around(random, pace.compute, 0.1)
            if random.random() < 0.1 and stray:
                length = min(10 * stray * pace.reads_a_batch * pace.read, 0.8 * busy)
                rows.append((at + 0.1 * busy, at + 0.1 * busy + length, 1000))
            at += busy
            steps.append((begin, at))
        waits.append((at, at + around(random, 1e-4)))
        at = waits[-1][1] + around(random, 1e-3)
    return Loop({TRAINER: rows}, {}, waits, steps, at + random.uniform(0.5, 5))


def with_workers(random: np.random.Generator, workers: int | None = None) -> Loop:
    """Workers read ahead, created again each epoch, as PyTorch does it."""
    pace, batches = Pace.of(random), int(random.integers(20, 80))
    workers = int(random.integers(1, 5)) if workers is None else workers
    ahead = int(random.choice([2, 2, 2, 4]))
    loop = Loop({TRAINER: start_up(random)}, {}, [], [], 0.0)
    at, number = float(random.uniform(1, 10)), TRAINER + 1
    for _ in range(int(random.integers(1, 4))):
        at = epoch(random, pace, loop, (at, number, batches, workers, ahead))
        number += workers
    loop.end = at + random.uniform(0.5, 5)
    return loop


def epoch(random, pace: Pace, loop: Loop, shape: tuple[float, int, int, int, int]) -> float:
    at, number, batches, workers, ahead = shape
    born = at
    at += 0.005 * workers
    asked = [at] * min(ahead * workers, batches)
    free = [at + random.uniform(0.005, 0.05) for _ in range(workers)]
    rows: list[list] = [[] for _ in range(workers)]
    ready: list[float] = []
    for k in range(batches):
        while len(ready) < len(asked):  # everything that was asked for can be read by now
            j, worker = len(ready), len(ready) % workers
            begin = max(asked[j] + around(random, 3e-4), free[worker])
            free[worker] = read_batch(random, pace, begin, rows[worker])
            free[worker] += around(random, pace.collate)
            ready.append(free[worker] + around(random, 5e-4))
        begin = at
        at = max(at, ready[k]) + around(random, 2e-4)
        loop.waits.append((begin, at))
        if len(asked) < batches:
            asked.append(at - 5e-5)
        at += around(random, pace.compute, 0.1)
        loop.steps.append((begin, at))
    stop = at + around(random, 0.01)
    loop.waits.append((at, stop))
    for i in range(workers):
        loop.reads[number + i] = rows[i]
        loop.lives[number + i] = (born + 0.001 * i, stop - 1e-3)
    return stop + around(random, 1e-3)


def start_up(random: np.random.Generator) -> list[tuple[float, float, int]]:
    """Reads before training: imports."""
    starts = np.sort(random.uniform(0, 1, 40))
    return [(float(s), float(s) + 1e-4, 4096) for s in starts]


def drawn(
    random: np.random.Generator,
    loop: Loop,
    *,
    host: str = "node01",
    pid: int = TRAINER,
    coarse: bool = False,
    hidden: bool = True,
) -> Draw:
    """Logs and profile of one process's loop, and the true offsets."""
    shift = pid - TRAINER
    began = JOB_START_NS + int(random.integers(0, SECOND))
    late = int(random.uniform(0.1, 0.2) * MS)
    logs, of_logs = [], {}
    for number, rows in loop.reads.items():
        low, high = loop.lives.get(number, (0.0, loop.end))
        behind = late if number == TRAINER else lateness(random, rows[0][0] - low)
        start = began + int(low * SECOND) + behind
        ios = [Io(int((a - low) * SECOND), int((b - low) * SECOND), 0, n) for a, b, n in rows]
        log = darshan_log(
            ios,
            pid=number + shift,
            parent=None if number == TRAINER else pid,
            start_ns=start // SECOND * SECOND if coarse else start,
            length_ns=int((high - low) * SECOND) - behind + (SECOND if coarse else 0),
            job_id=str(pid),
        )
        of_logs[log.path] = late - behind
        resolution = SECOND if coarse else 1
        may_be = 0 if number == TRAINER else FORKED_NS
        logs.append(replace(log, host=host, start_resolution_ns=resolution, start_late_ns=may_be))
    base = began if not hidden else int(random.integers(0, 10**15))
    seen = profile(spans_of(random, loop), pid=pid, host=host, base_ns=base)
    truth = began - base + late - ((began + late) % SECOND if coarse else 0)
    return Draw(tuple(logs), (seen,), (truth,), of_logs)


def lateness(random: np.random.Generator, first_read: float) -> int:
    """How late a worker's log is, in ns: most are late by little, none by more than can be."""
    return int(min(random.random() ** 2 * 0.1, 0.9 * first_read) * SECOND)


def spans_of(random: np.random.Generator, loop: Loop) -> list[Span]:
    """What a profiler recorded of some of the steps."""
    first = int(random.integers(0, 6))
    last = len(loop.steps) - int(random.integers(0, len(loop.steps) // 3))
    low, high = loop.steps[first][0], loop.steps[last - 1][1]
    marks = [(a, b) for a, b in loop.steps if low <= a and b <= high]
    begins = [int(a * SECOND) for a, _ in marks]
    ends = [*begins[1:], int(high * SECOND)]
    spans = [Span(SpanKind.STEP, a, b, first + i)
             for i, (a, b) in enumerate(zip(begins, ends, strict=True))]  # fmt: skip
    # A step begins where the one before ended: the wait at an epoch's end lies in the next.
    for i, (begin, end) in enumerate(marks[:-1]):
        spans[i] = spans[i]._replace(end=int(end * SECOND))
        spans[i + 1] = spans[i + 1]._replace(start=int(end * SECOND))
        del begin
    waits = [(int(a * SECOND), int(b * SECOND)) for a, b in loop.waits if low <= a and b <= high]
    return spans + [Span(SpanKind.INPUT_WAIT, a, b) for a, b in waits]


def one(loop: Callable[[np.random.Generator], Loop], **how: bool) -> Callable[..., Draw]:
    def make(random: np.random.Generator) -> Draw:
        return drawn(random, loop(random), **how)

    return make


def per_host(loop: Callable[[np.random.Generator], Loop]) -> Callable[..., Draw]:
    """Two hosts with one rank each, whose profiles count from different moments."""

    def make(random: np.random.Generator) -> Draw:
        both = [
            drawn(random, loop(random), host=f"node{i:02}", pid=TRAINER + 1000 * i)
            for i in range(2)
        ]
        logs = tuple(log for one in both for log in one.logs)
        profiles = tuple(
            replace(one.profiles[0], rank=i, world_size=2, path=f"rank{i}")
            for i, one in enumerate(both)
        )
        return Draw(logs, profiles, tuple(one.truth_ns[0] for one in both))

    return make


CASES: dict[str, Callable[[np.random.Generator], Draw]] = {
    "constant": one(alone),
    "constant, workers": one(with_workers),
    "per host": per_host(alone),
    "per host, workers": per_host(with_workers),
    "whole seconds": one(alone, coarse=True, hidden=False),
    "whole seconds, workers": one(with_workers, coarse=True, hidden=False),
    "whole seconds, unknown": one(alone, coarse=True),
}


@dataclass(frozen=True)
class Outcome:
    """One profile of one draw: was the truth inside, how far off, how wide; None: not aligned."""

    inside: bool
    error_ns: int
    half_ns: float
    method: str
    uncertainty_ns: int = 0  # as stated


def outcomes(case: str, draws: int, seed: int = 0) -> list[Outcome | None]:
    """What is found in `draws` runs of one case, profile by profile."""
    found: list[Outcome | None] = []
    for number in range(draws):
        random = np.random.default_rng([seed, sorted(CASES).index(case), number])
        draw = CASES[case](random)
        every = inputs_of(draw.logs, draw.profiles)
        found += [
            outcome(align_profile(i), truth) for i, truth in zip(every, draw.truth_ns, strict=True)
        ]
    return found


def log_outcomes(draw: Draw) -> list[Outcome]:
    """What is found of the workers' logs of one run."""
    processes, traced, inputs = merged(draw.logs, draw.profiles)
    aligned = [(each, align_profile(each)) for each in inputs]
    clocks = choose_log_clocks(traced, aligned)
    found = []
    for (i, _), number in processes.of_log.items():
        clock, truth = clocks[number], draw.of_logs_ns[draw.logs[i].path]
        if processes.rows[number].role == "worker":
            inside = clock.low_ns <= truth <= clock.high_ns
            half = (clock.high_ns - clock.low_ns) / 2
            error = abs(clock.offset_ns - truth)
            method = clock.evidence[-1].method
            found.append(Outcome(inside, error, half, method, clock.uncertainty_ns))
    return found


def inputs_of(logs, profiles, events=()) -> list[AlignmentInputs]:
    """What the clock of each profile is aligned by."""
    return merged(logs, profiles, events)[2]


def merged(
    logs, profiles, events=()
) -> tuple[ProcessTable, dict[int, TracedProcess], list[AlignmentInputs]]:
    """Processes, what was traced of each, and what each profile's clock is aligned by."""
    processes, codes = identify_processes(logs, profiles), number_files(logs, {})
    io = operations.merge_operations(logs, processes, codes, MAX_PART_ROWS)
    clocks = clock_processes(logs, processes, {})
    traced = find_traced_processes(logs, processes, io, codes, clocks)
    return processes, traced, gather_inputs(profiles, processes, logs, traced, events)


def outcome(clock: Clock, truth_ns: int) -> Outcome | None:
    if not clock.aligned:
        return None
    middle = clock.offset_ns
    inside = clock.low_ns <= truth_ns <= clock.high_ns
    half = (clock.high_ns - clock.low_ns) / 2
    return Outcome(inside, abs(middle - truth_ns), half, clock.method, clock.uncertainty_ns)
