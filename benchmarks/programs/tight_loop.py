"""Cached 4 KiB reads of one file and nothing else: python tight_loop.py DATA READS."""

from __future__ import annotations

import os
import sys

NBYTES = 4096


def read(path: str, reads: int) -> None:
    """Reads the first 4 KiB of each of 256 places in turn."""
    descriptor = os.open(path, os.O_RDONLY)
    for i in range(reads):
        os.pread(descriptor, NBYTES, (i % 256) * NBYTES)
    os.close(descriptor)


if __name__ == "__main__":
    read(sys.argv[1], int(sys.argv[2]))
