"""How long finding the files of a run takes in a folder of 100,000 entries.

    python -m benchmarks.vanidl.list_files [--entries 100000] [--repeats 15]

Goal: 2 s at most, and no file is opened. The limit beside it is a bare `os.walk`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from benchmarks.measure import interleaved, medians, wall_s
from vanidl.readers.discover import find

GOAL_S = 2.0
FOLDERS = 50


def main() -> None:
    """Makes the folder, measures both in turn and prints medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        make(root, options.entries)
        runs = {
            "find": lambda: wall_s(lambda: find(root)),
            "os.walk": lambda: wall_s(lambda: sum(1 for _ in os.walk(root))),
        }
        ours, bare = medians(interleaved(runs, options.repeats)).values()
    print(f"{options.entries:,} entries, medians of {options.repeats} repeats")
    print(f"  find    {ours:.3f} s   goal {GOAL_S} s at most")
    print(f"  os.walk {bare:.3f} s   ratio {ours / bare:.2f}")


def make(root: Path, entries: int) -> None:
    """Empty files, one in ten named as a Darshan log."""
    for folder in range(FOLDERS):
        (root / str(folder)).mkdir()
    for i in range(entries):
        suffix = "darshan" if i % 10 == 0 else "txt"
        (root / str(i % FOLDERS) / f"{i}.{suffix}").touch()


if __name__ == "__main__":
    main()
