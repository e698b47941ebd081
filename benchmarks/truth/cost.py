"""What a call costs through each tracer, on top of what it costs in libc.

    python -m benchmarks.truth.cost [--darshan-lib PATH] [--pairs 3000]

`programs/loops.c` makes batches of 100 calls in turn by name, which a tracer wraps, and in libc
itself, on one core, over a file in the page cache. The difference of a pair is what a tracer adds:
means of pairs of CPU time, with 95 % intervals of 2,000 resamplings. strace stops every system call
of either kind, so for it whole processes are compared, alone and under it, by wall time. Then bytes
an operation of what each tracer leaves of 100,000 preads of 64 KiB at most in random order.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vanidl.record import darshan, dftracer
from vanidl.record import tracer as own
from vanidl.record.recorder import Tracer

HERE = Path(__file__).parent
KINDS = ("read", "pread", "fread", "open", "stat")
OPERATIONS = 100_000
SIZED = """
import os, random, sys
random.seed(5); fd = os.open(sys.argv[1], os.O_RDONLY)
for i in range(100000): os.pread(fd, random.randrange(1, 65536), random.randrange(900000))
"""


def tracers(run: Path, library: str | None) -> dict[str, Tracer | None]:
    """Those that are here, each writing below `run`."""
    found: dict[str, Tracer | None] = {"none": None, "vanidl": own.tracer(run)}
    if darshan.library(library):
        found["darshan"] = darshan.tracer(run, library)
    if dftracer.library():
        found["dftracer"] = dftracer.tracer(run)
    return found


def variables(tracer: Tracer | None) -> dict[str, str]:
    """The environment under a tracer."""
    added: Mapping[str, str | None] = tracer.environment if tracer else {}
    return {k: v for k, v in {**os.environ, **added}.items() if v is not None}


def mean_interval(values: NDArray[np.float64]) -> str:
    """Mean and 95 % interval."""
    rng = np.random.default_rng(0)
    means = [rng.choice(values, len(values)).mean() for _ in range(2000)]
    low, high = np.percentile(means, (2.5, 97.5))
    return f"{values.mean():8.0f} ({low:.0f} to {high:.0f})"


def main() -> int:
    """The tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--darshan-lib")
    parser.add_argument("--pairs", type=int, default=3000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cost-", dir=".") as made:
        folder = Path(made).absolute()
        loops, data = folder / "loops", folder / "data.bin"
        source = HERE / "programs" / "loops.c"
        subprocess.run(["cc", "-O2", "-o", loops, source, "-ldl"], check=True)
        data.write_bytes(os.urandom(1 << 20))
        pairs, core = str(options.pairs), str(min(os.sched_getaffinity(0)))
        for kind in KINDS:
            for name, tracer in tracers(folder / f"run-{kind}", options.darshan_lib).items():
                command = ["taskset", "-c", core, str(loops), kind, str(data), pairs, "100"]
                done = subprocess.run(
                    command, env=variables(tracer), check=True, capture_output=True, text=True
                )
                costs = np.array([line.split() for line in done.stdout.splitlines()], float)
                added, alone = costs[:, 0] - costs[:, 1], np.median(costs[:, 1])
                print(f"{kind:6} {name:9} alone {alone:6.0f} ns, on top {mean_interval(added)} ns",
                      flush=True)  # fmt: skip
            _strace(kind, loops, data, core)
        script = folder / "sized.py"
        script.write_text(SIZED)
        for name, tracer in tracers(folder / "sized", options.darshan_lib).items():
            if tracer is not None:
                command = [sys.executable, str(script), str(data)]
                subprocess.run(command, env=variables(tracer), check=True)
                tracer.found({})
                left = folder / "sized" / {"vanidl": "calls"}.get(name, name)
                paths = [p for p in left.rglob("*") if p.is_file() and p.suffix != ".conf"]
                size = sum(p.stat().st_size for p in paths)
                print(f"size   {name:9} {size / OPERATIONS:6.1f} bytes an operation")
    return 0


def _strace(kind: str, loops: Path, data: Path, core: str) -> None:
    """Whole processes in turn: the middle of five pairs."""
    command = ["taskset", "-c", core, str(loops), kind, str(data), "100", "100", "wall"]
    costs = []
    for prefix in ([], ["strace", "-f", "-o", "/dev/null"]) * 5:
        done = subprocess.run([*prefix, *command], check=True, capture_output=True, text=True)
        values = np.array([line.split() for line in done.stdout.splitlines()], float)
        costs.append(values.mean())
    added = np.array(costs[1::2]) - np.array(costs[::2])
    print(f"{kind:6} {'strace':9} of the clock, on top {mean_interval(added)} ns")


if __name__ == "__main__":
    sys.exit(main())
