"""Whether a workload exported from a real run makes DLIO read as the run did.

    python -m benchmarks.vanidl.dlio_export [--dlio PATH/dlio_benchmark] [--only WORD] [--keep]

A small PyTorch training over files is recorded (`vanidl record`), exported (`--to dlio`), and DLIO
generates that workload and trains on it on the same storage, recorded alike; pages of both sets
of files are dropped before. Limits: bytes read and requests of the dataset within 2 % of the
run's, the mean step within 10 %, each without the first step of an epoch: DLIO keeps its workers
from one epoch to the next, the program starts them anew. Checkpoints are compared by their size on
disk: DFTracer does not see what torch.save writes.

The case "emulated" runs on the emulated parallel file system (2 ms a request, 20 MB/s), so that
steps wait for storage; it needs FUSE. The case "old layout" misses the limit of requests: h5py's
usual layout takes 9 reads to open a file and read a sample, that of DLIO's generator 5.

DLIO has TensorFlow and DALI as dependencies, which its PyTorch path does without: install it by
`pip install --no-deps`, with torch, hydra-core, h5py, mpi4py, pandas, psutil, pydftracer, Pillow.
Without DLIO nothing is run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.measure import evict
from benchmarks.programs.file_training import make
from vanidl import Run, open_run
from vanidl.dataset.locate import DataOptions
from vanidl.export import export
from vanidl.merge.load import Inputs
from vanidl.record import record
from vanidl_loaders.emulated_fs.model import Cost
from vanidl_loaders.emulated_fs.mount import EmulatedStorage

PROGRAM = Path(__file__).parents[1] / "programs" / "file_training.py"
ALONE = (
    "import os; os.environ['DFTRACER_ENABLE'] = '0'; from dlio_benchmark.main import main; main()"
)
"""DLIO without its own annotations, which DFTRACER_ENABLE=1 of the recording would switch on: they
cost as much as the reading of a small file. Calls are traced by the preloaded library all the same.
"""
TRAFFIC, STEP = 0.02, 0.10
COST = Cost(latency_s=0.002, total_bytes_per_s=20e6)


@dataclass(frozen=True)
class Case:
    """A dataset and a training on it."""

    name: str
    suffix: str = ".npz"
    files: int = 64
    per_file: int = 1
    nbytes: int = 200_000
    batch: int = 4
    workers: int = 2
    epochs: int = 3
    compute_s: float = 0.05
    emulated: bool = False
    layout: str | None = None  # of HDF5

    @property
    def words(self) -> list[str]:
        """Options of the program."""
        return [
            "--per-file", str(self.per_file), "--batch", str(self.batch),
            "--workers", str(self.workers), "--epochs", str(self.epochs),
            "--compute", str(self.compute_s),
        ]  # fmt: skip


CASES = (
    Case("npz"),
    Case("hdf5", ".h5", files=16, per_file=4, nbytes=400_000, layout="latest"),
    Case("hdf5, old layout", ".h5", files=16, per_file=4, nbytes=400_000),
    Case("npz, no workers", workers=0, nbytes=500_000, files=32),
    Case("emulated npz", emulated=True, compute_s=0.02),
)


@dataclass(frozen=True)
class Traffic:
    """What one run did: dataset reads, mean step, its wait and the rest (seconds)."""

    files: int
    nbytes: int
    requests: int
    step_s: float
    median_s: float
    wait_s: float
    rest_s: float


def traffic(run: Run, folder: Path, epochs: int) -> Traffic:
    """Of the files under a folder, and of steps but for the first of each epoch."""
    files = [f for f in run.files.rows if Path(f.path).is_relative_to(folder) and f.reads]
    if run.steps is None:
        raise SystemExit(f"expected recorded steps of {folder}, found none")
    table = run.steps.table
    inner = np.arange(len(table.step)) % (len(table.step) // epochs) > 0
    step, wait = table.duration_s[inner], table.input_wait_s[inner]
    return Traffic(
        len(files),
        sum(f.bytes_read for f in files),
        sum(f.reads for f in files),
        float(step.mean()),
        float(np.median(step)),
        float(wait.mean()),
        float((step - wait).mean()),
    )


def recorded(words: list[str], folder: Path, data: Path) -> Run:
    """Runs a command with none of the data in the page cache."""
    for path in data.rglob("*"):
        if path.is_file():
            evict(path)
    done = record(words, folder)
    if done.exit_status:
        raise SystemExit(f"{words[0]} ended with status {done.exit_status}")
    return open_run(folder, inputs=Inputs(data=DataOptions((str(data),))))


@dataclass(frozen=True)
class Place:
    """A folder, and where its files are read from: the same but on emulated storage."""

    folder: Path
    seen: Path


def run(case: Case, dlio: str, folder: Path, place: Place) -> bool:
    """Measures one case, prints its lines; whether it is within the limits."""
    real, made, saved = place.seen / "real", place.seen / "dlio", folder / "saved"
    saved.mkdir()
    make(
        place.folder / "real", case.suffix, files=case.files, per_file=case.per_file,
        nbytes=case.nbytes, layout=case.layout,
    )  # fmt: skip
    words = [sys.executable, str(PROGRAM), str(real), str(saved), *case.words]
    first = recorded(words, folder / "run", real)
    (folder / "configs/workload").mkdir(parents=True)
    export(first, "dlio", folder / "configs/workload/recorded.yaml")
    words = [
        str(Path(dlio).with_name("python")), "-c", ALONE,
        "--config-dir", str(folder / "configs"), "workload=recorded",
        f"hydra.run.dir={folder / 'results'}",
    ]  # fmt: skip
    off = [f"++workload.dataset.data_folder={place.folder / 'dlio'}"]
    off += [f"++workload.workflow.{key}=False" for key in ("train", "checkpoint")]
    subprocess.run([*words, *off, "++workload.workflow.generate_data=True"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    to = [f"++workload.dataset.data_folder={made}",
          f"++workload.checkpoint.checkpoint_folder={folder / 'checkpoints'}"]  # fmt: skip
    second = recorded([*words, *to], folder / "again", made)
    good = _compared(case, traffic(first, real, case.epochs), traffic(second, made, case.epochs))
    return _saves_compared(saved, folder / "checkpoints") and good


def _compared(case: Case, run: Traffic, dlio: Traffic) -> bool:
    rows = (
        ("bytes", run.nbytes, dlio.nbytes, TRAFFIC),
        ("requests", run.requests, dlio.requests, TRAFFIC),
        ("step_ms", run.step_s * 1e3, dlio.step_s * 1e3, STEP),
        ("median", run.median_s * 1e3, dlio.median_s * 1e3, None),
        ("wait_ms", run.wait_s * 1e3, dlio.wait_s * 1e3, None),
        ("rest_ms", run.rest_s * 1e3, dlio.rest_s * 1e3, None),
    )
    good = run.files == dlio.files
    print(f"{case.name}: {run.files} files, DLIO {dlio.files}")
    for name, ours, theirs, limit in rows:
        change = theirs / ours - 1 if ours else 0.0
        met = limit is None or abs(change) <= limit
        good &= met
        words = "" if limit is None else f"limit {limit:.0%}: {'met' if met else 'NOT met'}"
        print(f"  {name:8} run {ours:14,.2f}  DLIO {theirs:14,.2f}  {change:+7.2%}  {words}")
    return good


def _saves_compared(run: Path, dlio: Path) -> bool:
    sizes = [[p.stat().st_size for p in f.rglob("*") if p.is_file()] for f in (run, dlio)]
    change = sum(sizes[1]) / max(sum(sizes[0]), 1) - 1
    met = len(sizes[0]) == len(sizes[1]) and abs(change) <= TRAFFIC
    print(f"  saves    run {len(sizes[0])} of {sum(sizes[0]):,} bytes, DLIO {len(sizes[1])} of "
          f"{sum(sizes[1]):,}  {change:+.2%}  {'met' if met else 'NOT met'}")  # fmt: skip
    return met


@contextmanager
def storage(case: Case, folder: Path) -> Iterator[Place]:
    """Where the data of a case lie."""
    data = folder / "data"
    data.mkdir()
    if not case.emulated:
        yield Place(data, data)
        return
    with EmulatedStorage(data, cost=COST) as mounted:
        yield Place(data, mounted.target)


def main() -> int:
    """All cases; 1 where one is beyond a limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dlio", default="dlio_benchmark", help="DLIO's command")
    parser.add_argument("--only", default="", metavar="WORD", help="cases with it in their name")
    parser.add_argument("--keep", action="store_true", help="leave the folders")
    options = parser.parse_args()
    # Torch's threads, of which DLIO has one a core, would wait for each other on a busy machine.
    os.environ["OMP_NUM_THREADS"] = "1"
    dlio = shutil.which(options.dlio)
    if dlio is None:
        print("skipped: expected DLIO's dlio_benchmark, found none; give --dlio PATH")
        return 0
    good = True
    for case in CASES:
        if options.only not in case.name:
            continue
        folder = Path(tempfile.mkdtemp(prefix="dlio-export-"))
        with storage(case, folder) as place:
            good &= run(case, dlio, folder, place)
        if options.keep:
            print(f"  kept: {folder}")
        else:
            shutil.rmtree(folder)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
