"""One state of vanidl against another: CPU time of whole commands, in interleaved pairs.

    python -m benchmarks.vanidl.not_slower OLD NEW [--pairs 15]
    python -m benchmarks.vanidl.not_slower OLD NEW --large     an hour, 4 GB of memory, 3 of disk

OLD and NEW are folders of checkouts, each with its `vanidl`. With --large the reports are those
of 50 million traced operations and of 10,000 logs. Printed: the ratio new / old of each
job as the geometric mean of its pairs, with the 95 % interval by Student's t of their logarithms.
Required: its upper end <= 1.05.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from scipy.special import stdtrit

from tests.makers.large_logs import Workload, write_log, write_logs

MOST = 1.05
DECODE = "import sys; from vanidl.readers.darshan.log import read_log; read_log(sys.argv[1])"


def write_large(folder: Path) -> dict[str, list[str]]:
    """The jobs of --large, as `write_usual` returns them."""
    long, many = folder / "u_x_id7-42_11-14-80000-1_1.darshan", folder / "many"
    write_log(long, Workload(50_000_000, ranks=64, files=16))
    many.mkdir()
    write_logs(many, 10_000, Workload(50, files=4))
    page = str(folder / "page.html")
    return {
        "report, 50 M segments": ["-m", "vanidl", "report", str(long), "-o", page],
        "report, 10,000 logs": ["-m", "vanidl", "report", str(many), "-o", page],
    }


def write_usual(folder: Path) -> dict[str, list[str]]:
    """Arguments of the interpreter by the name of the job; their logs are written here."""
    long, short = folder / "long.darshan", folder / "u_x_id7-42_11-14-80000-1_1.darshan"
    write_log(long, Workload(4_000_000, ranks=16, files=8))
    write_log(short, Workload(200_000, ranks=8, files=40))
    (folder / "many").mkdir()
    write_logs(folder / "many", 300, Workload(50, files=4))
    page = str(folder / "page.html")
    return {
        "DXT decode, 4 M segments": ["-c", DECODE, str(long)],
        "report, 200,000 segments": ["-m", "vanidl", "report", str(short), "-o", page],
        "report, 300 logs": ["-m", "vanidl", "report", str(folder / "many"), "-o", page],
    }


def cpu_s(arguments: Sequence[str], checkout: str) -> float:
    """User and system time of one interpreter that finds `vanidl` in a checkout."""
    environment = {**os.environ, "PYTHONPATH": checkout}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else one side may compile and not the other
    nowhere = subprocess.DEVNULL
    child = subprocess.Popen(
        [sys.executable, *arguments], cwd=checkout, env=environment, stdout=nowhere, stderr=nowhere
    )
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{arguments} ended with {child.returncode}")
    return used.ru_utime + used.ru_stime


def measured(jobs: Mapping[str, Sequence[str]], sides: Sequence[str], pairs: int) -> bool:
    """Prints a line a job; whether all are within the bound."""
    ok = True
    for name, arguments in jobs.items():
        logs = []
        for side in sides:
            cpu_s(arguments, side)  # compiles its modules
        for i in range(pairs):
            first = i % 2
            spent = {side: cpu_s(arguments, sides[side]) for side in (first, 1 - first)}
            logs.append(math.log(spent[1] / spent[0]))
        mean, error = statistics.mean(logs), statistics.stdev(logs) / math.sqrt(pairs)
        half = float(stdtrit(pairs - 1, 0.975)) * error
        low, middle, high = (math.exp(x) for x in (mean - half, mean, mean + half))
        ok &= high <= MOST
        print(f"{name:28}{middle:6.3f}  [{low:.3f}, {high:.3f}]", flush=True)
    return ok


def main() -> int:
    """Exit status 1 where one is slower than it may be."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--large", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        jobs = (write_large if options.large else write_usual)(Path(folder))
        sides = [str(side.resolve()) for side in (options.old, options.new)]
        return 0 if measured(jobs, sides, options.pairs) else 1


if __name__ == "__main__":
    sys.exit(main())
