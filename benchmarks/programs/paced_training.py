"""A training job whose steps take a given time on a device that is only waited for.

    python benchmarks/programs/paced_training.py DATA LOADER COMPUTE_S [OPTION=VALUE ...]

So that what differs between two runs is their input: no core computes for the model. Options are
`workers`, `batch`, `epochs`, and the loader's own; besides the loaders of `vanidl_loaders` there
are those that read in threads (`loaders_of_threads`). Several ranks (torchrun, mpiexec) end each
step together, by an all-reduce of one number. Profiler trace as VANIDL_RUN says; with `first=1`
the profiler warms up on a step of nothing, so that the first batch is in the trace, too.
"""

from __future__ import annotations

import ast
import sys
import time
from pathlib import Path

import torch
import torch.distributed
from loaders_of_threads import PACKAGES, ThreadLoader

from vanidl_loaders.data.samples import SampleSet, open_samples
from vanidl_loaders.loader.loader import Loader, Settings
from vanidl_loaders.loader.registry import open_loader
from vanidl_loaders.ranks.messages import process_group
from vanidl_loaders.ranks.world import World
from vanidl_loaders.training import Places, open_recorder

OWN = ("workers", "batch", "epochs")


def main() -> None:
    """Goes through all epochs."""
    torch.set_num_threads(1)
    data, name, compute_s, *rest = sys.argv[1:]
    options = {k: ast.literal_eval(v) for k, v in (pair.split("=", 1) for pair in rest)}
    own = {k: options.pop(k) for k in OWN if k in options}
    first = bool(options.pop("first", 0))
    settings = Settings(world=World.detect(), **own)
    samples = open_samples(Path(data))
    loader = _loader(name, samples, settings, options)
    try:
        with process_group(settings.world):
            train(loader, settings, float(compute_s), warm_up=first)
    finally:
        loader.close()


def _loader(
    name: str, samples: SampleSet, settings: Settings, options: dict[str, object]
) -> Loader | ThreadLoader:
    if name in PACKAGES:
        return ThreadLoader(name, samples, settings)
    return open_loader(name, samples, settings, options)


def train(
    loader: Loader | ThreadLoader, settings: Settings, compute_s: float, *, warm_up: bool
) -> None:
    """Steps of all epochs, recorded."""
    done, together = 0, torch.zeros(1)
    with open_recorder(
        Places.from_environment(), settings.world, steps=settings.epochs * len(loader) + warm_up
    ) as record:
        if warm_up:
            record.step(done, 0.0)
        for epoch in range(settings.epochs):
            loader.set_epoch(epoch)
            for _ in loader:
                time.sleep(compute_s)
                if settings.world.ranks > 1:
                    torch.distributed.all_reduce(together)
                done += 1
                record.step(done, 0.0)


if __name__ == "__main__":
    main()
