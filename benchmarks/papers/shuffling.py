"""Figures of the slides on partial local shuffling: accuracy, storage, and what exchange costs.

Accuracy: `benchmarks.loaders.pls_accuracy`, synthetic classes, simulated workers; over Q, workers
and epochs, with partitions that are sorted by class (where local shuffling fails) and shuffled
(where it suffices).

Storage (backup slide): two epochs of global shuffling, recorded by vanidl, from the emulated
parallel file system (2 ms a request, 40 MB/s) and from the local disk; then partial local
shuffling from the former.

Exchange: two ranks train on samples of 2 MB; Q from 0 to 1. What is sent is counted from the plan
of 512 ranks, how long steps take is measured and not judged.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.loaders import pls_overlap
from benchmarks.loaders.pls_accuracy import accuracy
from benchmarks.papers.study import Part, Row, record_program
from vanidl_loaders.emulated_fs.model import Cost
from vanidl_loaders.emulated_fs.mount import EmulatedStorage
from vanidl_loaders.pls import Ownership, deal
from vanidl_loaders.pls.exchange_plan import NOBODY
from vanidl_loaders.workloads.making import make

COST = Cost(latency_s=0.002, total_bytes_per_s=40e6)
FRACTIONS = (0.0, 0.1, 0.3, 0.5, 0.7, 1.0)
CLOSE = 0.02
"""Accuracies that differ by less are called the same."""


def measure_accuracy(small: bool, _scratch: Path) -> Iterator[Row]:
    """Accuracy over Q, workers, epochs and partitions."""
    workers = (4, 16) if small else (4, 16, 64)
    seeds = 1 if small else 5
    epochs = 20

    def mean(fraction: float | None, count: int, partition: str, epochs: int = epochs) -> float:
        return statistics.mean(
            accuracy(fraction, count, epochs, seed, partition) for seed in range(seeds)
        )

    lost = {}
    for count in workers:
        whole = mean(None, count, "blocks")
        local, tenth, third = (mean(q, count, "blocks") for q in (0.0, 0.1, 0.3))
        lost[count], of = whole - local, f"{count} workers"
        yield Row(of, "accuracy, global", "the aim", whole, None, "{:.1%}")
        yield Row(of, "accuracy, local", "lower", local, local < whole - CLOSE, "{:.1%}")
        yield Row(of, "accuracy, partial 0.1", "a little higher than local", tenth, tenth > local,
                  "{:.1%}")  # fmt: skip
        yield Row(of, "accuracy, partial 0.3", "as global", third, third > whole - CLOSE, "{:.1%}")
    first, last = workers[0], workers[-1]
    of, best = f"{last} workers", 0.0
    for fraction in FRACTIONS:
        reached = mean(fraction, last, "blocks")
        yield Row(of, f"accuracy, Q {fraction:g}", "rises with Q, to that of global", reached,
                  reached > best - CLOSE, "{:.1%}")  # fmt: skip
        best = max(best, reached)
    yield Row(f"{last} workers", f"accuracy lost by local, more than of {first}", "grows",
              lost[last] - lost[first], lost[last] > lost[first], "{:.1%}")  # fmt: skip
    few = mean(None, first, "shuffled") - mean(0.0, first, "shuffled")
    yield Row(f"{first} workers", "accuracy lost by local, shuffled partitions", "none", few,
              few < CLOSE, "{:.1%}")  # fmt: skip
    for made in (5, 10, 20):
        gap = mean(None, last, "blocks", made) - mean(0.3, last, "blocks", made)
        yield Row(f"{last} workers", f"accuracy lost by partial 0.3 after {made} epochs",
                  "curves lie together", gap, None, "{:.1%}")  # fmt: skip


def count_exchange(ranks: int = 512, samples: int = 512 * 600) -> Iterator[Row]:
    """Samples that a rank sends in an epoch over Q, of those that it holds."""
    for fraction in FRACTIONS:
        targets = Ownership(deal(samples, ranks), fraction).exchange(0).targets
        sent = float(((targets != NOBODY) & (targets != np.arange(ranks))).sum()) / samples
        law = fraction * (1 - 1 / ranks)  # one in so many is sent to its own rank, by chance
        noise = (4 * (fraction * samples / ranks) ** 0.5 + ranks) / samples
        yield Row(f"{ranks} ranks, Q {fraction:g}", "samples sent in an epoch, of those held",
                  "grows with Q", sent, abs(sent - law) <= noise, "{:.1%}")  # fmt: skip


def measure_exchange(small: bool, scratch: Path) -> Iterator[Row]:
    """Step time of two ranks over Q, of that of Q = 0, in epochs after the first."""
    source = scratch / "universes"
    make("cosmoflow", source, samples=16 if small else 64, size=64)
    epochs, repeats = 3, 1 if small else 3
    seconds: dict[float, list[float]] = {fraction: [] for fraction in FRACTIONS}
    _train_ranks(source, 0.0, 1)  # the first of all finds nothing in the page cache
    for _ in range(repeats):
        for fraction, found in seconds.items():
            found.append(_train_ranks(source, fraction, epochs))
    local = statistics.median(seconds[0.0])
    for fraction, found in seconds.items():
        longer = statistics.median(found) / local - 1
        yield Row(f"2 ranks, Q {fraction:g}", "training, longer than local",
                  "visible with samples of 60 MB", longer)  # fmt: skip


def measure_cost(_small: bool, _scratch: Path) -> Iterator[Row]:
    """An epoch of two ranks with samples of 60 MB over Q, of that without an exchange.

    Steps of 200 ms in which the host waits, as for a GPU; who waits for a portion as soon as it is
    begun pays for all of it, which is judged; who lets it run beside compute pays for the rest.
    """
    paid = 0.0
    for fraction in FRACTIONS[1:]:
        options = argparse.Namespace(
            sample_mb=60.0, epochs=3, fraction=fraction, compute_ms=200.0, kinds=["device"]
        )
        found = pls_overlap.started("gloo", options)["device"]
        of = f"2 ranks, Q {fraction:g}, samples of 60 MB"
        local = found["local_epoch_s"]
        longer = found["blocking_epoch_s"] / local - 1
        yield Row(of, "epoch, longer than local, exchange waited for", "grows with Q", longer,
                  longer > paid, "{:.1%}")  # fmt: skip
        yield Row(of, "epoch, longer than local, exchange beside compute", "visible",
                  found["overlapped_epoch_s"] / local - 1, None, "{:.1%}")  # fmt: skip
        paid = longer


def _train_ranks(source: Path, fraction: float, epochs: int) -> float:
    """Seconds of the slower rank."""
    line = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    line += ["-m", "vanidl_loaders", "train", "--data", str(source), "--json", "--threads", "1"]
    line += ["--loader", "pls", "--exchange-fraction", str(fraction)]
    line += ["--batch", "2", "--epochs", str(epochs)]
    done = subprocess.run(
        line, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
        check=True, timeout=900,
    )  # fmt: skip
    ranks = [json.loads(each) for each in done.stdout.replace("}{", "}\n{").split("\n") if each]
    return max(float(each["seconds"]) for each in ranks)


def record_storage(small: bool, scratch: Path) -> Iterator[Row]:
    """Two epochs of global shuffling from both storages, and partial local shuffling."""
    source, target = scratch / "images", scratch / "pfs" / "images"
    samples = make("ptycho", source, samples=96 if small else 384)
    target.mkdir(parents=True, exist_ok=True)
    program = ["-m", "vanidl_loaders", "train", "--batch", "16", "--epochs", "2", "--threads", "1"]
    partial = ["--loader", "pls", "--exchange-fraction", "0.3"]
    with EmulatedStorage(source, target, cost=COST, client_env="RANK") as storage:
        shared = ["--data", str(storage.target)]
        slow = record_program([*program, *shared], scratch / "pls-global-pfs", ranks=2)
        kept = record_program([*program, *shared, *partial], scratch / "pls-partial", ranks=2)
    fast = record_program([*program, "--data", str(source)], scratch / "pls-global-ssd", ranks=2)
    nbytes = {name: answer["io"]["dataset"]["bytes_read"] for name, answer in
              {"pfs": slow, "ssd": fast, "partial": kept}.items()}  # fmt: skip
    epoch = len(samples) * samples.sample_nbytes
    same = nbytes["pfs"] / nbytes["ssd"]
    yield Row("global", "bytes, of those from local disks", "same reads", same,
              abs(same - 1) < 0.02, "{:.2f} times")  # fmt: skip
    slower = slow["io"]["time"]["per_rank_mean_s"] / fast["io"]["time"]["per_rank_mean_s"]
    yield Row("global", "I/O time, of that from local disks", "much longer", slower, slower > 3,
              "{:.0f} times")  # fmt: skip
    reduced = 1 - fast["steps"]["mean_s"] / slow["steps"]["mean_s"]
    yield Row("global", "step, shorter from local disks", "70 % of the runtime", reduced)
    read = nbytes["partial"] / epoch
    yield Row("partial 0.3", "read from shared storage in two epochs, of the data", "N / M once",
              read, abs(read - 1) < 0.05, "{:.2f} times")  # fmt: skip
    faster = slow["steps"]["mean_s"] / kept["steps"]["mean_s"]
    yield Row("partial 0.3", "steps, as fast as global from shared storage", "up to 5 times",
              faster, None, "{:.1f} times")  # fmt: skip


PARTS = {
    "counts": Part("partial local shuffling: samples sent, over Q, by the plan of 512 ranks",
                   lambda _small, _scratch: count_exchange()),
    "accuracy": Part("accuracy over Q, workers and epochs", measure_accuracy),
    "storage": Part("global shuffling from shared storage and local disks", record_storage),
    "exchange": Part("training time of two ranks over Q", measure_exchange, long=True),
    "cost": Part("cost of the exchange over Q with samples of 60 MB", measure_cost, long=True),
}  # fmt: skip
