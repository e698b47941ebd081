"""Memory as `vanidl record` says it, of programs whose kind of growth is known.

    python -m benchmarks.vanidl.memory_truth

    list      a dataset that is a Python list of 1.5 million tuples, read by two forked workers
    prefetch  batches of 8 MB, two workers, prefetch_factor 24
    steady    the same with small batches and prefetch_factor 2

Beside the recorder, this program adds up the proportional sizes of the same processes
(smaps_rollup) ten times a second, with what was added to /dev/shm. Limit: the peak within 5 %,
each kind told.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import vanidl
from vanidl.record.memory import _measure_shared_memory, _walk_pages

LIMIT = 0.05
PROGRAM = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset

kind = sys.argv[1]
WIDTH = 2_000_000 if kind == "prefetch" else 2_000

class Rows(Dataset):
    def __init__(self):
        many = 1_500_000 if kind == "list" else 1
        self.rows = [(i, str(i) + "x" * 20) for i in range(many)]

    def __len__(self):
        return 15_000 if kind == "list" else 100

    def __getitem__(self, i):
        if kind == "list":
            for k in range(i * 100, i * 100 + 100):
                row = self.rows[k]
            time.sleep(0.002)
            return float(row[0])
        return torch.ones(WIDTH)

rows = Rows()
for _ in range(2):
    how = dict(batch_size=50, shuffle=True) if kind == "list" else dict(batch_size=1)
    for batch in DataLoader(rows, num_workers=2, multiprocessing_context="fork",
                            prefetch_factor=24 if kind == "prefetch" else 2, **how):
        time.sleep(0.005 if kind == "list" else 0.15)
"""
KINDS = {"list": "copies", "prefetch": "in_flight", "steady": "steady"}


def descendants(pid: int) -> list[int]:
    """Processes below one."""
    found = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def watch(recorder: subprocess.Popen[bytes], peak: list[int]) -> None:
    """Keeps the largest sum of proportional sizes of what a recorder has started."""
    before = _measure_shared_memory()
    while recorder.poll() is None:
        sizes = [_walk_pages(pid) for pid in descendants(recorder.pid)]
        known = [each for each in sizes if each]
        shared = max(_measure_shared_memory() - before, sum(each[2] for each in known), 0)
        peak[0] = max(peak[0], sum(each[0] - each[2] for each in known) + shared)
        time.sleep(0.1)


def main() -> int:
    """Prints a row a program; 1 where a limit is not kept."""
    print("| program | told as | peak | by smaps_rollup | differs | copied |")
    print("|---|---|---|---|---|---|", flush=True)
    kept = True
    for name, kind in KINDS.items():
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "RUN"
            words = ["record", "--tracer", "none", "-o", str(run), "--", sys.executable, "-c"]
            line = [sys.executable, "-m", "vanidl", *words, PROGRAM, name]
            recorder = subprocess.Popen(line, env=dict(os.environ))
            peak = [0]
            beside = threading.Thread(target=watch, args=(recorder, peak))
            beside.start()
            recorder.wait()
            beside.join()
            found = vanidl.open_run(run).memory
        assert found is not None
        differs = found.peak_nbytes / peak[0] - 1
        kept &= found.kind == kind and abs(differs) <= LIMIT
        sizes = [f"{nbytes / 1e6:.0f} MB" for nbytes in (found.peak_nbytes, peak[0])]
        cells = [name, found.kind, *sizes, f"{differs:+.1%}", f"{found.copied_nbytes / 1e6:.0f} MB"]
        print(f"| {' | '.join(cells)} |", flush=True)
    return int(not kept)


if __name__ == "__main__":
    raise SystemExit(main())
