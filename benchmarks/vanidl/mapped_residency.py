"""Whether `mincore` tells what a program reads of a mapped file: it does not.

Pages of a mapping that are in memory, as `mincore` counts them, before and after a known part of
the file was read through the mapping. The cache of pages belongs to all processes: a page that is
there already does not become resident by being read, and those around one that is read do.

    python benchmarks/vanidl/mapped_residency.py [MIB]

As root it also asks as another user, whom Linux since 5.2 tells nothing of files that he may not
write: every page looks resident.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

NOBODY = 65534


def resident(mapping: mmap.mmap) -> int:
    """Bytes of the mapping that `mincore` says are in memory."""
    pages = -(-len(mapping) // mmap.PAGESIZE)
    states = (ctypes.c_ubyte * pages)()
    address = np.frombuffer(mapping, np.uint8).ctypes.data
    library = ctypes.CDLL(None, use_errno=True)
    if library.mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(mapping)), states):
        raise OSError(ctypes.get_errno(), "mincore")
    return int((np.frombuffer(states, np.uint8) & 1).sum()) * mmap.PAGESIZE


def became_resident(path: Path, nbytes: int, *, cached: bool) -> tuple[int, int]:
    """Bytes that were resident before, and became so while the first ones were read."""
    with path.open("rb") as file:
        if not cached:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        before = resident(mapping)
        for place in range(0, nbytes, mmap.PAGESIZE):
            mapping[place]
        return before, resident(mapping) - before


def as_another_user(path: Path) -> None:
    """What somebody sees of the file who may only read it."""
    child = os.fork()
    if not child:
        os.setuid(NOBODY)
        before, _ = became_resident(path, 1, cached=False)
        print(f"{'asked by another user':<34}{before:>14,} resident before anything was read")
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)


def main() -> None:
    """Prints a line for each case."""
    size = int(sys.argv[1] if len(sys.argv) > 1 else 64) << 20
    with tempfile.TemporaryDirectory(dir=".") as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "data"
        path.write_bytes(os.urandom(size))
        path.chmod(0o644)
        with path.open("rb") as file:
            os.fsync(file.fileno())
        print(f"{'':<34}{'bytes read':>14}{'became resident':>18}")
        for name, nbytes, cached in (
            ("one byte, not in memory", 1, False),
            ("a quarter, not in memory", size // 4, False),
            ("all of it, not in memory", size, False),
            ("all of it, in memory already", size, True),
        ):
            _, became = became_resident(path, nbytes, cached=cached)
            print(f"{name:<34}{nbytes:>14,}{became:>18,}")
        if os.getuid() == 0:
            as_another_user(path)


if __name__ == "__main__":
    main()
