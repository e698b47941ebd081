"""What is left of a process that is killed: every call but the one at hand of each thread?

    python -m benchmarks.truth.kill [--times 200]

A program of four threads counts its reads in a file of its own and is killed at a random moment;
then it is killed for its use of memory, in a control group of 200 MB where that is possible. The
report of each is read as well: it must open. The exit status is 1 where more is missing.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np

import vanidl
from tests.makers.recorded_calls import CALLS, library, slots_of

HERE = Path(__file__).parent
PREAD = next(number for number, name in CALLS.items() if name == "pread")
THREAD = 3
GROUPS = Path("/sys/fs/cgroup")
LIMIT_NBYTES = 200 << 20


def recorded(path: Path) -> Counter[int]:
    """Reads by thread: slots of a chunk are those of the thread that it names last before them."""
    _, slots, whole, _ = slots_of(path)
    found: Counter[int] = Counter()
    for chunk, good in zip(slots, whole, strict=True):
        starts = np.flatnonzero(good & (chunk["call"] == THREAD))
        for begin, end in pairwise([*starts, len(chunk)]):
            reads = good[begin:end] & (chunk["call"][begin:end] == PREAD)
            found[int(chunk["result"][begin])] += int(reads.sum())
    return found


def small_group() -> Path | None:
    """A control group with little memory; None where none can be made here."""
    is_new = (GROUPS / "cgroup.controllers").is_file()
    group = GROUPS / ("" if is_new else "memory") / "vanidl-kill"
    limit = group / ("memory.max" if is_new else "memory.limit_in_bytes")
    try:
        group.mkdir(exist_ok=True)
        if not limit.is_file():  # no control group
            group.rmdir()
            return None
        limit.write_text(str(LIMIT_NBYTES))
    except OSError:
        return None
    return group


def kill_once(
    program: Path, folder: Path, seconds: float | None, group: Path | None = None
) -> list[int]:
    """Calls missing of each thread; a negative number: one that was not counted yet."""
    work, calls = folder / "work", folder / "calls"
    work.mkdir()
    calls.mkdir()
    variables = {**os.environ, "LD_PRELOAD": str(library()), "VANIDL_TRACER": str(calls),
                 "VANIDL_TRACER_EVENTS": "20000000"}  # fmt: skip
    line = f"ulimit -v 4000000; echo $$ > {group}/cgroup.procs && exec {program} memory"
    words = [str(program)] if seconds is not None else ["sh", "-c", line]
    process = subprocess.Popen(words, cwd=work, env=variables)
    if seconds is not None:
        time.sleep(seconds)
        process.kill()
    process.wait()
    if not (work / "counts").exists():  # it had not begun
        return []
    counts = np.fromfile(work / "counts", np.int64).reshape(-1, 8)
    counts = counts[counts[:, 0] > 0]
    paths = sorted(calls.glob("*.calls"))
    seen: Counter[int] = Counter()
    for path in paths:
        seen += recorded(path)
    if seen.total():  # the report counts them as well
        reads = vanidl.open_run(calls).frame("files").get("reads", ())
        assert sum(reads) == seen.total(), (sum(reads), seen)
    return [int(done) - seen[int(thread)] for thread, done in counts[:, :2]]


def main() -> int:
    """Kills, and prints how many calls were missing how often."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=200)
    options = parser.parse_args()
    random.seed(1)
    missing: Counter[int] = Counter()
    with tempfile.TemporaryDirectory(prefix="kill-") as built:
        program = Path(built) / "killed"
        source = HERE / "programs" / "killed.c"
        subprocess.run(["cc", "-O1", "-o", program, source, "-pthread"], check=True)
        for _ in range(options.times):
            with tempfile.TemporaryDirectory(prefix="kill-") as made:
                missing.update(kill_once(program, Path(made), random.uniform(0.01, 0.12)))
        print(f"SIGKILL, {options.times} times: missing calls of a thread {dict(missing)}")
        group = small_group()
        if group is None:
            print("killed for memory: not tried, as no control group of memory could be made")
        else:
            with tempfile.TemporaryDirectory(prefix="kill-") as made:
                lost = kill_once(program, Path(made), None, group)
                print(f"killed for memory: missing calls of a thread {lost}")
                missing.update(lost)
            group.rmdir()
    return int(any(n > 1 or n < -1 for n in missing))


if __name__ == "__main__":
    sys.exit(main())
