"""Memory of a survey by the number of its jobs, and what one more night costs.

    python -m benchmarks.vanidl.survey_memory                      4,000 and 12,000 jobs
    python -m benchmarks.vanidl.survey_memory --jobs 20000 100000
    python -m benchmarks.vanidl.survey_memory --empty 100000 300000

Jobs are synthetic, of one log with the counters of 8 records each (tests/makers/large_logs.py).
Each size goes on with the survey of the one before, as nights do, in a process of its own: peak of
that process, and of its largest worker. A straight line through the last two gives the peak of
100,000 jobs; the limit is 1 GB. Then a night of 100 more jobs, and one without any.

With --empty all logs are empty files: peak, and what each file adds to that of the smallest survey,
beside the bytes that its row takes in the table.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import pandas as pd
from pyarrow import parquet

from benchmarks.measure import Measured, in_child
from benchmarks.vanidl.survey import SURVEY, write_jobs
from tests.makers.large_logs import Workload

WORK = Workload(40, ranks=2, files=3, traced=False)
NIGHT = 100
WANTED, LIMIT_MB = 100_000, 1000


def main() -> None:
    """Prints a line for each size and each night."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, nargs="+", default=[4_000, 12_000])
    parser.add_argument("--empty", type=int, nargs="+", default=[], help="empty logs instead")
    options = parser.parse_args()
    if options.empty:
        measure_empty(sorted(options.empty))
        return
    sizes = sorted(options.jobs)
    with tempfile.TemporaryDirectory(prefix="survey-") as folder:
        logs, out = Path(folder) / "logs", Path(folder) / "out"
        there, peaks = 0, []
        for size in sizes:
            write_jobs(logs, WORK, there, size - there)
            done = in_child(SURVEY, logs, out)
            require_read(out, size)
            report(f"{size:,} jobs, {size - there:,} of them new", done, size - there)
            peaks.append(done.peak_nbytes)
            there = size
        write_jobs(logs, WORK, there, NIGHT)
        report(f"{NIGHT} more", in_child(SURVEY, logs, out), NIGHT)
        report("no more", in_child(SURVEY, logs, out), None)
    if len(sizes) > 1 and sizes[-1] < WANTED:
        each = (peaks[-1] - peaks[-2]) / (sizes[-1] - sizes[-2])
        whole = peaks[-1] + each * (WANTED - sizes[-1])
        print(f"{each:,.0f} bytes a job: {WANTED:,} take {whole / 1e6:,.0f} MB (limit {LIMIT_MB})")


def measure_empty(sizes: list[int]) -> None:
    """A line for each number of empty logs, after one of ten of them."""
    least = 0
    for size in (10, *sizes):
        with tempfile.TemporaryDirectory(prefix="survey-") as folder:
            logs, out = Path(folder) / "logs", Path(folder) / "out"
            for i in range(size):
                path = logs / f"{i // 1000}" / f"u{i % 40}_train_id{i}-{i}_11-20-{i}-1_1.darshan"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            done = in_child(SURVEY, logs, out)
            row = parquet.read_table(out / "jobs.parquet").nbytes / size
        least = least or done.peak_nbytes
        each = (done.peak_nbytes - least) / size
        report(f"{size:,} empty logs, {each:,.0f} bytes each (its row: {row:,.0f})", done, size)


def require_read(out: Path, jobs: int) -> None:
    """Ends the benchmark where a job is missing or could not be read: that costs nothing."""
    problems = pd.read_parquet(out / "jobs.parquet", columns=["problem"])["problem"]
    if len(problems) != jobs or problems.notna().any():
        raise SystemExit(f"expected {jobs} jobs read, found {problems.isna().sum()}")


def report(what: str, done: Measured, new: int | None) -> None:
    """One line."""
    each = f", {done.processor_s / new * 1e3:.1f} ms a new job" if new else ""
    print(
        f"{what}: {done.wall_s:.1f} s, {done.processor_s:.1f} s of processors{each}; peak "
        f"{done.peak_nbytes / 1e6:,.0f} MB, largest worker {done.worker_peak_nbytes / 1e6:,.0f} MB",
        flush=True,
    )


if __name__ == "__main__":
    main()
