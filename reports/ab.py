"""Makes the A/B reports of the loaders against their baselines, on emulated slow storage.

    python reports/ab.py [workers scheduled pls spatial decoded] [--repeat N]

The samples are synthetic (`loaders make`), the storage is the emulated parallel file system with
the cost that `PAIRS` names. Everything but the pages goes into a temporary folder.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from vanidl.cli import main as vanidl  # noqa: E402
from vanidl_loaders.emulated_fs.model import Cost  # noqa: E402
from vanidl_loaders.emulated_fs.mount import EmulatedStorage, check_available  # noqa: E402
from vanidl_loaders.errors import MissingError  # noqa: E402


@dataclass(frozen=True)
class Pair:
    """What one page compares.

    Attributes:
        page: Name of the file.
        workload: Name of the synthetic samples.
        samples: Number of them.
        cost: Of a request to the storage.
        training: Options of `loaders train` on both sides.
        sides: Label -> further options of one side, A before B.
        size: Points a side of a sample; None: the workload's own.
        ranks: Processes under torchrun; 1: a plain command.
        repeat: Pairs of runs that are kept.
        encoded: Whether the samples are there as containers, too.
    """

    page: str
    workload: str
    samples: int
    cost: Cost
    training: str
    sides: Mapping[str, str]
    size: int | None = None
    ranks: int = 1
    repeat: int = 3
    encoded: bool = False


PAIRS = {
    "workers": Pair(
        page="baseline_workers.html",
        workload="ptycho",
        samples=512,
        cost=Cost(latency_s=0.005, total_bytes_per_s=200e6),
        training="--batch 32 --epochs 2",
        sides={
            "0 workers": "--loader baseline --workers 0",
            "4 workers": "--loader baseline --workers 4",
        },
        repeat=5,
    ),
    "scheduled": Pair(
        page="scheduled.html",
        workload="ptycho",
        samples=256,
        cost=Cost(latency_s=0.002, total_bytes_per_s=5e6),
        training="--batch 32 --epochs 4",
        sides={
            "DataLoader, 4 workers": "--loader baseline --workers 4",
            "scheduled, C/N 0.85": "--loader scheduled --buffer-fraction 0.85",
        },
    ),
    "pls": Pair(
        page="pls.html",
        workload="ptycho",
        samples=256,
        cost=Cost(latency_s=0.002, total_bytes_per_s=10e6),
        training="--batch 16 --epochs 4",
        sides={
            "global, DataLoader": "--loader baseline --workers 2",
            "partial local, Q 0.3": "--loader pls --exchange-fraction 0.3",
        },
        ranks=2,
    ),
    "spatial": Pair(
        page="spatial.html",
        workload="cosmoflow",
        samples=12,
        size=96,
        cost=Cost(client_bytes_per_s=20e6, total_bytes_per_s=40e6),
        training="--loader spatial --grid 1x3x1x1 --batch 2 --epochs 2",
        sides={"all, then crop": "--io crop", "own block": "--io posix"},
        ranks=3,
        repeat=5,
    ),
    "decoded": Pair(
        page="decoded_cosmoflow.html",
        workload="cosmoflow",
        samples=48,
        size=64,
        cost=Cost(latency_s=0.002, total_bytes_per_s=20e6),
        training="--workers 1 --batch 8 --epochs 2",
        sides={"baseline": "--loader baseline", "decoded": "--loader decoded"},
        encoded=True,
    ),
}


def main() -> int:
    """Writes the pages; 0, also where storage is missing (one line), else what `ab` ended with."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*", choices=[*PAIRS, []], metavar="NAME")
    parser.add_argument("--repeat", type=int, help="pairs of runs; default: the pair's own")
    options = parser.parse_args()
    try:
        check_available()
        import torch  # noqa: F401
    except (MissingError, ModuleNotFoundError) as error:
        sys.stderr.write(f"no A/B pages: {error}\n")
        return 0
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    chosen = [PAIRS[name] for name in options.names or PAIRS]
    return max(compare(pair, options.repeat or pair.repeat) for pair in chosen)


def compare(pair: Pair, repeat: int) -> int:
    """Runs both sides alternately and writes the page; exit status of `vanidl ab`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_samples(pair, folder / "source")
        client = "RANK" if pair.ranks > 1 else None
        with EmulatedStorage(
            folder / "source", folder / "pfs", cost=pair.cost, client_env=client
        ) as storage:
            before, after = (command(pair, storage.target, own) for own in pair.sides.values())
            line = ["ab", "--a", before, "--b", after, "--repeat", str(repeat)]
            for label in pair.sides:
                line += ["--label", label]
            page = ROOT / "reports" / pair.page
            return vanidl([*line, "--runs", str(folder / "runs"), "-o", str(page)])


def write_samples(pair: Pair, folder: Path) -> None:
    """The pair's synthetic samples, encoded where it reads them so."""
    from vanidl_loaders.workloads.making import make

    make(pair.workload, folder, samples=pair.samples, size=pair.size)
    if pair.encoded:
        from vanidl_loaders.decoders.folders import ENCODED, encode_folder

        encode_folder(folder, folder / ENCODED)


def command(pair: Pair, data: Path, own: str) -> str:
    """The command of one side; the profiler's output goes where VANIDL_RUN says."""
    python = "python -W ignore"
    if pair.ranks > 1:
        torchrun = f"{python} -m torch.distributed.run --nproc-per-node {pair.ranks}"
        python = f"{torchrun} --no-python {python}"
    train = f"{python} -m vanidl_loaders train --workload {pair.workload}"
    train += f" --data {shlex.quote(str(data))}"
    return f"{train} {own} {pair.training} --threads 1"


if __name__ == "__main__":
    sys.exit(main())
