"""CPU time that `vanidl record` adds to a training job: per step, and once per run.

    python -m benchmarks.vanidl.record_overhead [--tracer control|none|vanidl|darshan|dftracer]...
                     [--fresh 30] [--turns 8] [--starts 6] [--default-malloc]

**Per step.** Two trainings run, one alone and one recorded, and take turns of ten steps in the
order ABBA, so that both see the same machine. The CPU time of a turn is that of the training
process and its workers, until these have fetched what the turn asked for, and that of the recorder
in the turn. Of each process counts the median of its turns, of each pair of processes the ratio of
both: shown is the geometric mean over pairs (`--fresh`), with a 95 % interval (Student's t), as
pairs are what is independent. A claim holds where the whole interval is below its limit: steps
alone (`none`) and with our tracer (`vanidl`) 1.01, with Darshan 1.03, with DFTracer 1.10. `control`
is a pair of two that are not recorded: what the method finds where there is nothing.

Both keep the memory that they free (MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_). With glibc's
own settings (`--default-malloc`) a step gives pages back and faults them in again, how many depends
on where the heap of the process happens to lie: that is 40 % of the step, and processes that do the
same differed by 8 % (few processes, busy machine), by about 2 % with memory kept (quiet).
What a recorder adds is a larger share of the shorter step.

`as before` is the earlier estimate, of the same turns: the geometric mean of the middle 80 % of
the ratios of turns, bootstrap over pairs of processes, then over the turns of each.

**Calls alone.** One recorded training whose turns read through our tracer or Darshan, or straight
from libc, in the order ABBA: the same processes, so that nothing of theirs scatters. It has every
wrapped read and what its record does to caches. It leaves out what is there in both kinds of turns:
memory that the tracer holds, hooks of steps (benchmarks/vanidl/step_overhead.py), and the
recorder's process, whose CPU time is said beside it. The log must hold the reads of the turns
through the tracer.

**Once per run** (the recorder, the start of the tracer in each process, memory that it clears,
logs that it compresses): the difference of whole trainings of ten steps, run in turn: their mean
in seconds with a 95 % interval. Both together say what a training of a given length pays.

Last, what one cached read of a loop that does nothing else pays. Needs PyTorch; tracers are found
as `vanidl record` finds them (Darshan: its module, or DARSHAN_ROOT), and one that is not here is
said and left out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import numpy as np
from scipy.special import ndtr, stdtrit

from benchmarks.measure import ROOT, processor_s
from benchmarks.programs.small_training import NBYTES, SAMPLES
from vanidl import open_run
from vanidl.errors import InputError
from vanidl.model.trace import POSIX, READ
from vanidl.record import record

PROGRAMS = Path(__file__).parents[1] / "programs"
TRAINING = "benchmarks.programs.training_in_turns"
STEPS, BATCH, AROUND = 10, 32, "around"  # of its turns
LIMITS = {"none": 1.01, "vanidl": 1.01, "darshan": 1.03, "dftracer": 1.10}
WRAPPING = ("vanidl", "darshan")  # calls by name: those of libc itself go around them
CONTROL = "control"  # a second training that is not recorded
WARM_UP = 2  # turns
DRAIN_S = 0.005  # in which workers that have something to fetch use the CPU
KEEPS_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 32), "MALLOC_MMAP_THRESHOLD_": str(1 << 32)}
TRIMMED = 0.1  # of the pairs of turns, at each end
READS = 200_000
LOOPS = 5
RESAMPLES = 20_000
TRAININGS_S = (60, 600, 3600)  # for which the sum of both is said
_NUMBERS = count()
FETCHED_AHEAD = 2  # batches, by each DataLoader worker


class Turns:
    """A training that runs ten steps at a time; `recorder` is the process of `vanidl record`."""

    def __init__(self, process: subprocess.Popen[str], recorder: int | None) -> None:
        self._process = process
        self._own = [] if recorder is None else [recorder]
        self._pids: list[int] = []

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args}: exit status {self._process.wait()}")
        return line

    def turn_s(self, how: str = "") -> tuple[float, float]:
        """CPU seconds of a turn: of the training, and of the recorder."""
        self._pids = self._pids or [int(word) for word in self._line().split()]
        before, own = cpu_s(self._pids), cpu_s(self._own)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{how}\n")
        self._process.stdin.flush()
        self._line()
        return self._drained() - before, cpu_s(self._own) - own

    def _drained(self) -> float:
        """CPU seconds once nobody uses any more: workers fetch ahead."""
        used, last = cpu_s(self._pids), -1.0
        while used != last:
            time.sleep(DRAIN_S)
            used, last = cpu_s(self._pids), used
        return used


def cpu_s(pids: Sequence[int]) -> float:
    """CPU seconds of running processes so far (their CPU-time clocks, in nanoseconds)."""
    return sum(time.clock_gettime(~pid << 3 | 2) for pid in pids)


@contextmanager
def training(
    data: Path, options: argparse.Namespace, tracer: str | None, *more: str
) -> Iterator[Turns]:
    """A training that waits for its turns, recorded where a tracer is named."""
    command = [sys.executable, "-m", TRAINING, str(data), str(options.workers), *more]
    recorded = tracer not in (None, CONTROL)
    if recorded:
        run = data.parent / f"run-{next(_NUMBERS)}"
        recorder = ("-m", "vanidl", "record", "--tracer", str(tracer), "-o", str(run), "--")
        command = [sys.executable, *recorder, *command]
    environment = os.environ | ({} if options.default_malloc else KEEPS_MEMORY)
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield Turns(process, process.pid if recorded else None)
        assert process.stdin is not None
        process.stdin.close()
        if process.wait():
            raise SystemExit(f"{' '.join(command)}: exit status {process.returncode}")


def pairs_of_turns(tracer: str, data: Path, options: argparse.Namespace) -> np.ndarray:
    """(pair of processes, pair of turns, alone or recorded) CPU seconds of a turn."""
    found = np.empty((options.fresh, options.turns, 2))
    for number, pair in enumerate(found):
        with ExitStack() as both:
            order = (None, tracer) if number % 2 else (tracer, None)
            turns = {one: both.enter_context(training(data, options, one)) for one in order}
            for _ in range(WARM_UP):
                turns[None].turn_s(), turns[tracer].turn_s()
            for k in range(len(pair)):
                spent = {one: sum(turns[one].turn_s()) for one in order[:: 1 if k % 2 else -1]}
                pair[k] = spent[None], spent[tracer]
    return found


def turns_both_ways(tracer: str, data: Path, options: argparse.Namespace) -> np.ndarray:
    """(process, pair of turns, around or through) CPU seconds, the recorder's last."""
    found = np.empty((options.both_ways, options.turns, 3))
    for own in found:
        with training(data, options, tracer, "--both-ways") as turns:
            turns.turn_s(AROUND), turns.turn_s()
            for k in range(len(own)):
                spent = {how: turns.turn_s(how) for how in ("", AROUND)[:: 1 if k % 2 else -1]}
                own[k] = spent[AROUND][0], spent[""][0], sum(each[1] for each in spent.values())
        batches = FETCHED_AHEAD * options.workers + STEPS * (1 + options.turns)
        check_reads(data.parent / f"run-{next(_NUMBERS) - 1}", BATCH * batches)
    return found


def check_reads(run: Path, asked: int) -> None:
    """The tracer must have seen the reads of the turns through it, and no others."""
    parts = [part for part in open_run(run).trace.io if part.layer == POSIX]
    seen = sum(int(((part.op == READ) & (part.nbytes == NBYTES)).sum()) for part in parts)
    if seen != asked:
        raise SystemExit(f"expected {asked} recorded reads of {NBYTES} bytes, found {seen}")


def pairs_of_starts(tracer: str, data: Path, options: argparse.Namespace) -> np.ndarray:
    """(pair, alone or recorded) CPU seconds of a whole training of ten steps."""
    found = []
    for k in range(options.starts):
        spent = {}
        for one in (None, tracer) if k % 2 else (tracer, None):
            before = processor_s()
            with training(data, options, one) as turns:
                turns.turn_s()
            spent[one] = processor_s() - before
        found.append((spent[None], spent[tracer]))
    return np.array(found)


def verdict(low: float, high: float, limit: float) -> str:
    """What an interval says of a limit."""
    return "holds" if high <= limit else "broken" if low > limit else "not shown"


def interval(ratios: np.ndarray) -> tuple[float, float, float]:
    """Geometric mean and its 95 % interval by bootstrap over pairs."""
    mean, low, high = np.exp(mean_interval(np.log(ratios)))
    return float(mean), float(low), float(high)


def middle(values: np.ndarray) -> np.ndarray:
    """The middle of each row's values, sorted."""
    cut = int(values.shape[-1] * TRIMMED)
    return np.sort(values, axis=-1)[..., cut : values.shape[-1] - cut]


def nested_interval(
    values: np.ndarray, rng: np.random.Generator, resamples: int = RESAMPLES
) -> tuple[float, float, float]:
    """Mean of (process pair, turn) values and its 95 % interval.

    The bootstrap draws pairs, then turns of each. Percentiles of so few pairs lie too close
    together: those are taken at which a normal distribution reaches as far as Student's t with the
    unbiased variance (the expanded percentile interval of Hesterberg).
    """
    pairs, turns = values.shape
    if pairs < 2:
        raise InputError("--fresh: expected at least 2 pairs of processes: one shows no scatter")
    drawn = rng.integers(pairs, size=(resamples, pairs, 1))
    means = values[drawn, rng.integers(turns, size=(resamples, pairs, turns))].mean(axis=(1, 2))
    tail = float(ndtr(stdtrit(pairs - 1, 0.025) * np.sqrt(pairs / (pairs - 1))))
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(values.mean()), float(low), float(high)


def mean_interval(values: np.ndarray) -> tuple[float, float, float]:
    """Mean and its 95 % interval by bootstrap."""
    rng = np.random.default_rng(0)
    means = rng.choice(values, (RESAMPLES, len(values))).mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(values.mean()), float(low), float(high)


def between_pairs(turns: np.ndarray) -> tuple[float, float, float, float]:
    """Ratio of (pair, turn, alone or recorded) seconds, its 95 % interval, scatter of pairs.

    A process counts by the median of its turns, and pairs are independent: Student's t over them.
    """
    if len(turns) < 2:
        raise InputError("--fresh: expected at least 2 pairs of processes: one shows no scatter")
    logs = np.diff(np.log(np.median(turns, axis=1)), axis=1)[:, 0]
    scatter = float(logs.std(ddof=1))
    reach = float(stdtrit(len(logs) - 1, 0.975)) * scatter / np.sqrt(len(logs))
    low, ratio, high = np.exp(logs.mean() + np.array([-reach, 0.0, reach]))
    return float(ratio), float(low), float(high), scatter


def measure_steps(tracer: str, data: Path, options: argparse.Namespace) -> float:
    """Prints what a tracer costs per step: the ratio."""
    turns = pairs_of_turns(tracer, data, options)
    ratio, low, high, scatter = between_pairs(turns)
    limit = LIMITS.get(tracer)
    step_ms = float(np.median(turns[..., 0])) * 1e3 / STEPS
    said = "1 must lie within" if limit is None else f"x{limit:.2f}: {verdict(low, high, limit)}"
    print(
        f"{tracer:8}  per step: x{ratio:.4f} (95 %: {low:.4f} to {high:.4f}) of {step_ms:.1f} ms "
        f"of CPU; limit {said}; {len(turns)} pairs of processes, which scatter by {scatter:.2%}, "
        f"with {turns.shape[1]} pairs of turns each",
        flush=True,
    )
    logs = middle(np.log(turns[..., 1] / turns[..., 0]))
    before = np.exp(nested_interval(logs, np.random.default_rng(0)))
    print(f"{tracer:8}  as before: x{before[0]:.4f} (95 %: {before[1]:.4f} to {before[2]:.4f})")
    return ratio


def measure_calls(tracer: str, data: Path, options: argparse.Namespace) -> None:
    """Prints what reads through a tracer cost more than around it, in the same processes."""
    found = turns_both_ways(tracer, data, options)
    around, through, own = np.moveaxis(found, 2, 0)
    ratio, low, high = interval(np.exp(middle(np.log(through / around).ravel())))
    share = own.sum() / (around + through).sum()
    print(
        f"{tracer:8}  calls alone: x{ratio:.4f} (95 %: {low:.4f} to {high:.4f}), {around.size} "
        f"pairs of turns in {len(found)} processes; the recorder's process beside it: {share:.2%}",
        flush=True,
    )


def measure(tracer: str, data: Path, options: argparse.Namespace) -> None:
    """Prints what a tracer costs per step, per run, and both for trainings of some lengths."""
    ratio = measure_steps(tracer, data, options)
    if tracer == CONTROL:
        return
    if tracer in WRAPPING and options.both_ways:
        measure_calls(tracer, data, options)
    starts = pairs_of_starts(tracer, data, options)
    once, least, most = mean_interval(starts[:, 1] - starts[:, 0])
    print(
        f"{tracer:8}  once per run: {once:.2f} s of CPU (95 %: {least:.2f} to {most:.2f}) beside "
        f"{np.median(starts[:, 0]):.2f} s, {len(starts)} pairs, {options.workers} workers",
        flush=True,
    )
    sums = (f"{(ratio - 1) * 100 + once / s * 100:.2f} % of {s} s of CPU" for s in TRAININGS_S)
    print(f"{tracer:8}  together: {', '.join(sums)}", flush=True)
    measure_loop(tracer, data)


def measure_loop(tracer: str, data: Path) -> None:
    """Prints what recording adds to one cached read of a loop that does nothing else."""
    loop = [sys.executable, str(PROGRAMS / "tight_loop.py"), str(data), str(READS)]
    alone, recorded = np.array([both(tracer, loop, data) for _ in range(LOOPS)]).T
    added_us = float(np.median(recorded - alone)) / READS * 1e6
    print(
        f"{tracer:8}  tight loop of {READS:,} cached 4 KiB reads, start-up included: "
        f"{np.median(alone) / READS * 1e6:.2f} us a read alone, {added_us:.2f} us more recorded",
        flush=True,
    )


def both(tracer: str, command: Sequence[str], data: Path) -> tuple[float, float]:
    """CPU seconds (alone, recorded) of two runs, one after the other."""
    before = processor_s()
    subprocess.run(command, check=True)
    alone = processor_s() - before
    return alone, recorded_s(tracer, command, data)


def recorded_s(tracer: str, command: Sequence[str], data: Path) -> float:
    """CPU seconds of a recorded command, of its processes, and of the recorder."""
    own = time.process_time()
    recorded = record(command, data.parent / f"run-{next(_NUMBERS)}", tracer=tracer)
    if recorded.exit_status:
        raise SystemExit(f"{command}: exit status {recorded.exit_status}")
    return recorded.cpu_s + time.process_time() - own


def is_here(tracer: str, data: Path) -> bool:
    """Whether a tracer can be measured; says why not."""
    try:
        recorded_s(tracer, [sys.executable, "-c", "import torch"], data)  # warms caches
    except InputError as error:
        print(f"{tracer:8}  not measured: {error}")
        return False
    return True


def main() -> None:
    """Measures every tracer that is here."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--fresh", type=int, default=30, help="pairs of processes")
    add("--turns", type=int, default=8, help="of each process")
    add("--both-ways", type=int, default=3, help="processes that read through a tracer and around")
    add("--starts", type=int, default=6, help="pairs of whole trainings")
    add("--workers", type=int, default=2)
    add("--default-malloc", action="store_true", help="glibc's own settings")
    add("--tracer", action="append", choices=[CONTROL, *LIMITS])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "samples.f32"
        data.write_bytes(np.random.default_rng(0).random(SAMPLES * NBYTES // 4, "f4").tobytes())
        for tracer in options.tracer or LIMITS:
            if tracer == CONTROL or is_here(tracer, data):
                measure(tracer, data, options)


if __name__ == "__main__":
    main()
