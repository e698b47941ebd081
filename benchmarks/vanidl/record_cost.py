"""What recording without a tracer adds to steps of 2, 5, 20 and 100 ms.

    python -m benchmarks.vanidl.record_cost [SECONDS]

As `step_overhead`: the hooks of everything that is recorded within a program (waits, fetches,
steps, lines, saves and so on) are taken out and put back every few steps, in the order ABBA, in a
process of its own for each length, for about SECONDS of steps. Shown is the median of the pairs'
differences of processor time, with a 95 % interval (bootstrap over pairs). Limits: 1 % of the
step from 5 ms on, 30 us at 2 ms.

States of threads and memory are looked at from another process: they cost the program nothing of
its processor time. What they cost beside it is the last line: of a training with two workers, the
processor time of `vanidl record` itself, as a share of a core.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.vanidl.step_overhead import TRIALS, pairs

STEPS_MS = (2, 5, 20, 100)
BLOCK_MS = 300  # of a block, a step at least
LIMIT, LIMIT_US = 0.01, 30.0
BESIDE_S = 20
TRAINING = """
import time, torch
from torch.utils.data import DataLoader
data = torch.utils.data.TensorDataset(torch.zeros(1 << 20, 8))
end = time.monotonic() + {seconds}
for batch in DataLoader(data, batch_size=16, num_workers=2):
    time.sleep(0.01)
    if time.monotonic() > end:
        break
"""


def differences(step_ms: int, seconds: float) -> tuple[np.ndarray, float]:
    """Processor seconds a step that each pair has more, and those of a step."""
    many = max(1, round(BLOCK_MS / step_ms))
    count = max(20, round(seconds * 1e3 / step_ms / many / 2))
    with tempfile.TemporaryDirectory() as folder:
        found = pairs(count, folder, float(step_ms), many, warm_up=2 * TRIALS + max(5, 3 * many))
    used = found[:, :, 0] / many
    return used[:, 1] - used[:, 0], float(np.median(used[:, 0]))


def interval(values: np.ndarray) -> tuple[float, float, float]:
    """Median, and a 95 % interval of it by bootstrap."""
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(values, (2000, len(values))), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return float(np.median(values)), float(low), float(high)


def beside() -> float:
    """Processor time of the recorder itself over wall time, of a training with two workers."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["record", "--tracer", "none", "-o", str(Path(folder) / "RUN"), "--"]
        program = [sys.executable, "-c", TRAINING.format(seconds=BESIDE_S)]
        recorder = subprocess.Popen([sys.executable, "-m", "vanidl", *words, *program])
        time.sleep(BESIDE_S / 2)  # it has started, and what it imports is not of looking around
        begin_s, before = time.monotonic(), _used_s(recorder.pid)
        time.sleep(BESIDE_S / 3)
        share = (_used_s(recorder.pid) - before) / (time.monotonic() - begin_s)
        recorder.wait()
    return share


def _used_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Prints a row a length of step; 1 where a limit is surely not kept."""
    if sys.argv[1:2] == ["--length"]:
        torch.set_num_threads(1)
        torch.set_flush_denormal(True)  # gradients of the deep models that longer steps have vanish
        step_ms = int(sys.argv[2])
        more, step_s = differences(step_ms, float(sys.argv[3]))
        middle, low, high = (1e6 * value for value in interval(more))
        limit_us = LIMIT_US if step_ms < 5 else LIMIT * 1e6 * step_s
        shares = [f"{value / step_s / 1e6:.2%}" for value in (middle, low, high)]
        print(
            f"| {step_s * 1e3:.2f} ms | {len(more)} | {middle:.1f} us ({low:.1f} to {high:.1f}) | "
            f"{shares[0]} ({shares[1]} to {shares[2]}) |",
            flush=True,
        )
        return int(low > limit_us)
    seconds = sys.argv[1] if len(sys.argv) > 1 else "20"
    print("| step | pairs | processor time more | of the step |\n|---|---|---|---|", flush=True)
    failed = 0
    for step_ms in STEPS_MS:
        line = [sys.executable, "-m", "benchmarks.vanidl.record_cost", "--length", str(step_ms)]
        failed |= subprocess.run([*line, seconds], check=False).returncode
    print(f"beside it, of a core: {beside():.2%}")
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
