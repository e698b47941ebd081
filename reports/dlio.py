"""Makes the A/B report of DLIO's own PyTorch loader against the scheduled loader under DLIO.

    python reports/dlio.py [--repeat N] [--darshan-lib PATH]

DLIO generates the data set and runs both sides, two ranks of mpiexec on the emulated parallel file
system. It has to be installed: docs/dlio.md says how. Both are recorded with Darshan: DFTracer
would switch on DLIO's annotations, which cost as much as reading a small file. Everything but the
page goes into a temporary folder.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from vanidl.cli import main as vanidl  # noqa: E402
from vanidl_loaders.emulated_fs.model import Cost  # noqa: E402
from vanidl_loaders.emulated_fs.mount import EmulatedStorage, check_available  # noqa: E402
from vanidl_loaders.errors import MissingError  # noqa: E402

PAGE = "dlio_scheduled.html"
RANKS = 2
COST = Cost(latency_s=0.002, total_bytes_per_s=20e6)
BUFFER = 0.85
SIDES = ("DLIO's PyTorch loader, 2 workers", f"scheduled, C/N {BUFFER}")
OURS = {
    "reader.data_loader_classname": "vanidl_loaders.dlio.ScheduledDataLoader",
    "reader.data_loader_sampler": "index",
}
WORKLOAD: dict[str, object] = {
    "framework": "pytorch",
    "model.name": "vanidl",
    "dataset.format": "npz",
    "dataset.num_files_train": 128,
    "dataset.num_files_eval": 0,
    "dataset.num_subfolders_train": 0,
    "dataset.num_subfolders_eval": 0,
    "dataset.num_samples_per_file": 1,
    "dataset.record_length_bytes": 1 << 18,
    "dataset.record_length_bytes_stdev": 0,
    "reader.data_loader": "pytorch",
    "reader.batch_size": 4,
    "reader.read_threads": 2,
    "reader.sample_shuffle": "seed",
    "train.epochs": 4,
    "train.computation_time": 0.02,
    "workflow.evaluation": False,
}


def main() -> int:
    """Writes the page; 0, also where DLIO or storage is missing, else what `ab` ended with."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--repeat", type=int, default=5, help="pairs of runs that are kept")
    parser.add_argument("--darshan-lib", help="libdarshan.so; default: where the recorder finds it")
    options = parser.parse_args()
    try:
        check_available()
    except MissingError as error:
        sys.stderr.write(f"no A/B page: {error}\n")
        return 0
    if importlib.util.find_spec("dlio_benchmark") is None:
        sys.stderr.write("no A/B page: expected DLIO, found none: docs/dlio.md says how\n")
        return 0
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ["VANIDL_LOADER_OPTIONS"] = f"--buffer-fraction {BUFFER}"
    library = ["--darshan-lib", options.darshan_lib] if options.darshan_lib else []
    return compare(options.repeat, library)


def compare(repeat: int, library: list[str]) -> int:
    """Runs both sides alternately and writes the page; exit status of `vanidl ab`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generate(folder / "source", folder / "generated")
        with EmulatedStorage(folder / "source", folder / "pfs", cost=COST) as storage:
            line = ["ab", "--repeat", str(repeat), "--tracer", "darshan", *library]
            for side, label, own in zip("ab", SIDES, ({}, OURS), strict=True):
                line += [f"--{side}", benchmark(storage.target, "{run}", own), "--label", label]
            line += ["--runs", str(folder / "runs"), "-o", str(ROOT / "reports" / PAGE)]
            return vanidl(line)


def generate(data: Path, output: Path) -> None:
    """DLIO's data set."""
    only = {"workflow.generate_data": True, "workflow.train": False}
    line = benchmark(data, str(output), only)
    subprocess.run(shlex.split(line), check=True, stdout=subprocess.DEVNULL)


def benchmark(data: Path, output: str, own: Mapping[str, object]) -> str:
    """The command of one run; its results go to `output`/results."""
    keys = {"workflow.generate_data": False, "workflow.train": True} | WORKLOAD | dict(own)
    keys |= {"dataset.data_folder": data, "output.folder": f"{output}/results"}
    settings = [f"++workload.{key}={value}" for key, value in keys.items()]
    settings.append(f"++hydra.run.dir={output}/hydra")
    return " ".join(["mpiexec", "-n", str(RANKS), "dlio_benchmark", *map(quoted, settings)])


def quoted(word: str) -> str:
    """For a shell, with the place of the run's folder left as it is."""
    return word if "{run}" in word else shlex.quote(word)


if __name__ == "__main__":
    sys.exit(main())
