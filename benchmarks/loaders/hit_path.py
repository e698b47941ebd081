"""Processor time per sample of the loader `scheduled` where storage is no bottleneck.

    python -m benchmarks.loaders.hit_path [--samples 512] [--repeat 5]

Synthetic ptychography samples of 196,608 bytes in the page cache, one rank, batches of 16; user
and system time of all threads over an epoch behind the first, medians of interleaved repeats:
  memcpy   one copy of every sample into a batch that is used again: the floor
  C = N    all samples buffered
  C = 0.85 N, the rest is read
Batches are dropped at once, as a training loop drops them that copies them to a device.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.measure import interleaved, medians
from vanidl_loaders.data.samples import SampleSet
from vanidl_loaders.loader.loader import Loader, Settings, open_loader
from vanidl_loaders.workloads.making import make

BATCH, EPOCHS = 16, 200


def main() -> None:
    """Print a line per way."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        samples = make("ptycho", Path(folder), samples=options.samples, seed=0, size=128)
        loaders = {f"C = {share:g} N": opened(samples, share) for share in (1.0, 0.85)}
        runs: dict[str, Callable[[], float]] = {"memcpy": partial(copied_s, samples)}
        runs |= {name: Epochs(loader) for name, loader in loaders.items()}
        interleaved(runs, 1)  # the first epoch fills the buffers
        for name, seconds in medians(interleaved(runs, options.repeat)).items():
            print(f"{name:<12} {seconds / len(samples) * 1e6:7.1f} us per sample")
        for loader in loaders.values():
            loader.close()


def opened(samples: SampleSet, share: float) -> Loader:
    """A loader whose buffer holds a share of the samples."""
    settings = Settings(batch=BATCH, epochs=EPOCHS)
    return open_loader("scheduled", samples, settings, {"buffer_fraction": share})


class Epochs:
    """Goes through one epoch more each time."""

    def __init__(self, loader: Loader) -> None:
        self._loader, self._epoch = loader, 0

    def __call__(self) -> float:
        """Processor seconds of an epoch."""
        self._loader.set_epoch(self._epoch)
        self._epoch += 1
        before = time.process_time()
        for _ in self._loader:
            pass
        return time.process_time() - before


def copied_s(samples: SampleSet) -> float:
    """Processor seconds of copying as many bytes, sample by sample."""
    rows = np.ones((len(samples), samples.sample_nbytes), np.uint8)
    batch = np.empty((BATCH, samples.sample_nbytes), np.uint8)
    order = np.random.default_rng(0).permutation(len(samples))
    before = time.process_time()
    for at, row in enumerate(order.tolist()):
        batch[at % BATCH] = rows[row]
    return time.process_time() - before


if __name__ == "__main__":
    main()
