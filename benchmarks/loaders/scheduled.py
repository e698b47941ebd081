"""What scheduled buffering gains, step by step, on a slow storage and on the plain disk.

    python -m benchmarks.loaders.scheduled [--where emulated disk] [--samples 512] [--repeats 1]

Two ranks, started here, in step after every batch as in synchronous training, without a model.
  V0    PyTorch's DataLoader, workers kept over epochs; its best number of workers is 1.0
  V1    planned and pinned buffer, batches of equal size (no balancing of loads)
  V2    + loads level over ranks
  V3    + look-ahead, merged reads, eight reads at once
  LRU, FIFO   DataLoader with a buffer of the same size in one kept worker
  MosaicML Streaming   the same samples as MDS shards, cache_limit of the same size; its order of
        samples is another one, and what it reads is not counted: a time below the bound is of a
        cache that held more than the limit
Seconds are of an epoch after the first, the slowest rank's, medians; `bound` is what the storage
allows at best for the loads that any policy needs: latency + (N - C) * sample / bandwidth.
Loads are counted by the loaders. NoPFS and others are counted from their plans. Goals on the
emulated storage at C / N = 0.85: V3 at least 4.7 times V0, and within 15 % of the bound.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from benchmarks.measure import evict, interleaved
from benchmarks.programs.scheduled_ranks import BATCH, EPOCHS, FRACTION, RANKS, held
from vanidl_loaders.data.samples import Field, SampleSet, open_samples
from vanidl_loaders.emulated_fs.model import Cost
from vanidl_loaders.emulated_fs.mount import EmulatedStorage

COST = Cost(latency_s=0.002, total_bytes_per_s=20e6)
FASTER, NEAR = 4.7, 0.15
PLAIN = {"look_ahead": 1, "gap": 0, "read_threads": 1}
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "V0 DataLoader, 0 workers": ("dataloader", {"workers": 0}),
    "V0 DataLoader, 2 workers": ("dataloader", {"workers": 2}),
    "V0 DataLoader, 4 workers": ("dataloader", {"workers": 4}),
    "LRU buffer": ("recency", {"renew": True}),
    "FIFO buffer": ("recency", {"renew": False}),
    "MosaicML Streaming": ("streaming", {"workers": 2}),
    "V1 pinned buffer": ("scheduled", PLAIN | {"balance": "batch"}),
    "V2 + level loads": ("scheduled", PLAIN | {"balance": "load"}),
    "V3 + look-ahead, merging": ("scheduled", {"look_ahead": 8, "gap": None, "read_threads": 8}),
}
"""Row -> (kind, options)."""


@dataclass(frozen=True)
class Result:
    """A row's epochs: seconds of each after the first, and samples that all ranks read in one."""

    seconds: list[float]
    loads: float | None


def main() -> None:
    """Measures, prints the tables; exit status 1 where a goal on the emulated storage is missed."""
    options = _options()
    missed = False
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        source = Path(scratch) / "source"
        write(source, options.samples)
        shards = write_shards(source, options.streaming_python)
        for where in options.where:
            with stored(where, source, Path(scratch)) as (folder, bytes_per_s):
                results = measure(folder, Path(scratch), options, shards)
            missed |= show(where, results, options.samples, bytes_per_s)
    counted(options.samples)
    sys.exit(int(missed))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--where", nargs="+", default=["emulated", "disk"])
    parser.add_argument("--samples", type=int, default=512, help="of 196,608 bytes")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument(
        "--streaming-python", default=sys.executable, help="has `streaming` and this package"
    )
    parser.add_argument("--scratch", type=Path, help="folder on the disk to measure")
    return parser.parse_args()


# -- data -----------------------------------------------------------------------------------


def write(folder: Path, samples: int) -> None:
    """Samples of PtychoNN's shape with random content, contiguous."""
    folder.mkdir()
    names = ("diffraction", "amplitude", "phase")
    fields = tuple(Field(name, (128, 128), "<f4") for name in names)
    made = SampleSet(folder, "ptycho", samples, fields, "rows")
    random = np.random.default_rng(0)
    with h5py.File(made.path(0), "w") as file:
        for field in fields:
            file[field.name] = random.random((samples, *field.shape), np.float32)
    made.save()


def write_shards(source: Path, python: str) -> bool:
    """The same samples as MDS shards of 4 MiB; False where `streaming` is not installed.

    Raises:
        SystemExit: There is no such Python.
    """
    if shutil.which(python) is None:
        sys.exit(f"expected a Python in --streaming-python, found no program {python}")
    program = (
        "import sys, h5py\nfrom streaming import MDSWriter\n"
        "names = ('diffraction', 'amplitude', 'phase')\n"
        "file = h5py.File(sys.argv[1] + '/ptycho.h5')\n"
        "kinds = dict.fromkeys(names, 'ndarray:float32:128,128')\n"
        "with MDSWriter(out=sys.argv[1] + '/mds', columns=kinds, size_limit=1 << 22) as out:\n"
        "    for i in range(len(file['phase'])): out.write({n: file[n][i] for n in names})\n"
    )
    line = [python, "-W", "ignore", "-c", program, str(source)]
    return subprocess.run(line, capture_output=True, check=False).returncode == 0


@contextmanager
def stored(where: str, source: Path, scratch: Path) -> Iterator[tuple[Path, float]]:
    """The folder to read from, and its bandwidth: emulated by definition, of the disk measured."""
    if where == "disk":
        yield source, disk_bytes_per_s(source)
        return
    with EmulatedStorage(source, scratch / "mount", cost=COST) as storage:
        yield storage.target, COST.total_bytes_per_s


def disk_bytes_per_s(folder: Path) -> float:
    """Sequential, cold, in requests of 1 MiB."""
    path = open_samples(folder).path(0)
    evict(path)
    with path.open("rb", buffering=0) as file:
        begin = time.perf_counter()
        while file.read(1 << 20):
            pass
        return path.stat().st_size / (time.perf_counter() - begin)


# -- all rows -------------------------------------------------------------------------------


def measure(
    folder: Path, scratch: Path, options: argparse.Namespace, shards: bool
) -> dict[str, Result]:
    """Every row in turn, as often as asked for."""

    def once(name: str) -> Result:
        kind, own = ROWS[name]
        python = options.streaming_python if kind == "streaming" else sys.executable
        with tempfile.TemporaryDirectory(dir=scratch) as cache:
            result = result_of(run_ranks(python, [kind, own, str(folder), cache]))
        print(f"{name}: {', '.join(f'{s:.2f}' for s in result.seconds)} s", file=sys.stderr)
        return result

    names = [name for name in ROWS if options.only in name]
    runs = {n: partial(once, n) for n in names if ROWS[n][0] != "streaming" or shards}
    found = interleaved(runs, options.repeats)
    return {
        name: Result([s for each in results for s in each.seconds], results[-1].loads)
        for name, results in found.items()
    }


def result_of(ranks: list[dict[str, Any]]) -> Result:
    """Seconds of the slowest rank in each epoch after the first, and loads of one of these."""
    seconds = [max(each) for each in zip(*(r["seconds"] for r in ranks), strict=True)][1:]
    if ranks[0]["loads"][0] is None:
        return Result(seconds, None)
    total = [sum(each) for each in zip(*(r["loads"] for r in ranks), strict=True)]
    return Result(seconds, (total[-1] - total[0]) / (EPOCHS - 1))


def run_ranks(python: str, config: list[Any]) -> list[dict[str, Any]]:
    """Starts the ranks; what each printed."""
    return started("benchmarks.programs.scheduled_ranks", python, config)


def started(
    program: str, python: str, config: list[Any], limit_s: float | None = None
) -> list[dict[str, Any]]:
    """What each of the ranks that run a program printed, as JSON.

    Raises:
        SystemExit: One failed.
        TimeoutExpired: They took longer.
    """
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = str(probe.getsockname()[1])
    common = {
        "WORLD_SIZE": str(RANKS),
        "LOCAL_WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": port,
        "TORCHELASTIC_RUN_ID": "benchmark",
        "OMP_NUM_THREADS": "1",
    }
    line = [python, "-W", "ignore", "-m", program, json.dumps(config)]
    ranks = [
        subprocess.Popen(
            line,
            env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for rank in range(RANKS)
    ]
    try:
        said = [each.communicate(timeout=limit_s)[0] for each in ranks]
    finally:
        for each in ranks:
            with suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)  # with its workers
            each.wait()
    if any(each.returncode for each in ranks):
        raise SystemExit(f"a rank of {config[0]} failed")
    return [json.loads(text.splitlines()[-1]) for text in said]


def show(where: str, results: dict[str, Result], samples: int, bytes_per_s: float) -> bool:
    """Prints a table; True where a goal is missed."""
    sample_nbytes = 3 * 128 * 128 * 4
    latency_s = COST.latency_s if where == "emulated" else 0.0
    bound = latency_s + (samples - held(samples)) * sample_nbytes / bytes_per_s
    median = {name: statistics.median(result.seconds) for name, result in results.items()}
    best = min((s for name, s in median.items() if name.startswith("V0")), default=float("nan"))
    print(
        f"\n{where}: {samples} samples of {sample_nbytes:,} bytes, C/N {FRACTION}, {RANKS} ranks, "
        f"{bytes_per_s / 1e6:,.0f} MB/s, bound {bound:.3f} s an epoch"
    )
    print(f"{'':<28}{'s/epoch':>9}{'loads':>8}{'x best V0':>11}{'bound/time':>12}")
    for name in ROWS:
        if name not in results:
            print(f"{name:<28}{'not measured':>20}")
            continue
        loads = results[name].loads
        print(
            f"{name:<28}{median[name]:9.3f}{'-' if loads is None else f'{loads:.0f}':>8}"
            f"{best / median[name]:11.2f}{bound / median[name]:12.2f}"
        )
    last = next((median[n] for n in median if n.startswith("V3")), None)
    if where != "emulated" or last is None or best != best:
        return False
    kept = best / last >= FASTER and last <= bound * (1 + NEAR)
    print(
        f"V3: {best / last:.2f} times V0 (goal {FASTER}), {last / bound - 1:+.0%} over the bound "
        f"(goal +{NEAR:.0%}): {'kept' if kept else 'MISSED'}"
    )
    return not kept


def counted(samples: int) -> None:
    """Loads of an epoch under every policy, and what the order of epochs is worth."""
    from benchmarks.loaders.policies import POLICIES
    from vanidl_loaders.scheduled import PlanSettings, make_plan
    from vanidl_loaders.scheduled.plan import ORDERS, measure_costs

    def settings(order: str = "shuffle") -> PlanSettings:
        return PlanSettings(
            samples, RANKS, BATCH, 5, held(samples), epoch_order=order, balance="load"
        )

    print("\nloads of an epoch after the first, counted over 5 epochs (bound: N - C)")
    for name, policy in POLICIES.items():
        print(f"  {name:<16}{float(np.mean(policy(settings())[1:])):9.1f}")
    for order in ORDERS:
        plan = measure_costs(make_plan(settings(order)))
        print(f"  planned, epochs in order {order:<8}{plan.loads_per_epoch:9.1f}")


if __name__ == "__main__":
    main()
