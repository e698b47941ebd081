"""How the report grows with the log: time against inflating and sorting, and peak memory.

    python benchmarks/scale.py                        1, 5 and 20 million operations
    python benchmarks/scale.py --millions 1 5 20 50   needs 4 GB of disk
    python benchmarks/scale.py --millions --logs 10000

Logs are synthetic (tests/makers/large_logs.py). Each measurement is a process of its own. Time is
processor time over all threads, which other programs on the machine hardly move; wall time is
printed beside it. Limits: decode <= 1.6 x inflate; report <= 4 x (inflate + stable argsort of
the starts); 6 GB; page <= 4 MB. For many logs of one job, with counters only (what Darshan
records unless it is told to trace, and all that job_stats reads) and with 200 traced operations
in each: 2 GB, and logs a second >= 5 x `python -m darshan job_stats`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.makers.large_logs import Workload, write_log, write_logs

PROLOGUE = """
import json, os, resource, sys, time
import numpy as np
def measured(work):
    def cpu():
        return sum(
            u.ru_utime + u.ru_stime
            for u in (resource.getrusage(resource.RUSAGE_SELF),
                      resource.getrusage(resource.RUSAGE_CHILDREN)))
    before, wall = cpu(), time.perf_counter()
    work()
    own, worker = (
        resource.getrusage(who).ru_maxrss * 1024
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    peak = own + worker * (os.cpu_count() or 1)  # as if all were largest at the same time
    print(json.dumps({"cpu_s": cpu() - before, "wall_s": time.perf_counter() - wall, "peak": peak}))
"""
INFLATE = """
from vanidl.readers.darshan.header import read_header
from vanidl.readers.darshan.inflate import streams
def work():
    data = memoryview(open(sys.argv[1], "rb").read())
    header = read_header(data, sys.argv[1])
    region = header.regions["DXT_POSIX"].cut_from(data)
    for stream in streams(region, header.compression, cut=False):
        assert not stream.problem
measured(work)
"""
ARGSORT = """
from vanidl.readers.darshan.log import read_log
starts = read_log(sys.argv[1]).operations[0].start_ns.copy()
measured(lambda: np.argsort(starts, kind="stable"))
"""
SHUFFLED = ARGSORT.replace(".copy()", ".copy()\nnp.random.default_rng(0).shuffle(starts)")
DECODE = """
from vanidl.readers.darshan.log import read_log
measured(lambda: read_log(sys.argv[1]))
"""
REPORT = """
from vanidl.cli import main
measured(lambda: main(["report", sys.argv[1], "-o", sys.argv[2]]))
"""
JOB_STATS = """
import subprocess
def work():
    command = [sys.executable, "-m", "darshan", "job_stats", "--csv", "--log_paths_file"]
    subprocess.run([*command, sys.argv[1]], check=True, stdout=subprocess.DEVNULL)
measured(work)
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
            many_logs(Path(folder), options.logs)


def one_log(folder: Path, millions: float, repeat: int) -> None:
    """One log of so many million operations."""
    path, page = folder / "me_x_id1-2_1-1-1-1_1.darshan", folder / "page.html"
    ranks = max(8, round(128 * millions / 50))
    write_log(path, Workload(round(millions * 1e6), ranks=ranks))
    rounds = [
        {name: child(code, path, page) for name, code in SCRIPTS.items()} for _ in range(repeat)
    ]
    cpu = {name: statistics.median(r[name]["cpu_s"] for r in rounds) for name in SCRIPTS}
    wall_s = statistics.median(r["report"]["wall_s"] for r in rounds)
    peak = max(r["report"]["peak"] for r in rounds)
    limit = cpu["inflate"] + cpu["argsort"]
    harder = cpu["inflate"] + cpu["shuffled"]
    print(
        f"{millions:7g}  {cpu['inflate']:6.2f}s {cpu['argsort']:6.2f}s ({cpu['shuffled']:6.2f}s)  "
        f"{cpu['decode']:6.2f}s = {cpu['decode'] / cpu['inflate']:.2f} x inflate (limit 1.6)  "
        f"{cpu['report']:6.2f}s = {cpu['report'] / limit:.2f} x ({cpu['report'] / harder:.2f} x "
        f"shuffled; limit 4), wall {wall_s:.0f} s (limit 90)  {peak / 1e9:.2f} GB (limit 6)  "
        f"{page.stat().st_size / 1e6:.2f} MB (limit 4)",
        flush=True,
    )
    path.unlink()


def many_logs(folder: Path, count: int) -> None:
    """So many logs of one job, and Darshan's own statistics of the same logs."""
    for kind, traced in (("counters only", False), ("200 traced operations each", True)):
        logs = folder / f"logs-{traced}"
        logs.mkdir()
        paths = write_logs(logs, count, Workload(200, files=20, traced=traced))
        of_logs(folder, paths, kind)
        shutil.rmtree(logs)


def of_logs(folder: Path, paths: list[Path], kind: str) -> None:
    """The report of a folder of logs beside Darshan's statistics of them."""
    names, count = folder / "names.txt", len(paths)
    names.write_text("\n".join(map(str, paths)))
    ours = child(REPORT, paths[0].parent, folder / "page.html")
    theirs = child(JOB_STATS, names)
    print(
        f"{count:,} logs, {kind}: report {count / ours['wall_s']:.0f} logs/s "
        f"({ours['cpu_s']:.1f} s of processors), job_stats {count / theirs['wall_s']:.0f} logs/s "
        f"({theirs['cpu_s']:.1f} s): "
        f"{theirs['wall_s'] / ours['wall_s']:.2f} x (limit 5); "
        f"{ours['peak'] / 1e9:.2f} GB (limit 2)",
        flush=True,
    )


SCRIPTS = {
    "inflate": INFLATE,
    "argsort": ARGSORT,
    "shuffled": SHUFFLED,
    "decode": DECODE,
    "report": REPORT,
}


def child(code: str, *arguments: Path) -> dict[str, float]:
    """What a process of its own measured, from its last line."""
    command = [sys.executable, "-c", PROLOGUE + code, *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
