"""Whether predicted step times are those that are then measured, on A/B pairs.

    python -m benchmarks.vanidl.what_if [--tracer darshan] [--darshan-lib PATH] [--repeat 1]
                                       [--only WORD] [--kinds]

Each pair is recorded on the emulated parallel file system (5 ms a request, 40 MB/s in all; blocks:
5 MB/s a rank, 10 MB/s in all): the baseline, and the baseline with workers or another loader in
its place. From the first of each pair alone, and for several ranks what the storage gives to all,
the mean step time of the second is predicted. Limit: the predicted change is within 20 % of the
measured one, as the median over repeats; where the measured one is less than a tenth of the step,
the predicted step is within 20 % of the measured step. The model's part of a step is waited for,
not computed, so that readers and model do not compete for this machine's cores. Several ranks are
torchrun's.

Loaders that read ahead in threads (a prefetch thread, grain, tf.data) say nothing about how far, so
for them the limit is that no prediction is made (1 where it is refused, else 0). A kind whose
package is missing is skipped. `--kinds` runs one pair or more of each kind of loader: DataLoader
without workers and with, WebDataset, a prefetch thread, grain, tf.data; in about four minutes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from benchmarks.programs.loaders_of_threads import PACKAGES, is_installed
from vanidl import Run, open_run
from vanidl.advice.changes import Change
from vanidl.record import record
from vanidl_loaders.data.samples import SampleSet, open_samples
from vanidl_loaders.decoders.folders import ENCODED, encode_folder
from vanidl_loaders.emulated_fs.model import Cost
from vanidl_loaders.emulated_fs.mount import EmulatedStorage
from vanidl_loaders.peers import shards
from vanidl_loaders.workloads.making import make

TOTAL = 40e6
COST = Cost(latency_s=0.005, total_bytes_per_s=TOTAL)
BLOCKS_TOTAL = 10e6
COSTS = {"blocks": Cost(0.005, client_bytes_per_s=5e6, total_bytes_per_s=BLOCKS_TOTAL)}
RANKS = {"shuffled": 2, "blocks": 3}
WITHIN = 0.2
LEAST_CHANGE = 0.1  # of the step
PROGRAMS = Path(__file__).parents[1] / "programs"
JOB = PROGRAMS / "paced_training.py"
PACE = {
    "one epoch": ("0.1", "batch=8", "epochs=1"),
    "three epochs": ("0.1", "batch=8", "epochs=3"),
    "cosmoflow": ("0.05", "batch=4", "epochs=3"),
    "shuffled": ("0.1", "batch=8", "epochs=4", "first=1"),
    "blocks": ("0.1", "batch=1", "epochs=2", "first=1"),
    "threads": ("0.1", "batch=8", "epochs=1"),
    "tar": ("0.1", "batch=8", "epochs=1"),
}
"""Set of samples -> seconds of a step on the device, and the loader's settings."""

KINDS = ("one epoch", "tar", "threads")
"""Sets with each kind of loader."""
SHARD_BYTES = 4 << 20
"""So small that each of several workers has shards of its own."""

Loader = tuple[str, ...]
"""Name and options."""
Pair = tuple[str, Change | None, Loader]
"""Name, the change as the model knows it, what is recorded."""


def main() -> int:
    """Prints one line a pair; 1 where a median is beyond its limit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tracer", default="darshan")
    parser.add_argument("--darshan-lib")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--only", default="", metavar="WORD", help="pairs of sets with that name")
    parser.add_argument("--kinds", action="store_true", help="each kind of loader, small")
    options = parser.parse_args()
    ratios: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made(folder, options)
        for i in range(options.repeat):
            for pair, ratio in measured(folder, options, i):
                ratios.setdefault(pair, []).append(ratio)
    return report(ratios)


def sets(options: argparse.Namespace) -> list[str]:
    """The sets that are asked for; those whose package is missing are named and left out."""
    chosen = [name for name in PACE if not options.kinds or name in KINDS]
    if "tar" in chosen and find_spec("webdataset") is None:
        print("webdataset: skipped, it is not installed", flush=True)
        chosen.remove("tar")
    return [name for name in chosen if options.only in name]


def made(folder: Path, options: argparse.Namespace) -> None:
    """The samples of every set."""
    few = options.kinds
    make("ptycho", folder / "one epoch", samples=120 if few else 384)
    make("ptycho", folder / "threads", samples=96 if few else 256)
    if "tar" in sets(options):
        shards.SHARD_BYTES = SHARD_BYTES
        shards.convert(make_set(folder / "tar"), "tar")
    if few:
        return
    make("ptycho", folder / "three epochs", samples=128)
    make("ptycho", folder / "shuffled", samples=128)
    make("cosmoflow", folder / "blocks", samples=8, size=60)
    make("cosmoflow", folder / "cosmoflow", samples=32, size=32)
    encode_folder(folder / "cosmoflow", folder / "cosmoflow" / ENCODED)


def make_set(folder: Path) -> SampleSet:
    """Samples that lie in a folder, to be converted."""
    make("ptycho", folder, samples=64)
    return open_samples(folder)


def measured(folder: Path, options: argparse.Namespace, repeat: int) -> list[tuple[str, float]]:
    """(pair, predicted change / measured change) of one round."""
    found = []
    for workload in sets(options):
        runs = folder / f"runs{repeat}-{workload}"
        cost = COSTS.get(workload, COST)
        with EmulatedStorage(
            folder / workload, runs / "pfs", cost=cost, client_env="RANK"
        ) as storage:
            job = [str(storage.target), workload]
            for first, others in pairs(workload).items():
                place = runs / "-".join(first)
                before = recorded(*job, place / "before", options, first)
                if first[0] in PACKAGES:
                    found.append((f"{first[0]}, no prediction", refusal(first[0], before)))
                for pair, change, loader in others:
                    after = recorded(*job, place / pair, options, loader)
                    change = change or encoded(folder / workload, before)
                    found.append((pair, ratio_of_changes(pair, before, after, change)))
    return found


def recorded(
    data: str, workload: str, place: Path, options: argparse.Namespace, loader: Loader
) -> Run:
    """The run of one loader, recorded."""
    compute_s, *pace = PACE[workload]
    line = [sys.executable, "-W", "ignore"]
    if workload in RANKS:
        line += ["-m", "torch.distributed.run", "--nproc-per-node", str(RANKS[workload])]
    record([*line, str(JOB), data, loader[0], compute_s, *pace, *loader[1:]], place,
           tracer=options.tracer, darshan_lib=options.darshan_lib)  # fmt: skip
    return open_run(place)


def pairs(workload: str) -> dict[Loader, list[Pair]]:
    """Loader and options of a baseline -> what it is compared with.

    Without a change: `encoded` says which, once the baseline was recorded.
    """
    if workload == "blocks":
        return blocks()
    if workload == "threads":
        return threads()
    if workload == "tar":
        return tar()
    read_alone = ("baseline", "workers=0")
    if workload == "cosmoflow":
        return {read_alone: [("decoded", None, ("decoded", "workers=0"))]}
    if workload == "one epoch":
        changes = [
            (f"{n} workers", Change(workers=n), ("baseline", f"workers={n}")) for n in (2, 4)
        ]
        more = ("4 workers, from 2", Change(workers=4), ("baseline", "workers=4"))
        return {read_alone: changes, ("baseline", "workers=2"): [more]}
    if workload == "shuffled":
        return shuffled()
    return {read_alone: [
        (
            f"scheduled, {kept:.0%} kept", Change(workers=1, ahead=8, kept=kept),
            ("scheduled", f"buffer_fraction={kept}", "read_threads=1"),
        )
        for kept in (0.5, 0.85)
    ]}  # fmt: skip


def threads() -> dict[Loader, list[Pair]]:
    """The loaders that read in threads, as far as they are installed."""
    for name in PACKAGES:
        if not is_installed(name):
            print(f"{name}: skipped, {PACKAGES[name]} is not installed", flush=True)
    return {(name,): [] for name in PACKAGES if is_installed(name)}


def tar() -> dict[Loader, list[Pair]]:
    """Tar shards that are read one after another, through WebDataset."""
    name, buffer = "webdataset", "webdataset_buffer=8"
    then = (name, buffer, "workers=2")
    return {(name, buffer, "workers=0"): [("webdataset, 2 workers", Change(workers=2), then)]}


def refusal(name: str, run: Run) -> float:
    """1 where the run is not predicted and says why, else 0."""
    found = run.what_if
    reason = found.refused if found is not None else "no steps, waits or reads were recorded"
    print(f"{name}: {reason or 'predicted, though a thread reads ahead'}", flush=True)
    return float(found is not None and bool(reason))


def shuffled() -> dict[Loader, list[Pair]]:
    """Two ranks that shuffle globally, against partial local shuffling."""
    q = {
        q: (Change(exchanged=q, total_bytes_per_s=TOTAL), ("pls", f"exchange_fraction={q}"))
        for q in (0.1, 0.3)
    }
    return {
        ("baseline", "workers=0"): [(f"pls, Q {fraction}", *pair) for fraction, pair in q.items()],
        ("baseline", "workers=2"): [("pls, Q 0.3, from 2 workers", *q[0.3])],
    }


def blocks() -> dict[Loader, list[Pair]]:
    """Three ranks that read all and crop, or one that reads all and scatters, against blocks."""
    change = Change(divided=RANKS["blocks"], total_bytes_per_s=BLOCKS_TOTAL)
    ahead = Change(divided=RANKS["blocks"], total_bytes_per_s=BLOCKS_TOTAL, workers=1, ahead=1)
    own = ("spatial", "io='posix'", "slabs_ahead=0")
    return {
        ("spatial", "io='crop'", "slabs_ahead=0"): [
            ("spatial, from all read", change, own),
            ("spatial, read ahead, from all read", ahead, (*own[:2], "slabs_ahead=1")),
        ],
        ("spatial", "io='scatter'", "slabs_ahead=0"): [("spatial, from scattered", change, own)],
    }


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
    """Predicted change of the mean step / the measured one, and a line about it.

    Where nothing was to gain, predicted step / measured step: the ratio of two changes that are
    hardly any says nothing.
    """
    if before.steps is None or after.steps is None:
        raise SystemExit("a run was recorded without steps")
    now, then = before.steps.mean_s, after.steps.mean_s
    predicted = before.predict(change).step_s
    changed = abs(now - then) >= LEAST_CHANGE * now
    ratio = (now - predicted) / (now - then) if changed else predicted / then
    print(
        f"{pair}: {now * 1e3:.0f} ms a step, {then * 1e3:.0f} ms then, "
        f"{predicted * 1e3:.0f} ms predicted; {'change' if changed else 'step'} {ratio:.2f} "
        "of the measured one",
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
        print(f"{pair:24} x{median:.2f} of what it is measured by, limit 1 +- {WITHIN}: "
              f"{'holds' if holds else 'broken'}")  # fmt: skip
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
