"""Makes the page of a survey: 120 synthetic jobs of 60 days.

    python reports/survey.py [--jobs 120] [--logs FOLDER] [--page reports/survey.html]

The logs are written by tests/makers/large_logs.py: training that reads small or large pieces, more
of it from shared storage as weeks go by, jobs that mostly write checkpoints, jobs of several
processes with a log each, logs that were cut, and a file that is no log. Everything but the page
goes into a temporary folder, unless --logs keeps the logs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.makers.darshan_logs import Log  # noqa: E402
from tests.makers.large_logs import Workload, write_log, write_logs  # noqa: E402
from vanidl.cli import main as vanidl  # noqa: E402

PAGE = ROOT / "reports" / "survey.html"
FIRST_DAY = 1_750_000_000
DAYS = 60
KINDS = (
    ("train_images.py", Workload(0, files=24, sample_nbytes=(20_000, 90_000, 110_000, 130_000))),
    ("train_volumes.py", Workload(0, files=12, sample_nbytes=(1 << 20, 4 << 20))),
    ("train_small.py", Workload(0, files=6, sample_nbytes=(512, 4096))),
    ("pretrain.py", Workload(0, files=2, checkpoints=4, sample_nbytes=(1 << 20, 16 << 20))),
)
"""Program, and how it uses storage."""


def main() -> int:
    """Writes the page; exit status of `vanidl survey`."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--jobs", type=int, default=120)
    parser.add_argument("--logs", type=Path, help="folder for the logs (default: temporary)")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    page = options.page.absolute()
    with tempfile.TemporaryDirectory() as name:
        logs = (options.logs or Path(name) / "logs").absolute()
        write_fleet_logs(logs, options.jobs)
        os.chdir(logs.parent)  # so that the page names no folder of this machine
        status = vanidl(["survey", logs.name, "-o", str(Path(name) / "out")])
        page.write_bytes((Path(name) / "out" / "fleet.html").read_bytes())
    return status


def write_fleet_logs(folder: Path, jobs: int) -> None:
    """The logs of that many jobs, a folder a day, and a file that is no log."""
    random = np.random.default_rng(20)
    for job in range(jobs):
        day = job * DAYS // jobs
        place = folder / f"day-{day:02}"
        place.mkdir(parents=True, exist_ok=True)
        write_job(random, place, 1000 + job, FIRST_DAY + day * 86_400 + job % 7 * 3600)
    (folder / "day-00" / "me_notes_id1-1_1-1-1-1_1.darshan").write_text("no log\n" * 10)


def write_job(random: np.random.Generator, folder: Path, job: int, start_s: int) -> None:
    """One job: its program, size, length and share of I/O are drawn."""
    program, work = KINDS[random.choice(len(KINDS), p=(0.5, 0.2, 0.2, 0.1))]
    length_s = int(np.exp(random.uniform(np.log(60), np.log(40_000))))
    weeks = (start_s - FIRST_DAY) / (7 * 86_400)
    busy = min(float(np.exp(random.normal(-2.5 + 0.2 * weeks, 1.0))), 1.1)
    log = Log(
        start=(start_s, 0), end=(start_s + length_s, 0),
        command=f"python {program} --run {job}".encode(),
        metadata=b"lib_ver=3.4.7\n",
    )  # fmt: skip
    work = replace(work, segments=int(random.integers(200, 3000)), busy=busy, seed=job, job=job)
    if random.random() < 0.1:
        write_logs(folder, int(random.integers(2, 5)), work, log)
        return
    path = folder / f"me_{Path(program).stem}_id{job}-{job + 9000}_1-2-3-4_1.darshan"
    write_log(path, replace(work, ranks=int(2 ** random.integers(0, 6))), log)
    if random.random() < 0.03:
        path.write_bytes(path.read_bytes()[: int(random.uniform(0.5, 0.98) * path.stat().st_size)])


if __name__ == "__main__":
    sys.exit(main())
