"""One rank of the tests in test_ranks.py: goes through cases and says what it saw in each."""

from __future__ import annotations

import gc
import json
import sys
import zlib

from vanidl_loaders.data.samples import open_samples
from vanidl_loaders.errors import LoadersError
from vanidl_loaders.loader.loader import Settings
from vanidl_loaders.ranks.messages import launched_transport
from vanidl_loaders.ranks.world import World
from vanidl_loaders.spatial import Division, RawFile
from vanidl_loaders.spatial.dataset import SlabDataset
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


if __name__ == "__main__":
    for case, (what, config) in json.loads(sys.argv[1]).items():
        found = {"load": load, "block": block}[what](*config)
        sys.stdout.write(json.dumps({"case": case} | found) + "\n")
        sys.stdout.flush()
    gc.freeze()  # what imports made is not looked through at exit
