"""Makes the A/B report of reading whole samples and of reading blocks, on three emulated nodes.

    python reports/spatial.py [--samples 12] [--size 96] [--repeat 5]

Three ranks under torchrun train on a third of each sample. A: every rank reads all and crops
(the twin, `--io crop`). B: every rank reads its own block. The samples are synthetic
(`loaders make`), the storage is the emulated parallel file system: 20 MB/s a rank, 40 MB/s in
all. Everything but the page goes into a temporary folder.
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

PAGE = ROOT / "reports" / "spatial.html"
COST = Cost(client_bytes_per_s=20e6, total_bytes_per_s=40e6)
SIDES = {"all, then crop": "crop", "own block": "posix"}
"""Label -> way of reading."""
RANKS = "3"


def main() -> int:
    """Writes the page; exit status of `vanidl ab`, or 0 with one line where storage is missing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--samples", type=int, default=12)
    parser.add_argument("--size", type=int, default=96, help="voxels a side")
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
        make("cosmoflow", folder / "source", samples=options.samples, size=options.size)
        with EmulatedStorage(
            folder / "source", folder / "pfs", cost=COST, client_env="RANK"
        ) as storage:
            return compare(storage.target, folder / "runs", options.repeat)


def compare(data: Path, runs: Path, repeat: int) -> int:
    """Runs both sides alternately and writes the page."""
    before, after = (training(data, way) for way in SIDES.values())
    line = ["ab", "--a", before, "--b", after, "--repeat", str(repeat)]
    for label in SIDES:
        line += ["--label", label]
    return vanidl([*line, "--runs", str(runs), "-o", str(PAGE)])


def training(data: Path, way: str) -> str:
    """The command of one side; the profiler's output goes where VANIDL_RUN says."""
    line = ["python", "-W", "ignore", "-m", "torch.distributed.run", "--nproc-per-node"]
    line += [
        RANKS,
        "--no-python",
        "python",
        "-m",
        "loaders",
        "train",
        "--workload",
        "cosmoflow",
        "--data",
        str(data),
    ]
    line += ["--loader", "spatial", "--grid", f"1x{RANKS}x1x1", "--io", way]
    return shlex.join([*line, "--batch", "2", "--epochs", "2", "--threads", "1"])


if __name__ == "__main__":
    sys.exit(main())
