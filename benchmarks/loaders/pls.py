"""Input wait of partial local shuffling beside global shuffling, from slow storage, two ranks.

    python -m benchmarks.loaders.pls [--samples 384] [--repeats 2] [--bandwidth-mb 40]

Each mode trains the same small model with `python -m vanidl_loaders train` under torchrun, on the
emulated parallel file system, four epochs; modes take turns.
  global    PyTorch's DataLoader with a DistributedSampler; its best number of workers is the peer
  partial   `--loader pls`, samples in memory, Q = 0.3 and 1
  local     the same with Q = 0: nothing is exchanged, which is the limit for partial
Seconds are what the training process waited in `__next__` in an epoch after the first, mean
over these, the slower rank's, median over repeats; `start` is the same in the first epoch, in which
partial and local read their share. `bound` is what the storage allows global at best: N samples /
bandwidth. Goals: partial 0.3 waits at most a fifth of the best global (the paper: up to five times
faster training), and reads nothing from storage after the first epoch.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.measure import interleaved
from vanidl_loaders.data.samples import SampleSet
from vanidl_loaders.emulated_fs.model import Cost
from vanidl_loaders.emulated_fs.mount import EmulatedStorage
from vanidl_loaders.workloads.making import make

RANKS, BATCH, EPOCHS, GOAL = 2, 16, 4, 0.2
MODES: dict[str, list[str]] = {
    "global, 0 workers": ["--loader", "baseline"],
    "global, 2 workers": ["--loader", "baseline", "--workers", "2"],
    "global, 4 workers": ["--loader", "baseline", "--workers", "4"],
    "partial, Q 0.3": ["--loader", "pls", "--exchange-fraction", "0.3"],
    "partial, Q 1": ["--loader", "pls", "--exchange-fraction", "1"],
    "local, Q 0": ["--loader", "pls", "--exchange-fraction", "0"],
}


@dataclass(frozen=True)
class Run:
    """One training: seconds waited in the first epoch and in a later one, samples read in all."""

    start_s: float
    later_s: float
    loads: int


def main() -> None:
    """Measures, prints the table; exit status 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--samples", type=int, default=384)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--latency-ms", type=float, default=2.0)
    parser.add_argument("--bandwidth-mb", type=float, default=40.0)
    options = parser.parse_args()
    cost = Cost(options.latency_ms / 1e3, total_bytes_per_s=options.bandwidth_mb * 1e6)
    with tempfile.TemporaryDirectory() as name:
        samples = make("ptycho", Path(name) / "source", samples=options.samples)
        with EmulatedStorage(samples.folder, Path(name) / "slow", cost=cost) as storage:
            modes = {mode: partial(run, storage.target, line) for mode, line in MODES.items()}
            runs = interleaved(modes, options.repeats)
    sys.exit(int(show(runs, samples, options.bandwidth_mb * 1e6)))


def run(data: Path, line: list[str]) -> Run:
    """One training."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS)]
    command += ["-m", "vanidl_loaders", "train", "--data", str(data), "--json", "--threads", "1"]
    command += ["--batch", str(BATCH), "--epochs", str(EPOCHS), *line]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=900
    )
    ranks = [json.loads(each) for each in done.stdout.replace("}{", "}\n{").split("\n") if each]
    waits = [each["stats"]["exposed_wait_s"] for each in ranks]
    steps = len(waits[0]) // EPOCHS
    return Run(
        max(sum(each[:steps]) for each in waits),
        max(sum(each[steps:]) for each in waits) / (EPOCHS - 1),
        sum(each["stats"]["loads"] for each in ranks),
    )


def show(runs: dict[str, list[Run]], samples: SampleSet, bytes_per_s: float) -> bool:
    """Prints the table; True where a goal is missed."""
    later = {mode: statistics.median(r.later_s for r in each) for mode, each in runs.items()}
    best = min(seconds for mode, seconds in later.items() if mode.startswith("global"))
    row = "{:<20}{:>10}{:>14}{:>14}{:>12}"
    print(row.format("", "start s", "later epoch s", "/ best global", "loads"))
    for mode, each in runs.items():
        start = statistics.median(r.start_s for r in each)
        cells = (f"{start:.2f}", f"{later[mode]:.3f}", f"{later[mode] / best:.3f}", each[0].loads)
        print(row.format(mode, *cells))
    bound = len(samples) * samples.sample_nbytes / bytes_per_s
    print(row.format("bound of global", "-", f"{bound:.3f}", f"{bound / best:.3f}", "-"))
    partial = "partial, Q 0.3"
    return later[partial] > GOAL * best or runs[partial][0].loads != len(samples)


if __name__ == "__main__":
    main()
