"""How benchmarks measure: runs in turn, medians, processor time over all threads and children.

Scripts are started from the repository's root as `python -m benchmarks.FOLDER.NAME`.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"  # recorded runs and public logs, where they are at hand
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(frozen=True)
class Measured:
    """What a process of its own measured of one call."""

    wall_s: float
    processor_s: float  # user and system, over threads and children
    peak_nbytes: int  # of the process itself
    worker_peak_nbytes: int  # of its largest child
    value: float | None  # what the call returned


def interleaved(runs: Mapping[K, Callable[[], T]], repeats: int) -> dict[K, list[T]]:
    """What each run returned, `repeats` times; run in turn, so that all see the same machine."""
    found: dict[K, list[T]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            found[name].append(run())
    return found


def medians(found: Mapping[K, Sequence[float]]) -> dict[K, float]:
    """The median of each run."""
    return {name: statistics.median(values) for name, values in found.items()}


def wall_s(run: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def processor_s() -> float:
    """Seconds that processors gave this process, its threads and its finished children so far."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def process_s(pid: int) -> float:
    """User and system seconds of a running process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def evict(path: Path) -> None:
    """Asks the kernel to forget a file's pages."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def in_child(code: str, *arguments: object) -> Measured:
    """Measures the `run()` that `code` defines in a fresh interpreter, its set-up excluded.

    `sys.argv[1:]` are the arguments. Numbers that `run` returns come back, other values do not.
    """
    lines = ("from benchmarks.measure import print_measured", code, "print_measured(run)")
    command = [sys.executable, "-c", "\n".join(lines), *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def print_measured(run: Callable[[], object]) -> None:
    """Prints what `in_child` reads: one call of `run`, as JSON."""
    before, start = processor_s(), time.perf_counter()
    value = run()
    wall, used = time.perf_counter() - start, processor_s() - before
    own, worker = (
        resource.getrusage(who).ru_maxrss * 1024
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    number = float(value) if isinstance(value, (int, float)) else None
    print(json.dumps(asdict(Measured(wall, used, own, worker, number))))
