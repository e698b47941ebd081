"""Processor time per sample of the loader `scheduled` where storage is no bottleneck.

    python -m benchmarks.loaders.hit_path [--samples 512] [--repeat 9] [--threads 1 2 4]

Synthetic ptychography samples of 196,608 bytes in the page cache, one rank, batches of 16; user
and system time of all threads over an epoch behind the first, medians of interleaved repeats:
  memcpy       a copy of every sample, in a random order, from memory of N samples (in no cache of
               the processor where N is at its default) into batches that were written before: as
               many in turn as a loader has in the making, waiting and in use
  gather       the same bytes as a loader has to lay them: one `numpy.take` per batch and field,
               each of whose arrays lies in memory of its own
  pread        as memcpy, from the page cache: what a sample costs that has to be read
  C = N        all samples buffered
  C = 0.85 N   the rest is read, by so many threads
  SPDL, nodes  every sample read by so many threads, where those packages are installed: run this
               by a Python that has spdl and torchdata
Batches are dropped at once, as a training loop drops them that copies them to a device. `x` is a
row's time / that of memcpy, `faults` the pages that the system had to map per sample (192 KiB are
48 pages of 4 KiB: 0 where batches use their memory again).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import interleaved
from benchmarks.programs.peer_ranks import BATCH, KINDS, Job
from vanidl_loaders.data.samples import SampleSet
from vanidl_loaders.loader.loader import Loader, Settings
from vanidl_loaders.loader.registry import open_loader
from vanidl_loaders.ranks.world import World
from vanidl_loaders.workloads.making import make

EPOCHS, IN_TURN = 200, 8
PEERS = {"SPDL": ("spdl", "spdl"), "nodes": ("nodes", "torchdata")}
"""Row -> (kind of benchmarks/programs/peer_ranks.py, package)."""


def main() -> None:
    """Print a line per way."""
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        samples = make("ptycho", Path(folder), samples=options.samples, seed=0, size=128)
        loaders = {"C = N": opened(samples, 1.0, 8)}
        for threads in options.threads:
            loaders[f"C = 0.85 N, {_threads(threads)}"] = opened(samples, 0.85, threads)
        runs: dict[str, Callable[[], float]] = {
            "memcpy": Copies(samples), "gather": Gathers(samples), "pread": Reads(samples)
        }  # fmt: skip
        runs |= {name: Epochs(loader) for name, loader in loaders.items()}
        runs |= peers(samples, options.threads)
        counted = {name: partial(_counted, run) for name, run in runs.items()}
        interleaved(runs, 1)  # the first epoch fills the buffers
        found = interleaved(counted, options.repeat)
        _print({name: np.median(each, 0) / len(samples) for name, each in found.items()})
        for loader in loaders.values():
            loader.close()


def _counted(run: Callable[[], float]) -> tuple[float, int]:
    """Processor seconds, and pages that the system had to map meanwhile."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    return run(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def _print(found: Mapping[str, NDArray[np.float64]]) -> None:
    for name, (seconds, faults) in found.items():
        ratio = seconds / found["memcpy"][0]
        print(f"{name:<22}{seconds * 1e6:7.1f} us {ratio:7.2f} x {faults:7.2f} faults")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4])
    return parser.parse_args()


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count > 1)}"


def opened(samples: SampleSet, share: float, threads: int) -> Loader:
    """A loader whose buffer holds a share of the samples."""
    settings = Settings(batch=BATCH, epochs=EPOCHS)
    chosen = {"buffer_fraction": share, "read_threads": threads}
    return open_loader("scheduled", samples, settings, chosen)


def peers(samples: SampleSet, threads: list[int]) -> dict[str, Callable[[], float]]:
    """Rows of the peers that are installed."""
    found: dict[str, Callable[[], float]] = {}
    for name, (kind, package) in PEERS.items():
        if importlib.util.find_spec(package) is None:
            print(f"{name:<22} {package} is not installed")
            continue
        for count in threads:
            job = Job(samples, World(), samples.folder, {"threads": count})
            found[f"{name}, {_threads(count)}"] = partial(_epoch_s, KINDS[kind](job).epoch, 0)
    return found


class Epochs:
    """Goes through one epoch more each time."""

    def __init__(self, loader: Loader) -> None:
        self._loader, self._epoch = loader, 0

    def __call__(self) -> float:
        """Processor seconds of an epoch."""
        self._loader.set_epoch(self._epoch)
        self._epoch += 1
        return _epoch_s(lambda _: self._loader, 0)


def _epoch_s(epoch: Callable[[int], Iterable[object]], number: int) -> float:
    before = time.process_time()
    for _ in epoch(number):
        pass
    return time.process_time() - before


class Copies:
    """Copies all samples once, each time, in an order of its own."""

    def __init__(self, samples: SampleSet) -> None:
        self._count, self._nbytes = len(samples), samples.sample_nbytes
        self._rows = np.ones((self._count, self._nbytes), np.uint8)
        self._batches = np.ones((IN_TURN, BATCH, self._nbytes), np.uint8)
        self._random = np.random.default_rng(0)

    def __call__(self) -> float:
        """Processor seconds."""
        order = self._random.permutation(self._count).tolist()
        before = time.process_time()
        for at, sample in enumerate(order):
            self._take(sample, self._batches[at // BATCH % IN_TURN, at % BATCH])
        return time.process_time() - before

    def _take(self, sample: int, out: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> None:
        out[:] = self._rows[sample]


class Gathers:
    """Copies all samples once, each time, field by field."""

    def __init__(self, samples: SampleSet) -> None:
        self._count, fields = len(samples), samples.fields
        self._rows = [np.ones((self._count, *f.shape), f.dtype) for f in fields]
        self._batches = [np.ones((IN_TURN, BATCH, *f.shape), f.dtype) for f in fields]
        self._random = np.random.default_rng(0)

    def __call__(self) -> float:
        """Processor seconds."""
        order = self._random.permutation(self._count)
        before = time.process_time()
        for number, at in enumerate(range(0, self._count, BATCH)):
            ids = order[at : at + BATCH]
            for rows, batches in zip(self._rows, self._batches, strict=True):
                rows.take(ids, 0, batches[number % IN_TURN, : len(ids)], "clip")
        return time.process_time() - before


class Reads(Copies):
    """Reads all samples once, each in one piece."""

    def __init__(self, samples: SampleSet) -> None:
        super().__init__(samples)
        self._file = os.open(samples.path(0), os.O_RDONLY | os.O_CLOEXEC)

    def _take(self, sample: int, out: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> None:
        os.preadv(self._file, [out], sample * self._nbytes)


if __name__ == "__main__":
    main()
