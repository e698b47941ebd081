"""Whether predicted step times are those that are then measured, on A/B pairs.

    python benchmarks/what_if.py [--tracer darshan] [--darshan-lib PATH] [--repeat 1]

Each pair is recorded on the emulated parallel file system (5 ms a request, 40 MB/s in all): the
baseline, and the baseline with workers or another loader in its place. From the first of each
pair alone the mean step time of the second is predicted. Limit: the predicted change is within
20 % of the measured one, as the median over repeats. The model's part of a step is waited for, not
computed, so that readers and model do not compete for this machine's cores.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from loaders.decoders.folders import ENCODED, encode_folder  # noqa: E402
from loaders.storage.model import Cost  # noqa: E402
from loaders.storage.mount import EmulatedStorage  # noqa: E402
from loaders.workloads.making import make  # noqa: E402
from vanidl import Run, open_run  # noqa: E402
from vanidl.record import record  # noqa: E402
from vanidl.whatif import Change  # noqa: E402

COST = Cost(latency_s=0.005, total_bytes_per_s=40e6)
WITHIN = 0.2
JOB = Path(__file__).parent / "paced_training.py"
PACE = {
    "one epoch": ("0.1", "batch=8", "epochs=1"),
    "three epochs": ("0.1", "batch=8", "epochs=3"),
    "cosmoflow": ("0.05", "batch=4", "epochs=3"),
}
"""Set of samples -> seconds of a step on the device, and the loader's settings."""


def main() -> int:
    """Prints one line a pair; 1 where a median is beyond its limit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tracer", default="darshan")
    parser.add_argument("--darshan-lib")
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    ratios: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make("ptycho", folder / "one epoch", samples=384)
        make("ptycho", folder / "three epochs", samples=128)
        make("cosmoflow", folder / "cosmoflow", samples=32, size=32)
        encode_folder(folder / "cosmoflow", folder / "cosmoflow" / ENCODED)
        for i in range(options.repeat):
            for pair, ratio in measured(folder, options, i):
                ratios.setdefault(pair, []).append(ratio)
    return report(ratios)


def measured(folder: Path, options: argparse.Namespace, repeat: int) -> list[tuple[str, float]]:
    """(pair, predicted change / measured change) of one round."""
    found = []
    for workload in PACE:
        runs = folder / f"runs{repeat}-{workload}"
        with EmulatedStorage(folder / workload, runs / "pfs", cost=COST) as storage:
            job = [str(storage.target), workload]
            before = recorded(*job, runs, options, ("baseline", "workers=0"))
            for pair, change, loader in pairs(workload, folder, before):
                after = recorded(*job, runs, options, loader)
                found.append((pair, ratio_of_changes(pair, before, after, change)))
    return found


def recorded(
    data: str, workload: str, runs: Path, options: argparse.Namespace, loader: tuple[str, ...]
) -> Run:
    """The run of one loader, recorded."""
    compute_s, *pace = PACE[workload]
    line = [sys.executable, "-W", "ignore", str(JOB), data, loader[0], compute_s]
    place = runs / "-".join(loader)
    record([*line, *pace, *loader[1:]], place, tracer=options.tracer,
           darshan_lib=options.darshan_lib)  # fmt: skip
    return open_run(place)


def pairs(workload: str, folder: Path, before: Run) -> list[tuple[str, Change, tuple[str, ...]]]:
    """(name, the change as the model knows it, loader and options) for each pair."""
    if workload == "cosmoflow":
        return [("decoded", encoded(folder / workload, before), ("decoded", "workers=0"))]
    if workload == "one epoch":
        return [(f"{n} workers", Change(workers=n), ("baseline", f"workers={n}")) for n in (2, 4)]
    return [
        (
            f"scheduled, {kept:.0%} kept", Change(workers=1, ahead=8, kept=kept),
            ("scheduled", f"buffer_fraction={kept}", "read_threads=1"),
        )
        for kept in (0.5, 0.85)
    ]  # fmt: skip


def encoded(folder: Path, before: Run) -> Change:
    """A container a sample, read in one piece and a read that finds its end."""
    originals, containers = nbytes(folder) - nbytes(folder / ENCODED), nbytes(folder / ENCODED)
    data = before.dataset
    if data is None:
        raise SystemExit("a run was recorded without reads of its dataset")
    reads = sum(f.reads for f in data.files)
    samples = data.bytes_read / originals * len(list((folder / ENCODED).rglob("*.vdl")))
    return Change(bandwidth=originals / containers, latency=2 * samples / reads)


def ratio_of_changes(pair: str, before: Run, after: Run, change: Change) -> float:
    """Predicted change of the mean step / the measured one, and a line about it."""
    if before.steps is None or after.steps is None:
        raise SystemExit("a run was recorded without steps")
    now, then = before.steps.mean_s, after.steps.mean_s
    predicted = before.predict(change).step_s
    ratio = (now - predicted) / (now - then)
    print(
        f"{pair}: {now * 1e3:.0f} ms a step, {then * 1e3:.0f} ms then, "
        f"{predicted * 1e3:.0f} ms predicted; change {ratio:.2f} of the measured one",
        flush=True,
    )
    return ratio


def nbytes(folder: Path) -> int:
    """Bytes of all files in a folder and below."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def report(ratios: dict[str, list[float]]) -> int:
    """One line a pair: the median, and whether it is within the limit."""
    broken = 0
    for pair, values in ratios.items():
        median = statistics.median(values)
        holds = abs(median - 1) <= WITHIN
        broken += not holds
        print(f"{pair:24} x{median:.2f} of the measured change, limit 1 +- {WITHIN}: "
              f"{'holds' if holds else 'broken'}")  # fmt: skip
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
