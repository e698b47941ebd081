"""Whether the step with more workers lies in its predicted range: storage at its limit, and others.

    python -m benchmarks.vanidl.more_workers [--work build/more_workers] [KIND...]

A training (steps as those of `programs/planted.py`, 50 batches of four samples) is recorded once as
it is, and from that the mean step with each number of workers is predicted, at best and at worst.
Then it runs so, not recorded, twice. `saturated`: emulated mounts whose servers deliver so many
bytes a second to all. `files`: of a mount that is only slow; `stream`: an iterable data set that
workers divide; `accumulation`: an optimizer step for five batches; `decoding`: samples that are
waited for without storage. Limit: measured steps lie in the range, a tenth at either end being what
runs differ by.
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
from vanidl.advice.changes import Change
from vanidl.advice.what_if import predict_range

BIN = Path(sys.executable).parent
PROGRAMS = Path(__file__).parents[1] / "programs"
SLOW = ("--latency-ms", "6", "--bandwidth-mb", "400")
CASES = (
    ("saturated", 0, ("--latency-ms", "1", "--bandwidth-mb", "12"), (1, 2, 4, 8)),
    ("saturated", 1, ("--latency-ms", "2", "--bandwidth-mb", "25"), (2, 3, 4, 8)),
    ("saturated", 4, ("--latency-ms", "4", "--bandwidth-mb", "8"), (5, 6, 8, 12)),
    ("files", 0, SLOW, (2, 4, 8)),
    ("stream", 0, SLOW, (1, 2, 4)),
    ("accumulation", 0, SLOW, (1, 2, 4)),
    ("decoding", 0, SLOW, (2, 4, 8)),
    ("decoding", 1, SLOW, (2, 4)),
)
"""Kind, workers that there are, the mount, and workers that are asked about."""
BATCHES = 50
APART = 0.1
PROGRAM = """\
import json, sys, time
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from planted import WIDTH, Files, Made, each, train

data, kind, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for i in range(first, 200, step):
            yield Files(data)[i]


def accumulate(loader):
    net = torch.nn.Linear(WIDTH, 10)
    optimizer = torch.optim.SGD(net.parameters(), 1e-4)
    for k, rows in enumerate(loader):
        net(rows.reshape(-1, WIDTH).repeat(8, 1)).square().mean().backward()
        if k % 5 == 4:
            optimizer.step()
            optimizer.zero_grad()


torch.optim.SGD([torch.zeros(1, requires_grad=True)], 1e-4).zero_grad()  # imports, before the clock
sets = {"stream": Stream, "decoding": lambda: Made(200, each(time.sleep, 0.004))}
set_ = sets.get(kind, lambda: Files(data, 200))()
begin = time.perf_counter()
loader = DataLoader(set_, batch_size=4, num_workers=workers)
accumulate(loader) if kind == "accumulation" else train(loader, work=16)
print(json.dumps({"loop_s": time.perf_counter() - begin}), flush=True)
"""


def run(
    work: Path, kind: str, mount: tuple[str, ...], workers: int, record: Path | None = None
) -> float:
    """Seconds of the loop a batch, by its own timer."""
    with tempfile.TemporaryDirectory(prefix="mount-") as folder:
        command = [str(BIN / "python"), str(work / "program.py"), folder, kind, str(workers)]
        if record is not None:
            command = [str(BIN / "vanidl"), "record", "-o", str(record), "--", *command]
        command = [
            str(BIN / "python"), "-m", "vanidl_loaders", "mount", str(work / "data"), folder,
            *mount, "--", "env", f"PYTHONPATH={PROGRAMS}", *command,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"loop_s"')]
    return float(json.loads(lines[-1])["loop_s"]) / BATCHES


def main() -> int:
    """Prints a row for each number of workers; 1 where a step lies outside its range."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    parser.add_argument("--work", type=Path, default=Path("build/more_workers"))
    options = parser.parse_args()
    work: Path = options.work.resolve()
    (work / "data").mkdir(parents=True, exist_ok=True)
    (work / "program.py").write_text(PROGRAM, encoding="utf-8")
    for k in range(400):
        (work / f"data/{k}.bin").write_bytes(bytes(1 << 16))

    inside = count = 0
    print("| kind | mount | workers | asked about | predicted | measured a batch | inside |")
    print("|---|---|---|---|---|---|---|")
    for kind, now, mount, asked in CASES:
        if options.kinds and kind not in options.kinds:
            continue
        with tempfile.TemporaryDirectory() as folder:
            run(work, kind, mount, now, Path(folder) / "run")
            recorded = open_run(Path(folder) / "run")
            trace, results, account = recorded.trace, recorded.results, recorded.breakdown
            steps = results.steps.per_rank_max / BATCHES if results.steps else 1.0
            ranges = {n: predict_range(trace, results, account, Change(workers=n)) for n in asked}
        for n, ends in ranges.items():
            low_s, high_s = (end * steps for end in ends)
            batch_s = statistics.mean(run(work, kind, mount, n) for _ in range(2))
            is_inside = low_s * (1 - APART) <= batch_s <= high_s * (1 + APART)
            inside, count = inside + is_inside, count + 1
            print(
                f"| {kind} | {mount[1]} ms, {mount[3]} MB/s | {now} | {n} | {low_s * 1e3:.1f} to "
                f"{high_s * 1e3:.1f} ms | {batch_s * 1e3:.1f} ms | "
                f"{'yes' if is_inside else 'no'} |",
                flush=True,
            )
    print(f"{inside} of {count} inside")
    return int(inside < count)


if __name__ == "__main__":
    raise SystemExit(main())
