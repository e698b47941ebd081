"""Makes the A/B report of the DataLoader and of scheduled buffering on slow storage.

    python reports/scheduled.py [--samples 512] [--repeat 3]

The samples are synthetic (`loaders make`), the storage is the emulated parallel file system: 2 ms
a request, 20 MB/s in all. The DataLoader has 4 workers, the buffers hold 85 % of the samples.
Everything but the page goes into a temporary folder.
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

PAGE = ROOT / "reports" / "scheduled.html"
COST = Cost(latency_s=0.002, total_bytes_per_s=20e6)
SIDES = {
    "DataLoader, 4 workers": ["--loader", "baseline", "--workers", "4"],
    "scheduled, C/N 0.85": ["--loader", "scheduled", "--buffer-fraction", "0.85"],
}
"""Label -> options of `loaders train`."""


def main() -> int:
    """Writes the page; exit status of `vanidl ab`, or 0 with one line where storage is missing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--samples", type=int, default=512)
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
    line = ["python", "-W", "ignore", "-m", "loaders", "train", "--workload", "ptycho"]
    line += ["--data", str(data), *options]
    return shlex.join([*line, "--batch", "32", "--epochs", "4", "--threads", "1"])


if __name__ == "__main__":
    sys.exit(main())
