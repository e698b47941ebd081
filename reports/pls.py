"""Makes the A/B report of global shuffling and of partial local shuffling on slow storage.

    python reports/pls.py [--samples 256] [--repeat 3]

Two ranks by torchrun. Global shuffling is the DataLoader with a DistributedSampler and 2 workers a
rank, from the emulated parallel file system: 2 ms a request, 10 MB/s in all. Partial local
shuffling reads each rank's share once from there, keeps it in memory and exchanges 30 % of it in
an epoch. The samples are synthetic (`loaders make`). Everything but the page goes into a temporary
folder.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from loaders.errors import MissingError  # noqa: E402
from loaders.storage.model import Cost  # noqa: E402
from loaders.storage.mount import EmulatedStorage, check_available  # noqa: E402
from vanidl.cli import main as vanidl  # noqa: E402

PAGE = ROOT / "reports" / "pls.html"
COST = Cost(latency_s=0.002, total_bytes_per_s=10e6)
SIDES = {
    "global, DataLoader": ["--loader", "baseline", "--workers", "2"],
    "partial local, Q 0.3": ["--loader", "pls", "--exchange-fraction", "0.3"],
}
"""Label -> options of `loaders train`."""


def main() -> int:
    """Writes the page; exit status of `vanidl ab`, or 0 with one line where storage is missing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    try:
        check_available()
        from loaders.workloads.making import make
    except (MissingError, ModuleNotFoundError) as error:
        sys.stderr.write(f"no {PAGE.name}: {error}\n")
        return 0
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make("ptycho", folder / "source", samples=options.samples)
        with EmulatedStorage(folder / "source", folder / "pfs", cost=COST) as storage:
            return compare(storage.target, folder / "runs", options.repeat)


def compare(data: Path, runs: Path, repeat: int) -> int:
    """Runs both sides alternately and writes the page."""
    before, after = (training(data, options) for options in SIDES.values())
    line = ["ab", "--a", before, "--b", after, "--repeat", str(repeat)]
    for label in SIDES:
        line += ["--label", label]
    return vanidl([*line, "--runs", str(runs), "-o", str(PAGE)])


def training(data: Path, options: list[str]) -> str:
    """The command of one side; the profiler's output goes where VANIDL_RUN says."""
    line = ["python", "-W", "ignore", "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    line += ["--no-python", "python", "-W", "ignore", "-m", "loaders"]
    line += ["train", "--workload", "ptycho", "--data", str(data), *options]
    return shlex.join([*line, "--batch", "16", "--epochs", "4", "--threads", "1"])


if __name__ == "__main__":
    sys.exit(main())
