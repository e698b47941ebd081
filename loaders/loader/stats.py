"""What a loader did, counted where it happened, in whichever process.

`Counts` is a small table in shared memory, one row a worker process, so that reads in DataLoader
workers are counted by those who read. `Stats` is what a loader shows of it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import get_worker_info

_LOADS, _HITS, _NBYTES, _REQUESTS = range(4)


@dataclass(frozen=True)
class Stats:
    """What one rank's loader did since it was made.

    Attributes:
        loads: Samples read from storage (read ahead included).
        hits: Samples served from a buffer without a read.
        nbytes: Bytes that the reads returned. HDF5's and images' own metadata are not in it.
        requests: Read calls, one per contiguous run. A file system may split them.
        exposed_wait_s: Seconds that the training process spent in `__next__`, one entry a step.
    """

    loads: int = 0
    hits: int = 0
    nbytes: int = 0
    requests: int = 0
    exposed_wait_s: tuple[float, ...] = ()

    @property
    def steps(self) -> int:
        """Batches handed out."""
        return len(self.exposed_wait_s)


class Counts:
    """Counters that worker processes share with the process that made them."""

    _row = memoryview(b"")

    def __init__(self, workers: int = 0) -> None:
        self._table = torch.zeros((workers + 1, 4), dtype=torch.int64).share_memory_()
        self._process = -1

    def add(self, *, loads: int = 0, hits: int = 0, nbytes: int = 0, requests: int = 0) -> None:
        """Adds to this process's own row: no lock is needed between processes."""
        row = self._row if self._process == os.getpid() else self._own_row()
        row[_LOADS] += loads
        row[_HITS] += hits
        row[_NBYTES] += nbytes
        row[_REQUESTS] += requests

    def stats(self, exposed_wait_s: list[float]) -> Stats:
        """The sums over all processes, with the waits of the training process."""
        loads, hits, nbytes, requests = self._table.sum(0).tolist()
        return Stats(loads, hits, nbytes, requests, tuple(exposed_wait_s))

    def _own_row(self) -> memoryview:
        worker = get_worker_info()
        self._row = self._table.numpy()[0 if worker is None else worker.id + 1].data
        self._process = os.getpid()
        return self._row

    def __getstate__(self) -> dict[str, Any]:
        return {"_table": self._table, "_process": -1}  # a view cannot be pickled
