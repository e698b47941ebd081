"""Whether the step with more workers lies in its predicted range where storage is at its limit.

    python -m benchmarks.vanidl.saturated [--work build/saturated]

Three emulated mounts whose servers deliver so many bytes a second to all, and four numbers of
workers each: the training (`slow_storage` of `programs/planted.py`, 200 files of 64 KiB) is
recorded once as it is, and from that the mean step with each number is predicted, at best and at
worst. Then it runs so, not recorded, twice. Limit: measured steps lie in the range, a tenth at
either end being what runs differ by.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from vanidl import open_run
from vanidl.advice.levers import Change
from vanidl.advice.predict import predict_range

BIN = Path(sys.executable).parent
PROGRAMS = Path(__file__).parents[1] / "programs"
CASES = (
    (0, ("--latency-ms", "1", "--bandwidth-mb", "12"), (1, 2, 4, 8)),
    (1, ("--latency-ms", "2", "--bandwidth-mb", "25"), (2, 3, 4, 8)),
    (4, ("--latency-ms", "4", "--bandwidth-mb", "8"), (5, 6, 8, 12)),
)
"""Workers that there are, the mount, and workers that are asked about."""
APART = 0.1
PROGRAM = """\
import json, sys, time
import torch
from torch.utils.data import DataLoader
from planted import Files, train

torch.optim.SGD([torch.zeros(1, requires_grad=True)], 1e-4).zero_grad()  # imports, before the clock
begin = time.perf_counter()
loader = DataLoader(Files(sys.argv[1], 200), batch_size=4, num_workers=int(sys.argv[2]))
steps = train(loader, work=16)
print(json.dumps({"step_s": (time.perf_counter() - begin) / steps}), flush=True)
"""


def run(work: Path, mount: tuple[str, ...], workers: int, record: Path | None = None) -> float:
    """Mean step of one training, by its own timer."""
    with tempfile.TemporaryDirectory(prefix="mount-") as folder:
        command = [str(BIN / "python"), str(work / "program.py"), folder, str(workers)]
        if record is not None:
            command = [str(BIN / "vanidl"), "record", "-o", str(record), "--", *command]
        command = [
            str(BIN / "python"), "-m", "vanidl_loaders", "mount", str(work / "data"), folder,
            *mount, "--", "env", f"PYTHONPATH={PROGRAMS}", *command,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"step_s"')]
    return float(json.loads(lines[-1])["step_s"])


def main() -> int:
    """Prints a row for each number of workers; 1 where a step lies outside its range."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, default=Path("build/saturated"))
    work: Path = parser.parse_args().work.resolve()
    (work / "data").mkdir(parents=True, exist_ok=True)
    (work / "program.py").write_text(PROGRAM, encoding="utf-8")
    for k in range(400):
        (work / f"data/{k}.bin").write_bytes(bytes(1 << 16))

    inside = count = 0
    print("| mount | workers | asked about | predicted | measured | inside |")
    print("|---|---|---|---|---|---|")
    for now, mount, asked in CASES:
        with tempfile.TemporaryDirectory() as folder:
            run(work, mount, now, Path(folder) / "run")
            recorded = open_run(Path(folder) / "run")
            ranges = {
                n: predict_range(
                    recorded.trace, recorded.results, recorded.breakdown, Change(workers=n)
                )
                for n in asked
            }
        for n, (low_s, high_s) in ranges.items():
            step_s = statistics.mean(run(work, mount, n) for _ in range(2))
            is_inside = low_s * (1 - APART) <= step_s <= high_s * (1 + APART)
            inside, count = inside + is_inside, count + 1
            print(
                f"| {mount[1]} ms, {mount[3]} MB/s | {now} | {n} | {low_s * 1e3:.1f} to "
                f"{high_s * 1e3:.1f} ms | {step_s * 1e3:.1f} ms | {'yes' if is_inside else 'no'} |",
                flush=True,
            )
    print(f"{inside} of {count} inside")
    return int(inside < count)


if __name__ == "__main__":
    raise SystemExit(main())
