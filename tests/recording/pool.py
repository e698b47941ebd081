"""Processes of multiprocessing that each read a file, without torch: for any Python version."""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path

RECORDS, NBYTES = 40, 16384


def read(path: str, low: int, high: int) -> int:
    """Bytes of records [low, high)."""
    descriptor = os.open(path, os.O_RDONLY)
    total = sum(len(os.pread(descriptor, NBYTES, NBYTES * i)) for i in range(low, high))
    os.close(descriptor)
    return total


def main(path: str, method: str) -> None:
    """Read half the file here, and half in each of two processes."""
    if not Path(path).exists():
        Path(path).write_bytes(bytes(RECORDS * NBYTES))
    context = multiprocessing.get_context(method)
    shares = [(path, 0, RECORDS // 2), (path, RECORDS // 2, RECORDS)]
    workers = [context.Process(target=read, args=share) for share in shares]
    for worker in workers:
        worker.start()
    read(path, 0, RECORDS // 2)
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
