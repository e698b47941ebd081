"""How close the emulated file system comes to its own model, and what it costs itself.

    python -m benchmarks.loaders.emulated_storage [--repeats 5]

For each row: `clients` processes read a file one request after another, through the mount.
  model     seconds by `vanidl_loaders.emulated_fs.model.expected_s`
  measured  median wall seconds, from the first read's begin to the last read's end
  sleep     ratio to the model of the same processes sleeping instead of reading: what the machine
            itself adds
  FUSE CPU  processor seconds of the server process / wall seconds

Required: measured / model within 0.90 to 1.10 in every row whose FUSE CPU is under 30 %. No claim
is made in a row marked `busy` (FUSE CPU above 30 %: the mount itself is the limit) or `noisy`
(sleep above 1.03: other programs have the processors).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.measure import interleaved, process_s
from vanidl_loaders.emulated_fs.model import Cost, expected_s
from vanidl_loaders.emulated_fs.mount import EmulatedStorage

READER = """
import json, os, sys, time
path, count, nbytes, start = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
file = os.open(path, os.O_RDONLY)
time.sleep(max(0.0, start - time.time()))
begin = time.time()
for i in range(count):
    if len(sys.argv) > 5:
        time.sleep(float(sys.argv[5]))
        continue
    assert len(os.pread(file, nbytes, i * nbytes)) == nbytes
print(json.dumps([begin, time.time()]))
"""
NEAR, BUSY, NOISY = 0.10, 0.30, 1.03
MB = 1e6
START_S = 0.5


@dataclass(frozen=True)
class Row:
    """One load: the storage's cost, and who reads how much."""

    cost: Cost
    nbytes: int
    requests: int
    clients: int


ROWS = (
    Row(Cost(0.002, total_bytes_per_s=200 * MB), 65_536, 300, 1),
    Row(Cost(0.002, total_bytes_per_s=200 * MB), 196_608, 200, 1),
    Row(Cost(0.002, total_bytes_per_s=200 * MB), 196_608, 150, 4),
    Row(Cost(0.002, 100 * MB, 300 * MB), 524_288, 80, 1),
    Row(Cost(0.002, 100 * MB, 300 * MB), 524_288, 80, 3),
    Row(Cost(0.002, 100 * MB, 300 * MB), 524_288, 80, 6),
    Row(Cost(0.010, total_bytes_per_s=50 * MB), 524_288, 50, 2),
)


def main() -> None:
    """Measures and prints every row; exit status 1 where one misses the goal."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    print(
        " latency client MB/s total MB/s clients     bytes   model  measured ratio sleep FUSE CPU"
    )
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        source.mkdir()
        (source / "data").write_bytes(bytes(max(r.nbytes * r.requests for r in ROWS)))
        runs = {row: partial(measure, row, source) for row in ROWS}
        measured = interleaved(runs, repeats)
    missed = [not show(row, results) for row, results in measured.items()]
    sys.exit(1 if any(missed) else 0)


def measure(row: Row, source: Path) -> tuple[float, float, float]:
    """Wall seconds of the reading and of sleeping as long, and the server's processor seconds."""
    with EmulatedStorage(source, cost=row.cost, request_bytes=1 << 19) as storage:
        path = storage.target / "data"
        before = process_s(storage.server_pid)
        wall = together(row, path)
        used = process_s(storage.server_pid) - before
        return wall, together(row, path, repr(model_s(row) / row.requests)), used


def together(row: Row, path: Path, *sleep: str) -> float:
    """Wall seconds of all clients of a row, which start at the same time."""
    start = repr(time.time() + START_S)
    line = [sys.executable, "-S", "-c", READER, str(path), str(row.requests), str(row.nbytes)]
    line += [start, *sleep]
    readers = [subprocess.Popen(line, stdout=subprocess.PIPE) for _ in range(row.clients)]
    spans = [json.loads(reader.communicate()[0]) for reader in readers]
    return max(end for _, end in spans) - min(begin for begin, _ in spans)


def model_s(row: Row) -> float:
    """Seconds that the model expects."""
    return expected_s(row.cost, requests=row.requests, nbytes=row.nbytes, clients=row.clients)


def show(row: Row, results: list[tuple[float, float, float]]) -> bool:
    """Prints one row; False where it misses the goal."""
    model = model_s(row)
    wall = statistics.median(seconds for seconds, _, _ in results)
    sleep = statistics.median(slept for _, slept, _ in results) / model
    share = statistics.median(used / seconds for seconds, _, used in results)
    ratio, verdict = wall / model, "kept"
    if abs(ratio - 1) > NEAR:
        verdict = "busy" if share > BUSY else "noisy" if sleep > NOISY else "MISSED"
    print(
        f"{row.cost.latency_s * 1e3:5.0f} ms {row.cost.client_bytes_per_s / MB:11.0f} "
        f"{row.cost.total_bytes_per_s / MB:10.0f} {row.clients:7d} {row.nbytes:9,d} "
        f"{model:7.3f} s {wall:7.3f} s {ratio:5.3f} {sleep:5.3f} {share:7.1%} {verdict}"
    )
    return verdict != "MISSED"


if __name__ == "__main__":
    main()
