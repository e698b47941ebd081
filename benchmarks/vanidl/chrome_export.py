"""Time and memory of `export --to chrome` on many operations.

The peer writes the same operations with `json.dumps` of the standard library, an event at a
time. Each writer runs in a process of its own, the two in turn. Medians of CPU time count, as a
busy machine is no fault of theirs; memory is what writing adds to the trace, which holds 45
bytes an operation. Prints a line a writer and the ratios with their limits; exit status 1 where
a limit is exceeded.

    python -m benchmarks.vanidl.chrome_export [--operations 10000000] [--repeats 3] [--plain]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.measure import Measured, in_child, interleaved, medians

TIME_RATIO_LIMIT = 1.0
ADDED_MB_LIMIT = 200

_SET_UP = """
import gzip, json, sys
from dataclasses import replace
import numpy as np
from tests.makers.records import Io, darshan_log
from vanidl.analyses.results import analyse
from vanidl.merge.pipeline import assemble
from vanidl.export.registry import export
from vanidl.merge.jobs import Group
from vanidl.run import Run
from vanidl.model.selection import Selection
from vanidl.model.trace import Files


def status(name):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


path, count = sys.argv[1], int(sys.argv[2])
trace = assemble(Group((darshan_log([Io(0, 5, 0, 9)]),), ()), {})
(part,) = trace.io
random = np.random.default_rng(0)
start = part.start[0] + 900 * np.arange(count)
columns = {
    "start": start,
    "end": start + random.integers(100, 5000, count),
    "offset": random.integers(0, 2**36, count),
    "nbytes": random.integers(0, 2**20, count),
    "thread": np.full(count, -1, np.int32),
    "file": random.integers(0, 100, count).astype(np.int32),
    "op": (random.integers(0, 9, count) == 0).astype(np.uint8),
}
paths = tuple(f"/lustre/project/dataset/train/shard-{i:05d}.tfrecord" for i in range(100))
files = Files(paths, *(("",) * 100 for _ in range(3)))
trace = replace(trace, io=(replace(part, **columns),), files=files)
results = analyse(replace(trace, io=()))
open("/proc/self/clear_refs", "w").write("5")  # the peak counts from here
before = status("VmRSS")


def run():
    write()
    return (status("VmHWM") - before) / 1024
"""
WRITERS = {
    "vanidl": """
def write():
    export(Run(trace, results, Selection()), "chrome", path)
""",
    "json.dumps": """
def write():
    opened = gzip.open(path, "wt", 1) if path.endswith(".gz") else open(path, "w")
    zero = int(start[0])
    with opened as file:
        file.write('{"traceEvents":[')
        names = ("start", "end", "offset", "nbytes", "file", "op")
        for low in range(0, count, 65536):
            rows = zip(*(columns[name][low : low + 65536].tolist() for name in names))
            for begin, end, offset, nbytes, f, op in rows:
                event = {
                    "ph": "X", "pid": 1, "tid": 1, "cat": "POSIX", "name": ("read", "write")[op],
                    "ts": (begin - zero) / 1000, "dur": (end - begin) / 1000,
                    "args": {"file": paths[f], "offset": offset, "size": nbytes},
                }
                file.write(("" if begin == zero else ",") + json.dumps(event))
        file.write("]}")
""",
}


def measure(writer: str, path: Path, operations: int) -> Measured:
    """One writing; its value is the megabytes that it added to the peak of memory."""
    done = in_child(_SET_UP + WRITERS[writer], path, operations)
    print(f"{writer:12} {path.stat().st_size / 1e6:8.0f} MB written", flush=True)
    return done


def main() -> int:
    """Run the benchmark; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operations", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--plain", action="store_true", help="no gzip")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("trace.json" if options.plain else "trace.json.gz")
        runs = {writer: partial(measure, writer, path, options.operations) for writer in WRITERS}
        found = interleaved(runs, options.repeats)
    seconds = medians({writer: [run.processor_s for run in runs] for writer, runs in found.items()})
    added_mb = {w: max(run.value or 0.0 for run in runs) for w, runs in found.items()}
    for writer in WRITERS:
        print(f"{writer:12} {seconds[writer]:8.1f} s, {added_mb[writer]:6.0f} MB added")
    ratio, added = seconds["vanidl"] / seconds["json.dumps"], added_mb["vanidl"]
    print(f"time ratio {ratio:.2f} (limit {TIME_RATIO_LIMIT})")
    print(f"added {added:.0f} MB (limit {ADDED_MB_LIMIT} MB)")
    return 0 if ratio <= TIME_RATIO_LIMIT and added <= ADDED_MB_LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
