"""One rank of benchmarks/loaders/spatial.py: loads every sample once, in one read mode."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from vanidl_loaders.data.samples import SampleSet, open_samples
from vanidl_loaders.loader.loader import Settings
from vanidl_loaders.ranks.messages import Transport, launched_transport
from vanidl_loaders.ranks.world import World
from vanidl_loaders.spatial import Division
from vanidl_loaders.spatial.loader import SpatialLoader, SpatialSettings

_HELD = 4  # blocks of a rank that lie in memory at the same time, at most


def main() -> None:
    """Prints the seconds of each sample, from all ready to all done, and what was read."""
    folder, grid, read_mode = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    transport, samples = launched_transport(World.detect()), open_samples(folder)
    division, seconds, nbytes = Division(tuple(grid)), list[float](), 0
    loads = h5py_slabs if read_mode == "h5py" else blocks
    stream = loads(samples, division, read_mode, transport)
    touch(_HELD * max(field.nbytes for field in samples.fields) // division.parts)
    for _ in range(len(samples)):
        transport.gather("")
        begin = time.perf_counter()
        nbytes += next(stream)
        transport.gather("")
        seconds.append(time.perf_counter() - begin)
    said = {"rank": transport.world.rank, "seconds": seconds, "nbytes": nbytes}
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()
    transport.close()


def touch(nbytes: int) -> None:
    """Has the system lend so much memory once, so that no sample is timed with that.

    Memory that a virtual machine's host has not lent before takes 3 ms a megabyte, ten times the
    reads; a loader that keeps batches takes some in its first samples, h5py's arrays do in one.
    """
    np.ones(nbytes, np.uint8)


def blocks(
    samples: SampleSet, division: Division, read_mode: str, transport: Transport
) -> Iterator[int]:
    """Bytes of each block through this package's loader; nothing is read ahead."""
    spatial = SpatialSettings(division, read_mode=read_mode, ahead=0)
    loader = SpatialLoader(samples, Settings(transport.world, 1, shuffle=False), spatial, transport)
    before = 0
    for _ in loader:
        total = loader.stats().nbytes
        yield total - before
        before = total


def h5py_slabs(
    samples: SampleSet, division: Division, _read_mode: str, transport: Transport
) -> Iterator[int]:
    """The same through h5py, as anyone would write it."""
    import h5py

    for sample in range(len(samples)):
        array: Any = None
        with h5py.File(samples.path(sample)) as file:
            box = division.block(file["counts"].shape, transport.world.rank % division.parts)
            array = file["counts"][tuple(slice(*each) for each in box)]
        yield array.nbytes


if __name__ == "__main__":
    main()
