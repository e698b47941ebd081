"""How far the measured ceiling is from the compute of programs that time it themselves.

    python -m benchmarks.vanidl.ceiling_truth [--runs 3] [--tensorflow]

Each program sleeps or is busy for X ms of a step and takes Y ms to load a batch. The truth is the
mean time of its own compute in the run with batches from memory, by a timer around it that the
recorder does not see; the limit is 2 % of that (4 % with TensorFlow, whose own time in a step is
not in it). Input's cost has a truth as well without workers: Y / (X + Y) in terms of what the
program measured.
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

PROGRAMS = Path(__file__).parents[1] / "programs"
LIMIT = 0.02
LIMIT_OF_TENSORFLOW = 0.04  # what it does itself in each step is no compute of the program


@dataclass(frozen=True)
class Case:
    """Milliseconds of compute and input, and how many workers."""

    compute_ms: int
    input_ms: int
    workers: int
    how: str = "sleep"
    program: str = "known_cost.py"

    @property
    def limit(self) -> float:
        """How far off a step may be, of the compute."""
        return LIMIT_OF_TENSORFLOW if self.program == TENSORFLOW else LIMIT

    @property
    def command(self) -> list[str]:
        """What trains so."""
        words = [sys.executable, str(PROGRAMS / self.program)]
        words += [str(self.compute_ms), str(self.input_ms), "--how", self.how]
        return [*words, "--workers", str(self.workers)] if self.workers else words


TENSORFLOW = "known_cost_tensorflow.py"
CASES = (
    Case(20, 30, 0),
    Case(20, 30, 2),
    Case(20, 100, 2),
    Case(50, 5, 0),
    Case(20, 30, 0, "busy"),
)
OF_TENSORFLOW = (Case(50, 80, 0, "eager", TENSORFLOW), Case(50, 80, 0, "keras", TENSORFLOW))


def run(case: Case, folder: Path) -> bool:
    """Measures one case, prints a line; whether the ceiling is within the limit."""
    truths = []
    for name, replay in (("run", None), ("free", Replay())):
        truth = folder / f"{name}.json"
        done = record(
            [*case.command, "--truth", str(truth)], folder / name, tracer="none", replay=replay
        )
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
    return abs(error) <= case.limit


def main() -> int:
    """All cases, each so often; 1 where one is beyond the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--tensorflow", action="store_true", help="only its cases")
    options = parser.parse_args()
    good = True
    for case in (OF_TENSORFLOW if options.tensorflow else CASES) * options.runs:
        with tempfile.TemporaryDirectory() as folder:
            good &= run(case, Path(folder))
    limits = f"{LIMIT:.0%} of the compute, of TensorFlow {LIMIT_OF_TENSORFLOW:.0%}"
    print(f"limit: {limits}: {'met' if good else 'NOT met'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
