"""One rank of the tests in test_ranks.py: goes through cases and says what it saw in each."""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import os
import sys
import zlib
from pathlib import Path

import numpy as np

from vanidl_loaders.data.samples import open_samples
from vanidl_loaders.errors import LoadersError
from vanidl_loaders.loader.loader import Settings
from vanidl_loaders.ranks.messages import launched_transport
from vanidl_loaders.ranks.world import World
from vanidl_loaders.spatial import Division, RawFile
from vanidl_loaders.spatial.dataset import SlabDataset
from vanidl_loaders.spatial.layouts import Contiguous, open_boxes_by_mpi
from vanidl_loaders.spatial.loader import SpatialLoader, SpatialSettings


def load(folders, grid, options, batch, epochs):
    """Batches through a loader; what each rank saw, checked by checksum."""
    world = World.detect()
    samples = open_samples(folders[min(world.rank, len(folders) - 1)])
    spatial = SpatialSettings(Division(tuple(grid)), **options)
    loader = SpatialLoader(samples, Settings(world, batch, epochs), spatial)
    seen, failed = {}, None
    try:
        for epoch in range(epochs):
            loader.set_epoch(epoch)
            for each in loader:
                for sample, block in zip(each["sample"].tolist(), each["counts"], strict=True):
                    seen[sample] = zlib.crc32(block.numpy().tobytes())
    except LoadersError as error:
        failed = str(error)
    stats = loader.stats()
    loader.close()
    say = {"rank": world.rank, "seen": seen, "failed": failed, "mpi": world.source == "mpi"}
    say |= {"nbytes": stats.nbytes, "loads": stats.loads, "received": stats.received}
    say |= {"hits": stats.hits, "steps": stats.steps, "requests": stats.requests}
    return say


def block(path, shape, dtype, grid, read_mode):
    """One block of a raw file; a checksum of it."""
    transport = launched_transport(World.detect())
    raw = RawFile(path, tuple(shape), dtype)
    dataset = SlabDataset([raw], "x", Division(tuple(grid)), transport, read_mode=read_mode)
    found, failed = 0, None
    try:
        found = zlib.crc32(dataset[0].numpy())
    except LoadersError as error:
        failed = str(error)
    say = {"rank": transport.world.rank, "checksum": found, "failed": failed}
    transport.close()
    return say | {"nbytes": dataset.stats().nbytes}


def large(path, nbytes):
    """One read of so many bytes by MPI; those around 2 GiB and the last ones."""
    out = folded(nbytes)
    layout = Contiguous(Path(path), 0, (nbytes,), np.dtype(np.uint8))
    with open_boxes_by_mpi(layout.path) as fill:
        totals = fill(layout, ((0, nbytes),), out)
    say = {"rank": World.detect().rank, "nbytes": totals.nbytes}
    return say | {"at_2_gib": int(out[(1 << 31) - 1]), "last": out[-7:].tolist()}


def folded(nbytes, fold=1 << 24):
    """An array in 16 MiB of memory, in which every 16 MiB of it lie: the last that are written.

    To touch 2 GiB for the first time takes 5 s where a virtual machine's host lends them.
    """
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    memory, protection, fixed = os.memfd_create("fold"), mmap.PROT_READ | mmap.PROT_WRITE, 0x10
    os.truncate(memory, fold)
    whole = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, protection)
    out = np.frombuffer(whole, np.uint8)
    for at in range(out.ctypes.data, out.ctypes.data + nbytes, fold):
        taken = min(fold, out.ctypes.data + nbytes - at)
        assert library.mmap(at, taken, protection, mmap.MAP_SHARED | fixed, memory, 0) == at
    return out


if __name__ == "__main__":
    for case, (what, config) in json.loads(sys.argv[1]).items():
        found = {"load": load, "block": block, "large": large}[what](*config)
        sys.stdout.write(json.dumps({"case": case} | found) + "\n")
        sys.stdout.flush()
    gc.freeze()  # what imports made is not looked through at exit
