"""CPU time that `vanidl record` adds to a training job: per step, and once per run.

    python -m benchmarks.vanidl.record_overhead [--tracer none|darshan|dftracer]...
                                                [--pairs 240] [--fresh 8] [--starts 6]

Two trainings run, one alone and one recorded, and take turns of ten steps in the order ABBA, so
that both see the same machine. The CPU time of a turn is that of the training process and its
workers, what they prefetched after the turn before included, and that of the recorder in the
turn. Processes differ by where their memory lies, by more than turns do: several pairs of them
(`--fresh`) share the turns. Shown is the geometric mean of the middle 80 % of each pair's ratios,
with a 95 % interval (bootstrap over pairs of processes, then over the turns of each; widened as
Student's t asks for so few pairs). How far single pairs lie apart is said beside it.

What is paid once (the recorder, the start of the tracer in each process, memory that it clears,
logs that it compresses) is the difference of whole trainings of ten steps, run in turn: their mean
in seconds with a 95 % interval. Both together say what a training of a given length pays.
Limits, of the ratio per step: steps alone (`none`) 1.01, with Darshan 1.03, with DFTracer 1.10; a
claim holds where the whole interval is below its limit.

Last, what one cached read of a loop that does nothing else pays. Needs PyTorch; tracers are found
as `vanidl record` finds them (Darshan: its module, or DARSHAN_ROOT), and one that is not here is
said and left out.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import numpy as np
from scipy.stats import norm, t

from benchmarks.measure import ROOT, processor_s
from benchmarks.programs.small_training import NBYTES, SAMPLES
from vanidl.errors import InputError
from vanidl.record import record

PROGRAMS = Path(__file__).parents[1] / "programs"
TRAINING = "benchmarks.programs.training_in_turns"
LIMITS = {"none": 1.01, "darshan": 1.03, "dftracer": 1.10}
WARM_UP = 3  # turns
TRIMMED = 0.1  # of the pairs of turns, at each end
READS = 200_000
LOOPS = 5
RESAMPLES = 20_000
TRAININGS_S = (60, 600, 3600)  # for which the sum of both is said
_NUMBERS = count()


class Turns:
    """A training that runs ten steps at a time; `recorder` is the process of `vanidl record`."""

    def __init__(self, process: subprocess.Popen[str], recorder: int | None) -> None:
        self._process = process
        self._recorder = recorder
        self._pids = [int(word) for word in self._line().split()]
        self._used_s = cpu_s(self._pids)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args}: exit status {self._process.wait()}")
        return line

    def turn_s(self) -> float:
        """CPU seconds since the end of the turn before, the recorder's in this turn included."""
        own = [] if self._recorder is None else [self._recorder]
        before = cpu_s(own)
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._line()
        used = cpu_s(self._pids)
        spent, self._used_s = used - self._used_s, used
        return spent + cpu_s(own) - before


def cpu_s(pids: Sequence[int]) -> float:
    """CPU seconds of running processes so far (their CPU-time clocks, in nanoseconds)."""
    return sum(time.clock_gettime(~pid << 3 | 2) for pid in pids)


@contextmanager
def training(data: Path, workers: int, tracer: str | None) -> Iterator[Turns]:
    """A training that waits for its turns, recorded where a tracer is named."""
    command = [sys.executable, "-m", TRAINING, str(data), str(workers)]
    if tracer is not None:
        run = data.parent / f"run-{next(_NUMBERS)}"
        recorder = ("-m", "vanidl", "record", "--tracer", tracer, "-o", str(run), "--")
        command = [sys.executable, *recorder, *command]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Turns(process, None if tracer is None else process.pid)
        assert process.stdin is not None
        process.stdin.close()
        if process.wait():
            raise SystemExit(f"{' '.join(command)}: exit status {process.returncode}")


def pairs_of_turns(tracer: str, data: Path, options: argparse.Namespace) -> np.ndarray:
    """(pair of processes, pair of turns, alone or recorded) CPU seconds of a turn."""
    found = np.empty((options.fresh, max(options.pairs // options.fresh, 1), 2))
    workers = options.workers
    for pair in found:
        with training(data, workers, None) as alone, training(data, workers, tracer) as recorded:
            for _ in range(WARM_UP):
                alone.turn_s(), recorded.turn_s()
            for k in range(len(pair)):
                first, second = (alone, recorded) if k % 2 else (recorded, alone)
                spent = {one: one.turn_s() for one in (first, second)}
                pair[k] = spent[alone], spent[recorded]
    return found


def pairs_of_starts(tracer: str, data: Path, workers: int, pairs: int) -> np.ndarray:
    """(pair, alone or recorded) CPU seconds of a whole training of ten steps."""
    found = []
    for k in range(pairs):
        spent = {}
        for one in (None, tracer) if k % 2 else (tracer, None):
            before = processor_s()
            with training(data, workers, one) as turns:
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
    tail = norm.cdf(t.ppf(0.025, pairs - 1) * np.sqrt(pairs / (pairs - 1)))
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(values.mean()), float(low), float(high)


def mean_interval(values: np.ndarray) -> tuple[float, float, float]:
    """Mean and its 95 % interval by bootstrap."""
    rng = np.random.default_rng(0)
    means = rng.choice(values, (RESAMPLES, len(values))).mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(values.mean()), float(low), float(high)


def measure(tracer: str, data: Path, options: argparse.Namespace) -> None:
    """Prints what a tracer costs per step, per run, and both for trainings of some lengths."""
    turns = pairs_of_turns(tracer, data, options)
    logs = middle(np.log(turns[..., 1] / turns[..., 0]))
    ratio, low, high = map(float, np.exp(nested_interval(logs, np.random.default_rng(0))))
    limit = LIMITS[tracer]
    step_ms = float(np.median(turns[..., 0])) * 100
    least, most = np.exp(np.sort(logs.mean(axis=1))[[0, -1]])
    print(
        f"{tracer:8}  per step: x{ratio:.4f} (95 %: {low:.4f} to {high:.4f}) of {step_ms:.1f} ms "
        f"of CPU, {len(turns)} pairs of processes (x{least:.4f} to x{most:.4f}) with "
        f"{turns.shape[1]} pairs of turns each; limit x{limit:.2f}: {verdict(low, high, limit)}",
        flush=True,
    )
    starts = pairs_of_starts(tracer, data, options.workers, options.starts)
    once, least, most = mean_interval(starts[:, 1] - starts[:, 0])
    print(
        f"{tracer:8}  once per run: {once:.2f} s of CPU (95 %: {least:.2f} to {most:.2f}) beside "
        f"{np.median(starts[:, 0]):.2f} s, {len(starts)} pairs, {options.workers} workers",
        flush=True,
    )
    sums = (f"{(ratio - 1) * 100 + once / s * 100:.2f} % of {s} s of CPU" for s in TRAININGS_S)
    print(f"{tracer:8}  together: {', '.join(sums)}", flush=True)


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
    parser.add_argument("--pairs", type=int, default=240)
    parser.add_argument("--fresh", type=int, default=8)
    parser.add_argument("--starts", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tracer", action="append", choices=list(LIMITS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "samples.f32"
        data.write_bytes(np.random.default_rng(0).random(SAMPLES * NBYTES // 4, "f4").tobytes())
        for tracer in options.tracer or LIMITS:
            if is_here(tracer, data):
                measure(tracer, data, options)
                measure_loop(tracer, data)


if __name__ == "__main__":
    main()
