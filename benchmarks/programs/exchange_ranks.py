"""One rank of benchmarks/loaders/exchange.py: goes through all epochs, writes JSON to a file."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vanidl_loaders.data.samples import open_samples

BATCH, EPOCHS = 16, 3


def run_rank(name: str, options: dict[str, Any], compute_s: float, data: str, out: str) -> None:
    """Trains for `compute_s` seconds per sample, in step with the other ranks."""
    import torch

    torch.set_num_threads(1)
    from torch import distributed

    from vanidl_loaders.loader.loader import Settings
    from vanidl_loaders.loader.registry import open_loader
    from vanidl_loaders.ranks.messages import process_group
    from vanidl_loaders.ranks.world import World

    samples, world = open_samples(data), World.detect()
    begins, sizes = list[int](), list[list[int]]()
    with process_group(world):
        loader = open_loader(name, samples, Settings(world, BATCH, EPOCHS), options)
        for epoch in range(EPOCHS):
            distributed.barrier()
            begins.append(time.time_ns())
            sizes.append([])
            loader.set_epoch(epoch)
            for batch in loader:
                sizes[-1].append(len(batch["sample"]))
                time.sleep(compute_s * sizes[-1][-1])
                distributed.all_reduce(torch.zeros(1))
        distributed.barrier()
        begins.append(time.time_ns())
        found = {"begins": begins, "sizes": sizes, "stats": asdict(loader.stats())}
        loader.close()
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    run_rank(*json.loads(sys.argv[1]))
