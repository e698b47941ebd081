"""How the report grows with the log: time against inflating and sorting, and peak memory.

    python -m benchmarks.vanidl.scale                        1, 5 and 20 million operations
    python -m benchmarks.vanidl.scale --millions 1 5 20 50   needs 4 GB of disk
    python -m benchmarks.vanidl.scale --millions --logs 10000 --repeat 5

Logs are synthetic (tests/makers/large_logs.py). Each measurement is a process of its own. Time is
processor time over all threads, which other programs on the machine hardly move; wall time is
printed beside it. Limits: decode <= 1.6 x inflate; report <= 4 x (inflate + stable argsort of
the starts); 20 s of wall time on two quiet cores and 3 GB, both for 50 million operations;
page <= 4 MB. For many logs of one job, with counters only (what Darshan
records unless it is told to trace, and all that job_stats reads) and with 200 traced operations
in each: 1.5 GB, and logs a second >= 5 x `python -m darshan job_stats`, both as whole commands,
run in turn.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.measure import Measured, in_child, interleaved, medians
from tests.makers.large_logs import Workload, write_log, write_logs

INFLATE = """
import sys
from vanidl.readers.darshan.header import read_header
from vanidl.encoding.inflate import streams
def run():
    data = memoryview(open(sys.argv[1], "rb").read())
    header = read_header(data, sys.argv[1])
    region = header.regions["DXT_POSIX"].cut_from(data)
    for stream in streams(region, header.compression, cut=False):
        assert not stream.problem
"""
ARGSORT = """
import sys
import numpy as np
from vanidl.readers.darshan.log import read_log
starts = read_log(sys.argv[1]).operations[0].start_ns.copy()
def run():
    np.argsort(starts, kind="stable")
"""
SHUFFLED = ARGSORT.replace(".copy()", ".copy()\nnp.random.default_rng(0).shuffle(starts)")
DECODE = """
import sys
from vanidl.readers.darshan.log import read_log
def run():
    read_log(sys.argv[1])
"""
REPORT = """
import sys
from vanidl.cli import main
def run():
    main(["report", sys.argv[1], "-o", sys.argv[2]])
"""
COMMAND = """
import subprocess, sys
def run():
    subprocess.run([sys.executable, "-m", *sys.argv[1:]], check=True, stdout=subprocess.DEVNULL)
"""


def main() -> None:
    """Measures what is asked for and prints a line of each with its limits."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--millions", type=float, nargs="*", default=[1, 5, 20])
    parser.add_argument("--logs", type=int, help="per-process logs of one job")
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        if options.millions:
            print("million  inflate argsort (shuffled)  decode      report       peak    page")
        for millions in options.millions:
            one_log(Path(folder), millions, options.repeat)
        if options.logs:
            many_logs(Path(folder), options.logs, options.repeat)


def one_log(folder: Path, millions: float, repeat: int) -> None:
    """One log of so many million operations."""
    path, page = folder / "me_x_id1-2_1-1-1-1_1.darshan", folder / "page.html"
    ranks = max(8, round(128 * millions / 50))
    write_log(path, Workload(round(millions * 1e6), ranks=ranks))
    runs = {name: partial(in_child, code, path, page) for name, code in SCRIPTS.items()}
    found = interleaved(runs, repeat)
    cpu = medians({name: [run.processor_s for run in each] for name, each in found.items()})
    wall_s = medians({"report": [run.wall_s for run in found["report"]]})["report"]
    peak = max(map(peak_nbytes, found["report"]))
    limit = cpu["inflate"] + cpu["argsort"]
    harder = cpu["inflate"] + cpu["shuffled"]
    print(
        f"{millions:7g}  {cpu['inflate']:6.2f}s {cpu['argsort']:6.2f}s ({cpu['shuffled']:6.2f}s)  "
        f"{cpu['decode']:6.2f}s = {cpu['decode'] / cpu['inflate']:.2f} x inflate (limit 1.6)  "
        f"{cpu['report']:6.2f}s = {cpu['report'] / limit:.2f} x ({cpu['report'] / harder:.2f} x "
        f"shuffled; limit 4), wall {wall_s:.0f} s (limit 20)  {peak / 1e9:.2f} GB (limit 3)  "
        f"{page.stat().st_size / 1e6:.2f} MB (limit 4)",
        flush=True,
    )
    path.unlink()


def many_logs(folder: Path, count: int, repeat: int) -> None:
    """So many logs of one job, and Darshan's own statistics of the same logs."""
    for kind, traced in (("counters only", False), ("200 traced operations each", True)):
        logs = folder / f"logs-{traced}"
        logs.mkdir()
        paths = write_logs(logs, count, Workload(200, files=20, traced=traced))
        of_logs(folder, paths, kind, repeat)
        shutil.rmtree(logs)


def of_logs(folder: Path, paths: list[Path], kind: str, repeat: int) -> None:
    """The report of a folder of logs beside Darshan's statistics of them: whole commands."""
    names, page, count = folder / "names.txt", folder / "page.html", len(paths)
    names.write_text("\n".join(map(str, paths)))
    report = ("vanidl", "report", paths[0].parent, "-o", page)
    job_stats = ("darshan", "job_stats", "--csv", "--log_paths_file", names)
    runs = {
        "report": partial(in_child, COMMAND, *report),
        "job_stats": partial(in_child, COMMAND, *job_stats),
    }
    found = interleaved(runs, repeat)
    wall = medians({name: [run.wall_s for run in each] for name, each in found.items()})
    cpu = medians({name: [run.processor_s for run in each] for name, each in found.items()})
    ratios = [b.wall_s / a.wall_s for a, b in zip(*found.values(), strict=True)]
    memory = in_child(REPORT, paths[0].parent, page)
    print(
        f"{count:,} logs, {kind}: report {count / wall['report']:.0f} logs/s "
        f"({wall['report']:.1f} s, {cpu['report']:.1f} s of processors), job_stats "
        f"{count / wall['job_stats']:.0f} logs/s ({cpu['job_stats']:.1f} s): "
        f"{statistics.median(ratios):.2f} x ({min(ratios):.2f} to {max(ratios):.2f}; limit 5); "
        f"{peak_nbytes(memory) / 1e9:.2f} GB (limit 1.5)",
        flush=True,
    )


def peak_nbytes(run: Measured) -> int:
    """Of the process and its workers, as if all were largest at the same time."""
    return run.peak_nbytes + run.worker_peak_nbytes * (os.cpu_count() or 1)


SCRIPTS = {
    "inflate": INFLATE,
    "argsort": ARGSORT,
    "shuffled": SHUFFLED,
    "decode": DECODE,
    "report": REPORT,
}


if __name__ == "__main__":
    main()
