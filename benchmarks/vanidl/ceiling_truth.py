"""How far the measured ceiling is from the compute of programs that time it themselves.

    python -m benchmarks.vanidl.ceiling_truth [--runs 3]

Each program sleeps or is busy for X ms of a step and takes Y ms to load a batch. The truth is the
mean time of its own compute in the run with batches from memory, by a timer around it that the
recorder does not see; the limit is 2 % of that. Input's cost has a truth as well without workers:
Y / (X + Y) in terms of what the program measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from vanidl.ceiling import measure
from vanidl.record import record
from vanidl.record.steps import Replay

PROGRAM = Path(__file__).parents[1] / "programs" / "known_cost.py"
LIMIT = 0.02


@dataclass(frozen=True)
class Case:
    """Milliseconds of compute and input, and how many workers."""

    compute_ms: int
    input_ms: int
    workers: int
    how: str = "sleep"


CASES = (
    Case(20, 30, 0),
    Case(20, 30, 2),
    Case(20, 100, 2),
    Case(50, 5, 0),
    Case(20, 30, 0, "busy"),
)


def run(case: Case, folder: Path) -> bool:
    """Measures one case, prints a line; whether the ceiling is within the limit."""
    words = [sys.executable, str(PROGRAM), str(case.compute_ms), str(case.input_ms)]
    words += ["--workers", str(case.workers), "--how", case.how]
    truths = []
    for name, replay in (("run", None), ("free", Replay())):
        truth = folder / f"{name}.json"
        done = record([*words, "--truth", str(truth)], folder / name, tracer="none", replay=replay)
        if done.exit_status:
            raise SystemExit(f"the program ended with status {done.exit_status}")
        truths.append(json.loads(truth.read_text()))
    found = measure(folder / "run", folder / "free")
    taken, free = truths
    error = found.free_s / free["compute_s"] - 1
    cost = 1 - free["compute_s"] / taken["step_s"]
    print(
        f"{case.compute_ms:4} ms {case.how:5} {case.input_ms:4} ms {case.workers} workers: "
        f"step {found.free_s * 1e3:7.3f} ms, truth {free['compute_s'] * 1e3:7.3f} ({error:+.2%}), "
        f"copying {found.copying_s * 1e3:.3f} ms; cost {found.cost:6.1%} "
        f"({found.low:.1%} to {found.high:.1%}), truth {cost:6.1%}"
    )
    return abs(error) <= LIMIT


def main() -> int:
    """All cases, each so often; 1 where one is beyond the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    good = True
    for case in CASES * options.runs:
        with tempfile.TemporaryDirectory() as folder:
            good &= run(case, Path(folder))
    print(f"limit: {LIMIT:.0%} of the compute: {'met' if good else 'NOT met'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
