"""How long `vanidl report` takes beside Darshan's own `summary`, as ratios in one run.

    python -m benchmarks.vanidl.report_time [LOG] [--repeats 15]

Whole commands, a fresh process each, run in turn so that all see the same machine. Goal: at
most 0.35 of `python -m darshan summary`, at most 0.1 of it with `--enable_dxt_heatmap`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.measure import SHARED, interleaved, medians, wall_s

LOG = SHARED / "data/public/vanidl_cosmictagger/cosmictagger_8ranks.darshan"
GOALS = {"darshan summary": 0.35, "darshan summary --enable_dxt_heatmap": 0.10}


def main() -> None:
    """Measures, prints medians, ratios and goals; exit status 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("log", type=Path, nargs="?", default=LOG)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    if not options.log.is_file():
        parser.error(f"no such log: {options.log}")
    with tempfile.TemporaryDirectory() as folder:
        seconds = measure(commands(options.log.resolve(), Path(folder)), options.repeats)
    sys.exit(show(options.log, seconds, options.repeats))


def commands(log: Path, folder: Path) -> dict[str, list[str]]:
    """Name -> command line."""
    python = sys.executable
    peer = [python, "-m", "darshan", "summary", str(log), "--output", str(folder / "peer.html")]
    return {
        "vanidl report": [python, "-m", "vanidl", "report", str(log), "-o", str(folder / "r.html")],
        "darshan summary": peer,
        "darshan summary --enable_dxt_heatmap": [*peer, "--enable_dxt_heatmap"],
    }


def measure(lines: dict[str, list[str]], repeats: int) -> dict[str, float]:
    """Median wall seconds of each command."""
    run = partial(subprocess.run, check=True, capture_output=True)
    runs = {name: partial(wall_s, partial(run, line)) for name, line in lines.items()}
    return medians(interleaved(runs, repeats))


def show(log: Path, seconds: dict[str, float], repeats: int) -> int:
    """Prints the table; 1 where a goal is missed."""
    ours = seconds["vanidl report"]
    print(f"{log.name}: medians of {repeats} interleaved repeats, seconds")
    print(f"  {'vanidl report':<40} {ours:8.3f}")
    missed = 0
    for name, goal in GOALS.items():
        ratio = ours / seconds[name]
        missed += ratio > goal
        print(f"  {name:<40} {seconds[name]:8.3f}   ratio {ratio:.3f}, goal {goal} at most")
    return int(missed > 0)


if __name__ == "__main__":
    main()
