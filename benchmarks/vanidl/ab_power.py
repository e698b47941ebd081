"""How often `vanidl ab` is right: real commands through the recorder, in ABBA order.

    python -m benchmarks.vanidl.ab_power [--experiments 20] [--pairs 5] [--steps 40]

Two kinds of experiment in turn: a command against itself, and against itself with 10 % added to
every step. Goals: "no difference shown" in at least 95 % of the first kind, "worse" in at
least 80 % of the second. The command is a small training loop without a framework: every step
reads 64 KiB of a file and then waits a fixed time for a "device", and the steps are written
down as the PyTorch profiler does. The step time is therefore steady even on a busy machine;
the noise that is left is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

STEP_S = 0.015
READ_BYTES = 65_536
WAIT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
GOALS = {"alike": ("no difference shown", 0.95), "slower": ("worse", 0.80)}


def main() -> None:
    """Runs the experiments, prints counts and goals; exit status 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--experiments", type=int, default=20, help="of each kind")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--workload", nargs=3, metavar=("RUN", "SECONDS", "DATA"))
    options = parser.parse_args()
    if options.workload:
        run, step_s, data = options.workload
        train(Path(run), float(step_s), Path(data), options.steps)
    else:
        sys.exit(measure(options))


def train(run: Path, step_s: float, data: Path, steps: int) -> None:
    """The workload: reads, waits, and leaves a profiler trace in the run's folder."""
    events = []
    base_ns = time.time_ns()
    with data.open("rb", buffering=0) as file:
        for step in range(steps):
            begin = time.time_ns()
            os.pread(file.fileno(), READ_BYTES, step * READ_BYTES)
            read = time.time_ns()
            time.sleep(step_s)
            end = time.time_ns()
            events += [
                span(f"ProfilerStep#{step}", "user_annotation", begin - base_ns, end - begin),
                span(WAIT, "user_annotation", begin - base_ns, read - begin),
                span("aten::compute", "cpu_op", read - base_ns, end - read),
            ]
    content = {"schemaVersion": 1, "deviceProperties": [], "baseTimeNanoseconds": base_ns,
               "host_name": os.uname().nodename, "traceEvents": events}  # fmt: skip
    (run / "steps.pt.trace.json").write_text(json.dumps(content, indent=2))


def span(name: str, category: str, start_ns: int, length_ns: int) -> dict[str, object]:
    """One complete event, in microseconds."""
    process = os.getpid()
    return {"ph": "X", "cat": category, "name": name, "pid": process, "tid": process,
            "ts": start_ns / 1e3, "dur": length_ns / 1e3, "args": {}}  # fmt: skip


def measure(options: argparse.Namespace) -> int:
    """Runs both kinds in turn; 1 where a goal is missed."""
    verdicts: dict[str, Counter[str]] = {kind: Counter() for kind in GOALS}
    spreads: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "data.bin"
        data.write_bytes(os.urandom(READ_BYTES * options.steps))
        for i in range(options.experiments):
            for kind, factor in (("alike", 1.0), ("slower", 1.1)):
                verdict, spread = experiment(folder / "runs", data, factor, options)
                verdicts[kind][verdict] += 1
                spreads.append(spread)
            counts = {kind: dict(found) for kind, found in verdicts.items()}
            print(f"{i + 1} of {options.experiments}: {counts}", file=sys.stderr)
    return show(verdicts, spreads, options)


def experiment(
    folder: Path, data: Path, factor: float, options: argparse.Namespace
) -> tuple[str, float]:
    """The verdict on the step time, and the spread of A's runs around their mean."""
    import numpy as np

    import vanidl
    from vanidl.compare import compare
    from vanidl.compare.ab import Plan, run_pairs
    from vanidl.compare.runs import open_recorded
    from vanidl.record import record

    def command(step_s: float) -> str:
        words = [sys.executable, __file__, "--steps", str(options.steps), "--workload"]
        return " ".join([*words, "{run}", str(step_s), str(data)])

    plan = Plan(command(STEP_S), command(STEP_S * factor), folder, options.pairs)
    run_pairs(plan, lambda words, run, tracer: record(words, run, tracer=tracer))
    sides, _ = open_recorded(folder, vanidl.open_run)
    change = compare(sides).pairings[0].change("throughput")
    shutil.rmtree(folder)
    if change is None or None in change.values_a:
        raise SystemExit(f"a run has no steps: {[s.missing for s in sides[0].samples]}")
    return change.verdict, float(np.std(np.log(np.array(change.values_a, float)), ddof=1))


def show(
    verdicts: dict[str, Counter[str]], spreads: list[float], options: argparse.Namespace
) -> int:
    """Prints the counts beside the goals; 1 where one is missed."""
    spread = sorted(spreads)[len(spreads) // 2]
    print(
        f"{options.experiments} experiments of each kind, {options.pairs} pairs, {options.steps} "
        f"steps a run; step time differs by {spread:.2%} from run to run (median)"
    )
    missed = 0
    for kind, (wanted, goal) in GOALS.items():
        share = verdicts[kind][wanted] / options.experiments
        missed += share < goal
        print(f"  {kind:<8} {wanted}: {share:.0%} (goal {goal:.0%})   {dict(verdicts[kind])}")
    return int(missed > 0)


if __name__ == "__main__":
    main()
