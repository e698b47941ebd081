"""Training on decoded samples against the baseline: loss curves over seeds, and throughput.

    python -m benchmarks.loaders.decode_training [--workload cosmoflow] [--size 64] [--samples 32]

Trains the workload's model from the same seeds with the loaders `baseline` (raw samples in HDF5)
and `decoded` (containers), one epoch's mean loss a point. Required: at every epoch the means
over seeds differ by at most two standard errors of the difference between seeds of the baseline,
sqrt(2 / seeds) x standard deviation. The synthetic samples are made in a temporary folder; runs
of both loaders alternate.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import torch

from benchmarks.measure import interleaved
from vanidl_loaders.data.samples import SampleSet
from vanidl_loaders.decoders.folders import ENCODED, encode_folder
from vanidl_loaders.loader.loader import Settings
from vanidl_loaders.loader.registry import open_loader
from vanidl_loaders.training import Outcome, Plan, train
from vanidl_loaders.workloads.making import make

LOADERS = ("baseline", "decoded")


def main() -> int:
    """Exit status 0 where the curves agree."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("--workload", default="cosmoflow", choices=("cosmoflow", "deepcam"))
    add("--size", type=int, default=64)
    add("--samples", type=int, default=32)
    add("--seeds", type=int, default=5)
    add("--epochs", type=int, default=4)
    add("--workers", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        samples = make(options.workload, folder, samples=options.samples, size=options.size, seed=1)
        done = encode_folder(folder, Path(folder) / ENCODED)
        print(
            f"{options.workload} of size {options.size}, {options.samples} synthetic samples, "
            f"{done.nbytes / done.encoded_nbytes:.2f} times smaller encoded; {options.seeds} "
            f"seeds, {options.epochs} epochs, {options.workers} workers, on "
            f"{'a GPU' if torch.cuda.is_available() else 'the CPU'}"
        )
        outcomes = alternate(samples, options)
    return report(outcomes, options.epochs)


def alternate(samples: SampleSet, options: argparse.Namespace) -> dict[str, list[Outcome]]:
    """The outcomes of each loader, a seed at a time, both in turn."""

    def trained(name: str, seeds: Iterator[int]) -> Outcome:
        settings = Settings(
            batch=4, epochs=options.epochs, seed=next(seeds), workers=options.workers
        )
        with closing(open_loader(name, samples, settings)) as loader:
            return train(samples, loader, settings, Plan())

    runs = {name: partial(trained, name, count()) for name in LOADERS}
    return interleaved(runs, options.seeds)


def report(outcomes: dict[str, list[Outcome]], epochs: int) -> int:
    """Prints curves and throughput; 0 where the curves agree within the noise of seeds."""
    curves = {
        name: np.array([np.mean(np.split(np.array(o.losses), epochs), 1) for o in each])
        for name, each in outcomes.items()
    }
    base, ours = (curves[name] for name in LOADERS)
    noise = base.std(0, ddof=1) * np.sqrt(2 / len(base))
    off = np.abs(ours.mean(0) - base.mean(0))
    print("epoch   baseline    decoded   difference   2 standard errors")
    for epoch in range(epochs):
        print(
            f"{epoch:>5}   {base.mean(0)[epoch]:.6f}   {ours.mean(0)[epoch]:.6f}   "
            f"{off[epoch]:.2e}     {2 * noise[epoch]:.2e}"
        )
    speeds = {
        name: statistics.median(o.samples / o.seconds for o in each)
        for name, each in outcomes.items()
    }
    waits = {
        name: statistics.median(sum(o.stats.exposed_wait_s) / o.seconds for o in each)
        for name, each in outcomes.items()
    }
    for name in LOADERS:
        print(f"{name}: {speeds[name]:.1f} samples/s, {waits[name]:.1%} of the time in waits")
    print(f"decoded / baseline: {speeds['decoded'] / speeds['baseline']:.2f} x samples/s")
    agree = bool((off <= 2 * noise).all())
    print(f"loss curves within the noise of seeds: {'yes' if agree else 'NO'}")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
