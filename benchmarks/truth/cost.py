"""What a call costs through each tracer, on top of what it costs in libc.

    python -m benchmarks.truth.cost [--darshan-lib PATH] [--pairs 300] [--processes 20]

`programs/loops.c` makes batches of 6,552 calls on one core, over a file in the page cache, and
takes the processor time of its thread; that many fill whole pieces of our file, so making its pages
is in each batch alike.

  within   batches in turn by name, which a tracer wraps, and in libc itself, in one process:
           what a tracer adds, whatever else the machine does (not for DFTracer, which wraps the
           calls in libc, too)
  between  processes in turn, with the preload and without: their batches by name

Both are medians of pairs with 95 % intervals (2,000 resamplings). strace stops every system call:
processes in turn by wall time. Then bytes an operation of what each tracer leaves of 100,000 preads
of 64 KiB at most in random order. Required of ours: a read adds 120 ns at most, 16 bytes; the exit
status is 1 where an interval lies above that.
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
MOVING = KINDS[:3]
CALLS = 4 * 1638  # of a batch: a piece of our file holds 1,638 of them
MOST_NS, MOST_NBYTES = 120, 16  # of a read, of an operation
OPERATIONS = 100_000
SIZED = """
import os, random, sys
random.seed(5); fd = os.open(sys.argv[1], os.O_RDONLY)
for i in range(100000): os.pread(fd, random.randrange(1, 65536), random.randrange(900000))
"""


def tracers(run: Path, library: str | None) -> dict[str, Tracer | None]:
    """Those that are here, each writing below `run`."""
    found: dict[str, Tracer | None] = {"none": None, "vanidl": own.make_tracer(run)}
    if darshan.find_library(library):
        found["darshan"] = darshan.make_tracer(run, library)
    if dftracer.find_library():
        found["dftracer"] = dftracer.make_tracer(run)
    return found


def variables(tracer: Tracer | None) -> dict[str, str]:
    """The environment under a tracer, which keeps all calls one by one."""
    added: Mapping[str, str | None] = tracer.environment if tracer else {}
    merged = {k: v for k, v in {**os.environ, **added}.items() if v is not None}
    return {**merged, own.EVENTS: "100000000"}


def middle_interval(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """Median and its 95 % interval."""
    medians = np.median(np.random.default_rng(0).choice(values, (2000, len(values))), axis=1)
    low, high = np.percentile(medians, (2.5, 97.5))
    return float(np.median(values)), float(low), float(high)


def batches(command: list[str], environment: Mapping[str, str]) -> NDArray[np.float64]:
    """(pair, by name or in libc) ns a call."""
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return np.array([line.split() for line in done.stdout.splitlines()], float)


def added_within(command: list[str], tracer: Tracer | None, pairs: int) -> NDArray[np.float64]:
    """What calls by name cost more than those in libc, by pairs of batches."""
    costs = batches([*command, str(pairs), str(CALLS)], variables(tracer))
    return costs[:, 0] - costs[:, 1]


def added_between(
    command: list[str], tracer: Tracer | None, pairs: int, prefix: tuple[str, ...] = ()
) -> NDArray[np.float64]:
    """What calls by name cost more under a tracer or a prefix, by pairs of processes."""
    words, added = ["5", str(CALLS if tracer else 100), *["wall"] * (tracer is None)], []
    for number in range(pairs):
        ways = (((), None), (prefix, tracer))[:: 1 if number % 2 else -1]
        cost = {
            (before, with_ is None): float(
                np.median(batches([*before, *command, *words], variables(with_))[:, 0])
            )
            for before, with_ in ways
        }
        added.append(cost[prefix, tracer is None] - cost[(), True])
    return np.array(added)


def show(kind: str, name: str, how: str, added: NDArray[np.float64]) -> bool:
    """Prints a line; whether more than may be is surely added."""
    middle, low, high = middle_interval(added)
    limit = MOST_NS if name == "vanidl" and kind in MOVING else np.inf
    verdict = "  holds" if high <= limit < np.inf else "  broken" if low > limit else ""
    print(f"{kind:6} {name:9} {how:8} adds {middle:8.0f} ns ({low:.0f} to {high:.0f}),"
          f" {len(added)} pairs{verdict}", flush=True)  # fmt: skip
    return low > limit


def measure(folder: Path, options: argparse.Namespace) -> bool:
    """Prints what calls cost; whether a limit is broken."""
    loops, data = folder / "loops", folder / "data.bin"
    source = HERE / "programs" / "loops.c"
    subprocess.run(["cc", "-O2", "-o", loops, source, "-ldl"], check=True)
    data.write_bytes(os.urandom(1 << 20))
    core, broken = str(min(os.sched_getaffinity(0))), False
    for kind in KINDS:
        command = ["taskset", "-c", core, str(loops), kind, str(data)]
        for name, tracer in tracers(folder / f"run-{kind}", options.darshan_lib).items():
            if name != "dftracer":
                added = added_within(command, tracer, options.pairs)
                broken |= show(kind, name, "within", added)
            if tracer is not None:
                added = added_between(command, tracer, options.processes)
                broken |= show(kind, name, "between", added)
        strace = ("strace", "-f", "-o", "/dev/null")
        show(kind, "strace", "wall", added_between(command, None, 5, strace))
    return broken


def measure_size(folder: Path, library: str | None) -> bool:
    """Prints the size of what is left; whether ours is too large."""
    script, data, broken = folder / "sized.py", folder / "data.bin", False
    script.write_text(SIZED)
    for name, tracer in tracers(folder / "sized", library).items():
        if tracer is not None:
            command = [sys.executable, str(script), str(data)]
            subprocess.run(command, env=variables(tracer), check=True)
            tracer.found({})
            left = folder / "sized" / {"vanidl": "calls"}.get(name, name)
            paths = [p for p in left.rglob("*") if p.is_file() and p.suffix != ".conf"]
            size = sum(p.stat().st_size for p in paths) / OPERATIONS
            broken |= name == "vanidl" and size > MOST_NBYTES
            print(f"size   {name:9} {size:6.1f} bytes an operation")
    return broken


def main() -> int:
    """The tables; 1 where a limit of ours is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--darshan-lib")
    parser.add_argument("--pairs", type=int, default=300, help="of batches, within a process")
    parser.add_argument("--processes", type=int, default=20, help="pairs of processes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cost-", dir=".") as made:
        folder = Path(made).absolute()
        broken = measure(folder, options)
        broken |= measure_size(folder, options.darshan_lib)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
