"""CPU time that `vanidl record` adds to a training job, and to one operation of a tight loop.

    python -m benchmarks.vanidl.record_overhead [--pairs 15] [--tracer none|darshan|dftracer]...

A pair is the job alone and the job recorded, at the same time on two cores: what else the
machine does then slows both alike (on a shared machine ratios of such pairs scatter by 6 %,
those of runs one after the other by 10 %). The CPU time of a run is that of the command and all
its processes plus what the recorder itself used. Shown is the geometric mean of the pairs'
ratios with a 95 % interval (bootstrap over pairs). Steps are recorded each time. Limits: steps
alone (`none`) 1.01, with Darshan 1.03, with DFTracer 1.10; a claim holds where the whole interval
is below its limit; steps alone need hundreds of pairs, or benchmarks/vanidl/step_overhead.py.
Needs two cores and PyTorch; tracers are found as `vanidl record` finds them (Darshan: its module,
or darshan-config on the PATH), and one that is not here is said and left out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import numpy as np

from benchmarks.programs.small_training import NBYTES, SAMPLES
from vanidl.errors import InputError
from vanidl.record import record

PROGRAMS = Path(__file__).parents[1] / "programs"
LIMITS = {"none": 1.01, "darshan": 1.03, "dftracer": 1.10}
READS = 200_000
LOOPS = 5
RESAMPLES = 20_000


def main() -> None:
    """Measures every tracer that is here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--tracer", action="append", choices=list(LIMITS))
    options = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("expected two cores, found one: pairs run side by side")
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "samples.f32"
        data.write_bytes(np.random.default_rng(0).random(SAMPLES * NBYTES // 4, "f4").tobytes())
        for tracer in options.tracer or LIMITS:
            try_to_measure(tracer, data, options.pairs)


def try_to_measure(tracer: str, data: Path, pairs: int) -> None:
    """Measures one tracer, or says that it is not here."""
    try:
        recorded_s(tracer, training(data), data)  # warms caches
    except InputError as error:
        print(f"{tracer:8}  not measured: {error}")
        return
    measure_training(tracer, data, pairs)
    measure_loop(tracer, data)


def training(data: Path) -> list[str]:
    """The command of the training job."""
    return [sys.executable, str(PROGRAMS / "small_training.py"), str(data)]


def measure_training(tracer: str, data: Path, pairs: int) -> None:
    """Prints the ratio of CPU times of the training job, its interval and the limit."""
    times = np.array([both(tracer, training(data), data) for _ in range(pairs)])
    ratio, low, high = interval(times[:, 1] / times[:, 0])
    limit = LIMITS[tracer]
    print(
        f"{tracer:8}  training, {pairs} pairs, {np.median(times[:, 0]):.1f} s of CPU alone: "
        f"x{ratio:.3f} (95 %: {low:.3f} to {high:.3f}), limit x{limit:.2f}: "
        f"{verdict(low, high, limit)}",
        flush=True,
    )


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
    """CPU seconds (alone, recorded) of two runs at the same time."""
    alone = subprocess.Popen(command)
    recorded = recorded_s(tracer, command, data)
    _, status, usage = os.wait4(alone.pid, 0)
    alone.returncode = os.waitstatus_to_exitcode(status)
    if alone.returncode:
        raise SystemExit(f"{command}: exit status {alone.returncode}")
    return usage.ru_utime + usage.ru_stime, recorded


_NUMBERS = count()


def recorded_s(tracer: str, command: Sequence[str], data: Path) -> float:
    """CPU seconds of a recorded command, of its processes, and of the recorder."""
    own = time.process_time()
    recorded = record(command, data.parent / f"run-{next(_NUMBERS)}", tracer=tracer)
    if recorded.exit_status:
        raise SystemExit(f"{command}: exit status {recorded.exit_status}")
    return recorded.cpu_s + time.process_time() - own


def verdict(low: float, high: float, limit: float) -> str:
    """What an interval says of a limit."""
    return "holds" if high <= limit else "broken" if low > limit else "not shown"


def interval(ratios: np.ndarray) -> tuple[float, float, float]:
    """Geometric mean and its 95 % interval by bootstrap over pairs."""
    logs = np.log(ratios)
    rng = np.random.default_rng(0)
    means = rng.choice(logs, (RESAMPLES, len(logs))).mean(axis=1)
    low, high = np.exp(np.percentile(means, [2.5, 97.5]))
    return float(np.exp(logs.mean())), float(low), float(high)


if __name__ == "__main__":
    main()
