"""Reads by io_uring beside `pread`: what a ring would gain over the loaders' threads.

    pip install liburing==2024.5.3    # the binding of 2024; that of 2026 has other names
    python -m benchmarks.loaders.ring_reads [--folder DIR] [--samples 512] [--repeat 7]

Samples of 196,608 bytes of one file in a random order, with the file in the page cache and given
up before; medians of interleaved repeats, microseconds a sample:
  pread    one after the other by this project's own call
  threads  the same from 8 threads
  ring     16 reads under way at once in one ring, one system call per 16
A tracer that wraps the C library's calls (Darshan, DFTracer) sees nothing of the last row.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import liburing
import numpy as np

from benchmarks.measure import evict, interleaved, medians
from vanidl_loaders.data.pread import read_into

NBYTES, AT_ONCE, THREADS = 196_608, 16, 8


def main() -> None:
    """Print a line per way and state of the page cache."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--folder", type=Path, help="on the storage to measure")
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "samples"
        path.write_bytes(os.urandom(options.samples * NBYTES))
        order = np.random.default_rng(0).permutation(options.samples).tolist()
        with path.open("rb") as file, ThreadPoolExecutor(THREADS) as pool:
            ways = Ways(file.fileno(), order, pool)
            for state, before in (("cached", lambda: None), ("evicted", partial(evict, path))):
                show(state, ways, before, options.repeat)


class Ways:
    """Reads all samples once by each way."""

    def __init__(self, file: int, order: list[int], pool: ThreadPoolExecutor) -> None:
        self._file, self._pool = file, pool
        self.order = order
        self._rows = [bytearray(NBYTES) for _ in range(AT_ONCE)]
        self._ring, self._done = liburing.io_uring(), liburing.io_uring_cqe()
        liburing.io_uring_queue_init(AT_ONCE, self._ring, 0)

    def pread(self) -> None:
        """One after the other."""
        for at, sample in enumerate(self.order):
            self._read(at, sample)

    def threads(self) -> None:
        """From a pool."""
        list(self._pool.map(self._read, range(len(self.order)), self.order))

    def ring(self) -> None:
        """Sixteen under way at once."""
        for first in range(0, len(self.order), AT_ONCE):
            part = self.order[first : first + AT_ONCE]
            for row, sample in zip(self._rows, part, strict=False):
                entry = liburing.io_uring_get_sqe(self._ring)
                liburing.io_uring_prep_read(entry, self._file, row, NBYTES, sample * NBYTES)
            liburing.io_uring_submit_and_wait(self._ring, len(part))
            for _ in part:
                liburing.io_uring_wait_cqe(self._ring, self._done)
                assert self._done.res == NBYTES
                liburing.io_uring_cqe_seen(self._ring, self._done)

    def _read(self, at: int, sample: int) -> None:
        read_into(self._file, memoryview(self._rows[at % AT_ONCE]), sample * NBYTES)


def show(state: str, ways: Ways, before: Callable[[], object], repeats: int) -> None:
    """Measures and prints the rows of one state of the page cache."""
    runs = {
        f"{name}, {clock.__name__}": partial(_timed, getattr(ways, name), before, clock)
        for name in ("pread", "threads", "ring")
        for clock in (time.perf_counter, time.process_time)
    }
    for name, seconds in medians(interleaved(runs, repeats)).items():
        print(f"{state:<8} {name:<24} {seconds / len(ways.order) * 1e6:7.1f} us a sample")


def _timed(
    run: Callable[[], None], before: Callable[[], object], clock: Callable[[], float]
) -> float:
    before()
    start = clock()
    run()
    return clock() - start


if __name__ == "__main__":
    main()
