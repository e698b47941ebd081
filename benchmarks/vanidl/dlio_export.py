"""Whether a workload exported from a real run makes DLIO read as the run did.

    python -m benchmarks.vanidl.dlio_export [--dlio PATH/dlio_benchmark] [--pairs 4] [--minutes 7]

A small PyTorch training over files is recorded (`vanidl record`) and exported (`--to dlio`). DLIO
generates that workload on the same storage, or is given the run's own files, and trains on it,
recorded alike. Then both are run again, in pairs of alternating order, all cases in turn; pages of
both sets of files are dropped before each run. No pair begins after so many minutes.

Limits: bytes read and requests of the dataset within 2 % in every pair, and the mean step within
10 %: met where the whole 98 % interval of the pairs' ratios lies within, not shown where it goes
beyond. First steps of epochs are left out: DLIO keeps its workers from one epoch to the next, the
program restarts them. Samples must be equal, and accelerator utilization within 10 %: DLIO's is
that of its summary.json, the program's its steps without their waits by its steps (DLIO, too,
leaves out the first of an epoch). Checkpoints are compared by their size on disk: DFTracer does not
see what torch.save writes.

The case "emulated" runs on the emulated parallel file system (2 ms a request, 20 MB/s), so that
steps wait for storage; it needs FUSE. HDF5 files are once of the newest layout, which DLIO's
generator writes, and once of h5py's usual one, which takes 9 reads to open a file and read a sample
instead of 5: DLIO reads those files themselves, by `vanidl_loaders.dlio.OwnFilesReader`.

DLIO has TensorFlow and DALI as dependencies, which its PyTorch path does without: install it by
`pip install --no-deps`, with torch, hydra-core, h5py, mpi4py, pandas, psutil, pydftracer, Pillow.
Without DLIO nothing is run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import vanidl_loaders
from benchmarks.measure import evict
from benchmarks.programs.file_training import make
from vanidl import Run, open_run
from vanidl.compare.statistics import paired
from vanidl.export.registry import export
from vanidl.merge.pipeline import Inputs
from vanidl.model.run_facts import DataOptions
from vanidl.record import record
from vanidl_loaders.dlio.plugin import ARRAY
from vanidl_loaders.emulated_fs.model import Cost
from vanidl_loaders.emulated_fs.mount import EmulatedStorage

PROGRAM = Path(__file__).parents[1] / "programs" / "file_training.py"
ALONE = (
    "import os, sys; os.environ['DFTRACER_ENABLE'] = '0'; sys.path.append({path!r}); "
    "from dlio_benchmark.main import main; main()"
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
    own: bool = False  # DLIO reads the run's files

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
    Case("hdf5, usual layout, own files", ".h5", files=16, per_file=4, nbytes=400_000, own=True),
    Case("npz, no workers", workers=0, nbytes=500_000, files=32),
    Case("emulated npz", emulated=True, compute_s=0.02),
)


@dataclass(frozen=True)
class Traffic:
    """What one run did: dataset reads, mean step, its wait and the rest (seconds).

    Utilization is the share of the steps in which the accelerator computed, in percent.
    """

    files: int
    samples: int
    nbytes: int
    requests: int
    step_s: float
    median_s: float
    wait_s: float
    rest_s: float
    utilization: float


def traffic(run: Run, folder: Path, case: Case, utilization: float | None = None) -> Traffic:
    """Of the files under a folder, and of steps but for the first of each epoch."""
    files = [f for f in run.files.rows if Path(f.path).is_relative_to(folder) and f.reads]
    if run.steps is None:
        raise SystemExit(f"expected recorded steps of {folder}, found none")
    table = run.steps.table
    inner = np.arange(len(table.step)) % (len(table.step) // case.epochs) > 0
    step, wait = table.duration_s[inner], table.input_wait_s[inner]
    if utilization is None:
        utilization = 100 * float((step - wait).mean() / step.mean())
    return Traffic(
        len(files),
        len(table.step) * case.batch,
        sum(f.bytes_read for f in files),
        sum(f.reads for f in files),
        float(step.mean()),
        float(np.median(step)),
        float(wait.mean()),
        float((step - wait).mean()),
        utilization,
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


@dataclass
class Bench:
    """One case, its folders, and what its runs did so far."""

    case: Case
    dlio: Path
    folder: Path
    data: Path
    seen: Path  # the same, on the storage that is measured
    real: list[Traffic] = field(default_factory=list)
    theirs: list[Traffic] = field(default_factory=list)

    def prepare(self) -> None:
        """Makes the data, runs the program once, exports that, and has DLIO's data made."""
        case, saved = self.case, self.folder / "saved"
        saved.mkdir()
        make(self.data / "real", case.suffix, files=case.files, per_file=case.per_file,
             nbytes=case.nbytes, layout=case.layout)  # fmt: skip
        (self.folder / "configs/workload").mkdir(parents=True)
        export(self.program(), "dlio", self.folder / "configs/workload/recorded.yaml")
        if case.own:
            self._link()
            return
        off = [f"++workload.dataset.data_folder={self.data / 'dlio'}"]
        off += [f"++workload.workflow.{key}=False" for key in ("train", "checkpoint")]
        off.append("++workload.workflow.generate_data=True")
        subprocess.run([*self._benchmark(), *off], check=True, capture_output=True)

    def _link(self) -> None:
        for kind in ("train", "valid"):
            (self.data / "dlio" / kind).mkdir(parents=True)
        for path in sorted((self.data / "real").iterdir()):
            (self.data / "dlio/train" / f"{path.stem}.hdf5").symlink_to(path)

    def pair(self, number: int) -> None:
        """One more run of each, in this order where the number is even."""
        if number == 0:  # the program ran already
            self.benchmark()
        elif number % 2:
            self.benchmark()
            self.program()
        else:
            self.program()
            self.benchmark()

    def program(self) -> Run:
        """The real training."""
        data = self.seen / "real"
        words = [sys.executable, str(PROGRAM), str(data), str(self.folder / "saved")]
        run = recorded([*words, *self.case.words], self.folder / f"run{len(self.real)}", data)
        self.real.append(traffic(run, data, self.case))
        return run

    def benchmark(self) -> None:
        """DLIO on the workload."""
        data = self.seen / "dlio"
        to = [f"++workload.dataset.data_folder={data}",
              f"++workload.checkpoint.checkpoint_folder={self.folder / 'checkpoints'}"]  # fmt: skip
        if self.case.own:
            to.append("++workload.reader.reader_classname=vanidl_loaders.dlio.OwnFilesReader")
        at = self.folder / f"dlio{len(self.theirs)}"
        run = recorded([*self._benchmark(), *to], at, data)
        said = json.loads((self.folder / "results/summary.json").read_text())
        utilization = float(said["metric"]["train_au_mean_percentage"])
        self.theirs.append(traffic(run, data, self.case, utilization))

    def _benchmark(self) -> list[str]:
        path = self.folder / "path"
        if not path.exists():
            path.mkdir()
            (path / "vanidl_loaders").symlink_to(Path(vanidl_loaders.__file__).parent)
        return [
            str(self.dlio.with_name("python")), "-c", ALONE.format(path=str(path)),
            "--config-dir", str(self.folder / "configs"), "workload=recorded",
            f"hydra.run.dir={self.folder / 'results'}", "hydra.output_subdir=null",
            "hydra/job_logging=disabled",
        ]  # fmt: skip

    def report(self) -> bool:
        """Prints the case; whether it is within the limits."""
        pairs = min(len(self.real), len(self.theirs))
        real, theirs = self.real[:pairs], self.theirs[:pairs]
        good = all(
            (a.files, a.samples) == (b.files, b.samples) for a, b in zip(real, theirs, strict=True)
        )
        print(f"{self.case.name}: {pairs} pairs, {real[0].files} files, DLIO {theirs[0].files}")
        print(f"  samples   {real[0].samples:14,} {theirs[0].samples:14,}")
        for name in ("nbytes", "requests"):
            changes = [getattr(b, name) / getattr(a, name) - 1
                       for a, b in zip(real, theirs, strict=True)]  # fmt: skip
            worst = max(changes, key=abs)
            met = abs(worst) <= TRAFFIC
            good &= met
            numbers = f"{getattr(real[0], name):14,} {getattr(theirs[0], name):14,}"
            print(f"  {name:9} {numbers}  {worst:+7.2%} at most  {'met' if met else 'NOT met'}")
        for name in ("step_s", "median_s", "wait_s", "rest_s"):
            values = [[getattr(t, name) for t in side] for side in (real, theirs)]
            word = _times(name, *values)
            good &= name != "step_s" or word == "met"
        shares = [[t.utilization for t in side] for side in (real, theirs)]
        good &= _utilization(*shares)
        return _saves(self.folder / "saved", self.folder / "checkpoints") and good


def _times(name: str, real: Sequence[float], theirs: Sequence[float]) -> str:
    """Prints one kind of time; whether its ratio is within the limit of steps."""
    found = paired(real, theirs)
    numbers = f"{np.median(real) * 1e3:11.2f} ms {np.median(theirs) * 1e3:11.2f} ms"
    if found is None or found.scale != "ratio":
        print(f"  {name:9} {numbers}  too few pairs for an interval")
        return "not shown"
    low, high = found.low - 1, found.high - 1
    word = "not shown"
    if low >= -STEP and high <= STEP:
        word = "met"
    elif high < -STEP or low > STEP:
        word = "NOT met"
    shown = word if name == "step_s" else ""
    print(f"  {name:9} {numbers}  {found.value - 1:+7.2%} ({low:+.1%} to {high:+.1%})  {shown}")
    return word


def _utilization(real: Sequence[float], theirs: Sequence[float]) -> bool:
    """Prints accelerator utilization; whether its medians are within the limit of steps."""
    ours, dlios = float(np.median(real)), float(np.median(theirs))
    met = abs(dlios / ours - 1) <= STEP
    print(f"  utilization {ours:10.2f} % {dlios:13.2f} %  {dlios / ours - 1:+7.2%}  "
          f"{'met' if met else 'NOT met'}")  # fmt: skip
    return met


def _saves(run: Path, dlio: Path) -> bool:
    sizes = [[p.stat().st_size for p in f.rglob("*") if p.is_file()] for f in (run, dlio)]
    change = sum(sizes[1]) / max(sum(sizes[0]), 1) - 1
    met = len(sizes[0]) == len(sizes[1]) and abs(change) <= TRAFFIC
    print(f"  saves     {len(sizes[0])} of {sum(sizes[0]):,} bytes, DLIO {len(sizes[1])} of "
          f"{sum(sizes[1]):,}  {change:+.2%}  {'met' if met else 'NOT met'}")  # fmt: skip
    return met


@contextmanager
def prepared(case: Case, dlio: Path, folder: Path) -> Iterator[Bench]:
    """A case with its storage."""
    data = folder / "data"
    data.mkdir()
    with ExitStack() as stack:
        seen = data
        if case.emulated:
            seen = stack.enter_context(EmulatedStorage(data, cost=COST)).target
        bench = Bench(case, dlio, folder, data, seen)
        bench.prepare()
        yield bench


def main() -> int:
    """All cases; 1 where one is not within the limits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dlio", default="dlio_benchmark", help="DLIO's command")
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=7, help="after which no pair begins")
    parser.add_argument("--only", default="", metavar="WORD", help="cases with it in their name")
    parser.add_argument("--folder", type=Path, help="keep everything there")
    options = parser.parse_args()
    # Torch's threads, of which DLIO has one a core, would wait for each other on a busy machine.
    os.environ |= {"OMP_NUM_THREADS": "1", ARRAY: "image"}
    dlio = shutil.which(options.dlio)
    if dlio is None:
        print("skipped: expected DLIO's dlio_benchmark, found none; give --dlio PATH")
        return 0
    until = time.monotonic() + 60 * options.minutes
    with ExitStack() as stack:
        root = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        benches = []
        for number, case in enumerate(CASES):
            if options.only in case.name:
                (root / str(number)).mkdir(parents=True)
                benches.append(stack.enter_context(prepared(case, Path(dlio), root / str(number))))
        for number in range(options.pairs):
            for bench in benches:
                if number == 0 or time.monotonic() < until:
                    bench.pair(number)
        within = [bench.report() for bench in benches]
        return 0 if all(within) else 1


if __name__ == "__main__":
    sys.exit(main())
