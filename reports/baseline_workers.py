"""Makes the A/B report of the baseline loader with 0 and with 4 workers on slow storage.

    python reports/baseline_workers.py [--samples 512] [--repeat 5]

The samples are synthetic (`loaders make`), the storage is the emulated parallel file system: 5 ms
a request, 200 MB/s in all. Everything but the page goes into a temporary folder.
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

PAGE = ROOT / "reports" / "baseline_workers.html"
COST = Cost(latency_s=0.005, total_bytes_per_s=200e6)
WORKERS = (0, 4)


def main() -> int:
    """Writes the page; exit status of `vanidl ab`, or 0 with one line where storage is missing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--repeat", type=int, default=5)
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
    sides = [training(data, workers) for workers in WORKERS]
    line = ["ab", "--a", sides[0], "--b", sides[1], "--repeat", str(repeat)]
    for workers in WORKERS:
        line += ["--label", f"{workers} workers"]
    return vanidl([*line, "--runs", str(runs), "-o", str(PAGE)])


def training(data: Path, workers: int) -> str:
    """The command of one side; the profiler's output goes where VANIDL_RUN says."""
    line = ["python", "-W", "ignore", "-m", "loaders", "train", "--workload", "ptycho"]
    line += ["--data", str(data), "--loader", "baseline", "--workers", str(workers)]
    return shlex.join([*line, "--batch", "32", "--epochs", "2", "--threads", "1"])


if __name__ == "__main__":
    sys.exit(main())
