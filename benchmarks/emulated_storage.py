"""How close the emulated file system comes to its own model, and what it costs itself.

    python benchmarks/emulated_storage.py [--repeats 5]

For each row: `clients` processes read a file one request after another, through the mount.
  model     seconds by `loaders.storage.model.expected_s`
  measured  median wall seconds, from the first read's begin to the last read's end
  FUSE CPU  processor seconds of the server process / wall seconds

Required: measured / model within 0.90 to 1.10 in every row whose FUSE CPU is under 30 %. A row
above that is marked `busy`: there the mount itself is the limit, and no claim is made.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from loaders.storage.model import Cost, expected_s
from loaders.storage.mount import EmulatedStorage

READER = """
import json, os, sys, time
path, count, nbytes, start = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
file = os.open(path, os.O_RDONLY)
time.sleep(max(0.0, start - time.time()))
begin = time.time()
for i in range(count):
    assert len(os.pread(file, nbytes, i * nbytes)) == nbytes
print(json.dumps([begin, time.time()]))
"""
NEAR, BUSY = 0.10, 0.30
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
    print(" latency client MB/s total MB/s clients     bytes   model  measured ratio FUSE CPU")
    measured: list[list[tuple[float, float]]] = [[] for _ in ROWS]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        source.mkdir()
        (source / "data").write_bytes(bytes(max(r.nbytes * r.requests for r in ROWS)))
        for _ in range(repeats):
            for row, results in zip(ROWS, measured, strict=True):  # in turn
                results.append(measure(row, source))
    missed = [not show(row, results) for row, results in zip(ROWS, measured, strict=True)]
    sys.exit(1 if any(missed) else 0)


def measure(row: Row, source: Path) -> tuple[float, float]:
    """Wall seconds of the reading, and the server's processor seconds in it."""
    with EmulatedStorage(source, cost=row.cost, request_bytes=1 << 19) as storage:
        path = storage.target / "data"
        start = repr(time.time() + START_S)
        line = [sys.executable, "-S", "-c", READER, str(path), str(row.requests), str(row.nbytes)]
        before = processor_s(storage.server_pid)
        readers = [
            subprocess.Popen([*line, start], stdout=subprocess.PIPE) for _ in range(row.clients)
        ]
        spans = [json.loads(reader.communicate()[0]) for reader in readers]
        used = processor_s(storage.server_pid) - before
    return max(end for _, end in spans) - min(begin for begin, _ in spans), used


def processor_s(pid: int) -> float:
    """User and system seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def show(row: Row, results: list[tuple[float, float]]) -> bool:
    """Prints one row; False where it misses the goal."""
    wall = statistics.median(seconds for seconds, _ in results)
    share = statistics.median(used / seconds for seconds, used in results)
    model = expected_s(row.cost, requests=row.requests, nbytes=row.nbytes, clients=row.clients)
    ratio, busy = wall / model, share > BUSY
    kept = busy or abs(ratio - 1) <= NEAR
    print(
        f"{row.cost.latency_s * 1e3:5.0f} ms {row.cost.client_bytes_per_s / MB:11.0f} "
        f"{row.cost.total_bytes_per_s / MB:10.0f} {row.clients:7d} {row.nbytes:9,d} "
        f"{model:7.3f} s {wall:7.3f} s {ratio:5.3f} {share:7.1%} "
        f"{'busy' if busy else 'kept' if kept else 'MISSED'}"
    )
    return kept


if __name__ == "__main__":
    main()
