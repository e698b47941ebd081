"""Shares of lines as `vanidl record` samples them, against timers in the programs.

    python -m benchmarks.vanidl.lines_truth [SAMPLES] [PYTHON ...]

The five programs of `timed_lines.py` beside it, with the tests' small stand-in for PyTorch:
lines that sleep, that work with and without the interpreter's lock, in functions called by
others, in a generator, in a thread pool. Of each program and part the largest difference of a
line's share of wall time is shown, in points. Limit: 5 points.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import vanidl
from vanidl.record import record

PROGRAMS = ("released", "called", "batched", "stream", "pooled")
PROGRAM = Path(__file__).with_name("timed_lines.py")
SMALL_TORCH = Path(__file__).parents[2] / "tests" / "record" / "small_torch"
OF_LOOP = ("step", "log")
LIMIT = 5.0


def differences(python: str, program: str, samples: str) -> list[tuple[str, int, float]]:
    """Part, its samples, and the largest difference of a line in points."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        line = [python, str(PROGRAM), str(folder / "truth"), program, samples]
        done = record(line, folder / "RUN", tracer="none")
        assert done.exit_status == 0
        truth = json.loads((folder / "truth").read_text())
        lines = vanidl.open_run(folder / "RUN").lines
    found = []
    assert lines is not None
    for of, part in (("fetches", lines.fetch), ("loop", lines.loop)):
        names = [name for name in truth if (name in OF_LOOP) == (of == "loop")]
        total = sum(truth[name][0] for name in names)
        shares: dict[str, float] = defaultdict(float)
        for each in part.lines if part else ():
            shares[each.text.rpartition("# line: ")[2]] += each.share
        timed = sum(shares[name] for name in names) or 1.0  # beside them are the timers themselves
        worst = max(100 * abs(shares[name] / timed - truth[name][0] / total) for name in names)
        found.append((of, part.samples if part else 0, worst))
    return found


def main() -> int:
    """Prints a row a program and Python; 1 where a limit is not kept."""
    samples = sys.argv[1] if len(sys.argv) > 1 else "800"
    os.environ["PYTHONPATH"] = str(SMALL_TORCH)
    print("| Python | program | sampled, worst of fetches | sampled, worst of the loop |")
    print("|---|---|---|---|")
    worst = 0.0
    for python in sys.argv[2:] or [sys.executable]:
        said = subprocess.run([python, "--version"], capture_output=True, text=True, check=True)
        for program in PROGRAMS:
            found = differences(python, program, samples)
            worst = max(worst, *(points for _, _, points in found))
            cells = " | ".join(f"{many}, {points:.1f} points" for _, many, points in found)
            print(f"| {said.stdout.split()[1]} | {program} | {cells} |", flush=True)
    print(f"largest {worst:.1f} points, limit {LIMIT}")
    return int(worst > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
