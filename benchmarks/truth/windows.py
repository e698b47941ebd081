"""Windows and parts of steps that only the running program can mark, against its own timers.

    python -m benchmarks.truth.windows [--cost] [--tracer NAME] [KIND...]

Records `programs/windows.py` for each kind of loop, and prints seconds of each part and window as
vanidl says / as the program measured. Limits: saves, loads and validation within 2 % or 2 ms, parts
within 3 % or 2 ms. With --cost the same loop runs alone and recorded without a tracer in turn, with
steps of some
lengths: what recording adds to the median step, in processor time, with the
95 % interval of the mean over pairs. Limits: 30 us at 2 ms, 1 % from 5 ms on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import vanidl
from vanidl.breakdown.account import MEAN, PHASE, STEP_PART

PROGRAM = Path(__file__).parent / "programs" / "windows.py"
KINDS = ("plain", "augmenting", "metrics", "syncing", "clipping", "saving", "saving-large",
         "validating")  # fmt: skip
PARTS = ("input_wait", "prepare", "forward", "backward", "optimizer", "rest")
WHOLE = ("checkpoint", "load", "validation")
LIMIT_S, OF_PART, OF_WINDOW = 0.002, 0.03, 0.02
INJECTED = Path(vanidl.__file__).parent / "record" / "injected"


def run_program(words: list[str], folder: str, **variables: str) -> dict[str, Any]:
    """What the program says of itself."""
    environment = {**os.environ, **variables}
    done = subprocess.run(words, cwd=folder, env=environment, check=True, capture_output=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(kind: str, tracer: str) -> bool:
    """Prints a line for each window of one kind of loop; whether all are within their limits."""
    with tempfile.TemporaryDirectory() as folder:
        record = [sys.executable, "-m", "vanidl", "record", "-o", f"{folder}/RUN"]
        program = [sys.executable, str(PROGRAM), kind, "100", "10"]
        truth = run_program([*record, "--tracer", tracer, "--", *program], folder)
        run = vanidl.open_run(f"{folder}/RUN")
        account, steps = run.breakdown, run.breakdown.steps.max()
        is_right = True
        print(f"{kind}: {str(run.headline).split('. ')[0]}")
        for name in (*PARTS, *WHOLE):
            key = f"{STEP_PART}/{name}" if name in PARTS else f"{PHASE}/{name}"
            said_s = account.cell(f"{MEAN}/{key}").middle_ns / 1e9 if key in account.columns else 0
            said_s *= steps if name in PARTS else 1
            true_s = truth["spent"][name]
            limit_s = max(LIMIT_S, (OF_PART if name in PARTS else OF_WINDOW) * true_s)
            mark = "" if abs(said_s - true_s) <= limit_s else "  <--"
            is_right &= not mark
            if true_s > LIMIT_S or mark:
                print(f"    {name:12} {said_s:8.4f} / {true_s:8.4f} s"
                      f" {100 * (said_s / true_s - 1) if true_s else 0:+6.1f} %{mark}")  # fmt: skip
        return is_right


def measure_cost(lengths: list[int], pairs: int) -> bool:
    """Prints what recording adds to the median step; whether it is within its limits."""
    is_right = True
    for step_ms in lengths:
        steps = max(int(2000 / step_ms), 60)
        command = [sys.executable, str(PROGRAM), "plain", str(steps), str(step_ms)]
        added, alone = [], []
        for _ in range(pairs):
            with tempfile.TemporaryDirectory() as folder:
                without = run_program(command, folder)["median_us"]
                path = f"{INJECTED}:{os.environ.get('PYTHONPATH', '')}"
                recorded = run_program(command, folder, PYTHONPATH=path, VANIDL_STEPS=folder)
                alone.append(without)
                added.append(recorded["median_us"] - without)
        mean, spread = float(np.mean(added)), 1.96 * float(np.std(added)) / len(added) ** 0.5
        share = 100 * mean / float(np.mean(alone))
        print(f"steps of {step_ms} ms ({np.mean(alone):.0f} us alone): {mean:+.1f} us"
              f" +- {spread:.1f}, {share:+.2f} %")  # fmt: skip
        is_right &= mean - spread <= 30 if step_ms == 2 else share <= 1
    return is_right


def main(argv: list[str]) -> int:
    """1 where a limit is not kept."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", choices=[[], *KINDS])
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--milliseconds", type=int, nargs="*", default=[2, 5, 20, 100])
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--tracer", default="vanidl")
    asked = parser.parse_args(argv)
    if asked.cost:
        return int(not measure_cost(asked.milliseconds, asked.pairs))
    wrong = [kind for kind in asked.kinds or KINDS if not compare(kind, asked.tracer)]
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
