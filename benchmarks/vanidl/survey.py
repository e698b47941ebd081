"""How many jobs a second a survey reads, against Darshan's own statistics and against inflating.

    python -m benchmarks.vanidl.survey             300 jobs of each kind
    python -m benchmarks.vanidl.survey --jobs 2000

Logs are synthetic (tests/makers/large_logs.py), one a job, in the formats of Darshan 3.1, 3.2 and
3.4 in turn: with counters of 100 records only, and with 10,000 traced operations. Each measurement
is a process of its own; `job_stats` reads the same logs and no traces; inflating is the bytes of
all regions and nothing else. Limits on two cores: 60 and 25 jobs a second. A second survey of the
same folder with one more job shows what a night costs.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.measure import in_child
from tests.makers.darshan_logs import Log
from tests.makers.large_logs import Workload, write_log

VERSIONS = ("3.10", "3.21", "3.41")
RANKS, FILES = 4, 25  # 100 records
APART_S = 90
"""From job to job: about a thousand a day."""
KINDS = {
    "100 records": (Workload(2_000, ranks=RANKS, files=FILES, traced=False), 60),
    "10,000 operations": (Workload(10_000, ranks=RANKS, files=FILES), 25),
}
"""What a job did, and the jobs a second that two cores shall read."""

SURVEY = """
import sys
from vanidl.cli import main
def run():
    main(["survey", sys.argv[1], "-o", sys.argv[2]])
"""
JOB_STATS = """
import subprocess, sys
def run():
    command = [sys.executable, "-m", "darshan", "job_stats", "--csv", "--log_paths_file"]
    subprocess.run([*command, sys.argv[1]], check=True, stdout=subprocess.DEVNULL)
"""
INFLATE = """
import pathlib, sys
from vanidl.readers.darshan.header import read_header
from vanidl.encoding.inflate import streams
def run():
    for path in pathlib.Path(sys.argv[1]).iterdir():
        data = memoryview(path.read_bytes())
        header = read_header(data, str(path))
        for region in header.regions.values():
            for stream in streams(region.cut_from(data), header.compression, cut=False):
                assert not stream.problem
"""


def main() -> None:
    """Prints a line for each kind of job."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=300)
    count = parser.parse_args().jobs
    with tempfile.TemporaryDirectory(prefix="survey-") as folder:
        for kind, (work, limit) in KINDS.items():
            logs = Path(folder) / "logs"
            write_jobs(logs, work, 0, count)
            measure(Path(folder), logs, kind, work, limit)
            shutil.rmtree(logs)
            shutil.rmtree(Path(folder) / "out")


def write_jobs(logs: Path, work: Workload, first: int, count: int) -> None:
    """So many jobs of one log each, one after the other."""
    logs.mkdir(exist_ok=True)
    for i in range(first, first + count):
        log = Log(VERSIONS[i % len(VERSIONS)])
        moved = replace(
            log,
            start=(log.start[0] + APART_S * i, log.start[1]),
            end=(log.end[0] + APART_S * i, log.end[1]),
        )
        path = logs / f"me_python_id{i}-{i}_1-2-3-{i}_1.darshan"
        write_log(path, replace(work, seed=i, job=i), moved)


def measure(folder: Path, logs: Path, kind: str, work: Workload, limit: int) -> None:
    """A survey, one of a job more, Darshan's statistics and inflating, of the same logs."""
    paths = sorted(logs.iterdir())
    names = folder / "names.txt"
    names.write_text("\n".join(map(str, paths)))
    theirs, inflating = in_child(JOB_STATS, names), in_child(INFLATE, logs)
    first = in_child(SURVEY, logs, folder / "out")
    write_jobs(logs, work, len(paths), 1)
    more = in_child(SURVEY, logs, folder / "out")
    print(
        f"{len(paths):,} jobs of {kind}: survey {len(paths) / first.wall_s:.0f} jobs/s (limit "
        f"{limit}), {first.processor_s:.1f} s of processors = "
        f"{first.processor_s / inflating.processor_s:.1f} x inflating; job_stats "
        f"{len(paths) / theirs.wall_s:.0f} jobs/s: {theirs.wall_s / first.wall_s:.1f} x. One more "
        f"job: {more.processor_s:.1f} s of processors",
        flush=True,
    )


if __name__ == "__main__":
    main()
