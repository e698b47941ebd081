"""The recorded loop against PyTorch's profiler, in the steps that both saw.

    python -m benchmarks.vanidl.window_split

A training reads from emulated storage (2 ms a request, 20 MB/s), without workers and with two. It
is recorded once with `vanidl record --profile`. The run is then analysed twice: with the profile
alone, as before there was a recorder of steps, and with the recorded loop alone. Compared are sums
over the steps of the window but its last, in which the profiler is stopped. Limit: 1 %, or 1 ms per
step.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

import vanidl

PROGRAM = Path(__file__).parents[1] / "programs" / "small_training.py"
COLUMNS = {
    "duration_s": "steps", "input_wait_s": "input wait", "in_wait_s": "I/O in wait",
    "busy_s": "time in I/O",
}  # fmt: skip
LIMIT = 0.01
LIMIT_S = 0.001
PROFILED = 20


def recorded(folder: Path, workers: int) -> Path:
    """A run of the program on emulated storage, with its profile and its loop."""
    data, slow, run = folder / "data", folder / "slow", folder / f"run{workers}"
    data.mkdir(exist_ok=True)
    slow.mkdir(exist_ok=True)
    (data / "samples.bin").write_bytes(os.urandom(1024 * 64 * 64 * 4))
    mount = ["-m", "vanidl_loaders", "mount", str(data), str(slow)]
    limits = ["--latency-ms", "2", "--bandwidth-mb", "20", "--"]
    record = ["-m", "vanidl", "record", "--profile", str(PROFILED), "-o", str(run), "--"]
    program = [sys.executable, str(PROGRAM), str(slow / "samples.bin"), str(workers)]
    subprocess.run(
        [sys.executable, *mount, *limits, sys.executable, *record, *program],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return run


def seen_by(run: Path, other: str) -> pd.DataFrame:
    """The steps of a run without the records in the folder `other`."""
    copy = run.with_name(f"{run.name}-without-{other}")
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns(other))
    return vanidl.open_run(copy).frame("steps")


def in_both(profiled: pd.DataFrame, looped: pd.DataFrame) -> pd.DataFrame:
    """For each profiled step the recorded one that begins closest to it."""
    begins = looped["start_s"].to_numpy()
    nearest = [int(np.abs(begins - start).argmin()) for start in profiled["start_s"]]
    return looped.iloc[nearest]


def compared(profiled: pd.DataFrame, looped: pd.DataFrame) -> Iterator[str]:
    """A line for each quantity: by the profile, by the loop, and the verdict."""
    looped = in_both(profiled, looped)
    for column, name in COLUMNS.items():
        by_profile, by_loop = profiled[column].sum(), looped[column].sum()
        apart = abs(by_loop - by_profile)
        within = apart <= max(LIMIT * by_profile, LIMIT_S * len(profiled))
        yield (
            f"  {name:12} {by_profile:8.4f} s  {by_loop:8.4f} s  {by_loop / by_profile - 1:+7.2%}"
            f"  {'within' if within else 'OUTSIDE'}"
        )


def main() -> None:
    """Prints the sums for 0 and 2 workers."""
    with tempfile.TemporaryDirectory() as scratch:
        for workers in (0, 2):
            run = recorded(Path(scratch), workers)
            profiled, looped = seen_by(run, "steps").iloc[:-1], seen_by(run, "profile")
            print(f"{workers} workers, {len(profiled)} of {len(looped)} steps: profile, loop")
            print("\n".join(compared(profiled, looped)), flush=True)


if __name__ == "__main__":
    main()
