"""How far the measured ceiling is from the compute of programs that time it themselves.

    python -m benchmarks.vanidl.ceiling_truth [--runs 3] [--tensorflow]

Each program sleeps or is busy for X ms of a step and takes Y ms to load a batch. The truth is the
mean time of its own compute in the run with batches from memory, by a timer around it that the
recorder does not see. TensorFlow does about a millisecond of its own in a step, which is no compute
of the program: there the truth is the step of the same program with batches that lie in memory from
the start (`--free`), alone, by its own timers. The limit is 2 %. Input's cost has a truth as well
without workers: how much longer than that the program's own step took.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from vanidl.ceiling import measure
from vanidl.record import record
from vanidl.record.steps import Replay

PROGRAMS = Path(__file__).parents[1] / "programs"
LIMIT = 0.02


@dataclass(frozen=True)
class Case:
    """Milliseconds of compute and input, and how many workers."""

    compute_ms: int
    input_ms: int
    workers: int
    how: str = "sleep"
    program: str = "known_cost.py"

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
OF_TENSORFLOW = tuple(
    Case(50, 0 if how == "arrays" else 80, 0, how, TENSORFLOW)
    for how in ("eager", "keras", "pydataset", "arrays", "predict", "evaluate")
)


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
    free_s = free["compute_s"] if case.program != TENSORFLOW else free_step_s(case, folder)
    error = found.free_s / free_s - 1
    cost = 1 - free_s / taken["step_s"]
    print(
        f"{case.compute_ms:4} ms {case.how:5} {case.input_ms:4} ms {case.workers} workers: "
        f"step {found.free_s * 1e3:7.3f} ms, truth {free_s * 1e3:7.3f} ({error:+.2%}), "
        f"copying {found.copying_s * 1e3:.3f} ms; cost {found.cost:6.1%} "
        f"({found.low:.1%} to {found.high:.1%}), truth {cost:6.1%}"
    )
    return abs(error) <= LIMIT


def free_step_s(case: Case, folder: Path) -> float:
    """The step of a program whose batches lie in memory, as it timed it, nobody recording."""
    truth = folder / "alone.json"
    subprocess.run([*case.command, "--free", "--truth", str(truth)], check=True)
    return float(json.loads(truth.read_text())["step_s"])


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
    print(f"limit: {LIMIT:.0%}: {'met' if good else 'NOT met'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
